"""The action `wait_for_capacity`: groups with their addresses and reports, a machine that is baked, an EMR cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import HOOK
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import AutoScaling

from tests.unit.actions import run_action
from tests.unit.cluster_kit import ACCOUNT, REGION, TYPE, ZONE, MadeCluster, let_time_pass
from tests.unit.conftest import Account

Wait = Callable[..., dict[str, Any]]
BUNDLE, OLD = "b" * 64, "a" * 64
REPORTS = {"bucket": f"red-{ACCOUNT}-{REGION}", "account": ACCOUNT, "bundle": BUNDLE}


@pytest.fixture
def red(aws: Account, monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    """A cluster without machines. Time passes by waiting."""
    let_time_pass(aws, monkeypatch)
    monkeypatch.setattr(AutoScaling, "now", lambda _self: aws.cloud.clock.time())
    monkeypatch.setattr(AutoScaling, "pause", lambda _self, seconds: polling.sleep(seconds))
    made = MadeCluster(aws)
    made.network()
    made.bucket()
    return made


@pytest.fixture
def wait(capsys: pytest.CaptureFixture[str]) -> Wait:
    """Run the action. What it prints is returned as `printed`."""

    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        if "groups" in options:
            options = {"reports": REPORTS, **options}
        result = run_action("wait_for_capacity", check, region=REGION, **options)
        return {**result, "printed": capsys.readouterr().out}

    return call


def group(what: str, desired: int, **options: Any) -> dict[str, Any]:
    return {"name": f"red-{what}", "desired_capacity": desired, "role_id": "AROA", **options}


def hold(red: MadeCluster, what: str) -> None:
    """Let machines of a group wait for their launch lifecycle hook, as those do that configure themselves."""
    red.scaling.put_lifecycle_hook(
        AutoScalingGroupName=f"red-{what}",
        LifecycleHookName=HOOK,
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=3600,
        DefaultResult="ABANDON",
    )


def resize(red: MadeCluster, what: str, number: int) -> None:
    red.scaling.set_desired_capacity(AutoScalingGroupName=f"red-{what}", DesiredCapacity=number)
    red.wait(10)


def test_check_mode_says_what_would_be_waited_for_and_calls_nothing(aws: Account, wait: Wait) -> None:
    calls = len(aws.calls())
    planned = wait(check=True, groups=[group("master", 1), group("workers", 3)])
    assert (planned["changed"], planned["outcome"]) == (False, "unknown")
    assert planned["msg"] == "Would wait until these are in service: 1 of red-master, 3 of red-workers."
    assert "EMR cluster is configured" in wait(check=True, emr={"id": "j-1", "logs": "b"})["msg"]
    baking = {"id": "i-1", "role_id": "AROA", "bucket": "b", "account": ACCOUNT}
    assert "machine has stopped" in wait(check=True, baking=baking)["msg"]
    assert len(aws.calls()) == calls


def test_the_masters_address_is_associated_while_others_are_awaited(red: MadeCluster, wait: Wait) -> None:
    allocation = red.address()
    red.machines(master=1, workers=2, desired=0, wait=0)
    groups = [group("master", 1, essential=True, address=allocation), group("workers", 2, minimum=1)]
    result = wait(groups=groups, timeout_seconds=600)
    assert (result["outcome"], result["changed"], result["in_service"], result["desired"]) == ("full", True, 3, 3)
    (address,) = red.ec2.describe_addresses()["Addresses"]
    assert address["InstanceId"] == red.instances("master")[0]
    assert result["groups"]["red-workers"] == {"desired": 2, "in_service": 2, "instances": red.instances("workers")}
    assert "\nmaster 0/1 ready" in f"\n{result['printed']}" and ", gives up after 10:00\n" in result["printed"]

    calls = len(red.aws.cloud.calls.since())
    again = wait(groups=groups)
    assert (again["outcome"], again["changed"], again["printed"]) == ("full", False, "")
    assert not [call for call in red.aws.cloud.calls.since()[calls:] if call["writes"]]
    # The address follows a master that was replaced, and only then something has changed.
    red.ec2.disassociate_address(AssociationId=address["AssociationId"])
    assert wait(groups=groups)["changed"] and not wait(groups=groups)["changed"]
    # A group without a machine needs no address.
    resize(red, "master", 0)
    assert wait(groups=[group("master", 0, address=allocation)])["outcome"] == "full"


def test_a_machine_that_has_gone_meanwhile_gets_the_address_later(red: MadeCluster, wait: Wait) -> None:
    red.machines(master=1)
    red.fail("ec2:AssociateAddress", "InvalidInstanceID.NotFound", 1)
    result = wait(groups=[group("master", 1, address=red.address())])
    assert (result["outcome"], result["changed"]) == ("full", True)
    assert red.ec2.describe_addresses()["Addresses"][0]["InstanceId"] == red.instances("master")[0]


def test_other_refusals_of_an_address_fail_the_task(red: MadeCluster, wait: Wait) -> None:
    red.machines(master=1)
    red.fail("ec2:AssociateAddress", "UnauthorizedOperation", status=403)
    result = wait(groups=[group("master", 1, address=red.address())])
    assert (result["failed"], result["outcome"], result["elsewhere"]) == (True, "failed", False)
    assert "AWS does not allow ec2:AssociateAddress" in result["msg"]


def test_groups_need_the_place_of_their_reports(red: MadeCluster, wait: Wait) -> None:
    refused = wait(groups=[group("master", 1)], reports=None)
    assert refused["failed"] and refused["msg"].startswith("reports is not given: name the bucket")


def test_a_group_that_is_missing_or_goes_is_named(red: MadeCluster, wait: Wait) -> None:
    red.machines(master=1)
    result = wait(groups=[group("master", 1), group("workers", 1), group("others", 1)])
    assert (result["failed"], result["outcome"], result["elsewhere"]) == (True, "failed", False)
    assert result["msg"].startswith("There is no Auto Scaling group red-workers and no red-others: run")
    red.scaling.delete_auto_scaling_group(AutoScalingGroupName="red-master", ForceDelete=True)
    assert wait(groups=[group("master", 1)])["msg"].startswith("There is no Auto Scaling group red-master: run")


@pytest.fixture
def configuring(red: MadeCluster) -> MadeCluster:
    """Two workers that configure themselves: the launch hook holds them."""
    red.identities()
    red.machines(workers=3, desired=0)
    hold(red, "workers")
    resize(red, "workers", 2)
    return red


def workers(red: MadeCluster, desired: int = 2, minimum: int = 1) -> dict[str, Any]:
    return group("workers", desired, minimum=minimum, role_id=red.role_id("worker"))


def test_machines_that_could_not_configure_themselves_are_missing(configuring: MadeCluster, wait: Wait) -> None:
    red = configuring
    good, bad = red.instances("workers")
    red.scaling.complete_lifecycle_action(
        AutoScalingGroupName="red-workers",
        LifecycleHookName=HOOK,
        InstanceId=good,
        LifecycleActionResult="CONTINUE",
    )
    red.wait(5)
    red.report(bad, "worker", state="failed", step="efs_mount", log=["no route to host"], bundle=BUNDLE)
    red.wait(60)
    result = wait(groups=[workers(red)], timeout_seconds=900, settle_seconds=30)
    assert (result["outcome"], result["changed"], result["in_service"]) == ("degraded", True, 1)
    (missing,) = result["missing"]
    assert (missing["why"], missing["count"]) == ("setup", 1)
    assert list(missing["details"]) == [f"{bad}: efs_mount", "    no route to host"]
    assert "1 failed: efs_mount" in result["printed"] and "    no route to host" in result["printed"]
    assert "1 of red-workers could not configure themselves" in result["msg"]
    shown = red.group("workers")
    assert (shown["DesiredCapacity"], shown["SuspendedProcesses"], red.instances("workers")) == (1, [], [good])


def test_a_machine_that_failed_with_another_bundle_makes_room(configuring: MadeCluster, wait: Wait) -> None:
    red = configuring
    outdated = red.instances("workers")
    for machine in outdated:
        red.report(machine, "worker", state="failed", step="efs_mount", bundle=OLD)
    red.wait(60)
    result = wait(groups=[workers(red)], timeout_seconds=60, settle_seconds=30)
    assert result["changed"] and not set(outdated) & set(red.instances("workers"))
    assert red.aws.calls().count("autoscaling:CompleteLifecycleAction") >= 2


def test_too_few_of_them_fail_and_silent_machines_show_their_consoles(configuring: MadeCluster, wait: Wait) -> None:
    red = configuring
    result = wait(groups=[workers(red, minimum=2)], timeout_seconds=30)
    assert result["failed"] and result["outcome"] == "failed" and not result["elsewhere"]
    assert "0 in service" not in result["msg"] and "no machine is left running" in result["msg"]
    (missing,) = result["missing"]
    assert missing["why"] == "late" and missing["count"] == 2
    assert [line for line in missing["details"] if "has not reported. The end of its console:" in line]
    assert red.group("workers")["DesiredCapacity"] == 0 and red.instances("workers") == []
    assert result["waited_seconds"] >= 30


class Baking:
    """A machine in no group, which has the workers' role."""

    def __init__(self, red: MadeCluster) -> None:
        red.identities("worker")
        red.bucket()
        image = red.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
        launched = red.ec2.run_instances(
            ImageId=image["ImageId"], InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=red.ids["subnet"]
        )
        self.id = str(launched["Instances"][0]["InstanceId"])
        self.red = red
        red.wait(5)

    def options(self) -> dict[str, Any]:
        own = {"bucket": self.red.names.bucket, "account": ACCOUNT, "role_id": self.red.role_id("worker")}
        return {"baking": {"id": self.id, **own}}


def test_a_machine_that_has_reported_and_stopped_is_the_source_of_an_image(red: MadeCluster, wait: Wait) -> None:
    baking = Baking(red)
    red.report(baking.id, "worker", step="frameworks")
    red.ec2.stop_instances(InstanceIds=[baking.id])
    red.wait(5)
    result = wait(**baking.options())
    assert result["msg"] == f"{baking.id} is the source of an image."
    assert (result["outcome"], result["changed"], "failed" in result) == ("ready", False, False)
    assert result["printed"] == f"{baking.id} is stopped: ready frameworks\n"


@pytest.mark.parametrize(
    ("report", "end", "words"),
    [
        ({"state": "failed", "step": "frameworks", "log": ["no space", "left"]}, "", "(frameworks): no space / left"),
        ({"state": "configuring", "step": "frameworks"}, "stop_instances", "(frameworks): "),
        ({}, "terminate_instances", "(terminated): "),
    ],
)
def test_a_machine_that_fails_or_ends_is_none(
    red: MadeCluster, wait: Wait, report: dict[str, Any], end: str, words: str
) -> None:
    baking = Baking(red)
    if report:
        red.report(baking.id, "worker", **report)
    if end:
        getattr(red.ec2, end)(InstanceIds=[baking.id])
        red.wait(5)
    result = wait(**baking.options())
    assert (result["failed"], result["outcome"]) == (True, "failed")
    assert f"{baking.id} could not prepare itself {words}" in result["msg"]


def test_a_machine_that_takes_too_long_is_given_up(red: MadeCluster, wait: Wait) -> None:
    baking = Baking(red)
    result = wait(**baking.options(), timeout_seconds=0)
    assert result["failed"] and result["msg"].startswith(f"{baking.id} has not prepared itself within 0 minutes: ")
    assert result["printed"] == f"{baking.id} is running: no report yet\n"


def test_an_emr_cluster_that_is_not_there_fails_the_task(aws: Account, wait: Wait) -> None:
    result = wait(emr={"id": "j-0", "logs": "b"})
    assert (result["failed"], result["outcome"]) == (True, "failed") and "elasticmapreduce:DescribeCluster" in (
        result["msg"]
    )


def test_launches_that_failed_before_the_groups_were_changed_do_not_count(red: MadeCluster, wait: Wait) -> None:
    red.aws.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=0)
    red.machines(workers=1)
    now = red.aws.cloud.clock.time()
    for since, why in ((now - 60, "capacity"), (now + 1000, "late")):
        result = wait(groups=[group("workers", 1, minimum=1)], timeout_seconds=0, since=since)
        assert [missing["why"] for missing in result["missing"]] == [why]
        assert result["elsewhere"] is (why == "capacity")


def test_progress_is_of_all_groups_while_one_is_short(red: MadeCluster, wait: Wait) -> None:
    red.machines(master=1)
    red.machines(workers=1, desired=0, wait=0)
    result = wait(groups=[group("master", 1), group("workers", 1)], timeout_seconds=90)
    assert result["printed"].startswith("master 1/1 ready; workers 0/1 ready, ")
    assert ", 0:00, gives up after 1:30\n" in result["printed"]
    assert result["msg"] == "red-master 1/1 in service, red-workers 1/1 in service."


@pytest.fixture
def with_end(red: MadeCluster) -> MadeCluster:
    """New machines, of which AWS has a master and one worker, with the end of the setup."""
    red.machines(master=1, workers=2, desired=0, wait=0)
    red.aws.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=2)
    red.schedule_setup_end()
    return red


def wait_for_two(wait: Wait, minimum: int) -> dict[str, Any]:
    groups = [group("master", 1, essential=True), group("workers", 2, minimum=minimum)]
    return wait(cluster="red", groups=groups, timeout_seconds=900, settle_seconds=30)


def test_fewer_machines_that_are_accepted_stay(with_end: MadeCluster, wait: Wait) -> None:
    assert wait_for_two(wait, minimum=1)["outcome"] == "degraded"
    assert with_end.setup_ends() == []


def test_machines_that_are_too_few_keep_the_end_of_the_setup(with_end: MadeCluster, wait: Wait) -> None:
    assert wait_for_two(wait, minimum=2)["outcome"] == "failed"
    assert with_end.setup_ends() == ["red-master", "red-workers"]


def test_an_end_of_the_setup_that_cannot_be_deleted_is_a_warning(
    with_end: MadeCluster, monkeypatch: pytest.MonkeyPatch, wait: Wait
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: warnings.append(text))
    with_end.fail("autoscaling:DeleteScheduledAction", "AccessDenied", status=403)
    result = wait_for_two(wait, minimum=1)
    assert (result["outcome"], result["in_service"]) == ("degraded", 2)
    (warning,) = warnings
    assert "the end of the setup was not deleted" in warning and "autoscaling:DeleteScheduledAction" in warning


def test_machines_that_come_in_the_last_minute_stay(red: MadeCluster, wait: Wait) -> None:
    """Minute 1439 of cluster_capacity_timeout_minutes=1440, whose end is an hour later."""
    red.machines(master=1, workers=1, desired=0, wait=0)
    red.schedule_setup_end(61)
    result = wait(cluster="red", groups=[group("master", 1), group("workers", 1)], timeout_seconds=60)
    assert result["outcome"] == "full"
    red.wait(2 * 3600)
    # The clock is far ahead, so AWS would refuse the signature of a call.
    states = red.aws.cloud.lifecycle_states(REGION)
    assert list(states.values()) == [["InService"]] * 2
