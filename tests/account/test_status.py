"""status.yml for clusters that are well, degraded and half-destroyed. No machine boots: ssh is a stand-in's."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
import subprocess
import time
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import repeat_in

from tests.account.fleet import Fleet, fleet, wait_until, with_file_system
from tests.account.kit import Account

pytestmark = pytest.mark.gate

SSH = """\
#!/bin/sh
echo "$@" > {folder}/asked
cat {folder}/answer && exit
echo "ssh: connect to host 203.0.113.1 port 22: Connection timed out" >&2
exit 255
"""
RUN = {
    "run_id": "lenet-1",
    "state": "running",
    "framework": "pytorch",
    "distribution": "ddp",
    "nodes": ["deeplearning-worker1"],
    "progress": {"epoch": 3, "loss": 0.25, "samples_per_second": 812.4},
    "requested_by": "anna",
    "requested_at": "2026-11-23T03:00:00Z",
    "sentence": "",
}
WATCH_SECONDS = 120
"""A screen takes some seconds, on a busy machine too."""
OLD, NEW = "0" * 64, "1" * 64
USER_DATA = b'PARAMETERS: dict[str, Any] = {"role": "worker", "sha256": "%s"}' % NEW.encode()


@pytest.fixture
def red(account: Account) -> Fleet:
    """A master and two workers, all of which have reported themselves."""
    (account.folder / "bin").mkdir()
    program = account.folder / "bin/ssh"
    program.write_text(SSH.format(folder=account.folder))
    program.chmod(0o755)
    inventory = account.folder / "red.deeplearning.yml"
    inventory.write_text(
        json.dumps({"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(account.folder)})
    )
    account.environment.update(
        PATH=f"{program.parent}:{account.environment['PATH']}", ANSIBLE_INVENTORY=str(inventory), PYTHONUNBUFFERED="1"
    )
    red = fleet(account, "red", 2)
    with_file_system(red)
    red.rank()
    for number in (1, 2, 3):
        red.report(red.id(number), "worker" if number > 1 else "master", bundle=NEW)
    answer(red)
    return red


def load(instance: str, **fields: Any) -> dict[str, Any]:
    gpu = {"busy_percent": 97, "memory_percent": 60}
    common = {"at": int(time.time()), "load": 3.21, "processors": 4, "memory_percent": 41, "disk_percent": 22}
    return {"instance_id": instance, **common, "gpus": [gpu], "logins": 0, "jobs": 0, "errors": [], **fields}


def answer(red: Fleet, **fields: Any) -> None:
    """Let the master answer."""
    ids = [red.id(number) for number in (1, 2, 3)]
    members = [{"instance_id": id_, "rank": rank, "state": "ready"} for rank, id_ in enumerate(ids, 1)]
    content = {"schema": 1, "members": members, "loads": [load(id_) for id_ in ids], "runs": [RUN], "problems": []}
    (red.account.folder / "answer").write_text(json.dumps(content | fields))


def status(red: Fleet, **extra: Any) -> tuple[str, dict[str, Any]]:
    started = time.time()
    ran = red.account.play("status.yml", **extra)
    assert ran.code == 0 and time.time() - started < 300 and not red.account.writes(started), ran.output
    return ran.output, json.loads((red.account.folder / "red.json").read_text())


def health(described: dict[str, Any]) -> dict[str, str]:
    return {member["name"]: member["health"] for member in described["members"]}


def test_a_cluster_that_is_well_is_one_screen_with_members_load_and_runs(red: Fleet) -> None:
    started = time.time()
    output, described = status(red)
    reads = [call["operation"] for call in red.account.cloud.calls.since(started)]
    # Once for each group.
    assert reads.count("DescribeScalingActivities") == reads.count("DescribeLaunchTemplateVersions") == 2
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for number, name in ((1, "deeplearning-master"), (2, "deeplearning-worker2"), (3, "deeplearning-worker3")):
        expected = f"{name} {red.id(number)} 10.0.0.{number + 3} g5.xlarge ready"
        assert f"{expected} 3.2 of 4 41 % 22 % 1: 97 % busy, 60 % memory" in lines, output
    run = "lenet-1 running pytorch ddp 1 epoch 3, loss 0.2500, 812 samples/s 2026-11-23T03:00:00Z by anna"
    assert run in lines
    assert any(line.startswith("file system fs-") and "GiB in use" in line for line in lines)
    assert described["problems"] == [] and described["runs"][0]["run_id"] == "lenet-1"
    asked = (red.account.folder / "asked").read_text()
    assert asked.startswith(f"-F {red.account.folder}/red.ssh_config ") and asked.endswith("deeplearning status\n")

    printed, described = status(red, format="json")
    begin, end = printed.index("\n{\n"), printed.index("\n}\n")
    assert json.loads(printed[begin : end + 2]) == described


def test_a_degraded_cluster_says_what_needs_attention(red: Fleet) -> None:
    ids = {number: red.id(number) for number in (1, 2, 3)}
    # A person changes the template of the workers, and the machines do not follow.
    red.ec2.create_launch_template_version(
        LaunchTemplateName="red-workers",
        SourceVersion="1",
        LaunchTemplateData={"InstanceType": "g5.2xlarge", "UserData": base64.b64encode(USER_DATA).decode()},
    )
    red.report(ids[2], "worker", bundle=OLD)
    members = [
        {"instance_id": ids[1], "rank": 1, "state": "ready"},
        {"instance_id": ids[2], "rank": 2, "state": "faulty"},
    ]
    broken = load(ids[1], errors=["nvidia-smi does not end within 15 s"], disk_percent=95)
    answer(red, members=members, loads=[broken], problems=["runs: no answer within 8 s"])
    output, described = status(red)
    assert health(described) == {
        "deeplearning-master": "ready",
        "deeplearning-worker2": "faulty",
        "deeplearning-worker3": "joining",
    }
    assert described["problems"] == [
        "runs: no answer within 8 s",
        "deeplearning-worker2 reported a fault; ansible-playbook deeplearning.aws.health shows which check fails",
        "deeplearning-worker3: not in the member list yet; the master adds it once it has reported itself",
        "deeplearning-master: nvidia-smi does not end within 15 s; ansible-playbook deeplearning.aws.health shows "
        "which check fails",
        "deeplearning-master: its disk / is 95 % full; remove data sets and environments that are not needed, or set "
        "cluster_root_volume_gib",
        "deeplearning-worker2, deeplearning-worker3: launched with another InstanceType (g5.xlarge, now g5.2xlarge) "
        "than new machines of red-workers get; a machine keeps it until it is replaced",
        "deeplearning-worker2: configured by an old bundle; ansible-playbook deeplearning.aws.site configures them "
        "again",
    ], output
    shown = [repeat_in(warning, described["again"]) for warning in described["problems"]]
    assert all(f"  Problem: {warning}.\n" in output for warning in shown), output

    # The master hangs, and a worker ends.
    (red.account.folder / "answer").unlink()
    red.ec2.terminate_instances(InstanceIds=[ids[2]])
    wait_until(lambda: len(red.machines("workers")) == 2 and ids[2] not in str(red.machines("workers")))
    output, described = status(red)
    assert health(described)["deeplearning-master"] == "in service" and described["runs"] == []
    silence = "ssh: connect to host 203.0.113.1 port 22: Connection timed out"
    assert described["problems"][0] == f"The master does not answer. {silence}"
    replaced = [warning for warning in described["problems"] if warning.startswith(f"{ids[2]} was replaced at 20")]
    assert len(replaced) == 1 and replaced[0].endswith("indicating it has been terminated or stopped")
    assert "  Runs: unknown.\n" in output


def test_a_cluster_without_a_master_and_a_half_destroyed_one(red: Fleet) -> None:
    scaling, s3 = red.account.client("autoscaling"), red.account.client("s3")
    scaling.suspend_processes(AutoScalingGroupName="red-master", ScalingProcesses=["Launch"])
    red.ec2.terminate_instances(InstanceIds=[red.id(1)])
    wait_until(lambda: not red.machines("master"))
    output, described = status(red)
    assert described["master"] == {} and described["master_problem"] == "There is no master."
    assert [member["health"] for member in described["members"]] == ["in service"] * 2, output

    # What a teardown that was interrupted leaves.
    scaling.delete_auto_scaling_group(AutoScalingGroupName="red-master", ForceDelete=True)
    for listed in s3.list_objects_v2(Bucket=red.bucket)["Contents"]:
        s3.delete_object(Bucket=red.bucket, Key=listed["Key"])
    s3.delete_bucket(Bucket=red.bucket)
    for kind in ("master", "workers"):
        red.ec2.delete_launch_template(LaunchTemplateName=f"red-{kind}")
    wait_until(
        lambda: not scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["red-master"])["AutoScalingGroups"]
    )
    output, described = status(red)
    assert described["state"] == "creating" and len(described["members"]) == 2, output
    assert "\n  there is no group of master yet\n" in output

    scaling.delete_auto_scaling_group(AutoScalingGroupName="red-workers", ForceDelete=True)
    wait_until(lambda: not red.machines("workers"))
    output, described = status(red)
    assert described["members"] == [] and "ansible-playbook deeplearning.aws.destroy -e destroy=red" in output


def test_watching_prints_it_again_until_it_is_interrupted(red: Fleet) -> None:
    screens: list[list[str]] = []
    with red.account.playing("status.yml", seconds=WATCH_SECONDS, watch=True) as playing:
        for line in playing.lines():
            if re.fullmatch(r"\d\d:\d\d:\d\d UTC\n", line):
                screens.append([])
            elif screens:
                screens[-1].append(" ".join(line.split()))
            # The second screen shows what has changed since the first.
            if line.startswith("  lenet-1"):
                (red.account.folder / "answer").unlink(missing_ok=True)
            if line.startswith("  Runs: unknown"):
                break
        else:
            pytest.fail(f"It ended by itself, or printed no second screen in {WATCH_SECONDS} s: {screens}")
        # Ansible can miss an interruption: then a person presses the keys again.
        last = ""
        for _ in range(6):
            playing.interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                last, _ = playing.process.communicate(timeout=10)
                break
        # Python ends by the signal where the interruption does not reach Ansible's own code.
        if playing.process.returncode != -signal.SIGINT:
            assert playing.process.returncode == 99 and "User interrupted execution" in last, last
    silence = "Problem: The master does not answer. ssh: connect to host 203.0.113.1 port 22: Connection timed out."
    assert len(screens) >= 2 and all(screen[0].startswith("Cluster red (us-east-1, ") for screen in screens), screens
    assert any(line.startswith("lenet-1 running pytorch ddp 1 epoch 3") for line in screens[0])
    assert silence not in screens[0] and silence in screens[-1]
    assert not any(line.startswith("lenet-1 ") for line in screens[-1])
