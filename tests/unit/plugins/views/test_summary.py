"""The summary of a cluster, as data and as text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import TaggedResource
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    DEAD,
    GOING,
    ClusterResources,
    Health,
    Resource,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.costs import Costs
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.summary import (
    TRAIN,
    Context,
    cluster_lines,
    describe,
    destroy_command,
    failure_lines,
    hourly_phrase,
    next_command,
    resource_lines,
    stray_lines,
    summary_lines,
)

from tests.unit.plugins.hostile_kit import EVIL
from tests.unit.prices import LIST

INSTANCE = {"public_address": "198.51.100.99", "public_name": "ec2-198-51-100-7.aws", "private_address": "10.0.0.4"}
MASTER = Resource("auto_scaling_group", "c-master", "c-master", facts={"most": 1, "in_service": ["i-1"]})
WORKERS = Resource("auto_scaling_group", "c-workers", "c-workers", facts={"most": 2, "in_service": ["i-2"]})
ESTATE = ClusterResources(
    "c",
    "123456789012",
    "us-east-1",
    [
        MASTER,
        WORKERS,
        Resource("instance", "i-1", "c-master", "running", facts=INSTANCE),
        Resource("instance", "i-2", "c-worker", "running", facts={}),
        Resource("address", "eipalloc-1", "c-master", facts={"public_ip": "198.51.100.7", "instance": "i-1"}),
        Resource("nat_gateway", "nat-1", "c-nat", "available"),
        Resource("security_group", "sg-1", "c-ssh"),
        Resource("file_system", "fs-1", "c-efs", "available"),
        Resource("mount_target", "fsmt-1", facts={"file_system": "fs-1"}),
    ],
)
HEALTH = Health("degraded", 3, 2, ["AWS has no capacity for 1 of c-workers."])


UNPRICED = Costs(PriceList("us-east-1"), has_history=False)


def context(costs: Costs = UNPRICED, **more: Any) -> Context:
    return Context(costs, **more)


CONTEXT = context(
    user="ubuntu",
    private_key_file="~/my key",
    hourly={"amount": 3.018, "currency": "USD", "known": True},
    ssh_config="/a folder/c.ssh_config",
)


def test_all_that_the_next_command_needs_is_in_the_data() -> None:
    summary = describe(ESTATE, HEALTH, CONTEXT)
    assert summary["state"] == "degraded"
    assert summary["machines"] == {"desired": 3, "in_service": 2}
    assert summary["groups"]["workers"] == {"name": "c-workers", "desired": 2, "in_service": 1}
    assert summary["master"]["public_ip"] == "198.51.100.7", "the address that stays, not the one of the launch"
    assert summary["ssh"] == "ssh -F '/a folder/c.ssh_config' deeplearning-master"
    assert summary["ssh_security_group_id"] == "sg-1"
    assert summary["efs"] == {"file_system_id": "fs-1", "mount_target_ids": ["fsmt-1"]}
    assert summary["destroy"] == "ansible-playbook deeplearning.aws.destroy -e destroy=c"
    json.dumps(summary)


def test_the_command_to_log_in_is_always_the_documented_one() -> None:
    """Also before the first contact: with host keys of the API, and the agent forwarded to members only."""
    page = (Path(__file__).resolve().parents[4] / "docs/logging-in.md").read_text(encoding="utf-8")
    shown = describe(ESTATE, HEALTH, replace(CONTEXT, ssh_config=".deeplearning/red.ssh_config"))["ssh"]
    assert shown in page


def test_it_reads_well() -> None:
    lines = summary_lines(describe(ESTATE, HEALTH, CONTEXT), ESTATE, "c.json")
    assert lines[0] == (
        "Cluster c (us-east-1, account 123456789012) has fewer machines than requested: 2 of 3 machines in service."
    )
    assert lines[1] == "  AWS has no capacity for 1 of c-workers."
    assert lines[2:] == [
        "  log in        ssh -F '/a folder/c.ssh_config' deeplearning-master",
        "  costs         3.02 USD an hour, 72.43 a day with all machines, plus storage and traffic",
        "  machines end  never: ansible-playbook deeplearning.aws.site -e cluster_ttl_hours=8",
        "  next          ansible-playbook deeplearning.aws.train -e framework=pytorch",
        "  to remove it  ansible-playbook deeplearning.aws.destroy -e destroy=c",
    ]


def test_the_earliest_end_is_in_the_data_and_both_in_the_text() -> None:
    def ends(at: dict[str, float]) -> ClusterResources:
        group = replace(MASTER, facts={**MASTER.facts, "ends": at})
        return replace(ESTATE, resources=[group, *ESTATE.resources[1:]])

    both = ends({"ttl": 1_800_003_600.0, "idle": 1_800_000_000.0})
    summary = describe(both, HEALTH, replace(CONTEXT, idle_minutes=60))
    assert summary["ends"] == {
        "at": "2027-01-15T08:00:00Z",
        "reason": "idle",
        "idle_minutes": 60,
        "ttl_at": "2027-01-15T09:00:00Z",
        "setup_at": "",
    }
    (line,) = [line for line in summary_lines(summary, both, "") if "machines end" in line]
    assert line.split("  ")[-1] == (
        "2027-01-15 09:00 UTC (ansible-playbook deeplearning.aws.extend -e hours=4 postpones it); 2027-01-15 08:00 UTC "
        "(a run, a login or other work until then postpones it)"
    )
    setup = ends({"setup": 1_800_000_000.0, "ttl": 1_800_003_600.0})
    summary = describe(setup, HEALTH, CONTEXT)
    assert [summary["ends"][key] for key in ("reason", "at", "setup_at")] == ["setup", *["2027-01-15T08:00:00Z"] * 2]
    (line,) = [line for line in summary_lines(summary, setup, "") if "machines end" in line]
    assert line.split("  ")[-1] == (
        "2027-01-15 08:00 UTC for c-master (ansible-playbook deeplearning.aws.site tries again, ansible-playbook "
        "deeplearning.aws.extend sets another end in its place); 2027-01-15 09:00 UTC (ansible-playbook "
        "deeplearning.aws.extend -e hours=4 postpones it)"
    )
    ttl = describe(ends({"ttl": 1_800_003_600.0}), HEALTH, CONTEXT)["ends"]
    assert (ttl["at"], ttl["reason"]) == ("2027-01-15T09:00:00Z", "cluster_ttl_hours")
    never = {"at": "", "reason": "", "idle_minutes": 0, "ttl_at": "", "setup_at": ""}
    assert describe(ESTATE, HEALTH, CONTEXT)["ends"] == never


def test_what_others_have_scheduled_is_named_with_the_command_that_deletes_it() -> None:
    group = replace(MASTER, facts={**MASTER.facts, "foreign_actions": {"zz": "c-master has zz"}})
    owned = replace(ESTATE, resources=[group, *ESTATE.resources[1:]])
    lines = summary_lines(describe(owned, HEALTH, CONTEXT), owned, "")
    command = "ansible-playbook deeplearning.aws.site -e delete_actions=zz"
    assert f"  scheduled by others  c-master has zz. To delete it: {command}" in lines


@pytest.mark.parametrize(
    ("facts", "label", "rest"),
    [
        ({}, "machines end", "never: ansible-playbook deeplearning.aws.site{} -e cluster_ttl_hours=8"),
        (
            {"ends": {"ttl": 1_800_000_000.0}},
            "machines end",
            "2027-01-15 08:00 UTC (ansible-playbook deeplearning.aws.extend{} -e hours=4 postpones it)",
        ),
        (
            {"ends": {"setup": 1_800_000_000.0}},
            "machines end",
            "2027-01-15 08:00 UTC for c-master (ansible-playbook deeplearning.aws.site{0} tries again, "
            "ansible-playbook deeplearning.aws.extend{0} sets another end in its place)",
        ),
        (
            {"foreign_actions": {"zz": "c-master has zz"}},
            "scheduled by others",
            "c-master has zz. To delete it: ansible-playbook deeplearning.aws.site{} -e delete_actions=zz",
        ),
    ],
)
def test_each_command_acts_on_the_cluster_of_this_command_line(facts: dict[str, Any], label: str, rest: str) -> None:
    group = replace(MASTER, facts={**MASTER.facts, **facts})
    owned = replace(ESTATE, resources=[group, *ESTATE.resources[1:]])
    again = r" -e 'cluster_name=red cluster_profile=a\1'"
    summary = describe(owned, HEALTH, replace(CONTEXT, again=again))
    assert summary["again"] == again
    (line,) = [line for line in summary_lines(summary, owned, "") if line.startswith(f"  {label} ")]
    assert line.split("  ")[-1] == rest.format(again)


def test_what_only_the_plan_knows_is_otherwise_taken_from_aws() -> None:
    machine = Resource("instance", "i-1", "c-master", "running", facts={**INSTANCE, "user": "admin"})
    foreign = Resource("instance", "i-0", "x", "running", ours=False, facts={**INSTANCE, "user": "mallory"})
    owned = replace(ESTATE, resources=[foreign, machine, MASTER, WORKERS])
    summary = describe(owned, HEALTH, context())
    assert summary["user"] == "admin"
    assert "  costs         2 instances (by the second)" in summary_lines(summary, owned, "")
    assert describe(owned, HEALTH, CONTEXT)["user"] == "ubuntu"


def test_a_failure_lists_what_it_costs_and_how_to_remove_it_and_not_its_sentence_again() -> None:
    failed = context(failure="No zone has five machines.", costs=Costs(LIST), again=" -e cluster_name=c")
    summary = describe(ESTATE, HEALTH, failed)
    assert (summary["state"], summary["reasons"]) == ("failed", ["No zone has five machines."])
    assert failure_lines(summary, ESTATE, "/c.json") == [
        "  still costs   at least 0.05 USD an hour, 1.20 a day: 2 instances (by the second), "
        "1 Elastic IP address (0.005), 1 NAT gateway (0.045), 1 file system (0.00)",
        "  to continue   ansible-playbook deeplearning.aws.site -e cluster_name=c",
        "  to remove it  ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_name=c",
    ]


def test_all_that_a_failure_can_add_to_its_sentence_are_four_lines() -> None:
    kept = [Resource("file_system", "fs-1", "c-efs"), Resource("vpc", "vpc-1")]
    owned = ClusterResources("c", "123456789012", "us-east-1", kept)
    summary = describe(owned, HEALTH, context(failure="It failed.\nan end of a log", costs=Costs(LIST)))
    summary["cost_so_far"] = {"since": "2026-11-23T04:00:00Z", "amount": 1, "currency": "USD", "note": "so much"}
    assert failure_lines(summary, owned, "/c.json") == [
        "  still costs   0.00 USD an hour, 0.00 a day: 1 file system (0.00); so far 1.00 USD since 2026-11-23 "
        "04:00 UTC (so much)",
        "  to continue   ansible-playbook deeplearning.aws.site",
        "  to remove it  ansible-playbook deeplearning.aws.destroy -e destroy=c (with its file system: -e "
        "cluster_keep_efs=false)",
        "  details       /c.json",
    ]
    nothing = replace(owned, resources=[])
    assert failure_lines(describe(nothing, HEALTH, context(failure="It failed.")), nothing, "") == [
        "  still costs   nothing",
        "  to create it  ansible-playbook deeplearning.aws.site",
    ]


def test_no_removal_is_suggested_if_nothing_exists() -> None:
    empty = ClusterResources("c", "123456789012", "us-east-1")
    lines = summary_lines(describe(empty, Health("absent", 0, 0), context()), empty, "")
    assert lines[0] == "Cluster c (us-east-1, account 123456789012) does not exist."
    assert not any("destroy" in line for line in lines)


@pytest.mark.parametrize(
    ("hourly", "words"),
    [
        ({}, "AWS's price for the machines is not known here"),
        (
            {"amount": 2, "known": False},
            "at least 2.00 USD an hour, 48.00 a day with all machines, plus storage and traffic",
        ),
    ],
)
def test_the_price_is_printed_as_far_as_it_is_known(hourly: dict[str, Any], words: str) -> None:
    assert hourly_phrase(hourly) == words


def test_resources_are_listed_with_what_they_cost_and_how_to_remove_them() -> None:
    lines = resource_lines(ESTATE, LIST)
    assert lines[0] == "The cluster c (us-east-1, account 123456789012) has:"
    assert "  NAT gateway nat-1 (c-nat), available" in lines
    assert lines[-2].startswith(
        "It costs at least 0.05 USD an hour, 1.20 a day: 2 instances (by the second), 1 Elastic"
    )
    assert lines[-1] == "To remove it: ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_name=c"


def test_all_clusters_are_one_table() -> None:
    group = replace(MASTER, facts={**MASTER.facts, "ends": {"ttl": 1_800_000_000.0}})
    ending = replace(ESTATE, cluster="ending", resources=[group, *ESTATE.resources[1:]])
    file_system = Resource("file_system", "fs-1", "removed-efs")
    removed = ClusterResources("removed", "123456789012", "us-east-1", [file_system])
    of_emr = ClusterResources("emr", "123456789012", "us-east-1", [Resource("instance", "i-9", "emr", "running")])
    empty = ClusterResources("empty", "123456789012", "us-east-1")
    absent = Health("absent", 0, 0)
    context = replace(CONTEXT, costs=Costs(LIST))
    summaries = [
        describe(ESTATE, HEALTH, context),
        describe(ending, Health("ready", 3, 3), context),
        describe(removed, absent, context),
        describe(of_emr, Health("ready", 1, 1), context),
        describe(replace(of_emr, cluster="idle"), Health("ready", 1, 1), replace(context, idle_minutes=60)),
        describe(empty, absent, context),
    ]
    assert cluster_lines("us-east-1", "us-east-1", summaries) == [
        "cluster  region     state     machines  runs  USD an hour    ends",
        "c        us-east-1  degraded  2 of 3    0     at least 0.05  never",
        "ending   us-east-1  ready     3 of 3    ?     at least 0.05  2027-01-15 08:00 UTC",
        "removed  us-east-1  removed   0 of 0    0     0.00           -",
        "emr      us-east-1  ready     1 of 1    ?     not known      none now",
        "idle     us-east-1  ready     1 of 1    ?     not known      idle 60 min",
        "What one of them has, and the command that removes it: ansible-playbook deeplearning.aws.audit -e audit=NAME",
    ]
    assert cluster_lines("us-east-1", "us-east-1", summaries[-1:]) == ["No cluster has resources in us-east-1."]
    lines = cluster_lines("us-east-1", "us-east-1", summaries[:1], {"b": "AWS does not answer."})
    assert [line.split()[:3] for line in lines[1:3]] == [["c", "us-east-1", "degraded"], ["b", "us-east-1", "unknown"]]
    assert lines[3] == "The cluster b cannot be read: AWS does not answer."


def test_tags_that_name_no_cluster_are_listed_up_to_a_limit() -> None:
    key = "deeplearning:cluster"
    many = [TaggedResource(key, "Red", "vpc", f"vpc-{number}") for number in range(12)]
    named = ", ".join(f"VPC vpc-{number}" for number in range(10))
    text = "No playbook manages or deletes these resources."
    assert stray_lines(many) == [
        f'The tag {key} is "Red", which is not a cluster name: {named} and 2 more. {text}',
    ]
    other = TaggedResource("DeepLearning:Cluster", "red", "carrier_gateway", "cagw-1\x1b")
    assert stray_lines([other]) == [
        f'The tag "DeepLearning:Cluster" differs from {key} in case, and is "red": carrier gateway cagw-1\ufffd. {text}'
    ]
    lines = stray_lines([TaggedResource(key, f"Red {number}", "vpc", "vpc-1") for number in range(25)])
    assert len(lines) == 21 and lines[-1] == "5 more tags do not name a cluster."
    assert stray_lines([]) == []


@pytest.mark.parametrize(
    ("machines", "runs"),
    [
        ([("lenet-1", {}), ("lenet-1", {}), ("lenet-2", {}), ("", {})], "2"),
        ([("", {}), ("lenet-1", {"phase": GOING}), ("lenet-2", {"phase": DEAD}), ("lenet-3", {"ours": False})], "0"),
        # It is data of a node.
        ([(EVIL, {}), ("\x1b[2J\n9999", {})], "2"),
    ],
)
def test_the_runs_of_a_cluster_are_those_that_its_machines_are_tagged_with(
    machines: list[tuple[str, dict[str, Any]]], runs: str
) -> None:
    instances = [
        Resource("instance", f"i-{number}", facts={**INSTANCE, "run": run}, **more)
        for number, (run, more) in enumerate(machines, 1)
    ]
    owned = replace(ESTATE, resources=[MASTER, *instances])
    (_titles, row, _hint) = cluster_lines("us-east-1", "us-east-1", [describe(owned, HEALTH, CONTEXT)])
    assert row.split()[6] == runs and not any(run in row for run, _more in machines if run)


def test_without_a_master_the_runs_are_unknown() -> None:
    machine = Resource("instance", "i-2", facts={"run": "lenet-1"})
    lost = replace(MASTER, facts={"most": 1, "in_service": []})
    assert describe(replace(ESTATE, resources=[lost, machine]), HEALTH, CONTEXT)["active_runs"] is None
    assert describe(replace(ESTATE, resources=[lost]), HEALTH, CONTEXT)["active_runs"] == 0
    role = Resource("role", "c-us-east-1-emr", "c-us-east-1-emr")
    of_emr = replace(ESTATE, resources=[MASTER, Resource("instance", "i-1", facts={**INSTANCE, "run": "x"}), role])
    assert describe(of_emr, HEALTH, CONTEXT)["active_runs"] is None


def test_the_whole_text_of_a_cluster_that_is_ready() -> None:
    following = "ansible-playbook deeplearning.aws.train"
    context = replace(CONTEXT, next=following, again=" -e cluster_name=c", private_key_file="")
    summary = describe(ESTATE, Health("ready", 3, 3), context)
    summary["efs"]["bytes"] = 3 << 29
    summary["cost_so_far"] = {
        "since": "2026-11-23T04:00:00Z",
        "amount": 1.005,
        "currency": "USD",
        "note": "without traffic",
    }
    assert summary_lines(summary, ESTATE, "/c.json", ["", "  details", ""]) == [
        "Cluster c (us-east-1, account 123456789012) is ready: 3 of 3 machines in service.",
        "",
        "  details",
        "",
        "  log in        ssh -F '/a folder/c.ssh_config' deeplearning-master",
        "  master        i-1, 198.51.100.7",
        "  groups        c-master (1 of 1), c-workers (1 of 2)",
        "  file system   fs-1, 1.5 GiB in use",
        "  costs         3.02 USD an hour, 72.43 a day with all machines, plus storage and traffic",
        "  cost so far   1.00 USD since 2026-11-23 04:00 UTC (without traffic)",
        "  machines end  never: ansible-playbook deeplearning.aws.site -e cluster_name=c -e cluster_ttl_hours=8",
        "  next          ansible-playbook deeplearning.aws.train -e cluster_name=c",
        "  to remove it  ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_name=c",
        "  as JSON       /c.json",
    ]
    assert (summary["schema"], summary["cluster"], summary["clean"]) == (1, "c", False)
    assert [resource["id"] for resource in summary["resources"]] == [resource.id for resource in ESTATE.resources]


def test_a_file_system_alone_is_clean_and_removed_by_its_own_option() -> None:
    kept = ClusterResources("c", "123456789012", "us-east-1", [Resource("file_system", "fs-1", "c-efs")])
    summary = describe(kept, Health("absent", 0, 0), context(costs=Costs(LIST)))
    assert summary["clean"] and summary["efs"] == {"file_system_id": "fs-1", "mount_target_ids": []}
    assert (summary["master"], summary["ssh"], summary["ssh_security_group_id"]) == ({}, "", "")
    assert summary_lines(summary, kept, "") == [
        "Cluster c (us-east-1, account 123456789012) does not exist.",
        "  existing      1 file system",
        "  still costs   0.00 USD an hour, 0.00 a day: 1 file system (0.00)",
        "  to create it  ansible-playbook deeplearning.aws.site",
        "  to remove it  ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_keep_efs=false",
    ]
    network = replace(kept, resources=[*kept.resources, Resource("vpc", "vpc-1")])
    lines = summary_lines(describe(network, Health("creating", 0, 0), context(costs=Costs(LIST))), network, "")
    assert lines[-2:] == [
        "  to remove it          ansible-playbook deeplearning.aws.destroy -e destroy=c",
        "  with its file system  ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_keep_efs=false",
    ]
    assert "  still costs           0.00 USD an hour, 0.00 a day: 1 file system (0.00)" in lines
    foreign = replace(kept, resources=[Resource("vpc", "vpc-1", ours=False)])
    assert not any("destroy" in line for line in summary_lines(describe(foreign, HEALTH, context()), foreign, ""))


def test_the_file_system_is_ours_before_it_is_anothers_that_we_use() -> None:
    theirs = Resource("file_system", "fs-0", ours=False)
    target = Resource("mount_target", "fsmt-2", facts={"file_system": "fs-2"})
    access = Resource("mount_target_access", "fsmt-3", facts={"file_system": "fs-3"})
    other = Resource("mount_target", "fsmt-4", ours=False, facts={"file_system": "fs-4"})

    def system(*resources: Resource) -> tuple[str, list[str]]:
        owned = ClusterResources("c", "123456789012", "us-east-1", resources)
        efs = describe(owned, HEALTH, context())["efs"]
        return efs["file_system_id"], efs["mount_target_ids"]

    assert system(theirs, target) == ("fs-2", ["fsmt-2"])
    assert system(theirs, access) == ("fs-3", [])
    assert system(theirs, other) == ("", [])
    assert system(target, Resource("file_system", "fs-1")) == ("fs-1", [])


def test_a_master_without_a_public_address_is_named_by_its_private_one() -> None:
    machine = Resource(
        "instance", "i-1", facts={**INSTANCE, "public_address": "", "public_name": "", "private_address": "10.0.0.9"}
    )
    owned = replace(ESTATE, resources=[machine, MASTER, WORKERS])
    summary = describe(owned, HEALTH, CONTEXT)
    assert summary["master"] == {"instance_id": "i-1", "public_ip": "", "public_name": "", "private_ip": "10.0.0.9"}
    assert summary["ssh"] == "ssh -F '/a folder/c.ssh_config' deeplearning-master"
    assert any(line.split() == ["master", "i-1,", "10.0.0.9"] for line in summary_lines(summary, owned, "", []))
    # An address that another machine has does not count.
    moved = Resource("address", "eipalloc-1", "c-master", facts={"public_ip": "198.51.100.7", "instance": "i-9"})
    elsewhere = replace(owned, resources=[*owned.resources, moved])
    assert describe(elsewhere, HEALTH, CONTEXT)["master"]["public_ip"] == ""


@pytest.mark.parametrize(
    ("state", "context", "emr", "command"),
    [
        ("ready", context(next="do it", again=" -e a=b"), False, "do it -e a=b"),
        ("degraded", context(next="do it"), True, "do it"),
        ("creating", context(next="do it"), False, "ansible-playbook deeplearning.aws.site"),
        ("ready", context(again=" -e a=b"), False, f"{TRAIN} -e a=b"),
        ("ready", context(failure="It broke."), False, "ansible-playbook deeplearning.aws.site"),
        ("failed", context(next="do it"), False, "ansible-playbook deeplearning.aws.site"),
        ("absent", context(), True, "ansible-playbook deeplearning.aws.emr"),
    ],
)
def test_the_next_command_follows_from_the_state(state: str, context: Context, emr: bool, command: str) -> None:
    assert next_command(state, context, emr) == command


@pytest.mark.parametrize(
    ("hourly", "words"),
    [
        ({"amount": "2"}, "AWS's price for the machines is not known here"),
        ({"amount": 0}, "AWS's price for the machines is not known here"),
        (
            {"amount": 1.555, "currency": "EUR"},
            "1.55 EUR an hour, 37.32 a day with all machines, plus storage and traffic",
        ),
    ],
)
def test_a_price_may_be_missing_or_in_another_currency(hourly: dict[str, Any], words: str) -> None:
    assert hourly_phrase(hourly) == words


def test_resources_of_others_and_states_are_in_the_list() -> None:
    resources = [
        Resource("instance", "i-1", "c-worker", "terminated", phase=DEAD),
        Resource("vpc", "vpc-1", ours=False, state="available"),
        Resource("image", "ami-1"),
    ]
    owned = ClusterResources("c", "123456789012", "us-east-1", resources)
    assert resource_lines(owned, LIST) == [
        "The cluster c (us-east-1, account 123456789012) has:",
        "  VPC vpc-1, available, not created by the cluster",
        "  image ami-1",
        "It costs nothing.",
        "To remove it: ansible-playbook deeplearning.aws.destroy -e destroy=c -e cluster_name=c",
    ]
    only_image = replace(owned, resources=resources[2:])
    assert resource_lines(only_image, LIST)[-1] == "It costs nothing."
    empty = replace(owned, resources=resources[:1])
    assert resource_lines(empty, LIST) == ["The cluster c has no resources in us-east-1 (account 123456789012)."]


def test_the_consent_is_in_the_command_that_removes_a_cluster() -> None:
    assert destroy_command("red") == "ansible-playbook deeplearning.aws.destroy -e destroy=red"
    assert destroy_command("red", " -e a=b") == "ansible-playbook deeplearning.aws.destroy -e destroy=red -e a=b"
