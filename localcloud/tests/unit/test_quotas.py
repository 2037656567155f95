"""Service quotas, and instance types."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.ec2.views import find_instance
from localcloud.api.quotas import DEFAULT, code_of, family_of
from localcloud.core.cloud import Cloud
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import Ec2

QUOTAS: dict[str, Any] = {"service": "service-quotas", "ServiceCode": "ec2"}


@pytest.mark.parametrize(
    ("instance_type", "code"),
    [
        ("t3.micro", "L-1216C47A"),
        ("im4gn.large", "L-1216C47A"),
        ("g5.xlarge", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-DB2E81BA"),
        ("vt1.3xlarge", "L-DB2E81BA"),
        ("p4d.24xlarge", "L-417A185B"),
        ("p2.xlarge", "L-417A185B"),
        ("inf2.xlarge", "L-1945791B"),
        ("trn1.2xlarge", "L-2C3B7624"),
        ("hpc6a.48xlarge", "L-F7808C92"),
        ("dl2q.24xlarge", "L-6E869C2A"),
        ("x1.16xlarge", "L-7295265B"),
        ("u-6tb1.metal", "L-43DA4232"),
    ],
)
def test_each_type_counts_towards_one_quota(instance_type: str, code: str) -> None:
    assert family_of(instance_type).code == code


def test_the_fifth_generation_of_p_has_a_quota_of_its_own_for_spot(ec2: Ec2) -> None:
    kinds = ("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge")
    assert [code_of(kind) for kind in kinds] == ["L-417A185B"] * 3
    assert [code_of(kind, spot=True) for kind in kinds] == ["L-7212CCBC", "L-C4BD4855", "L-C4BD4855"]
    quota = ec2("GetServiceQuota", QuotaCode="L-C4BD4855", **QUOTAS)["Quota"]
    assert quota["QuotaName"] == "All P5 Spot Instance Requests"


def test_a_fault_lowers_a_quota(ec2: Ec2, cloud: Cloud) -> None:
    cloud.faults.add("quota", {"code": "L-417A185B"}, 96)
    quota = ec2("GetServiceQuota", QuotaCode="L-417A185B", **QUOTAS)["Quota"]
    assert (quota["Value"], quota["QuotaName"]) == (96.0, "Running On-Demand P instances")
    assert ec2("GetServiceQuota", QuotaCode="L-DB2E81BA", **QUOTAS)["Quota"]["Value"] == DEFAULT
    assert ec2("GetAWSDefaultServiceQuota", QuotaCode="L-417A185B", **QUOTAS)["Quota"]["Value"] == DEFAULT


@pytest.mark.parametrize(
    ("service", "code", "value", "operation", "params", "error"),
    [
        ("ec2", "L-0263D0A3", 2, "AllocateAddress", {}, "AddressLimitExceeded"),
        # The default VPC counts.
        ("vpc", "L-F678F1CE", 3, "CreateVpc", {"CidrBlock": "10.0.0.0/16"}, "VpcLimitExceeded"),
        ("vpc", "L-A4707A72", 2, "CreateInternetGateway", {}, "InternetGatewayLimitExceeded"),
    ],
)
def test_resources_are_refused_above_their_quota(
    ec2: Ec2, cloud: Cloud, service: str, code: str, value: int, operation: str, params: dict[str, str], error: str
) -> None:
    usual = ec2("GetServiceQuota", service="service-quotas", ServiceCode=service, QuotaCode=code)["Quota"]["Value"]
    cloud.faults.add("quota", {}, 0)
    fault = cloud.faults.add("quota", {"code": code}, value)
    shown = ec2("GetServiceQuota", service="service-quotas", ServiceCode=service, QuotaCode=code)["Quota"]["Value"]
    assert (shown, usual) == (value, 5)
    for _ in range(2):
        ec2(operation, **params)
    with ec2.refused(error, "The maximum number of"):
        ec2(operation, **params)
    ec2(operation, region="eu-west-1", **params)
    cloud.faults.remove(fault)
    # A fault without a code strikes vCPUs alone.
    ec2(operation, **params)


def test_a_new_account_has_no_quotas_of_its_own(ec2: Ec2, cloud: Cloud) -> None:
    cloud.faults.add("default-quotas", {})
    cloud.faults.add("quota", {"code": "L-417A185B"}, 96)
    assert ec2("GetServiceQuota", QuotaCode="L-417A185B", **QUOTAS)["Quota"]["Value"] == 96
    with ec2.refused("NoSuchResourceException"):
        ec2("GetServiceQuota", QuotaCode="L-DB2E81BA", **QUOTAS)
    assert ec2("GetAWSDefaultServiceQuota", QuotaCode="L-DB2E81BA", **QUOTAS)["Quota"]["Value"] == DEFAULT


def test_a_new_account_has_awss_default_quotas(ec2: Ec2) -> None:
    for _ in range(5):
        ec2("AllocateAddress")
    with ec2.refused("AddressLimitExceeded"):
        ec2("AllocateAddress")
    for number in range(4):  # and the default VPC
        ec2("CreateVpc", CidrBlock=f"10.{number}.0.0/16")
    with ec2.refused("VpcLimitExceeded"):
        ec2("CreateVpc", CidrBlock="10.9.0.0/16")


def test_nat_gateways_have_a_quota_in_each_zone(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    cloud.faults.add("quota", {"code": "L-FE5A380F"}, 1)
    vpc, subnet = ec2.subnet()
    _, elsewhere = ec2.subnet("10.0.1.0/24", zone="us-east-1b", vpc=vpc)
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    first = ec2.nat_gateway(subnet)
    with ec2.refused("NatGatewayLimitExceeded", "Performing this operation would exceed the limit of 1 NAT gateways."):
        ec2.nat_gateway(subnet)
    ec2.nat_gateway(elsewhere)
    ec2("DeleteNatGateway", NatGatewayId=first)
    clock.advance(0)
    ec2.nat_gateway(subnet)


def test_quotas_that_are_none(ec2: Ec2) -> None:
    with ec2.refused("NoSuchResourceException"):
        ec2("GetServiceQuota", QuotaCode="L-0", **QUOTAS)
    with ec2.refused("NoSuchResourceException"):
        ec2("GetServiceQuota", service="service-quotas", ServiceCode="moon", QuotaCode="L-0")


# Instance types


def types(ec2: Ec2, **params: Any) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    while True:
        answer = ec2("DescribeInstanceTypes", **params)
        result |= {described["InstanceType"]: described for described in answer["InstanceTypes"]}
        if "NextToken" not in answer:
            return result
        params["NextToken"] = answer["NextToken"]


@pytest.mark.parametrize(
    ("name", "vcpus", "gpus", "gpu", "elastic"),
    [
        ("c4.large", 2, 0, "", 0),
        ("g2.2xlarge", 8, 1, "K520", 0),
        ("g2.8xlarge", 32, 4, "K520", 0),
        ("g3.16xlarge", 64, 4, "M60", 0),
        ("p2.xlarge", 4, 1, "K80", 0),
        ("p2.16xlarge", 64, 16, "K80", 0),
        ("p3.8xlarge", 32, 4, "V100", 0),
        ("g5.xlarge", 4, 1, "A10G", 0),
        ("g5.12xlarge", 48, 4, "A10G", 1),
        ("p4d.24xlarge", 96, 8, "A100", 4),
        ("p5.48xlarge", 192, 8, "H100", 32),
    ],
)
def test_types(ec2: Ec2, cloud: Cloud, name: str, vcpus: int, gpus: int, gpu: str, elastic: int) -> None:
    result = types(ec2, InstanceTypes=[name])[name]
    assert result["VCpuInfo"]["DefaultVCpus"] == vcpus
    assert sum(gpu["Count"] for gpu in result.get("GpuInfo", {}).get("Gpus", [])) == gpus
    assert result["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0) == elastic
    instance = ec2.run(InstanceType=name)["Instances"][0]
    view = find_instance(cloud, instance["InstanceId"])
    assert view and (view.gpus, view.gpu_name) == (gpus, gpu)


def test_choosing_types(ec2: Ec2) -> None:
    everything = types(ec2, MaxResults=100)
    assert len(everything) > 1300
    elastic = types(ec2, Filters=[{"Name": "network-info.efa-supported", "Values": ["true"]}])
    assert {"p4d.24xlarge", "g5.12xlarge"} <= set(elastic) < set(everything)
    assert "g5.xlarge" not in elastic
    assert set(types(ec2, Filters=[{"Name": "instance-type", "Values": ["p2.*"]}])) == {
        "p2.xlarge",
        "p2.8xlarge",
        "p2.16xlarge",
    }
    with ec2.refused("InvalidInstanceType", "[t3.mikro]"):
        types(ec2, InstanceTypes=["t3.micro", "t3.mikro"])
    with ec2.refused("InvalidParameterValue"):
        types(ec2, Filters=[{"Name": "colour", "Values": ["red"]}])


def test_where_types_are_offered(ec2: Ec2) -> None:
    def zones(name: str, region: str = "us-east-1") -> list[str]:
        filters = [{"Name": "instance-type", "Values": [name]}]
        answer = ec2("DescribeInstanceTypeOfferings", region=region, LocationType="availability-zone", Filters=filters)
        return [offering["Location"] for offering in answer["InstanceTypeOfferings"]]

    assert len(zones("p3.2xlarge")) == 6
    assert zones("t3.micro", "ap-southeast-2") == [f"ap-southeast-2{letter}" for letter in "abc"]
    assert "us-east-1e" not in zones("p4d.24xlarge")
    filters = [{"Name": "instance-type", "Values": ["g5.xlarge"]}]
    answer = ec2("DescribeInstanceTypeOfferings", Filters=filters)["InstanceTypeOfferings"]
    assert answer == [{"InstanceType": "g5.xlarge", "LocationType": "region", "Location": "us-east-1"}]
