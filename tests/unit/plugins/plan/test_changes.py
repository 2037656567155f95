"""What changes for a cluster that exists: what is printed, and what needs a consent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import changes
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, EmrFacts

from tests.unit.plugins.plan.facts_kit import FACTS, cluster, options

AT = 1_767_211_200.0
END = "2025-12-31 20:00 UTC"
GROUPS = list(Names("red").groups.values())


def machine(rank: int | str, run: str = "") -> dict[str, Any]:
    tags = {"deeplearning:rank": str(rank), "deeplearning:run": run}
    return {
        "InstanceId": f"i-{rank or 0:0>8}",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items() if value],
    }


def facts(workers: int | None = 4, machines: tuple[Any, ...] = (), **ends: float) -> AccountFacts:
    scheduled = {kind: dict.fromkeys(GROUPS, ends[kind]) if kind in ends else {} for kind in ("ttl", "idle")}
    return replace(FACTS, worker_count=workers, leaving_workers=machines, ends=scheduled)


ON_EMR: dict[str, Any] = {"emr": EmrFacts([], []), "emr_clusters": [{"Id": "j-1"}]}


def problems(of: AccountFacts, request: dict[str, Any], **settings: Any) -> list[str]:
    return [finding.text for finding in changes.check(of, cluster(**settings), request) if finding.is_problem]


def test_workers_are_removed_only_with_their_number() -> None:
    (text,) = problems(facts(4), options(), worker_count=1)
    assert text == (
        "cluster_worker_count is 1: the cluster has 4, so 3 would be terminated, those with the highest ranks. To "
        "consent: -e remove_workers=3. To keep them, give their number. Example: -e cluster_worker_count=4"
    )
    assert problems(facts(4), options(remove_workers=2), worker_count=1) == [text]
    assert problems(facts(4), options(remove_workers=3), worker_count=1) == []


def test_a_consent_still_holds_after_a_part_was_removed_and_after_all_was() -> None:
    for left in (2, 1):
        assert problems(facts(left), options(remove_workers=3), worker_count=1) == []


@pytest.mark.parametrize("workers", [None, 0, 3, 4])
def test_more_workers_and_a_new_cluster_need_no_consent(workers: int | None) -> None:
    assert problems(facts(workers), options(), worker_count=4) == []


def test_workers_that_a_run_uses_are_refused_before_anything_is_written() -> None:
    used = facts(3, (machine(2), machine(3, "lenet-1"), machine(4)))
    (text,) = problems(used, options(remove_workers=2), worker_count=1)
    assert "runs use workers that would be terminated: deeplearning-worker3 (lenet-1)." in text
    assert "-e remove_in_use=i-00000003 removes them all the same" in text
    assert problems(used, options(remove_workers=2, remove_in_use=["i-00000003"]), worker_count=1) == []
    # Its rank is low enough to stay.
    stays = facts(3, (machine(2, "lenet-1"), machine(3), machine(4)))
    assert problems(stays, options(remove_workers=2), worker_count=1) == []


def test_on_emr_workers_in_use_are_to_be_waited_for() -> None:
    used = replace(facts(2, (machine(2, "lenet-1"), machine(3, "lenet-1"))), **ON_EMR)
    (text,) = problems(used, options(remove_workers=1, remove_in_use=["i-00000003"]), worker_count=1)
    assert "deeplearning-worker3 (lenet-1)." in text and "deeplearning.aws.stop -e run_id=all" in text
    assert "core nodes of EMR are removed only while no run is active" in text and "remove_in_use" not in text


@pytest.mark.parametrize("rank", ["", "x", "-1", "²"])
def test_a_machine_without_a_valid_rank_goes_first(rank: str) -> None:
    of = facts(2, (machine(2), {**machine(9, "evil"), "Tags": [{"Key": "deeplearning:rank", "Value": rank}]}))
    assert problems(of, options(remove_workers=1), worker_count=1) == []


@pytest.mark.parametrize(("setting", "kind"), [("ttl_hours", "ttl"), ("idle_minutes", "idle")])
def test_a_scheduled_end_is_removed_only_with_a_consent(setting: str, kind: str) -> None:
    of = facts(**{kind: AT})
    (text,) = problems(of, options(specified=[setting]), worker_count=4, **{setting: "never"})
    assert f"cluster_{setting} is 0: the machines are scheduled to end at {END}" in text
    assert "-e remove_end=true" in text
    assert problems(of, options(specified=[setting], remove_end=True), worker_count=4, **{setting: 0}) == []
    # The setting is not set: the end may be of deeplearning.aws.extend.
    assert problems(of, options(), worker_count=4) == []
    assert problems(facts(), options(specified=[setting]), worker_count=4, **{setting: 0}) == []


def test_the_end_of_an_emr_cluster_is_removed_only_with_a_consent() -> None:
    of = replace(facts(1), **ON_EMR)
    request: dict[str, Any] = {"specified": ["emr_idle_minutes"], "before": {"emr_idle_minutes": 30}}
    (text,) = problems(of, options(**request), emr_idle_minutes="never")
    assert text == (
        "cluster_emr_idle_minutes is 0: EMR ends the cluster after 30 minutes without work. To consent to remove this "
        "end: -e remove_end=true. To keep it, leave the setting out."
    )
    assert problems(of, options(**request, remove_end=True), emr_idle_minutes=0) == []
    assert problems(of, options(**request), emr_idle_minutes=10) == []
    assert problems(of, options(), emr_idle_minutes=0) == []
    # A new cluster.
    assert problems(replace(of, emr_clusters=[]), options(**request), emr_idle_minutes=0) == []


def test_a_consent_to_remove_an_end_that_would_come_again_is_refused() -> None:
    (text,) = problems(facts(ttl=AT), options(remove_end=True), worker_count=4, ttl_hours=8)
    assert f"the end at {END} would be scheduled again. To remove it as well: -e cluster_ttl_hours=never" in text
    both = facts(ttl=AT, idle=AT)
    assert problems(both, options(remove_end=True), worker_count=4, ttl_hours=8) == []


@pytest.mark.parametrize(
    ("of", "settings", "request_", "expected"),
    [
        (facts(4), {"worker_count": 4}, options(), []),
        (facts(4), {"worker_count": 1}, options(), ["workers 4 → 1: 3 to be terminated"]),
        (facts(0), {"worker_count": 4}, options(), ["workers 0 → 4"]),
        (facts(None), {"worker_count": 4}, options(), []),
        (facts(1, ttl=AT), {}, options(remove_end=True), [f"end {END} → never"]),
        (facts(1, idle=AT), {}, options(remove_end=True), [f"end {END} → never"]),
        (facts(1, ttl=AT), {}, options(), []),
        (facts(1), {"ttl_hours": 8}, options(before={"ttl_hours": 0}), ["end never → in 8 hours"]),
        (
            facts(1, ttl=AT),
            {"ttl_hours": 8},
            options(before={"ttl_hours": 4}),
            [f"end {END} stays: deeplearning.aws.extend postpones it"],
        ),
        (
            facts(1),
            {"idle_minutes": 60},
            options(before={"idle_minutes": 0}),
            ["end without work after never → 60 minutes"],
        ),
        (
            facts(1),
            {"instance_type": "g5.2xlarge"},
            options(before={"instance_type": "g5.xlarge"}),
            ["type g5.xlarge → g5.2xlarge (new machines)"],
        ),
        (
            facts(1),
            {"master_instance_type": "g5.2xlarge"},
            options(before={"master_instance_type": "g5.xlarge"}),
            ["master's type g5.xlarge → g5.2xlarge (new machines)"],
        ),
        (
            facts(1),
            {"spot": True, "s3_read": ["abc"], "default_framework": "mxnet"},
            options(before={"spot": False, "s3_read": [], "default_framework": ""}),
            ["cluster_spot false → true", 'cluster_s3_read [] → ["abc"]', 'cluster_default_framework "" → mxnet'],
        ),
    ],
)
def test_what_changes_is_a_line_each(
    of: AccountFacts, settings: dict[str, Any], request_: dict[str, Any], expected: list[str]
) -> None:
    assert changes.lines(of, cluster(**settings), request_) == expected


def test_a_key_pair_that_is_imported_has_the_clusters_name() -> None:
    imported = {**cluster(), "key_name": ""}
    assert changes.lines(facts(1), imported, options(before={"key_name": "mine"})) == ["cluster_key_name mine → red"]
