"""What a run waits for before an attempt, what it reports meanwhile, and the nodes that it gets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.contract.problems import STATUS
from deeplearning.contract.schema import format_time
from deeplearning.gpus.evidence import Evidence
from deeplearning.members.member_list import Member, Members
from deeplearning.runs import allocation, units
from deeplearning.runs.allocation import Allocation, Allocator, Situation, nodes_in_use, selection_lock
from deeplearning.runs.folder import Folder
from deeplearning.runs.mastership import Superseded
from deeplearning.runs.plan import Node
from deeplearning.runs.survey import NodeSurvey

from tests.unit.node.runs_kit import CONFIG, member, members
from tests.unit.node.users_kit import HOSTILE, NOBODY, bounded, open_folder, prepare

NAMES = [f"deeplearning-worker{rank}" for rank in range(1, 5)]
START = 1_800_000_000.0


def survey(member: Member, **changes: Any) -> NodeSurvey:
    return replace(NodeSurvey(member, Node(member.alias, member.private_ip), f"boot-{member.rank}"), **changes)


@dataclass
class World:
    """A master whose clock only sleeping advances."""

    folder: Path
    current: Members | None
    surveys: Callable[[Member], NodeSurvey] = survey
    superseded: Callable[[], bool] = lambda: False
    sleeping: Callable[[], None] = lambda: None
    """Called while it sleeps."""
    slept: list[float] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    reserved: list[list[str]] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    stop: bool = False
    own: str = "i-00000001"

    def monotonic(self) -> float:
        return sum(self.slept)

    def time(self) -> float:
        return START + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        assert len(self.slept) < 2000
        self.slept.append(seconds)
        self.sleeping()

    def read_applied(self) -> Members:
        if self.current is None:
            raise UserError("this node has no member list yet.")
        return self.current

    def survey_nodes(
        self,
        members: Sequence[Member],
        folder: Folder,
        python: str,
        ports: int,
        stop_requested: Callable[[], bool],
    ) -> list[NodeSurvey]:
        self.asked.append((folder.id, python, ports))
        return [self.surveys(member) for member in members]

    def wait(
        self,
        first: bool = True,
        trained: float = 0.0,
        published: bool = False,
        most: int | None = None,
        held_out_of: int = 0,
        **run: Any,
    ) -> Allocation | None:
        record = {"nodes": None, "busy": "wait", "python": "/p/bin/python", "processes_per_node": None, "servers": None}
        report = lambda reason: self.reports.append(reason) if reason not in self.reports[-1:] else None  # noqa: E731
        return Allocator(
            replace(CONFIG, efs_mount=str(self.folder)),
            Folder(f"{self.folder}/runs/c/r1"),
            {**record, **run},
            first,
            reserve=lambda names: self.reserved.append(list(names)),
            report=report,
            stop_requested=lambda: self.stop,
            trained=trained,
            most=most,
            held_out_of=held_out_of,
            published=published,
            since=self.monotonic(),
        ).wait()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A cluster of four ready machines, whose list has just been published."""
    (tmp_path / "runs/c").mkdir(parents=True)
    world = World(tmp_path, replace(members(4), published_at=format_time(START)))
    monkeypatch.setattr(allocation, "time", world)
    monkeypatch.setattr(allocation, "read_applied", world.read_applied)
    monkeypatch.setattr(allocation, "survey_nodes", world.survey_nodes)
    monkeypatch.setattr(allocation, "instance_id", lambda: world.own)
    monkeypatch.setattr("deeplearning.members.member_list.instance_id", lambda: world.own)
    monkeypatch.setattr(allocation, "is_superseded", lambda config: world.superseded())
    monkeypatch.setattr(units, "active_runs", list)
    return world


def listed(world: World) -> Members:
    assert world.current
    return world.current


def names(allocation: Allocation | None) -> list[str]:
    assert allocation
    return [node.name for node in allocation.nodes]


def test_all_nodes_are_surveyed_and_reserved_at_once(world: World) -> None:
    kinds = ["a.x", "b.x", "a.x", "b.x"]
    ranked = zip(listed(world).members, kinds, strict=True)
    world.current = replace(listed(world), members=tuple(replace(each, instance_type=kind) for each, kind in ranked))
    allocation = world.wait()
    assert allocation and names(allocation) == NAMES and world.slept == [] and world.reports == []
    assert allocation.generation == 3 and allocation.machines == {"a.x": 2, "b.x": 2}
    assert allocation.boot_ids == {f"deeplearning-worker{rank}": f"boot-{rank}" for rank in range(1, 5)}
    assert world.reserved == [NAMES, NAMES]


@pytest.mark.parametrize(
    ("gpus", "run", "ports"),
    [
        (0, {}, 8 + 1),
        (8, {}, 8 + 16 + 1),
        (8, {"processes_per_node": 2}, 8 + 16 + 1),
        (2, {"processes_per_node": 5}, 8 + 10 + 1),
        (0, {"servers": 7}, 8 + 7),
        (0, {"nodes": 2}, 8 + 1),
    ],
)
def test_there_are_ports_for_all_processes(world: World, gpus: int, run: dict[str, Any], ports: int) -> None:
    world.current = replace(listed(world), members=tuple(member(rank, gpus=gpus) for rank in range(1, 5)))
    world.wait(**run)
    assert world.asked == [("r1", "/p/bin/python", ports)]


@pytest.mark.parametrize(("most", "count"), [(None, 4), (3, 3), (4, 4), (6, 4)])
def test_a_run_that_starts_again_gets_no_more_nodes_than_it_began_with(
    world: World, most: int | None, count: int
) -> None:
    assert names(world.wait(first=False, most=most)) == NAMES[:count]


def test_a_stop_ends_the_wait(world: World) -> None:
    world.stop = True
    assert world.wait() is None and world.asked == []
    world.stop, world.current = False, None
    world.sleeping = lambda: setattr(world, "stop", True)
    assert world.wait() is None and world.slept == [1]


@pytest.mark.parametrize(("trained", "seconds"), [(0, 90), (100, 100), (1000, 300)])
def test_a_list_is_waited_for_as_long_as_the_run_has_trained(world: World, trained: float, seconds: int) -> None:
    world.current = None
    with pytest.raises(UserError, match="this node has no member list yet"):
        world.wait(trained=trained)
    assert sum(world.slept) == seconds and world.reports == ["this node has no member list yet."]


def test_a_machine_that_is_no_member_waits_too(world: World) -> None:
    world.own = "i-00000009"
    with pytest.raises(UserError, match=r"this machine \(i-00000009\) is not in the member list"):
        world.wait()
    assert sum(world.slept) == 90


def test_another_masters_list_supersedes(world: World) -> None:
    world.current = replace(listed(world), published_by="i-00000002")
    with pytest.raises(Superseded):
        world.wait()
    assert world.reserved == [] and world.slept == []


@pytest.mark.parametrize("when", ["before", "after the survey"])
def test_a_machine_that_is_replaced_gets_nothing(world: World, when: str) -> None:
    world.superseded = lambda: when == "before" or bool(world.asked)
    with pytest.raises(Superseded):
        world.wait()
    assert bool(world.asked) is (when != "before") and len(world.reserved) == len(world.asked)


def test_a_new_master_is_not_superseded_before_it_has_published(world: World) -> None:
    """The list that another has published is the one from before it."""
    world.current, world.superseded = None, lambda: True
    with pytest.raises(Superseded):
        world.wait()
    assert sum(world.slept) == 90
    world.slept.clear()
    with pytest.raises(Superseded):
        world.wait(published=True)
    assert world.slept == []
    # It has published meanwhile, and then it is replaced.
    world.superseded = lambda: len(world.slept) != 3
    with pytest.raises(Superseded):
        world.wait()
    assert len(world.slept) == 4


@pytest.mark.parametrize(
    ("first", "nodes", "trained", "seconds"),
    [
        (True, None, 0, 90),
        (True, 4, 0, 0),
        (True, ["deeplearning-worker4"], 0, 0),
        # A run that goes on waits for the machine that replaces a lost one.
        (False, 4, 0, 90),
        (False, None, 200, 200),
        (False, None, 5000, 300),
    ],
)
def test_a_membership_that_changes_is_waited_for(
    world: World, first: bool, nodes: Any, trained: float, seconds: float
) -> None:
    world.current = replace(listed(world), desired=5)
    assert world.wait(first, trained, nodes=nodes)
    assert sum(world.slept) == seconds
    missing = f"5 machines are desired and 4 are members; {STATUS} shows why machines are missing"
    assert world.reports == ([missing] if seconds else [])


def test_all_reasons_to_wait_are_reported_until_they_are_gone(world: World) -> None:
    complete = listed(world)
    world.current = replace(
        complete, desired=5, members=(*complete.members[:3], replace(complete.members[3], state="faulty"))
    )

    def repair() -> None:
        if len(world.slept) == 4:
            world.current = complete

    world.sleeping = repair
    assert names(world.wait()) == NAMES and world.slept == [0.5] * 4
    (reason,) = world.reports
    missing = f"5 machines are desired and 4 are members; {STATUS} shows why machines are missing"
    assert reason.startswith(f"{missing}; deeplearning-worker4 reported a fault")


def test_nodes_of_another_run_are_waited_for_without_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Folder(f"{world.folder}/runs/c/other")
    os.mkdir(other.path)
    other.write("run.json", {"requested_at": ""})
    other.write("state.json", {"nodes": NAMES[:2]})
    # One was removed while it ran.
    active = [["r1", "gone", "other"], ["r1", "other"]]
    monkeypatch.setattr(units, "active_runs", lambda: active[len(world.slept) > 0] if len(world.slept) < 400 else [])
    assert nodes_in_use(replace(CONFIG, efs_mount=str(world.folder))) == dict.fromkeys(NAMES[:2], "other")
    assert nodes_in_use(replace(CONFIG, efs_mount=str(world.folder)), "other") == {}
    assert names(world.wait(nodes=2)) == NAMES[2:]
    assert names(world.wait()) == NAMES and len(world.slept) == 400
    blocked = "deeplearning-worker1 (run other), deeplearning-worker2 (run other)"
    assert world.reports == [f"Needed nodes are in use: {blocked}."]
    # The time to wait for a silent node begins when the nodes are free.
    world.slept.clear()
    world.reports.clear()
    world.surveys = lambda member: survey(member, node=None, problem=f"{member.alias} does not answer.")
    with pytest.raises(UserError, match="deeplearning-worker1 does not answer. deeplearning-worker2 does not answer."):
        world.wait(nodes=["deeplearning-worker1", "deeplearning-worker2"])
    assert len(world.slept) > 400 + 150


@pytest.mark.root
@pytest.mark.parametrize(
    "kind", [*HOSTILE, '{"schema": 1, "nodes": [[]]}', '{"schema": 1, "nodes": 3}', "[" * 10**5, "[]"]
)
def test_a_state_that_training_code_exchanged_does_not_stop_the_master(
    kind: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`members publish` reads it as root."""
    with open_folder() as mount:
        for name in ("foreign", "own"):
            folder = Folder(f"{mount}/runs/c/{name}")
            Path(folder.path).mkdir(parents=True)
            folder.write("run.json", {"requested_at": ""})
            folder.write("state.json", {"nodes": NAMES[:2]})
        foreign = mount / "runs/c/foreign"
        os.chown(foreign, NOBODY, -1)
        (foreign / "state.json").unlink()
        if kind in HOSTILE:
            prepare(foreign / "state.json", kind)
        else:
            (foreign / "state.json").write_text(kind)
        monkeypatch.setattr(units, "active_runs", lambda: ["foreign", "own"])
        config = replace(CONFIG, efs_mount=str(mount))
        assert bounded(lambda: nodes_in_use(config)) == dict.fromkeys(NAMES[:2], "own")


def test_busy_nodes_are_an_error_if_that_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "nodes_in_use", lambda config, run: {NAMES[0]: "other"})
    with pytest.raises(UserError, match="stop that run, or let this one wait"):
        world.wait(busy="refuse")
    # After a loss it waits.
    world.sleeping = lambda: setattr(world, "stop", True)
    assert world.wait(first=False, busy="refuse") is None


def test_a_silent_node_may_be_about_to_leave_the_list(world: World) -> None:
    def answer(member: Member) -> NodeSurvey:
        silent = member.rank == 3 and len(world.slept) < 5
        return survey(member, node=None, problem="x does not answer.") if silent else survey(member)

    world.surveys = answer
    assert names(world.wait()) == NAMES and world.slept == [0.5] * 5
    assert world.reports == ["x does not answer."] and world.reserved[-1] == NAMES


def test_a_node_with_a_problem_ends_a_first_start_and_is_left_out_after_a_loss(world: World) -> None:
    world.surveys = lambda member: survey(member, problem="" if member.rank != 2 else "x lacks EFS.")
    with pytest.raises(UserError, match="^x lacks EFS.$"):
        world.wait()
    assert world.slept == []
    allocation = world.wait(first=False)
    remaining = [NAMES[0], *NAMES[2:]]
    assert allocation and names(allocation) == list(allocation.boot_ids) == remaining
    assert world.reserved[-2:] == [NAMES, remaining] and sum(allocation.machines.values()) == 3


def test_a_node_that_copies_its_data_is_waited_for_without_a_limit(world: World) -> None:
    def answer(member: Member) -> NodeSurvey:
        return survey(member, problem="it copies", is_preparing=True) if len(world.slept) < 700 else survey(member)

    world.surveys = answer
    assert names(world.wait(nodes=1)) == NAMES[:1] and len(world.slept) == 700 and world.reports == ["it copies"]


def test_a_run_that_waits_for_an_operator_asks_its_nodes_with_pauses(world: World) -> None:
    repaired = 3600
    problem = "7 of its 8 GPUs answer"
    world.surveys = lambda member: survey(member, problem="" if world.monotonic() > repaired else problem)
    assert names(world.wait(first=False, most=4, held_out_of=4)) == NAMES and world.reports == [problem]
    assert len(world.asked) <= 1 + repaired / allocation.HELD_PAUSE_SECONDS


@pytest.mark.parametrize(
    ("first", "busy", "expected"),
    [
        (True, "wait", Situation.FIRST_START),
        (True, "refuse", Situation.REFUSE_BUSY),
        (False, "wait", Situation.AFTER_LOSS),
        (False, "refuse", Situation.AFTER_LOSS),
    ],
)
def test_a_situation_follows_from_the_request(world: World, first: bool, busy: str, expected: Situation) -> None:
    run = {"busy": busy}
    folder = Folder(str(world.folder))
    assert Allocator(CONFIG, folder, run, first, print, print, lambda: False, 0.0).situation is expected


def test_one_run_at_a_time_selects_its_nodes(world: World) -> None:
    config = replace(CONFIG, efs_mount=str(world.folder))
    events: list[str] = []
    begun = threading.Event()

    def select() -> None:
        begun.set()
        with selection_lock(config):
            events.append("second")

    other = threading.Thread(target=select, daemon=True)
    with selection_lock(config):
        other.start()
        assert begun.wait(10)
        other.join(0.05)
        events.append("first")
    other.join(10)
    assert events == ["first", "second"]


def test_a_node_without_gpus_before_an_attempt_is_not_asked_about_them_after_it(world: World) -> None:
    def surveyed(member: Member) -> NodeSurvey:
        gpus = 0 if member.rank == 2 else 8
        node = Node(member.alias, member.private_ip, gpus=gpus)
        return survey(member, node=node, evidence=Evidence(gpus, 5))

    world.surveys = surveyed
    allocation = world.wait()
    assert allocation and len(allocation.nodes) == 4
    assert allocation.evidence == {name: Evidence(8, 5) for name in NAMES if name != NAMES[1]}


def in_use(until: float, world: World, rank: int = 2) -> Callable[[Member], NodeSurvey]:
    """Return surveys by which processes hold memory of one node's GPUs until a moment."""

    def surveys(member: Member) -> NodeSurvey:
        if member.rank == rank and world.monotonic() < until:
            return survey(member, problem=f"{member.alias}: its GPU 1 holds memory of process 41", is_in_use=True)
        return survey(member)

    return surveys


def test_gpus_that_killed_processes_still_use_are_waited_for(world: World) -> None:
    world.surveys = in_use(20, world)
    assert names(world.wait()) == NAMES
    assert 20 <= world.monotonic() < 22
    assert set(world.reports) == {"deeplearning-worker2: its GPU 1 holds memory of process 41"}


def test_gpus_that_stay_in_use_for_half_a_minute_are_named(world: World) -> None:
    world.surveys = in_use(1000, world)
    with pytest.raises(UserError, match="^deeplearning-worker2: its GPU 1 holds memory of process 41$"):
        world.wait()
    assert 30 <= world.monotonic() < 32


def test_a_run_that_lost_a_node_goes_on_without_one_whose_gpus_stay_in_use(world: World) -> None:
    world.surveys = in_use(1000, world)
    assert names(world.wait(first=False, most=4)) == [NAMES[0], *NAMES[2:]]
    assert 30 <= world.monotonic() < 32


def test_each_use_of_gpus_has_its_own_time(world: World) -> None:
    """While another node prepares itself, uses come and go."""
    uses = [(0.0, 20.0), (60.0, 92.0)]

    def surveys(member: Member) -> NodeSurvey:
        now = world.monotonic()
        if member.rank == 1 and now < 80:
            return survey(member, problem="it copies", is_preparing=True)
        used = member.rank == 2 and any(begin <= now < end for begin, end in uses)
        return survey(member, problem="it is in use", is_in_use=True) if used else survey(member)

    world.surveys = surveys
    with pytest.raises(UserError, match="^it is in use$"):
        world.wait()
    assert 90 <= world.monotonic() < 92
    uses[1] = (60.0, 88.0)
    world.slept.clear()
    assert names(world.wait()) == NAMES
