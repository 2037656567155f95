"""Who reaches whom, and by which way out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from localcloud.testing.booted import OPERATOR, Network, localcloud, wait_for

_TRY = "timeout 4 bash -c 'exec 3<>/dev/tcp/{host}/{port}' && echo reached || echo not reached"


def reaches(network: Network, machine: str, host: str, port: int, via: str | None = None) -> bool:
    answer = network.says(machine, _TRY.format(host=host, port=port), via=via)
    assert answer in ("reached", "not reached")
    return answer == "reached"


@dataclass(frozen=True)
class Site:
    """Machines of one network for all tests of this file: two with public addresses."""

    network: Network
    first: str
    second: str


@pytest.fixture(scope="module")
def site(shared_network: Network) -> Site:
    options = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    return Site(shared_network, *shared_network.launch(2, MetadataOptions=options))


def test_metadata_asks_for_a_token_and_tells_each_machine_its_own(site: Site) -> None:
    network, first, second = site.network, site.first, site.second
    base = "http://169.254.169.254/latest"
    bare = f"curl -s -o /dev/null -w '%{{http_code}}' {base}/meta-data/instance-id"
    assert network.says(first, bare) == "401"
    token = f"curl -s -X PUT {base}/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60'"
    for machine in (first, second):
        ask = f'curl -s -H "X-aws-ec2-metadata-token: $({token})" {base}'
        assert network.says(machine, f"{ask}/meta-data/instance-id") == machine
        document = json.loads(network.says(machine, f"{ask}/dynamic/instance-identity/document"))
        assert (document["instanceId"], document["region"]) == (machine, "us-east-1")
    # One machine's token is worth nothing in another's hands.
    stolen = network.says(first, token)
    code = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'X-aws-ec2-metadata-token: {stolen}' {base}/meta-data/"
    assert network.says(second, code) == "401"


def test_names_inside_a_network_are_its_own(site: Site) -> None:
    network, first, second = site.network, site.first, site.second
    shown = network.cloud.instance(second)
    private, address = shown["PrivateDnsName"], shown["PrivateIpAddress"]
    assert network.says(first, f"getent ahostsv4 {private} | head -1").split()[0] == address
    assert network.says(first, f"getent hosts {address}").split()[1] == private
    assert network.says(first, f"getent ahostsv4 {private.partition('.')[0]} | head -1").split()[0] == address


def test_a_cut_network_is_silent_until_it_is_mended(site: Site) -> None:
    network, first, second = site.network, site.first, site.second
    address = network.cloud.instance(second)["PrivateIpAddress"]
    assert localcloud("fault", "cut", second).returncode == 0
    assert network.ssh(second, "true", timeout=20).returncode != 0
    assert not reaches(network, first, address, 22)
    assert localcloud("fault", "mend", second).returncode == 0
    wait_for(lambda: network.ssh(second, "true").returncode == 0, 120, "mended")


def test_two_networks_with_the_same_addresses_do_not_meet(site: Site, network: Network) -> None:
    here, (neighbour,) = site.first, network.launch()
    cloud = network.cloud
    assert cloud.instance(here)["PrivateIpAddress"] == cloud.instance(neighbour)["PrivateIpAddress"]
    site.network.says(here, "echo here > me")
    network.says(neighbour, "echo neighbour > me")
    assert (site.network.says(here, "cat me"), network.says(neighbour, "cat me")) == ("here", "neighbour")


def _ask(service: str, call: str) -> str:
    """A command that asks AWS once, and does not wait for long."""
    config = "Config(connect_timeout=3, retries=dict(max_attempts=0))"
    client = f"boto3.client('{service}', 'us-east-1', config={config})"
    return f'python3 -c "import boto3; from botocore.config import Config; print({client}.{call})"'


def test_a_gateway_endpoint_leads_to_s3_alone(site: Site) -> None:
    network, bastion = site.network, site.first
    cloud, ec2 = network.cloud, network.cloud.ec2
    allowed = {"Effect": "Allow", "Action": ["s3:ListBucket", "ec2:DescribeInstances"], "Resource": "*"}
    cloud.role(network.name, allowed)
    bucket = f"{network.name}-bucket"
    cloud.s3.create_bucket(Bucket=bucket)
    subnet = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.0.2.0/24", AvailabilityZone="us-east-1a")
    private = subnet["Subnet"]["SubnetId"]
    profile = {"Name": network.name}
    (inside,) = network.launch(subnet=private, public=False, wait=False, IamInstanceProfile=profile)
    network.wait_for_ssh(inside, via=bastion)
    ask_s3 = _ask("s3", f"list_objects_v2(Bucket='{bucket}')['KeyCount']")
    ask_ec2 = _ask("ec2", "describe_instances()")
    assert network.ssh(inside, ask_s3, via=bastion).returncode != 0

    table = ec2.create_route_table(VpcId=network.vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=private)
    ec2.create_vpc_endpoint(
        VpcId=network.vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[table], VpcEndpointType="Gateway"
    )
    assert network.says(inside, ask_s3, via=bastion) == "0"
    assert network.ssh(inside, ask_ec2, via=bastion).returncode != 0


def ssh_rule(**source: Any) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **source}


def test_security_groups_and_routes_decide(site: Site) -> None:
    network, bastion = site.network, site.first
    cloud, ec2 = network.cloud, network.cloud.ec2
    (inside,) = network.launch(public=False, wait=False)
    network.wait_for_ssh(inside, via=bastion)
    private, public = cloud.instance(inside)["PrivateIpAddress"], network.address(site.second)

    # Members of one group reach each other on everything, until they are taken out of it.
    assert reaches(network, bastion, private, 22)
    lonely = ec2.create_security_group(GroupName=f"{network.name}-lonely", Description="none", VpcId=network.vpc)[
        "GroupId"
    ]
    (interface,) = cloud.instance(inside)["NetworkInterfaces"]
    ec2.modify_network_interface_attribute(NetworkInterfaceId=interface["NetworkInterfaceId"], Groups=[lonely])
    assert not reaches(network, bastion, private, 22)
    from_group = ssh_rule(UserIdGroupPairs=[{"GroupId": network.group}])
    ec2.authorize_security_group_ingress(GroupId=lonely, IpPermissions=[from_group])
    assert reaches(network, bastion, private, 22)

    def let_in(address: str) -> None:
        rule = ssh_rule(IpRanges=[{"CidrIp": f"{address}/32"}])
        ec2.authorize_security_group_ingress(GroupId=network.group, IpPermissions=[rule])

    # The rule for the group covers its members' private addresses. This comes from the first one's public address.
    assert not reaches(network, bastion, public, 22)
    let_in(network.address(bastion))
    assert reaches(network, bastion, public, 22)

    # Nothing leads out of the private subnet before there is a NAT gateway, and from there to no public address, not
    # even of its own VPC; the public subnet has its own way.
    aws = "ec2.us-east-1.amazonaws.com"
    assert reaches(network, bastion, aws, 443)
    assert not reaches(network, inside, aws, 443, via=bastion)
    assert not reaches(network, inside, public, 22, via=bastion)
    address = network.add_nat()
    assert reaches(network, inside, aws, 443, via=bastion)
    assert reaches(network, inside, "deb.debian.org", 80, via=bastion)
    let_in(address)
    assert reaches(network, inside, public, 22, via=bastion)
    assert address.startswith("198.51.100.")

    # A rule that is taken back holds at once, also for the operator.
    rule = ssh_rule(IpRanges=[{"CidrIp": OPERATOR}])
    ec2.revoke_security_group_ingress(GroupId=network.group, IpPermissions=[rule])
    assert network.ssh(bastion, "true", timeout=20).returncode != 0
    ec2.authorize_security_group_ingress(GroupId=network.group, IpPermissions=[rule])
    assert network.ssh(bastion, "true").returncode == 0


def test_an_elastic_address_moves_between_machines(site: Site) -> None:
    network, ec2 = site.network, site.network.cloud.ec2
    address = ec2.allocate_address(Domain="vpc")
    names = {}
    for machine in (site.first, site.second):
        names[machine] = network.says(machine, "hostname")
        ec2.associate_address(InstanceId=machine, AllocationId=address["AllocationId"], AllowReassociation=True)
        assert network.address(machine) == address["PublicIp"]
        assert network.says(machine, "hostname") == names[machine]
    assert names[site.first] != names[site.second]
