"""RunInstances: what is refused, in whose words, and what comes of what is not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from localcloud.api.ec2 import images
from localcloud.api.ec2.lifecycle import machine_exited, machine_started
from localcloud.api.ec2.views import find_instance
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, USER, Ec2, Recorder

NOWHERE = "subnet-0123456789abcdef0"
EFA = {"DeviceIndex": 0, "InterfaceType": "efa"}


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({"InstanceType": "t3.mikro"}, "InvalidParameterValue", "'t3.mikro' for InstanceType"),
        ({"InstanceType": "t4g.micro"}, "InvalidParameterValue", "does not match the architecture"),
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound", "ami-0123456789abcdef0"),
        ({"ImageId": "debian"}, "InvalidAMIID.Malformed", 'Invalid id: "debian"'),
        ({"ImageId": None}, "MissingParameter", "ImageId"),
        ({"SubnetId": NOWHERE}, "InvalidSubnetID.NotFound", NOWHERE),
        ({"KeyName": "missing"}, "InvalidKeyPair.NotFound", "'missing'"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound", "sg-0123456789abcdef0"),
        ({"SecurityGroups": ["default"]}, "UnsupportedOperation", "SecurityGroups"),
        ({"IamInstanceProfile": {"Name": "none"}}, "InvalidParameterValue", "Invalid IAM Instance Profile name"),
        ({"IamInstanceProfile": {"Arn": "arn:x"}}, "InvalidParameterValue", "Invalid IAM Instance Profile ARN"),
        ({"Placement": {"GroupName": "none"}}, "InvalidPlacementGroup.Unknown", "'none'"),
        ({"Placement": {"AvailabilityZone": "us-east-1z"}}, "InvalidParameterValue", "us-east-1z"),
        ({"MinCount": 0, "MaxCount": 0, "ClientToken": ""}, None, ""),
        ({"MinCount": 3, "MaxCount": 2}, "InvalidParameterCombination", "minCount"),
        ({"UserData": "a"}, "InvalidUserData.Malformed", "BASE64"),
        ({"UserData": base64.b64encode(b"x" * 16385).decode()}, "InvalidParameterValue", "16384"),
        ({"MetadataOptions": {"HttpTokens": "perhaps"}}, "InvalidParameterValue", "perhaps"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue", "65"),
        ({"InstanceInitiatedShutdownBehavior": "explode"}, "InvalidParameterValue", "explode"),
        ({"PrivateIpAddress": "172.31.0.9"}, "UnsupportedOperation", "PrivateIpAddress"),
        ({"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1"}]}, "UnsupportedOperation", "NetworkInterfaceId"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0}], "SubnetId": NOWHERE}, "InvalidParameterCombination", "subnet ID"),
        ({"NetworkInterfaces": [{"DeviceIndex": 1}]}, "InvalidParameterCombination", "primary"),
        ({"NetworkInterfaces": [EFA]}, "InvalidParameterCombination", "EFA"),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}, {"DeviceIndex": 1}]},
            "InvalidParameterCombination",
            "multiple network interfaces",
        ),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 1}}]},
            "InvalidBlockDeviceMapping",
            "smaller",
        ),
        (
            {
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "aws:autoscaling:groupName", "Value": "y"}]}
                ]
            },
            "InvalidParameterValue",
            "reserved",
        ),
        ({"TagSpecifications": [{"ResourceType": "moon", "Tags": []}]}, "InvalidParameterValue", "moon"),
        (
            {"LaunchTemplate": {"LaunchTemplateName": "none"}},
            "InvalidLaunchTemplateName.NotFoundException",
            "does not exist",
        ),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-0"}}, "InvalidLaunchTemplateId.NotFound", "lt-0"),
        ({"DryRun": True}, "DryRunOperation", "would have succeeded"),
    ],
)
def test_what_is_refused_makes_nothing(
    ec2: Ec2, machines: Recorder, params: dict[str, Any], code: str | None, words: str
) -> None:
    asked = {"ImageId": images.BASE.id, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, **params}
    if code is None:
        # Zero means that nothing was said.
        assert len(ec2("RunInstances", **asked)["Instances"]) == 1
        return
    with ec2.refused(code, words):
        ec2("RunInstances", **asked)
    assert ec2("DescribeInstances")["Reservations"] == []
    assert ec2("DescribeNetworkInterfaces")["NetworkInterfaces"] == []
    assert ec2("DescribeVolumes")["Volumes"] == []
    assert machines.calls == []


def test_a_type_that_the_zone_does_not_offer(ec2: Ec2) -> None:
    _, subnet = ec2.subnet(zone=f"{REGION}e")
    with ec2.refused("Unsupported", "(p4d.24xlarge) is not supported in your requested Availability Zone (us-east-1e)"):
        ec2.run(InstanceType="p4d.24xlarge", SubnetId=subnet)


def test_a_group_of_another_network(ec2: Ec2) -> None:
    vpc, _ = ec2.subnet()
    _, other = ec2.subnet()
    group = ec2("CreateSecurityGroup", GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    with ec2.refused("InvalidParameter", "different networks"):
        ec2.run(SubnetId=other, SecurityGroupIds=[group])


def test_addresses_start_at_four_the_lowest_free_first(ec2: Ec2, cloud: Cloud) -> None:
    _, subnet = ec2.subnet("10.0.0.0/28")
    first = ec2.run(SubnetId=subnet, MaxCount=3, boots_nothing=True)["Instances"]
    assert [instance["PrivateIpAddress"] for instance in first] == ["10.0.0.4", "10.0.0.5", "10.0.0.6"]
    assert first[0]["PrivateDnsName"] == "ip-10-0-0-4.ec2.internal"
    ec2("TerminateInstances", InstanceIds=[first[1]["InstanceId"]])
    machine_exited(cloud, first[1]["InstanceId"], "destroyed")
    assert ec2.run(SubnetId=subnet)["Instances"][0]["PrivateIpAddress"] == "10.0.0.5"
    assert ec2("DescribeSubnets", SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"] == 8
    with ec2.refused("InsufficientFreeAddressesInSubnet"):
        ec2.run(SubnetId=subnet, MinCount=9, MaxCount=9)
    assert len(ec2.run(SubnetId=subnet, MinCount=2, MaxCount=20)["Instances"]) == 8
    with ec2.refused("InsufficientFreeAddressesInSubnet", subnet):
        ec2.run(SubnetId=subnet)


@pytest.mark.parametrize(
    ("left", "least", "most", "launched"), [(5, 1, 3, 3), (2, 1, 3, 2), (2, 3, 3, None), (0, 1, 1, None)]
)
def test_as_many_as_there_is_capacity_for(
    ec2: Ec2, cloud: Cloud, left: int, least: int, most: int, launched: int | None
) -> None:
    cloud.faults.add("capacity", {"type": "t3.micro", "zone": f"{REGION}a"}, left)
    _, subnet = ec2.subnet()
    if launched is None:
        words = "sufficient t3.micro capacity in the Availability Zone you requested (us-east-1a)"
        with ec2.refused("InsufficientInstanceCapacity", words):
            ec2.run(SubnetId=subnet, MinCount=least, MaxCount=most)
        return
    assert len(ec2.run(SubnetId=subnet, MinCount=least, MaxCount=most)["Instances"]) == launched
    assert cloud.faults.capacity_left("t3.micro", f"{REGION}a") == left - launched


def test_a_zone_without_capacity_points_to_the_others(ec2: Ec2, cloud: Cloud) -> None:
    cloud.faults.add("capacity", {"zone": f"{REGION}[acdef]"}, 0)
    _, subnet = ec2.subnet()
    with ec2.refused("InsufficientInstanceCapacity", "or choosing us-east-1b."):
        ec2.run(SubnetId=subnet)


def test_quota_counts_vcpus_of_what_runs(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    cloud.faults.add("quota", {"code": "L-DB2E81BA"}, 8)
    first = ec2.run(InstanceType="g5.xlarge", MaxCount=5)["Instances"]
    assert len(first) == 2
    with ec2.refused("VcpuLimitExceeded", "current vCPU limit of 8"):
        ec2.run(InstanceType="g5.xlarge")
    assert len(ec2.run(InstanceType="c5.large")["Instances"]) == 1
    machine_started(cloud, first[0]["InstanceId"])
    ec2.terminated(first[0])
    assert len(ec2.run(InstanceType="g4dn.xlarge")["Instances"]) == 1


def profile(ec2: Ec2) -> str:
    iam: dict[str, Any] = {"service": "iam"}
    trust = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",'
        ' "Principal": {"Service": "ec2.amazonaws.com"}}]}'
    )
    ec2("CreateRole", RoleName="worker", AssumeRolePolicyDocument=trust, **iam)
    made = ec2("CreateInstanceProfile", InstanceProfileName="workers", **iam)["InstanceProfile"]
    ec2("AddRoleToInstanceProfile", InstanceProfileName="workers", RoleName="worker", **iam)
    return str(made["Arn"])


def test_a_new_profile_takes_effect_late(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    cloud.faults.add("late-iam", {}, 30.0)
    arn = profile(ec2)
    clock.advance(29)
    for named in ({"Name": "workers"}, {"Arn": arn}):
        with ec2.refused("InvalidParameterValue", "Invalid IAM Instance Profile"):
            ec2.run(IamInstanceProfile=named)
    clock.advance(1)
    instance = ec2.run(IamInstanceProfile={"Name": "workers"})["Instances"][0]
    assert instance["IamInstanceProfile"]["Arn"] == arn
    view = find_instance(cloud, instance["InstanceId"])
    assert view and (view.profile_arn, view.role_name) == (arn, "worker")


def test_a_launch_template_in_all_its_parts(ec2: Ec2, cloud: Cloud, machines: Recorder) -> None:
    arn = profile(ec2)
    vpc, subnet = ec2.subnet()
    group = ec2("CreateSecurityGroup", GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    ec2("CreatePlacementGroup", GroupName="close", Strategy="cluster")
    user_data = b"#!/bin/sh\necho hello\n"
    data = {
        "ImageId": images.BASE.id,
        "InstanceType": "c5.large",
        "UserData": base64.b64encode(user_data).decode(),
        "IamInstanceProfile": {"Arn": arn},
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [group], "AssociatePublicIpAddress": True}],
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "Placement": {"GroupName": "close"},
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 50, "VolumeType": "gp3", "Encrypted": True}}
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": "of", "Value": kind}, {"Key": "who", "Value": "template"}]}
            for kind in ("instance", "volume", "network-interface")
        ],
    }
    ec2("CreateLaunchTemplate", LaunchTemplateName="worker", LaunchTemplateData=data)
    params: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": "worker", "Version": "$Latest"},
        "SubnetId": subnet,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "who", "Value": "request"}]}],
    }
    # A subnet next to network interfaces is refused: Auto Scaling puts its subnet into them.
    with ec2.refused("InvalidParameterCombination"):
        ec2("RunInstances", **params)
    del params["SubnetId"]
    params["NetworkInterfaces"] = [{**interface, "SubnetId": subnet} for interface in data["NetworkInterfaces"]]
    caller = Caller.service("autoscaling.amazonaws.com")
    answer = cloud.ask("ec2", "RunInstances", REGION, params, caller)
    instance = ec2.describe(answer["Instances"][0])
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["aws:ec2launchtemplate:version"] == "1"
    assert (tags["of"], tags["who"]) == ("instance", "request")
    assert (instance["SubnetId"], instance["InstanceType"]) == (subnet, "c5.large")
    assert instance["IamInstanceProfile"]["Arn"] == arn
    assert instance["Placement"]["GroupName"] == "close"
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [group]
    assert instance["PublicIpAddress"].startswith("198.51.100.")
    [mapping] = instance["BlockDeviceMappings"]
    [volume] = ec2("DescribeVolumes", VolumeIds=[mapping["Ebs"]["VolumeId"]])["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"], volume["Iops"]) == (50, "gp3", True, 3000)
    for resource, kind in (
        (volume["VolumeId"], "volume"),
        (instance["NetworkInterfaces"][0]["NetworkInterfaceId"], "network-interface"),
    ):
        assert ec2.tags_of(resource) == {"of": kind, "who": "template"}
    [view] = machines.views
    assert view == find_instance(cloud, instance["InstanceId"])
    assert (view.user_data, view.http_tokens, view.hop_limit, view.role_name) == (user_data, "required", 2, "worker")


def test_versions_of_a_template(ec2: Ec2) -> None:
    for kind in ("t3.micro", "t3.small", "t3.medium"):
        data = {"ImageId": images.BASE.id, "InstanceType": kind}
        if kind == "t3.micro":
            ec2("CreateLaunchTemplate", LaunchTemplateName="versions", LaunchTemplateData=data)
        else:
            ec2("CreateLaunchTemplateVersion", LaunchTemplateName="versions", LaunchTemplateData=data)

    def launched(**version: str) -> str:
        template = {"LaunchTemplateName": "versions", **version}
        return str(ec2.run(LaunchTemplate=template)["Instances"][0]["InstanceType"])

    assert launched() == "t3.micro"
    ec2("ModifyLaunchTemplate", LaunchTemplateName="versions", DefaultVersion="2")
    assert [launched(Version=version) for version in ("1", "$Default", "$Latest")] == [
        "t3.micro",
        "t3.small",
        "t3.medium",
    ]
    with ec2.refused("InvalidLaunchTemplateId.VersionNotFound"):
        launched(Version="4")
    made = ec2(
        "CreateLaunchTemplateVersion",
        LaunchTemplateName="versions",
        SourceVersion="2",
        LaunchTemplateData={"KeyName": "k"},
    )
    assert made["LaunchTemplateVersion"]["VersionNumber"] == 4
    assert made["LaunchTemplateVersion"]["LaunchTemplateData"]["InstanceType"] == "t3.small"
    listed = ec2("DescribeLaunchTemplateVersions", LaunchTemplateName="versions")["LaunchTemplateVersions"]
    assert [(item["VersionNumber"], item["DefaultVersion"]) for item in listed] == [
        (4, False),
        (3, False),
        (2, True),
        (1, False),
    ]


def test_a_repeated_call_with_the_same_token_launches_nothing_more(ec2: Ec2, machines: Recorder) -> None:
    first = ec2.run(ClientToken="once")
    again = ec2.run(ClientToken="once")
    assert first["ReservationId"] == again["ReservationId"]
    assert len(machines.calls) == 1


def test_network_cards(ec2: Ec2) -> None:
    _, subnet = ec2.subnet()
    interfaces = [
        {
            "DeviceIndex": 0 if card == 0 else 1,
            "NetworkCardIndex": card,
            "InterfaceType": "efa" if card == 0 else "efa-only",
            "SubnetId": subnet,
        }
        for card in range(4)
    ]
    instance = ec2.run(InstanceType="p4d.24xlarge", NetworkInterfaces=interfaces)["Instances"][0]
    shown = [
        (card["Attachment"]["NetworkCardIndex"], card["Attachment"]["DeviceIndex"])
        for card in instance["NetworkInterfaces"]
    ]
    assert shown == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert len({card["MacAddress"] for card in instance["NetworkInterfaces"]}) == 4
    with ec2.refused("InvalidParameterValue", "Network card index 4"):
        ec2.run(InstanceType="p4d.24xlarge", NetworkInterfaces=[*interfaces, {**interfaces[3], "NetworkCardIndex": 4}])


def interface(card: int, device: int, kind: str = "interface") -> dict[str, Any]:
    return {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind}


@pytest.mark.parametrize(
    ("kind", "interfaces", "code", "words"),
    [
        ("t3.micro", [interface(0, 0), interface(1, 1)], "InvalidParameterValue", "Network card index 1"),
        ("g5.xlarge", [interface(0, 0, "efa")], "InvalidParameterCombination", "not supported on g5.xlarge"),
        ("g5.12xlarge", [interface(0, 0, "efa"), interface(0, 1, "efa")], "AttachmentLimitExceeded", "count 2"),
        ("p4d.24xlarge", [interface(0, 0, "efa"), interface(0, 1, "efa")], "AttachmentLimitExceeded", "only one EFA"),
        ("p4d.24xlarge", [interface(0, 0), interface(1, 1), interface(1, 1)], "InvalidParameterValue", "unique device"),
        ("p5.48xlarge", [interface(0, 0), *(interface(1, index) for index in (1, 2, 3))], "AttachmentLimitExceeded",
         "Interface count 3 exceeds the limit for network card 1"),
        ("p6-b300.48xlarge", [interface(0, 0, "efa")], "InvalidParameterCombination", "network card 0"),
        ("i7ie.48xlarge", [interface(0, 0), interface(1, 1, "efa")], "InvalidParameterCombination", "network card 1"),
        ("p4d.24xlarge", [interface(0, 0, "efa-only")], "InvalidParameterCombination", "primary"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("from_template", [False, True])
def test_interfaces_that_the_network_cards_of_a_type_cannot_have(
    ec2: Ec2, kind: str, interfaces: list[dict[str, Any]], code: str, words: str, from_template: bool
) -> None:
    data = {"ImageId": images.BASE.id, "InstanceType": kind, "NetworkInterfaces": interfaces}
    if from_template:
        ec2("CreateLaunchTemplate", LaunchTemplateName="wide", LaunchTemplateData=data)
        data = {"LaunchTemplate": {"LaunchTemplateName": "wide"}}
    with ec2.refused(code, words):
        ec2.run(**data)
    assert ec2("DescribeInstances")["Reservations"] == []


def test_a_type_whose_first_card_has_no_efa_has_one_on_each_other(ec2: Ec2) -> None:
    interfaces = [interface(0, 0), *(interface(card, 1, "efa-only") for card in range(1, 17))]
    [instance] = ec2.run(InstanceType="p6-b300.48xlarge", NetworkInterfaces=interfaces)["Instances"]
    assert len(instance["NetworkInterfaces"]) == 17


@pytest.mark.parametrize("made_by", ["CreateKeyPair", "ImportKeyPair"])
def test_the_public_half_of_a_key_reaches_the_machine(ec2: Ec2, machines: Recorder, made_by: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    params: dict[str, Any] = {"KeyName": "k"}
    if made_by == "ImportKeyPair":
        public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        params["PublicKeyMaterial"] = public
    ec2(made_by, **params)
    ec2.run(KeyName="k")
    key = machines.views[0].public_key
    assert key and load_ssh_public_key(key.encode())


def test_placement_groups(ec2: Ec2) -> None:
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "k", "Value": "v"}]}]
    made = ec2("CreatePlacementGroup", GroupName="close", Strategy="cluster", TagSpecifications=tags)["PlacementGroup"]
    with ec2.refused("InvalidPlacementGroup.Duplicate"):
        ec2("CreatePlacementGroup", GroupName="close", Strategy="cluster")
    with ec2.refused("InvalidParameterValue", "no placement groups with strategy spread"):
        ec2("CreatePlacementGroup", GroupName="apart", Strategy="spread")
    with ec2.refused("InvalidParameterCombination", "'t3.micro'"):
        ec2.run(Placement={"GroupName": "close"})
    instance = ec2.running(InstanceType="c5.large", Placement={"GroupName": "close"})
    assert instance["Placement"]["GroupId"] == made["GroupId"]
    with ec2.refused("InvalidPlacementGroup.InUse"):
        ec2("DeletePlacementGroup", GroupName="close")
    [result] = ec2("DescribePlacementGroups", Filters=[{"Name": "tag:k", "Values": ["v"]}])["PlacementGroups"]
    assert (result["State"], result["Strategy"]) == ("available", "cluster")
    ec2.terminated(instance)
    ec2("DeletePlacementGroup", GroupName="close")
    with ec2.refused("InvalidPlacementGroup.Unknown"):
        ec2("DescribePlacementGroups", GroupNames=["close"])
    assert ec2.tags_of(made["GroupId"]) == {}


def test_a_caller_of_another_region_does_not_find_it(ec2: Ec2, cloud: Cloud) -> None:
    instance = ec2.run()["Instances"][0]
    with ec2.refused("InvalidInstanceID.NotFound"):
        ec2("DescribeInstances", region="eu-west-1", InstanceIds=[instance["InstanceId"]])
    far = cloud.ask(
        "ec2",
        "RunInstances",
        "ap-southeast-2",
        {"ImageId": images.BASE.id, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1},
        USER,
    )["Instances"][0]
    assert far["PrivateDnsName"].endswith(".ap-southeast-2.compute.internal")
    assert far["Placement"]["AvailabilityZone"] == "ap-southeast-2a"


def test_a_launch_into_a_capacity_reservation_is_refused(ec2: Ec2) -> None:
    reservation = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}
    with ec2.refused("InvalidCapacityReservationId.NotFound", "cr-0123456789abcdef0"):
        ec2.run(CapacityReservationSpecification=reservation)
    ec2.run(CapacityReservationSpecification={"CapacityReservationPreference": "open"})
