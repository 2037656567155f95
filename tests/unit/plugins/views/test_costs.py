"""What a cluster has cost so far, and what is billed now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import ResourceReader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    ClusterResources,
    Health,
    Resource,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.costs import (
    Costs,
    MachineTime,
    billed,
    cost_so_far,
    phrase,
    present_machines,
    read_costs,
    read_machine_prices,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.summary import Context, describe, summary_lines
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.group_history import GroupHistory

from tests.unit.conftest import Account
from tests.unit.prices import LIST

START = datetime(2026, 11, 23, 3, tzinfo=UTC)
G5 = 1.006
LISTED = Context(Costs(LIST))


def instance(name: str, kind: str = "g5.xlarge", **facts: Any) -> Resource:
    known = {
        "type": kind,
        "launched_at": START,
        "job_flow": "",
        "public_address": "",
        "public_name": "",
        "private_address": "",
    }
    return Resource("instance", name, "red-worker", "running", facts=known | facts)


GATEWAY = Resource("nat_gateway", "nat-1", "red-nat", "available", facts={"created": START - timedelta(hours=1)})
LEFT = [
    GATEWAY,
    Resource("address", "eipalloc-1", "red-nat"),
    Resource("address", "eipalloc-2", "red-master", facts={"public_ip": "198.51.100.7"}),
    Resource("file_system", "fs-1", "red-efs", "available", facts={"bytes": 73 << 30}),
    Resource("bucket", "red-123456789012-us-east-1", "red-123456789012-us-east-1"),
]


def owned(*resources: Resource) -> ClusterResources:
    return ClusterResources("red", "123456789012", "us-east-1", resources)


def test_it_is_hours_by_price_of_the_machines_and_the_gateway() -> None:
    red = owned(instance("i-1"), instance("i-2"), GATEWAY)
    ended = MachineTime("g5.xlarge", START - timedelta(hours=5), START - timedelta(hours=3))
    costs = Costs(LIST, [*present_machines(red), ended])
    cost = cost_so_far(red, costs, START + timedelta(hours=2))
    assert cost["amount"] == pytest.approx(2 * 2 * G5 + 2 * G5 + 3 * 0.045, abs=1e-4)
    assert (cost["currency"], cost["since"]) == ("USD", "2026-11-22T22:00:00+00:00")
    assert cost["note"] == (
        "machines and NAT gateway at on-demand prices; without disks, addresses, storage and traffic"
    )
    assert cost["source"] == "AWS's Price List API, 2026-11-20"


def test_what_is_not_counted_is_named() -> None:
    red = owned(instance("i-1", "u7i-12tb.224xlarge"))
    cost = cost_so_far(red, Costs(LIST, present_machines(red), has_history=False), START)
    assert cost["amount"] == 0
    assert cost["note"].endswith("machines of u7i-12tb.224xlarge, whose price is not known, machines that have ended")
    nothing = cost_so_far(owned(), Costs(LIST), START)
    assert (nothing["amount"], nothing["since"]) == (0, "")


def test_a_machine_costs_at_least_a_minute_and_emr_more() -> None:
    now = START + timedelta(seconds=5)
    short = cost_so_far(owned(), Costs(LIST, [MachineTime("p5.48xlarge", START)]), now)
    assert short["amount"] == pytest.approx(55.04 / 60, abs=1e-4)
    red = owned(instance("i-1", "m5.xlarge", job_flow="j-1"))
    cost = cost_so_far(red, Costs(LIST, present_machines(red)), START + timedelta(hours=1))
    assert cost["amount"] == pytest.approx(0.192 * 1.25)


def test_the_prices_of_types_have_emrs_part_and_leave_out_what_is_not_known(aws: Account) -> None:
    own = Aws("us-east-1")
    assert read_machine_prices(own, ["m5.xlarge", "x1.16xlarge"], is_emr=False) == {"m5.xlarge": 0.192}
    assert read_machine_prices(own, ["m5.xlarge"], is_emr=True) == {"m5.xlarge": pytest.approx(0.24)}


def test_machines_of_others_and_stopped_ones_do_not_count() -> None:
    others, stopped = replace(instance("i-1"), ours=False), replace(instance("i-2"), state="stopped")
    assert present_machines(owned(others, stopped)) == []


def test_what_is_billed_has_its_hourly_price() -> None:
    volume = Resource("volume", "vol-1", facts={"type": "gp3", "gib": 73})
    snapshot = Resource("snapshot", "snap-1", facts={"gib": 73})
    items = billed([instance("i-1"), instance("i-2"), *LEFT, volume, snapshot], LIST)
    assert {item["what"]: item["hourly"] for item in items} == {
        "2 instances": pytest.approx(2 * G5),
        "1 NAT gateway": 0.045,
        "2 Elastic IP addresses": 0.01,
        "1 file system": pytest.approx(0.03),
        "1 bucket": None,
        "1 volume": pytest.approx(0.008),
        "1 snapshot": pytest.approx(0.005),
    }


@pytest.mark.parametrize(
    ("facts", "hourly"),
    [
        ({"type": "gp3", "gib": 73, "throughput": 125}, 0.008),
        ({"type": "gp3", "gib": 73, "throughput": 750}, 0.008 + 625 * 0.04 / 730),
        ({"type": "gp2", "gib": 73, "throughput": 0}, 0.01),
        ({"type": "io2", "gib": 73, "throughput": 0}, None),
    ],
)
def test_the_throughput_of_a_disk_is_part_of_its_price(facts: dict[str, Any], hourly: float | None) -> None:
    (item,) = billed([Resource("volume", "vol-1", facts=facts)], LIST)
    assert item["hourly"] == (None if hourly is None else pytest.approx(hourly))


def test_the_throughput_of_a_disk_is_read_from_aws(aws: Account) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "deeplearning:cluster", "Value": "red"}]}]
    aws.client("ec2").create_volume(
        AvailabilityZone="us-east-1a", Size=73, VolumeType="gp3", Throughput=750, TagSpecifications=tags
    )
    session = Aws("us-east-1", endpoint=aws.endpoint)
    (volume,) = ResourceReader(session, "red").read().of_kind("volume")
    assert volume.facts == {"type": "gp3", "gib": 73, "throughput": 750}


def text_of(red: ClusterResources, health: Health) -> list[str]:
    return [" ".join(line.split()) for line in summary_lines(describe(red, health, LISTED), red, "")]


def test_without_machines_the_rest_is_named_with_its_price_and_how_to_end_it() -> None:
    groups = [
        Resource("auto_scaling_group", f"red-{name}", f"red-{name}", facts={"most": 0, "in_service": []})
        for name in ("master", "workers")
    ]
    red = owned(*groups, *LEFT)
    for state in ("ready", "failed"):
        text = text_of(red, Health(state, 0, 0))
        assert (
            "still costs at least 0.085 USD an hour, 2.04 a day: 1 NAT gateway (0.045), 2 Elastic IP addresses (0.01), "
            "1 file system (0.03), 1 bucket (by the gigabyte, 0.023 a month for each)"
        ) in text
        destroy = "ansible-playbook deeplearning.aws.destroy -e destroy=red"
        assert f"to remove it {destroy}" in text
        assert f"with its file system {destroy} -e cluster_keep_efs=false" in text


def test_a_file_system_that_was_kept_is_named_with_its_price() -> None:
    red = owned(LEFT[3])
    lines = [" ".join(line.split()) for line in summary_lines(describe(red, Health("absent", 0, 0), LISTED), red, "")]
    assert "still costs 0.03 USD an hour, 0.72 a day: 1 file system (0.03)" in lines
    assert (
        lines[-1] == "to remove it ansible-playbook deeplearning.aws.destroy -e destroy=red -e cluster_keep_efs=false"
    )


def test_small_amounts_are_readable() -> None:
    def shown(amount: float) -> str:
        return phrase([{"what": "1 x", "hourly": amount, "how": ""}])

    assert shown(0.00000123) == "less than 0.0001 USD an hour, less than 0.0001 a day: 1 x (less than 0.0001)"
    assert shown(0.0) == "0.00 USD an hour, 0.00 a day: 1 x (0.00)"
    assert shown(27.1599) == "27.16 USD an hour, 651.84 a day: 1 x (27.16)"
    bucket = {"what": "1 bucket", "hourly": None, "how": "by the gigabyte"}
    small = {"what": "1 x", "hourly": 0.00000123, "how": ""}
    assert phrase([small, bucket]) == "1 x (less than 0.0001), 1 bucket (by the gigabyte)"


def group_with(aws: Account, name: str, size: int) -> None:
    tags = [{"Key": "deeplearning:cluster", "Value": "red", "PropagateAtLaunch": True}]
    subnet = aws.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    image = aws.client("ec2").describe_images()["Images"][0]["ImageId"]
    aws.client("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": image, "InstanceType": "c5.large"}
    )
    aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateName": name},
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=size,
        VPCZoneIdentifier=subnet,
        Tags=tags,
    )


def instances(aws: Account) -> Mapping[str, Any]:
    (group,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {item["InstanceId"]: item for item in group["Instances"]}


def test_machines_that_have_ended_are_read_from_the_activities_of_their_group(aws: Account) -> None:
    group_with(aws, "red-workers", 2)
    aws.cloud.clock.advance(400)
    assert len(instances(aws)) == 2
    gone = sorted(instances(aws))[0]
    aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=gone, ShouldDecrementDesiredCapacity=True
    )
    aws.cloud.clock.advance(400)
    session = Aws("us-east-1", endpoint=aws.endpoint)
    red = ResourceReader(session, "red").read()
    costs = read_costs(session, red, GroupHistory(session))
    assert costs.has_history
    now = datetime.fromtimestamp(aws.cloud.clock.time(), UTC)
    seconds = sorted(machine.hours(now) * 3600 for machine in costs.machines)
    assert seconds == [pytest.approx(400, abs=60), pytest.approx(800, abs=60)]
    assert {machine.type for machine in costs.machines} == {"c5.large"}
    cost = cost_so_far(red, costs, now)
    assert cost["amount"] == pytest.approx(0.085 * sum(seconds) / 3600, abs=1e-3)
    assert cost["source"].startswith("AWS's Price List API")

    denied = {"code": "AccessDenied", "message": "No.", "status": 403}
    aws.cloud.faults.add("error", {"action": "autoscaling:DescribeScalingActivities"}, denied)
    partial = read_costs(session, red, GroupHistory(session))
    assert (len(partial.machines), partial.has_history) == (1, False)


class History:
    """Stands in for what a group has done: a machine has come and gone, by one of two templates."""

    def activities(self, group: str) -> list[dict[str, Any]]:
        start, end = datetime(2026, 11, 20, 10, tzinfo=UTC), datetime(2026, 11, 20, 12, tzinfo=UTC)
        return [
            {"Description": "Terminating EC2 instance: i-00000001", "StartTime": end},
            {"Description": "Terminating EC2 instance: i-00000002", "StartTime": end},
            {"Description": "Launching a new EC2 instance: i-00000003", "StartTime": start},
            {"Description": "Launching a new EC2 instance: i-00000001", "StartTime": start, "EndTime": end},
        ]

    def template_versions(self, group: str) -> list[dict[str, Any]]:
        types = {9: "c5.large", 10: "c5.xlarge", 2: "g5.xlarge"}
        return [
            {"VersionNumber": number, "LaunchTemplateData": {"InstanceType": kind}} for number, kind in types.items()
        ]


def test_machines_that_have_ended_count_by_the_newest_template(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Resource("auto_scaling_group", "red-workers", "red-workers")
    owned = ClusterResources("red", "123456789012", "us-east-1", [group])
    aws: Any = SimpleNamespace(region="us-east-1")
    monkeypatch.setattr(
        "ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers.current_prices", no_prices
    )
    history: Any = History()
    (machine,) = read_costs(aws, owned, history).machines
    assert (machine.type, machine.hours(datetime(2026, 11, 23, tzinfo=UTC))) == ("c5.xlarge", 2.0)


def no_prices(*_arguments: object) -> dict[str, float]:
    return {}
