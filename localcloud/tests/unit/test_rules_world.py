"""What the rules ask about the account, out of its real records."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.account import Account
from localcloud.api.autoscaling.regions import Regions
from localcloud.api.ec2.images import API_ONLY, BASE
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.iam.world import Lookup
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import EC2, REGION, allow, document, tagged, tags, trust

IAM = "arn:aws:iam::123456789012:"


class Site:
    """One thing of each kind, tagged with its name."""

    def __init__(self, cloud: Cloud, clock: ManualClock) -> None:
        self.cloud = cloud
        ask = self.ask
        self.vpc = ask("ec2", "CreateVpc", CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc", n="vpc"))["Vpc"][
            "VpcId"
        ]
        self.subnet = ask(
            "ec2", "CreateSubnet", VpcId=self.vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=f"{REGION}b"
        )["Subnet"]["SubnetId"]
        self.group = ask("ec2", "CreateSecurityGroup", GroupName="sg", Description="d", VpcId=self.vpc)["GroupId"]
        self.table = ask("ec2", "CreateRouteTable", VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        self.route = ask("ec2", "AssociateRouteTable", RouteTableId=self.table, SubnetId=self.subnet)["AssociationId"]
        acl = ask("ec2", "DescribeNetworkAcls", Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])["NetworkAcls"][0]
        self.acl = acl["NetworkAclId"]
        self.acl_association = acl["Associations"][0]["NetworkAclAssociationId"]
        key = ask("ec2", "CreateKeyPair", KeyName="mine", TagSpecifications=tagged("key-pair", n="key"))
        self.key = key["KeyPairId"]
        place = ask(
            "ec2",
            "CreatePlacementGroup",
            GroupName="near",
            Strategy="cluster",
            TagSpecifications=tagged("placement-group", n="near"),
        )
        self.place = place["PlacementGroup"]["GroupId"]
        role = {"AssumeRolePolicyDocument": trust({"Service": "ec2.amazonaws.com"})}
        edge = ask("iam", "CreatePolicy", PolicyName="edge", PolicyDocument=document(allow("*")), Tags=tags(n="p"))
        self.edge = edge["Policy"]["Arn"]
        ask("iam", "CreateRole", RoleName="r", Path="/x/", PermissionsBoundary=self.edge, Tags=tags(n="r"), **role)
        ask("iam", "CreateInstanceProfile", InstanceProfileName="p", Tags=tags(n="p"))
        ask("iam", "AddRoleToInstanceProfile", InstanceProfileName="p", RoleName="r")
        ask("iam", "CreateUser", UserName="u", Path="/y/", Tags=tags(n="u"))
        self.data: dict[str, Any] = {
            "ImageId": API_ONLY.id,
            "InstanceType": "c5.large",
            "IamInstanceProfile": {"Name": "p"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "TagSpecifications": tagged("instance", n="i"),
        }
        template = ask("ec2", "CreateLaunchTemplate", LaunchTemplateName="web", LaunchTemplateData=self.data)
        self.template = template["LaunchTemplate"]["LaunchTemplateId"]
        launch = {"LaunchTemplate": {"LaunchTemplateName": "web"}, "SubnetId": self.subnet, "MinCount": 1}
        instance = ask("ec2", "RunInstances", **launch, MaxCount=1, Placement={"GroupName": "near"})["Instances"][0]
        self.instance = instance["InstanceId"]
        self.interface = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
        self.attachment = instance["NetworkInterfaces"][0]["Attachment"]["AttachmentId"]
        clock.advance(5)
        address = ask("ec2", "AllocateAddress", Domain="vpc", TagSpecifications=tagged("elastic-ip", n="a"))
        self.address, self.ip = address["AllocationId"], address["PublicIp"]
        gateway = ask("ec2", "CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
        ask("ec2", "AttachInternetGateway", InternetGatewayId=gateway, VpcId=self.vpc)
        self.gateway = gateway
        edge_table = ask("ec2", "CreateRouteTable", VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        edge_route = ask("ec2", "AssociateRouteTable", RouteTableId=edge_table, GatewayId=gateway)
        self.edge_route = edge_route["AssociationId"]
        self.address_association = ask(
            "ec2", "AssociateAddress", AllocationId=self.address, NetworkInterfaceId=self.interface
        )["AssociationId"]
        files = ask("efs", "CreateFileSystem", CreationToken="one", Tags=tags(n="fs"))
        self.files, self.files_arn = files["FileSystemId"], files["FileSystemArn"]
        clock.advance(1)
        target = ask("efs", "CreateMountTarget", FileSystemId=self.files, SubnetId=self.subnet)
        self.target, self.target_interface = target["MountTargetId"], target["NetworkInterfaceId"]
        ask(
            "autoscaling",
            "CreateAutoScalingGroup",
            AutoScalingGroupName="nodes",
            MinSize=1,
            MaxSize=1,
            LaunchTemplate={"LaunchTemplateId": self.template},
            VPCZoneIdentifier=self.subnet,
            Tags=[{"Key": "n", "Value": "asg", "PropagateAtLaunch": False}],
        )
        clock.advance(5)
        [group] = ask("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        self.nodes, self.node = group["AutoScalingGroupARN"], group["Instances"][0]["InstanceId"]
        ask("s3", "CreateBucket", Bucket="bucket-1")
        ask("s3", "PutBucketTagging", Bucket="bucket-1", Tagging={"TagSet": tags(n="b")})
        ask("s3", "PutObject", Bucket="bucket-1", Key="a/b", Body=b"", Tagging="n=o")
        ask("ssm", "PutParameter", Name="/c/d", Value="1", Type="String", Tags=tags(n="s"))

    def ask(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        return self.cloud.ask(service, operation, REGION, params, Caller.service("test"))


@pytest.fixture
def site(cloud: Cloud, clock: ManualClock) -> Site:
    return Site(cloud, clock)


def test_what_names_and_connections_mean(cloud: Cloud, site: Site) -> None:
    world = Account(cloud)
    known: dict[tuple[Lookup, str], str] = {
        ("launch-template-name", "web"): site.template,
        ("key-pair-id", site.key): "mine",
        ("placement-group-id", site.place): "near",
        ("address-association", site.address_association): site.address,
        ("address-association-interface", site.address_association): site.interface,
        ("route-table-association", site.route): site.table,
        ("route-table-association-subnet", site.route): site.subnet,
        ("route-table-association-gateway", site.edge_route): site.gateway,
        ("network-interface-attachment-instance", site.attachment): site.instance,
        ("mount-target", site.target): site.files,
        ("mount-target-interface", site.target): site.target_interface,
        ("role", "r"): f"{IAM}role/x/r",
        ("user", "u"): f"{IAM}user/y/u",
        ("instance-profile", "p"): f"{IAM}instance-profile/p",
        ("instance-profile-role", "p"): f"{IAM}role/x/r",
        ("instance-profile-role", f"{IAM}instance-profile/p"): f"{IAM}role/x/r",
        ("auto-scaling-group", "nodes"): site.nodes,
        ("auto-scaling-instance", site.node): "nodes",
    }
    assert {key: world.lookup(*key, REGION) for key in known} == known
    assert {kind for kind, _ in known} == {*Lookup.__args__}  # type: ignore[attr-defined]
    for kind, name in known:
        assert world.lookup(kind, "none", REGION) is None
        if kind not in ("role", "user", "instance-profile", "instance-profile-role"):
            assert world.lookup(kind, name, "eu-west-1") is None
            assert world.lookup(kind, name, "nowhere") is None


def test_tags_are_those_of_now(cloud: Cloud, site: Site) -> None:
    world = Account(cloud)
    known = {
        f"{EC2}vpc/{site.vpc}": "vpc",
        f"{EC2}instance/{site.instance}": "i",
        f"{EC2}key-pair/mine": "key",
        f"{EC2}placement-group/near": "near",
        f"{EC2}elastic-ip/{site.address}": "a",
        f"{IAM}role/x/r": "r",
        f"{IAM}user/y/u": "u",
        f"{IAM}instance-profile/p": "p",
        site.edge: "p",
        site.files_arn: "fs",
        site.nodes: "asg",
        "arn:aws:s3:::bucket-1/a/b": "o",
        f"arn:aws:ssm:{REGION}:123456789012:parameter/c/d": "s",
    }
    assert {arn: world.tags(arn)["n"] for arn in known} == known
    site.ask("ec2", "CreateTags", Resources=[site.instance], Tags=tags(n="other"))
    assert world.tags(f"{EC2}instance/{site.instance}")["n"] == "other"
    # Tags of buckets are no condition keys unless that is switched on.
    assert world.tags("arn:aws:s3:::bucket-1") == {}


def test_facts(cloud: Cloud, site: Site) -> None:
    assert Account(cloud).facts(f"{IAM}role/x/r") == {"iam:PermissionsBoundary": site.edge}
    assert Account(cloud).facts(f"arn:aws:ec2:{REGION}::image/{BASE.id}") == {"ec2:Public": "true"}


def test_templates_and_groups(cloud: Cloud, site: Site) -> None:
    world = Account(cloud)
    for name, version in (("web", "$Default"), (site.template, "$Latest"), (site.template, "1")):
        result = world.launch_template(name, version, REGION)
        assert result is not None
        assert result["InstanceType"] == "c5.large"
        assert result["TagSpecifications"] == site.data["TagSpecifications"]
    assert world.launch_template("web", "2", REGION) is None
    assert world.launch_template("none", "$Latest", REGION) is None
    group = world.auto_scaling_group("nodes", REGION)
    assert group is not None
    assert group["VPCZoneIdentifier"] == site.subnet
    assert world.auto_scaling_group("none", REGION) is None
    assert world.has_service_linked_role("autoscaling.amazonaws.com")
    assert not world.has_service_linked_role("spot.amazonaws.com")
    assert not world.has_service_linked_role("none.amazonaws.com")


def test_what_is_gone_is_no_error(cloud: Cloud, site: Site) -> None:
    world = Account(cloud)
    site.ask("s3", "DeleteObject", Bucket="bucket-1", Key="a/b")
    assert world.tags("arn:aws:s3:::bucket-1/a/b") == {}


KINDS = ["vpc", "instance", "key-pair", "placement-group", "elastic-ip", "image", "network-interface", "route-table"]
KINDS += ["security-group", "subnet", "volume", "unheard-of"]


@pytest.mark.parametrize(
    "arn",
    [
        *(f"arn:aws:ec2:{region}:123456789012:{kind}/none" for kind in KINDS for region in (REGION, "nowhere", "")),
        *(f"{IAM}{kind}/none" for kind in ("role", "user", "policy", "instance-profile", "group", "else")),
        "arn:aws:s3:::none",
        "arn:aws:s3:::none/none",
        f"arn:aws:elasticfilesystem:{REGION}:123456789012:file-system/none",
        f"arn:aws:autoscaling:{REGION}:123456789012:autoScalingGroup:x:autoScalingGroupName/none",
        f"arn:aws:ssm:{REGION}:123456789012:parameter/none",
        "arn:aws:ssm:nowhere:123456789012:parameter/none",
        "arn:aws:ssm:nowhere:123456789012:document/none",
        "arn:aws:else:::",
        "*",
        "",
    ],
)
def test_what_is_unknown_is_no_error(cloud: Cloud, arn: str) -> None:
    assert dict(Account(cloud).tags(arn)) == {}
    assert dict(Account(cloud).facts(arn)) == {}


def test_asking_makes_nothing(cloud: Cloud) -> None:
    world = Account(cloud)
    assert world.lookup("auto-scaling-group", "none", REGION) is None
    assert world.tags(f"arn:aws:autoscaling:{REGION}:123456789012:autoScalingGroup:x:autoScalingGroupName/n") == {}
    assert cloud.records("autoscaling", Regions).by_name == {}
