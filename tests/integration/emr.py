"""EMR clusters of booted machines: their settings, and clusters with another bootstrap action."""

from __future__ import annotations

import gzip
from typing import Any

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster

# EMR takes images of Amazon Linux alone. In the local cloud it boots the built image that has PyTorch.
SETTINGS: dict[str, Any] = {
    "image": "oss-nvidia-driver-gpu-pytorch-2.9-amazon-linux-2023",
    "root_volume_gib": 100,
    "instance_type": "m5.xlarge",
    "login_user": "",
}


def readable_bucket(cluster: str) -> str:
    """Return the name of a bucket that the members of the shared cluster may read."""
    return f"{cluster}-data"


def own_bucket(cluster: Cluster) -> str:
    return next(name for name in bucket_names(cluster) if name.startswith(f"{cluster.name}-"))


def run_job_flow(cluster: Cluster, name: str, script: str, *arguments: str) -> str:
    """Start a cluster as the cluster's own, with another bootstrap action."""
    emr = cluster.cloud.client("emr")
    own = emr.describe_cluster(ClusterId=job_flow(cluster))["Cluster"]
    bucket = own_bucket(cluster)
    cluster.cloud.client("s3").put_object(Bucket=bucket, Key=f"bundles/{name}", Body=script.encode())
    network = own["Ec2InstanceAttributes"]
    groups = [("MASTER", 1), ("CORE", 2)]
    started = emr.run_job_flow(
        Name=name,
        ReleaseLabel=own["ReleaseLabel"],
        LogUri=own["LogUri"],
        ServiceRole=own["ServiceRole"],
        JobFlowRole=network["IamInstanceProfile"],
        CustomAmiId=own["CustomAmiId"],
        EbsRootVolumeSize=own["EbsRootVolumeSize"],
        Tags=own["Tags"],
        Instances={
            "InstanceGroups": [
                {"InstanceRole": role, "InstanceType": "m5.xlarge", "InstanceCount": count} for role, count in groups
            ],
            "Ec2SubnetId": network["Ec2SubnetId"],
            "KeepJobFlowAliveWhenNoSteps": True,
            "EmrManagedMasterSecurityGroup": network["EmrManagedMasterSecurityGroup"],
            "EmrManagedSlaveSecurityGroup": network["EmrManagedSlaveSecurityGroup"],
            "AdditionalMasterSecurityGroups": network["AdditionalMasterSecurityGroups"],
            "AdditionalSlaveSecurityGroups": network["AdditionalSlaveSecurityGroups"],
        },
        BootstrapActions=[
            {
                "Name": name,
                "ScriptBootstrapAction": {"Path": f"s3://{bucket}/bundles/{name}", "Args": list(arguments)},
            }
        ],
    )
    return str(started["JobFlowId"])


def bucket_names(cluster: Cluster) -> list[str]:
    return [str(bucket["Name"]) for bucket in cluster.cloud.client("s3").list_buckets()["Buckets"]]


def job_flow(cluster: Cluster) -> str:
    (machine, *_) = cluster.machines().values()
    tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
    return str(tags["aws:elasticmapreduce:job-flow-id"])


def state_of(cluster: Cluster, flow: str) -> dict[str, Any]:
    status: dict[str, Any] = cluster.cloud.client("emr").describe_cluster(ClusterId=flow)["Cluster"]["Status"]
    return status


def logs_of(cluster: Cluster, flow: str, stream: str) -> list[str]:
    """Return what the bootstrap action printed to stdout or stderr on each node, as EMR stored it."""
    s3 = cluster.cloud.client("s3")
    bucket = own_bucket(cluster)
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    logs = [key for key in keys if flow in key and stream in key]
    return [gzip.decompress(s3.get_object(Bucket=bucket, Key=key)["Body"].read()).decode() for key in logs]


def end_of_bootstrap(cluster: Cluster, flow: str, seconds: float) -> dict[str, Any]:
    """Wait until the bootstrap action has ended. Return the cluster's status."""
    starting = ("STARTING", "BOOTSTRAPPING")
    wait_for(lambda: state_of(cluster, flow)["State"] not in starting, seconds, "the bootstrap action has ended")
    return state_of(cluster, flow)
