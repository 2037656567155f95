"""EC2 over the wire, as boto3 sees it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model

from localcloud.api.ec2.images import API_ONLY
from localcloud.api.iam.identities import bootstrap
from localcloud.core.calls import CallLog
from localcloud.core.clock import RealClock
from localcloud.core.cloud import Cloud
from localcloud.core.latency import latency_from
from localcloud.core.lateness import OBSERVER
from localcloud.endpoint.ec2_xml import render
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer


@pytest.fixture
def client() -> Iterator[Any]:
    import threading

    lock = threading.RLock()
    clock = RealClock(lock)
    cloud = Cloud(clock, lock, latency_from("none"), CallLog(), strict=True)
    key, secret = bootstrap(cloud)
    server = HttpServer(Front(cloud), "127.0.0.1", 0)
    server.start()
    session = boto3.Session(key, secret, region_name="us-east-1")
    yield session.client(
        "ec2",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        config=Config(retries={"total_max_attempts": 1}, user_agent_appid=OBSERVER),
    )
    server.stop()
    clock.stop()
    cloud.close()


def processor_seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_many_instances_cost_no_more_each_than_few(client: Any) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "a & <b>"}]}]

    def cost(count: int) -> float:
        """Launch that many more, and return the processor time of describing all."""
        made = client.run_instances(
            ImageId=API_ONLY.id, InstanceType="t3.micro", MinCount=count, MaxCount=count, TagSpecifications=tags
        )["Instances"]
        reservations = client.describe_instances()["Reservations"]
        described = {
            instance["InstanceId"]: instance for reservation in reservations for instance in reservation["Instances"]
        }
        newest = described[made[-1]["InstanceId"]]
        assert newest["Tags"] == [{"Key": "Name", "Value": "a & <b>"}] and isinstance(newest["LaunchTime"], datetime)
        return min(processor_seconds(client.describe_instances) for _ in range(3))

    few, many = cost(20), cost(380)
    # 20 times as many. Quadratic would be 400 times; the rest is for other programs.
    assert many < 90 * few, (few, many)


def test_errors_have_their_code_and_status(client: Any) -> None:
    with pytest.raises(ClientError) as caught:
        client.run_instances(ImageId=API_ONLY.id, InstanceType="t3.mikro", MinCount=1, MaxCount=1)
    answer = caught.value.response
    assert answer["Error"]["Code"] == "InvalidParameterValue"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    with pytest.raises(ClientError, match="DryRunOperation"):
        client.run_instances(ImageId=API_ONLY.id, InstanceType="t3.micro", MinCount=1, MaxCount=1, DryRun=True)


def test_what_moto_answers_and_what_we_do_fit_together(client: Any) -> None:
    vpc = client.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24")["Subnet"]["SubnetId"]
    interface = client.create_network_interface(SubnetId=subnet)["NetworkInterface"]
    assert interface["PrivateIpAddress"] == "10.1.0.4"
    made = client.run_instances(
        ImageId=API_ONLY.id,
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet,
        UserData="#!/bin/sh\n",
    )["Instances"][0]
    client.get_waiter("instance_running").wait(InstanceIds=[made["InstanceId"]])
    assert made["PrivateIpAddress"] == "10.1.0.5"
    client.terminate_instances(InstanceIds=[made["InstanceId"]])
    client.get_waiter("instance_terminated").wait(InstanceIds=[made["InstanceId"]])
    [left] = client.describe_network_interfaces()["NetworkInterfaces"]
    assert (left["NetworkInterfaceId"], left["Status"]) == (interface["NetworkInterfaceId"], "available")
    client.delete_network_interface(NetworkInterfaceId=left["NetworkInterfaceId"])


def test_rendering_takes_only_what_the_model_knows() -> None:
    model = get_service_model("ec2").operation_model("DescribeInstances")
    moment = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
    result = {
        "Reservations": [{"Instances": [{"LaunchTime": moment, "EbsOptimized": False, "KeyName": "a<b", "Odd": 1}]}],
        "NextToken": None,
    }
    body = render(model, result, secrets.token_hex(4)).decode()
    assert "<launchTime>2027-01-02T03:04:05.000Z</launchTime>" in body
    assert "<ebsOptimized>false</ebsOptimized>" in body
    assert "<keyName>a&lt;b</keyName>" in body
    assert "nextToken" not in body.lower() and "odd" not in body.lower()
    assert body.endswith("</DescribeInstancesResponse>")


def test_an_operation_without_a_result_is_rendered_too() -> None:
    model = SimpleNamespace(name="RebootInstances", metadata={"apiVersion": "2016-11-15"}, output_shape=None)
    assert b"<requestId>x</requestId></RebootInstancesResponse>" in render(model, {}, "x")
