"""The facts of an account in which nothing is wrong."""

from __future__ import annotations

from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, ImageFacts

TYPE = {
    "name": "g5.xlarge",
    "vcpus": 4,
    "gpus": 1,
    "gpu_name": "A10G",
    "gpu_maker": "NVIDIA",
    "efa_cards": [],
    "instance_store_gib": 0,
    "placement": True,
    "spot": True,
    "architectures": ["x86_64"],
}
IMAGE = {
    "ImageId": "ami-1",
    "Name": "Deep Learning AMI (Ubuntu 22.04)",
    "State": "available",
    "Architecture": "x86_64",
    "RootDeviceName": "/dev/sda1",
    "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}],
}
ZONES = ("us-east-1a", "us-east-1b")
FACTS = AccountFacts(
    region="us-east-1",
    account="123456789012",
    partition="aws",
    groups=[],
    emr_clusters=[],
    emr=None,
    types={"g5.xlarge": TYPE},
    offered_types=[],
    image=ImageFacts("ami-1", described=[IMAGE]),
    quotas={"L-DB2E81BA": {"QuotaName": "G and VT", "QuotaCode": "L-DB2E81BA", "Value": 64.0}},
    other_instances=[],
    vpcs=[],
    subnets=None,
    route_tables=None,
    endpoints=None,
    file_systems=[],
    mount_targets=None,
    security_groups=None,
    zones=[{"ZoneName": zone} for zone in ZONES],
    offers=[{"InstanceType": "g5.xlarge", "Location": zone} for zone in ZONES],
    key_pairs=[{"KeyName": "my-key"}],
    failures=(),
)
