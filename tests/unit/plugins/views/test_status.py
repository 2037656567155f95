"""What status.yml shows in addition to the summary: members, runs and warnings."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import problems
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import record_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import ClusterResources, Resource
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers, node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import status, status_reader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.status import Observations, TemplateVersion
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import NodeSetup

NOW = datetime(2026, 11, 23, 4, tzinfo=UTC)
UNPRICED = PriceList("us-east-1")
SUMMARY = {
    "state": "ready",
    "next": "ansible-playbook deeplearning.aws.train -e framework=pytorch",
    "again": "",
    "master": {"instance_id": "i-00000001"},
    "efs": {"file_system_id": "fs-1", "mount_target_ids": []},
}


def instance(number: int, group: str = "c-workers", state: str = "running", **fields: Any) -> Resource:
    tags = {"aws:autoscaling:groupName": group, "deeplearning:cluster": "c", "deeplearning:rank": str(number)}
    record = record_of(
        {
            "InstanceId": f"i-{number:08x}",
            "PrivateIpAddress": f"10.0.0.{number}",
            "InstanceType": "g5.xlarge",
            "ImageId": "ami-1",
            "State": {"Name": state},
            "LaunchTime": NOW - timedelta(hours=1),
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            **fields,
        }
    )
    return Resource("instance", str(record["id"]), "", state, facts=record)


def group(name: str, *numbers: int, version: str = "2", **fields: Any) -> Resource:
    machine = {"lifecycle": "InService", "is_healthy": True, "template_version": "2", **fields}
    facts = {"machines": {f"i-{number:08x}": machine for number in numbers}, "template_version": version}
    return Resource("auto_scaling_group", name, name, facts=facts)


def cluster(*resources: Resource) -> ClusterResources:
    """One with a master and a worker, and with changes."""
    kinds = {(resource.kind, resource.id): resource for resource in (*WELL, *resources)}
    return ClusterResources("c", "123456789012", "us-east-1", list(kinds.values()))


WELL = (instance(1, "c-master"), instance(2), group("c-master", 1), group("c-workers", 2))
LOAD = {"instance_id": "i-00000002", "at": 1, "load": 1.0, "processors": 8, "memory_percent": 10, "disk_percent": 20}
LOAD |= {"gpus": [], "logins": 0, "jobs": 0, "errors": []}
ANSWER: dict[str, Any] = {
    "members": [{"instance_id": f"i-{number:08x}", "rank": number, "state": "ready"} for number in (1, 2)],
    "loads": [{**LOAD, "instance_id": f"i-{number:08x}"} for number in (1, 2)],
    "runs": [],
    "problems": [],
}
SEEN = Observations(answer=ANSWER)


def extended(seen: Observations = SEEN, *resources: Resource, **summary: Any) -> dict[str, Any]:
    return status.extend({**SUMMARY, **summary}, cluster(*resources), seen, NOW, UNPRICED)


def health(described: dict[str, Any], rank: int = 2) -> str:
    return str({member["rank"]: member["health"] for member in described["members"]}[rank])


def test_a_cluster_that_is_well_needs_no_attention() -> None:
    described = extended()
    assert described["problems"] == [] and described["master_problem"] == ""
    assert [(member["name"], member["health"]) for member in described["members"]] == [
        ("deeplearning-master", "ready"),
        ("deeplearning-worker2", "ready"),
    ]
    json.dumps(described)


@pytest.mark.parametrize(
    ("changed", "setup", "words"),
    [
        (group("c-workers", 2, is_healthy=False), NodeSetup(), "unhealthy"),
        (group("c-workers", 2, lifecycle="Terminating:Wait"), NodeSetup(), "terminating:wait"),
        (group("c-workers", 2, lifecycle="Pending:Wait"), NodeSetup(), "pending:wait"),
        (group("c-workers", 2, lifecycle="Pending:Wait"), NodeSetup("configuring", "efs_mount"), "configuring"),
        (group("c-workers", 2, lifecycle="Pending:Wait"), NodeSetup("failed", "efs_mount"), "failed"),
        (group("c-workers"), NodeSetup(), "detached"),
        (instance(2, state="shutting-down"), NodeSetup(), "shutting-down"),
    ],
)
def test_auto_scaling_knows_more_about_a_machine_than_the_master(
    changed: Resource, setup: NodeSetup, words: str
) -> None:
    described = extended(replace(SEEN, reports={"i-00000002": setup}), changed)
    assert health(described) == words
    (member,) = [member for member in described["members"] if member["rank"] == 2]
    assert member["step"] == setup.step
    warned = {"unhealthy", "failed", "detached"} & {words}
    assert len(described["problems"]) == len(warned)
    sentences = [problems.BY_HEALTH[word].sentence(subject="deeplearning-worker2") for word in warned]
    assert described["problems"] == sentences


def without(key: str) -> Observations:
    kept = [each for each in ANSWER[key] if each["instance_id"] != "i-00000002"]
    return replace(SEEN, answer={**ANSWER, key: kept})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (without("members"), "joining"),
        (without("loads"), "silent"),
        (replace(SEEN, answer=None, silence="It is frozen."), "in service"),
        (replace(SEEN, answer=None, silence="x", reports={"i-00000002": NodeSetup("faulty")}), "faulty"),
    ],
)
def test_the_master_knows_who_is_a_member_and_who_is_silent(seen: Observations, words: str) -> None:
    described = extended(seen)
    assert health(described) == words
    if seen.silence == "It is frozen.":
        assert described["problems"] == ["The master does not answer. It is frozen."]


@pytest.mark.parametrize("answers", [True, False])
def test_a_held_member_is_named_with_the_reason_and_how_to_replace_it(answers: bool) -> None:
    reports = {"i-00000002": NodeSetup("held", log=["GPU 2 fell off the bus (Xid 79)"])}
    states = [{**member, "state": "held" if member["rank"] == 2 else "ready"} for member in ANSWER["members"]]
    described = extended(replace(SEEN, answer={**ANSWER, "members": states} if answers else None, reports=reports))
    assert health(described) == "held"
    assert described["problems"] == [
        "deeplearning-worker2 is held: GPU 2 fell off the bus (Xid 79); replace it: ansible-playbook "
        "deeplearning.aws.replace -e node=i-00000002"
    ]


def test_a_new_machine_is_not_silent_yet() -> None:
    described = extended(without("loads"), instance(2, LaunchTime=NOW - timedelta(minutes=2)))
    assert health(described) == "ready" and described["problems"] == []


def test_a_cluster_without_a_master_has_no_second_warning() -> None:
    seen = Observations(silence="There is no master.")
    assert extended(seen, master={})["problems"] == []


def emr() -> ClusterResources:
    """A cluster with a master, a core node and one that is not in service yet."""
    tags = [{"Key": "aws:elasticmapreduce:job-flow-id", "Value": "j-1"}, {"Key": "deeplearning:cluster", "Value": "c"}]
    role = "aws:elasticmapreduce:instance-group-role"
    machines = [
        instance(1, Tags=[*tags, {"Key": role, "Value": "MASTER"}]),
        instance(2, Tags=[*tags, {"Key": role, "Value": "CORE"}, {"Key": "deeplearning:rank", "Value": "2"}]),
        instance(3, Tags=[*tags, {"Key": role, "Value": "CORE"}]),
    ]
    job_flow = Resource("emr_cluster", "j-1", "c", facts={"in_service": ["i-00000001", "i-00000002"]})
    return ClusterResources("c", "123456789012", "us-east-1", [*machines, job_flow])


def test_nodes_of_emr_are_members_too() -> None:
    described = status.extend(SUMMARY, emr(), SEEN, NOW, UNPRICED)
    assert [member["health"] for member in described["members"]] == ["ready", "ready", "starting"]


def version(number: int, bundle: str = "", **data: Any) -> TemplateVersion:
    return TemplateVersion(number, {"ImageId": "ami-1", "InstanceType": "g5.xlarge", **data}, bundle)


@pytest.mark.parametrize(
    ("versions", "warnings"),
    [
        ([version(1), version(2)], []),
        # Only the user data differs, which is not in `data`: machines are configured again by ssh.
        ([version(2, "a"), version(3, "b")], []),
        (
            [version(2), version(3, ImageId="ami-2", BlockDeviceMappings=[])],
            ["deeplearning-worker2: launched with another BlockDeviceMappings and ImageId (ami-1, now ami-2) than new"],
        ),
    ],
)
def test_a_machine_keeps_what_its_template_had_when_it_was_launched(
    versions: list[TemplateVersion], warnings: list[str]
) -> None:
    seen = replace(SEEN, templates={"c-workers": {each.number: each for each in versions}}, image_dates=DATES)
    newest = str(max(each.number for each in versions))
    described = extended(seen, group("c-workers", 2, version=newest))
    assert [text[: len(start)] for text, start in zip(described["problems"], warnings, strict=True)] == warnings


DATES = {"ami-1": "2026-10-16T08:00:00.000Z", "ami-2": "2026-10-16T08:00:00.000Z"}


def test_a_group_that_does_not_use_the_newest_version_is_named() -> None:
    seen = replace(SEEN, templates={"c-workers": {2: version(2), 3: version(3)}}, image_dates=DATES)
    (warning,) = extended(seen)["problems"]
    assert warning.startswith("c-workers launches machines by version 2 of its launch template, and 3 is the newest")
    assert extended(seen, group("c-workers", 2, version="$Latest"))["problems"] == []


def test_an_old_bundle_is_one_that_new_machines_do_not_get() -> None:
    seen = replace(SEEN, templates={"c-workers": {2: version(2, "new")}}, image_dates=DATES)
    assert extended(replace(seen, reports={"i-00000002": NodeSetup("ready", bundle="new")}))["problems"] == []
    # One that was configured by ssh has none.
    assert extended(replace(seen, reports={"i-00000002": NodeSetup("ready")}))["problems"] == []
    (warning,) = extended(replace(seen, reports={"i-00000002": NodeSetup("ready", bundle="old")}))["problems"]
    assert warning.startswith("deeplearning-worker2: configured by an old bundle")


def test_a_held_core_node_is_not_to_be_replaced_by_auto_scaling() -> None:
    reports = {"i-00000001": NodeSetup("ready"), "i-00000002": NodeSetup("held", log=["GPU 2 fell off the bus"])}
    problems = status.extend(SUMMARY, emr(), replace(SEEN, answer=None, reports=reports), NOW, UNPRICED)["problems"]
    (problem,) = [problem for problem in problems if "is held" in problem]
    assert problem == (
        "deeplearning-worker2 is held: GPU 2 fell off the bus; reboot it, or release it on the node: "
        "sudo deeplearning gpus release"
    )


@pytest.mark.parametrize(("worker", "warnings"), [("new", 0), ("", 0), ("old", 1)])
def test_a_core_node_that_came_after_a_change_has_the_bundle_of_the_clusters_creation(
    worker: str, warnings: int
) -> None:
    reports = {"i-00000001": NodeSetup("ready", bundle="new"), "i-00000002": NodeSetup("ready", bundle=worker)}
    problems = status.extend(SUMMARY, emr(), replace(SEEN, reports=reports), NOW, UNPRICED)["problems"]
    words = "deeplearning-worker2: configured by another bundle than the master"
    assert [problem.startswith(words) for problem in problems] == [True] * warnings


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ({"ami-1": "2026-10-16T08:00:00.000Z"}, ""),
        ({"ami-1": "2026-03-16T08:00:00.000Z"}, "The image ami-1 was made on 2026-03-16, "),
        ({"ami-1": "nonsense"}, ""),
        ({}, "The image ami-1 is not available any more, so Auto Scaling can launch no machine; "),
    ],
)
def test_an_old_image_and_one_that_is_gone_are_named_once(dates: dict[str, str], words: str) -> None:
    templates = {name: {2: version(2)} for name in ("c-master", "c-workers")}
    warnings = extended(replace(SEEN, templates=templates, image_dates=dates))["problems"]
    assert [warning.startswith(words) for warning in warnings] == ([True] if words else [])


@pytest.mark.parametrize(
    ("at", "reason", "words"),
    [
        ("", "", ""),
        ("2026-11-23T08:40:00Z", "cluster_ttl_hours", ""),
        (
            "2026-11-23T04:40:00Z",
            "cluster_ttl_hours",
            ", and its file system stays; ansible-playbook deeplearning.aws.extend ",
        ),
        (
            "2026-11-23T04:40:00Z",
            "idle",
            ", and its file system stays; a run, a login or other work until then postpones it",
        ),
        (
            "2026-11-23T04:40:00Z",
            "setup",
            ": no playbook has met one of them in service yet; ansible-playbook deeplearning.aws.site tries again, ",
        ),
    ],
)
def test_an_end_that_is_near_is_a_warning_with_what_moves_it(at: str, reason: str, words: str) -> None:
    warnings = extended(ends={"at": at, "reason": reason} if at else {})["problems"]
    assert [f" end at {at}, in 40 minutes{words}" in warning for warning in warnings] == [True] * bool(words)


def test_many_members_are_counted_unless_they_need_attention() -> None:
    numbers = range(2, 60)
    ids = [f"i-{number:08x}" for number in (1, *numbers)]
    answer = {
        **ANSWER,
        "members": [{"instance_id": id_, "rank": 1, "state": "faulty" if id_ == ids[6] else "ready"} for id_ in ids],
        "loads": [{**LOAD, "instance_id": id_} for id_ in ids],
    }
    resources = [instance(number) for number in numbers]
    described = extended(replace(SEEN, answer=answer), *resources, group("c-workers", *numbers))
    lines = status.lines(described)
    assert sum(line.startswith("  deeplearning-") for line in lines) == 1
    assert "  and 58 that are ready" in lines and len(lines) < 12


def test_lines_are_aligned_and_say_what_is_unknown() -> None:
    gpus = [{"busy_percent": 90, "memory_percent": 10}, {"busy_percent": 100, "memory_percent": 30}]
    loads = [{**LOAD, "gpus": gpus}]
    lines = status.lines(extended(replace(SEEN, answer={**ANSWER, "loads": loads})))
    header, master, worker = (line for line in lines if "10.0.0." in line or line.startswith("  member "))
    assert worker.index("2: 95 % busy, 20 % memory") == header.index("GPUs") == master.rindex("-")
    assert "  No runs." in lines
    assert "  Runs: unknown." in status.lines(extended(Observations(silence="It is frozen.")))
    assert status.lines({"members": [], "problems": [], "runs": [], "master_problem": "There is no master."}) == []


def test_the_advice_on_a_problem_acts_on_the_cluster_of_this_command_line() -> None:
    described = {**extended(again=" -e cluster_name=red"), "problems": [problems.MEMBER_FAULTY.sentence(subject="x")]}
    assert status.lines(described)[0] == (
        "  Problem: x reported a fault; ansible-playbook deeplearning.aws.health -e cluster_name=red shows which check "
        "fails."
    )


# The reader


def test_versions_of_a_template_are_compared_without_their_user_data() -> None:
    def listed(number: int, user_data: bytes) -> dict[str, Any]:
        encoded = base64.b64encode(user_data).decode()
        return {"VersionNumber": number, "LaunchTemplateData": {"ImageId": "ami-1", "UserData": encoded}}

    bundle = "ab" * 32
    parameters = f'PARAMETERS = {{"sha256": "{bundle}"}}'.encode()
    versions = status_reader.versions_of([listed(1, b"#!/bin/sh"), listed(2, parameters), listed(3, b"\xff")])
    assert [each.bundle for each in versions.values()] == ["", bundle, ""]
    assert {each.image for each in versions.values()} == {"ami-1"}
    assert all(each.data == {"ImageId": "ami-1"} for each in versions.values())
    broken = {"VersionNumber": 1, "LaunchTemplateData": {"UserData": "%" + base64.b64encode(parameters).decode()}}
    assert status_reader.versions_of([broken])[1] == TemplateVersion(1, {})


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (
            "an instance was taken out of service in response to an EC2 health check indicating it has been terminated "
            "or stopped.",
            "an EC2 health check indicating it has been terminated or stopped",
        ),
        (
            "an instance was taken out of service in response to an EC2 instance status checks failure.",
            "an EC2 instance status checks failure",
        ),
        (
            "an instance was taken out of service in response to a user health-check.",
            "a user health-check",
        ),
        (
            "an instance was taken out of service in response to an EC2 Spot Instance interruption notice.",
            "an EC2 Spot Instance interruption notice",
        ),
        ("a user request explicitly set group desired capacity changing the desired capacity from 3 to 2.", ""),
        ("instance i-0 was taken out of service in response to a user request, shrinking the capacity.", ""),
    ],
)
def test_only_machines_that_failed_were_replaced(cause: str, reason: str) -> None:
    activity = {
        "Description": "Terminating EC2 instance: i-0123456789abcdef0",
        "Cause": f"At 2026-11-23T03:00:00Z {cause}",
        "StartTime": NOW,
    }
    launch = {**activity, "Description": "Launching a new EC2 instance: i-0123456789abcdef0"}
    replaced = status_reader.replacements_of([activity, launch], NOW - timedelta(hours=1))
    assert [(each["subject"], each["at"], each["reason"]) for each in replaced] == (
        [("i-0123456789abcdef0", "2026-11-23 04:00", reason)] if reason else []
    )
    assert status_reader.replacements_of([activity], NOW + timedelta(hours=1)) == []


# The master's answer


def ssh(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("exec sleep 60", "deeplearning-master did not answer completely in time."),
        ("echo 'Permission denied (publickey).' >&2; exit 255", "was lost: Permission denied"),
        ("echo '{}'", "answered `deeplearning status` with something unexpected"),
        ("printf '\\033[2J' >&2; exit 1", "\N{REPLACEMENT CHARACTER}[2J"),
        ("exec cat /dev/zero", "deeplearning-master sends far more than is expected"),
    ],
)
def test_a_master_that_does_not_answer_well_is_one_sentence(
    lines: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh(tmp_path, lines, monkeypatch)
    monkeypatch.setattr(node_program, "LONGEST_ANSWER", 1 << 16)
    way, seconds = node_program.Way.of_config("/c.ssh_config", "deeplearning-master"), 1.5 if "sleep" in lines else 30
    with pytest.raises(UserError) as raised:
        node_program.ask(way, ["status"], seconds=seconds)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_machine_without_ssh_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="There is no ssh on this machine"):
        node_program.ask(node_program.Way.of_config("/c.ssh_config", "deeplearning-master"), ["status"], seconds=1.5)


RUN = {"run_id": "r1", "state": "running", "framework": "pytorch", "distribution": "ddp", "nodes": []}
RUN |= {"progress": None, "requested_by": "me", "requested_at": "now", "sentence": ""}


def spoilt(key: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer[key][0].update(fields)


@pytest.mark.parametrize(
    "spoil",
    [
        spoilt("members", instance_id="-oProxyCommand=id"),
        spoilt("members", state="root"),
        spoilt("loads", instance_id="../x"),
        spoilt("loads", load=float("inf")),
        spoilt("loads", gpus=[{"busy_percent": 1}]),
        spoilt("loads", more=1),
        spoilt("runs", run_id="../x"),
        spoilt("runs", nodes=["-x"]),
        spoilt("runs", framework="x"),
        lambda answer: answer.update(problems=None),
        lambda answer: answer.update(loads=[[]]),
    ],
)  # fmt: skip
def test_a_malformed_answer_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    answer = json.loads(json.dumps({**ANSWER, "runs": [RUN]}))
    answers.parse("n", ["status"], json.dumps(answer))
    spoil(answer)
    with pytest.raises(UserError, match="something unexpected"):
        answers.parse("n", ["status"], json.dumps(answer))


def test_runs_are_listed_by_the_program_of_an_earlier_version_too() -> None:
    earlier = {key.replace("requested", "asked"): value for key, value in RUN.items()}
    answer = answers.parse("n", ["status"], json.dumps({**ANSWER, "runs": [earlier]}))
    (row,) = [line for line in status.lines(extended(Observations(answer=answer))) if "r1" in line]
    assert row.split() == ["r1", "running", "pytorch", "ddp", "0", "-", "-"]


def test_texts_of_nodes_are_safe_to_print() -> None:
    content = {**ANSWER, "runs": [{**RUN, "requested_by": "\x1b[2Jme\n"}], "problems": ["a\x9bb"]}
    answer = answers.parse("n", ["status"], json.dumps(content))
    assert answer["runs"][0]["requested_by"] == "\N{REPLACEMENT CHARACTER}[2Jme "
    assert answer["problems"] == ["a\N{REPLACEMENT CHARACTER}b"]
    # What a script reports as its progress may be anything.
    content["runs"][0]["progress"] = {"epoch": "\x1b", "loss": 0.5}
    progress = answers.parse("n", ["status"], json.dumps(content))["runs"][0]["progress"]
    assert (progress["epoch"], progress["loss"]) == (None, 0.5)


# Limits, and the whole text


def problems_with(seen: Observations = SEEN, *resources: Resource, **summary: Any) -> list[str]:
    return list(extended(seen, *resources, **summary)["problems"])


def test_the_limits_of_what_is_old_near_full_or_silent() -> None:
    def loaded(percent: int) -> Observations:
        return replace(SEEN, answer={**ANSWER, "loads": [{**LOAD, "disk_percent": percent}]})

    limit = int(problems.DISK_ALMOST_FULL.threshold)
    assert problems_with(loaded(limit - 1), instance(1, "c-master", LaunchTime=NOW)) == []
    (full,) = problems_with(loaded(limit), instance(1, "c-master", LaunchTime=NOW))
    assert full.startswith("deeplearning-worker2: its disk / is 90 % full; remove data sets and environments that ")

    templates = {"c-workers": {2: version(2)}}
    old = timedelta(days=problems.IMAGE_OLD.threshold)
    for age, count in ((old, 0), (old + timedelta(seconds=1), 1)):
        seen = replace(SEEN, templates=templates, image_dates={"ami-1": (NOW - age).isoformat()})
        assert len(problems_with(seen)) == count

    def at(left: timedelta) -> dict[str, Any]:
        return {"ends": {"at": (NOW + left).strftime("%Y-%m-%dT%H:%M:%SZ"), "reason": "cluster_ttl_hours"}}

    near = timedelta(seconds=problems.END_TTL.threshold)
    assert problems_with(**at(near + timedelta(seconds=1))) == []
    assert ", in 60 minutes, and its file system stays; " in problems_with(**at(near))[0]
    assert ", in 0 minutes, and its file system stays; " in problems_with(**at(-timedelta(minutes=5)))[0]

    silent = timedelta(seconds=problems.MEMBER_SILENT.threshold)
    for up, words in ((silent, "silent"), (silent - timedelta(seconds=1), "ready")):
        assert health(extended(without("loads"), instance(2, LaunchTime=NOW - up))) == words
        # A time without a zone is UTC's.
        bare = (NOW - up).replace(tzinfo=None)
        assert health(extended(without("loads"), instance(2, LaunchTime=bare))) == words
    assert health(extended(without("loads"), instance(2, LaunchTime="no time"))) == "ready"


@pytest.mark.parametrize(("count", "hidden"), [(status.SHOWN_MEMBERS, 0), (status.SHOWN_MEMBERS + 1, 33)])
def test_the_most_members_that_are_all_shown(count: int, hidden: int) -> None:
    ids = [f"i-{number:08x}" for number in range(1, count + 1)]
    answer = {
        **ANSWER,
        "members": [{"instance_id": id_, "rank": 1, "state": "ready"} for id_ in ids],
        "loads": [{**LOAD, "instance_id": id_} for id_ in ids],
    }
    workers = range(2, count + 1)
    resources = [instance(number) for number in workers]
    lines = status.lines(extended(replace(SEEN, answer=answer), *resources, group("c-workers", *workers)))
    assert (f"  and {hidden} that are ready" in lines) is bool(hidden)
    assert sum(line.startswith("  deeplearning-") for line in lines) == (0 if hidden else count)


LISTED = {
    "run_id": "lenet-1",
    "state": "running",
    "framework": "pytorch",
    "distribution": "ddp",
    "nodes": ["deeplearning-master", "deeplearning-worker2"],
    "progress": {"epoch": 2, "loss": 0.5},
    "requested_by": "me@here",
    "requested_at": "2026-11-23T03:00:00Z",
    "cost": {"so_far": 41.2, "at_end": 96.125},
}


def test_a_member_has_all_that_is_known_of_it() -> None:
    reports = {"i-00000002": NodeSetup("failed", "efs_mount", bundle="b" * 64)}
    machine = instance(2, PublicIpAddress="198.51.100.2", InstanceLifecycle="spot")
    changed = group("c-workers", 2, lifecycle="Pending:Wait")
    described = extended(replace(SEEN, reports=reports, efs_bytes=7), machine, changed)
    (member,) = [member for member in described["members"] if member["rank"] == 2]
    assert member == {
        "name": "deeplearning-worker2",
        "rank": 2,
        "role": "worker",
        "instance_id": "i-00000002",
        "address": "10.0.0.2",
        "public_address": "198.51.100.2",
        "type": "g5.xlarge",
        "zone": "",
        "image": "ami-1",
        "group": "c-workers",
        "spot": True,
        "launched": str(NOW - timedelta(hours=1)),
        "template_version": "2",
        "bundle": "b" * 64,
        "health": "failed",
        "step": "efs_mount",
        "held": "",
        "load": LOAD,
    }
    assert described["efs"]["bytes"] == 7 and described["runs"] == []
    detached = extended(SEEN, group("c-workers"))["members"][1]
    assert (detached["template_version"], detached["health"]) == ("", "detached")


TAGS = [
    {"Key": "aws:autoscaling:groupName", "Value": "c-workers"},
    {"Key": "deeplearning:cluster", "Value": "c"},
    {"Key": "deeplearning:rank", "Value": "4"},
]


def test_the_whole_text() -> None:
    gpus = [{"busy_percent": 90, "memory_percent": 11}, {"busy_percent": 95, "memory_percent": 30}]
    failing = {**LOAD, "gpus": gpus, "errors": ["Xid 79"], "load": 3.25}
    answer = {**ANSWER, "loads": [failing], "runs": [LISTED], "problems": ["The disk is full."]}
    seen = replace(
        SEEN,
        answer=answer,
        replacements=[{"subject": "i-9", "at": "2026-11-23 03:00", "reason": "an EC2 health check"}],
    )
    joining = instance(4, Tags=[tag for tag in TAGS if tag["Key"] != "deeplearning:rank"])
    waiting = {**LISTED, "run_id": "b", "progress": None, "cost": None}
    described = extended(replace(seen, answer={**answer, "runs": [LISTED, waiting]}), instance(3), joining)
    assert status.lines(described) == [
        "  Problem: The disk is full.",
        "  Problem: deeplearning-worker3, i-00000004: not in its group any more, and billed; terminate it in EC2.",
        "  Problem: deeplearning-master: no load reported for 3 minutes; ansible-playbook deeplearning.aws.health "
        "checks it.",
        "  Problem: deeplearning-worker2: Xid 79; ansible-playbook deeplearning.aws.health shows which check fails.",
        "  Problem: i-9 was replaced at 2026-11-23 03:00 UTC: Auto Scaling took it out of service after an EC2 health "
        "check.",
        "",
        "  member                instance    address   type       health    load      memory  disk  GPUs",
        "  deeplearning-master   i-00000001  10.0.0.1  g5.xlarge  silent    -         -       -     -",
        "  deeplearning-worker2  i-00000002  10.0.0.2  g5.xlarge  ready     3.2 of 8  10 %    20 %  "
        "2: 92 % busy, 20 % memory",
        "  deeplearning-worker3  i-00000003  10.0.0.3  g5.xlarge  detached  -         -       -     -",
        "  i-00000004                        10.0.0.4  g5.xlarge  detached  -         -       -     -",
        "",
        "  run      state    framework    nodes  progress                                                        "
        "requested at",
        "  lenet-1  running  pytorch ddp  2      epoch 2, loss 0.5000, 41.20 USD so far, about 96.12 at its end  "
        "2026-11-23T03:00:00Z by me@here",
        "  b        running  pytorch ddp  2      -                                                               "
        "2026-11-23T03:00:00Z by me@here",
        "",
    ]


def test_machines_of_different_templates_are_named_by_what_differs() -> None:
    versions = {1: version(1, InstanceType="g5.2xlarge"), 2: version(2), 3: version(3, Monitoring={"Enabled": True})}
    seen = replace(SEEN, templates={"c-workers": versions}, image_dates=DATES)
    workers = group("c-workers", 2, 3, version="3")
    workers.facts["machines"]["i-00000003"] = {"lifecycle": "InService", "is_healthy": True, "template_version": "1"}
    third = instance(3)
    answer = {
        **ANSWER,
        "members": [*ANSWER["members"], {"instance_id": "i-00000003", "rank": 3, "state": "ready"}],
        "loads": [*ANSWER["loads"], {**LOAD, "instance_id": "i-00000003"}],
    }
    rest = "than new machines of c-workers get; a machine keeps it until it is replaced"
    problems = extended(replace(seen, answer=answer), third, workers)["problems"]
    assert [text for text in problems if "launched with another" in text] == [
        f"deeplearning-worker2: launched with another Monitoring {rest}",
        f"deeplearning-worker3: launched with another InstanceType (g5.2xlarge, now g5.xlarge) and Monitoring {rest}",
    ]


STALLED_RUN = {
    "run_id": "lenet-1",
    "state": "stalled",
    "framework": "pytorch",
    "distribution": "ddp",
    "requested_by": "me",
}
STALLED_RUN |= {"nodes": ["deeplearning-worker1", "deeplearning-worker2"], "progress": None, "requested_at": "now"}
STALLED_RUN |= {"reason": "no process has reported progress or output for 12 minutes. Silent: worker 1 on x."}


@pytest.mark.parametrize(
    ("nodes", "prices", "cost"),
    [
        (
            ["deeplearning-worker1", "deeplearning-worker2"],
            {"g5.xlarge": 1.006},
            "Meanwhile its machines cost 2.01 USD an hour",
        ),
        (["deeplearning-worker2"], {"g5.xlarge": 1.006}, "its machines cost 1.01 USD an hour"),
        (["deeplearning-worker2", "deeplearning-worker9"], {"g5.xlarge": 2}, "machines cost at least 2.00 USD an hour"),
        (["deeplearning-worker2"], {}, "its machines cost an amount that is not known here (unknown: AWS's Price List"),
    ],
)
def test_a_stalled_run_is_a_problem_with_what_its_machines_cost(
    nodes: list[str], prices: dict[str, float], cost: str
) -> None:
    known = {offers.machine(kind): offers.Price(amount, "2026-11-01") for kind, amount in prices.items()}
    seen = Observations(answer={**ANSWER, "runs": [{**STALLED_RUN, "nodes": nodes}]})
    (problem,) = status.extend(SUMMARY, cluster(), seen, NOW, PriceList("us-east-1", known))["problems"]
    assert problem.startswith("Run lenet-1 is stalled: no process has reported progress or output for 12 minutes.")
    assert cost in problem and problem.endswith("; to end it: ansible-playbook deeplearning.aws.stop -e run_id=lenet-1")


def test_a_run_that_runs_is_no_problem() -> None:
    seen = Observations(answer={**ANSWER, "runs": [{**STALLED_RUN, "state": "running"}]})
    assert status.extend(SUMMARY, cluster(), seen, NOW, UNPRICED)["problems"] == []


TRAIN = SUMMARY["next"]
FOLLOW = "ansible-playbook deeplearning.aws.follow -e run_id=a"
RESUME = "ansible-playbook deeplearning.aws.train -e resume=a"


@pytest.mark.parametrize(
    ("state", "runs", "command"),
    [
        ("ready", [], TRAIN),
        ("ready", [("a", "finished")], TRAIN),
        ("ready", [("a", "failed")], TRAIN),
        ("ready", [("a", "lost"), ("b", "finished")], RESUME),
        ("degraded", [("a", "stopped")], RESUME),
        # An older run was perhaps given up.
        ("ready", [("b", "finished"), ("a", "lost")], TRAIN),
        ("ready", [("b", "lost"), ("a", "stalled")], FOLLOW),
        ("creating", [("a", "running")], TRAIN),
    ],
)
def test_the_next_command_goes_on_with_a_run(state: str, runs: list[tuple[str, str]], command: str) -> None:
    items = [{"run_id": run_id, "state": run_state} for run_id, run_state in runs]
    assert status.next_command({**SUMMARY, "state": state}, items) == command
    again = status.next_command({**SUMMARY, "state": state, "again": " -e c=d"}, items)
    assert again == (command if command == TRAIN else f"{command} -e c=d")
