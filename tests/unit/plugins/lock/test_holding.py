"""Take, verify and release a lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding, keeper, run_starts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.record import FREE, HELD, ObservedLock, parse
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import NoBucket, NoLocking

from tests.unit.plugins.lock.lock_kit import ENDED, MemoryStore, observed, record

ME = holding.LockRequest(user="bob@desk", playbook="site", playbook_pid=1, wait_seconds=60)
DESTROY = replace(ME, playbook="destroy", asks_to_stop=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Return a function that sets what happens elsewhere at each pause. A pause takes its time on a clock of ours."""
    now = [0.0]
    happens: list[Callable[[], None]] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        for happen in happens:
            happen()

    monkeypatch.setattr(holding.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(holding.time, "sleep", sleep)
    return happens.append


def held_in(store: MemoryStore) -> Any:
    lock = parse(store.content)
    assert lock is not None
    return lock


def test_the_first_lock_is_created() -> None:
    store, lines = MemoryStore(), list[str]()
    taken = holding.take(store, ME, lines.append)  # type: ignore[arg-type]
    assert held_in(store) == taken.record and taken.record.is_held and taken.record.user == "bob@desk"
    assert not taken.before.exists and lines == []


def test_a_second_playbook_waits_until_the_lock_is_free(clock: Callable[[Callable[[], None]], None]) -> None:
    store, lines, pauses = MemoryStore(), list[str](), list[int]()
    store.put(record())

    def release_at_the_third_pause() -> None:
        pauses.append(1)
        if len(pauses) == 3:
            store.put(record(state=FREE))

    clock(release_at_the_third_pause)
    taken = holding.take(store, ME, lines.append)  # type: ignore[arg-type]
    assert len(pauses) == 3 and held_in(store).user == "bob@desk" and taken.before.id == record().id
    (line,) = lines
    assert line == (
        "The cluster red is locked by ann@laptop (site.yml, since 2026-11-28T12:00:00Z): waiting for up to 1:00. "
        "The lock's id is 00000000000000aa."
    )


def test_waiting_ends(clock: Callable[[Callable[[], None]], None]) -> None:
    store = MemoryStore()
    store.put(record())
    with pytest.raises(UserError, match=r"locked by ann@laptop .* After a wait of 1:00 this playbook stops"):
        holding.take(store, ME, lambda _line: None)  # type: ignore[arg-type]
    assert held_in(store) == record()


def test_two_that_take_it_at_once_do_not_both_have_it() -> None:
    store = MemoryStore()
    store.put(record(state=FREE))
    rival = record(id="00000000000000bb")
    read = store.read
    first = [True]

    def read_before_the_rival_writes() -> ObservedLock:
        seen = read()
        if first.pop() if first else False:
            store.put(rival)
        return seen

    store.read = read_before_the_rival_writes  # type: ignore[method-assign]
    with pytest.raises(UserError, match="is locked by ann@laptop"):
        holding.take(store, replace(ME, wait_seconds=0), lambda _line: None)  # type: ignore[arg-type]
    assert held_in(store) == rival


def test_a_lost_answer_of_s3_does_not_lock_out_the_holder_itself() -> None:
    store = MemoryStore(loses_answers=1)
    taken = holding.take(store, ME, lambda _line: None)  # type: ignore[arg-type]
    assert held_in(store) == taken.record and store.read().etag == taken.etag


def test_a_holder_that_has_ended_here_is_replaced_at_once() -> None:
    store, lines = MemoryStore(), list[str]()
    store.put(record(process=ENDED))
    holding.take(store, ME, lines.append)  # type: ignore[arg-type]
    assert held_in(store).user == "bob@desk"
    assert lines == [
        "ann@laptop (site.yml, since 2026-11-28T12:00:00Z) has ended without releasing the lock of the cluster red: it "
        "is taken over."
    ]


def test_destroy_asks_the_holder_to_stop_and_takes_over_at_the_end(
    clock: Callable[[Callable[[], None]], None],
) -> None:
    store, lines = MemoryStore(), list[str]()
    store.put(record())
    holding.take(store, DESTROY, lines.append)  # type: ignore[arg-type]
    asked = parse(store.writes[1])
    assert asked is not None and asked.stop_requested_by == "bob@desk" and asked.id == record().id
    # It is asked once.
    assert len(store.writes) == 3 and lines[-1].startswith("Waiting for 0:35")
    assert held_in(store).playbook == "destroy" and lines[0].endswith("It is asked to stop.")


def test_destroy_does_not_ask_another_destroy_to_stop(clock: Callable[[Callable[[], None]], None]) -> None:
    store = MemoryStore()
    store.put(record(playbook="destroy"))
    clock(lambda: store.put(record(playbook="destroy", state=FREE)))
    holding.take(store, DESTROY, lambda _line: None)  # type: ignore[arg-type]
    assert not any(b'"stop_requested_by": "bob@desk"' in content for content in store.writes)


@pytest.fixture
def lock(tmp_path: Path) -> holding.HeldLock:
    return holding.HeldLock("red", "cluster", record().id, str(tmp_path), "us-east-1", "", "")


@pytest.mark.parametrize(
    ("lost", "stop_requested_by", "sentence"),
    [
        ("", "", ""),
        ("eve has taken it over", "", "no longer has the lock .* eve has taken it over"),
        ("", "bob@desk", "bob@desk removes the cluster red .* to stop"),
    ],
)
def test_what_the_keeper_reports_counts(
    lock: holding.HeldLock, lost: str, stop_requested_by: str, sentence: str
) -> None:
    keeper.write_state(Path(lock.folder), keeper.KeptLock(keeper.now(), lost, stop_requested_by))
    if not sentence:
        holding.verify(lock)
        return
    with pytest.raises(UserError, match=sentence):
        holding.verify(lock)


@pytest.mark.parametrize("report", ["old", "none", "damaged"])
@pytest.mark.parametrize(
    ("current", "sentence"),
    [
        (record(), ""),
        (record(id="00000000000000bb", user="eve@pc"), "eve@pc .* has taken it over"),
        (record(state=FREE), "was removed or replaced"),
        (record(stop_requested_by="bob@desk"), "has asked this playbook to stop"),
        (None, "was removed or replaced"),
    ],
)
def test_after_a_long_sleep_s3_is_asked(
    lock: holding.HeldLock, monkeypatch: pytest.MonkeyPatch, report: str, current: Any, sentence: str
) -> None:
    store = MemoryStore()
    if current is not None:
        store.put(current)
    monkeypatch.setattr(holding.HeldLock, "store", lambda _self: store)
    folder = Path(lock.folder)
    if report == "old":
        keeper.write_state(folder, keeper.KeptLock(keeper.now() - holding.VERIFY_SECONDS - 1))
    if report == "damaged":
        (folder / keeper.STATE).write_text("{")
    if sentence:
        with pytest.raises(UserError, match=sentence):
            holding.verify(lock)
        return
    holding.verify(lock)
    # It was renewed at once: the process that does it may be gone.
    assert held_in(store).renewals == 1
    holding.verify(lock)
    assert held_in(store).renewals == 1


def test_only_the_own_lock_is_released(lock: holding.HeldLock) -> None:
    store = MemoryStore()
    store.put(record(id="00000000000000bb"))
    holding.release(store, lock)  # type: ignore[arg-type]
    assert held_in(store).state == HELD and not Path(lock.folder).exists()
    store.put(record())
    holding.release(store, lock)  # type: ignore[arg-type]
    assert held_in(store) == record(state=FREE)


def test_a_renewal_at_the_same_time_does_not_prevent_the_release(lock: holding.HeldLock) -> None:
    store = MemoryStore()
    store.put(record())
    replaced = store.replace
    renewals = [record(renewals=1)]

    def replace_after_a_renewal(new: Any, etag: str) -> str:
        if renewals:
            store.put(renewals.pop())
        return replaced(new, etag)

    store.replace = replace_after_a_renewal  # type: ignore[method-assign]
    holding.release(store, lock)  # type: ignore[arg-type]
    assert held_in(store) == record(state=FREE, renewals=1)


@pytest.mark.parametrize(
    ("planned", "before", "changed"),
    [
        (ObservedLock(), ObservedLock(), False),
        (ObservedLock(), observed(record(state=FREE)), True),
        (observed(record(state=FREE)), observed(record(state=FREE)), False),
        (observed(record(state=FREE)), observed(record(state=FREE, id="00000000000000bb")), True),
        (observed(record()), observed(record(state=FREE)), True),
        (observed(record(process=ENDED)), observed(record(process=ENDED)), False),
        (observed(record(), 1000), observed(record(), 1010), False),
        (observed(record(state=FREE)), ObservedLock(), True),
    ],
)
def test_a_plan_is_old_if_somebody_had_the_lock_since(
    planned: ObservedLock, before: ObservedLock, changed: bool
) -> None:
    assert holding.has_changed(holding.version_of(planned), before) is changed


class Unreadable(MemoryStore):
    problem: UserError = NoLocking("AWS does not allow s3:GetObject.")

    def read(self) -> ObservedLock:
        raise self.problem


class WithoutBucket(Unreadable):
    problem = NoBucket("The bucket does not exist.")


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        (ObservedLock(), ""),
        (observed(record(state=FREE)), ""),
        (observed(record()), "held by ann@laptop (site.yml, since 2026-11-28T12:00:00Z), id 00000000000000aa"),
        (
            observed(record(process=ENDED)),
            "left by ann@laptop (site.yml, since 2026-11-28T12:00:00Z), which has ended: the next playbook takes it "
            "over",
        ),
        (ObservedLock(etag='"0123"'), "unknown: lock.json is not a lock of this version of the collection (id 0123)"),
    ],
)
def test_status_describes_the_lock(lock: ObservedLock, text: str) -> None:
    store = MemoryStore()
    store.read = lambda: lock  # type: ignore[method-assign]
    assert holding.describe(store) == text  # type: ignore[arg-type]


def test_a_lock_that_cannot_be_read_is_unknown() -> None:
    assert holding.describe(Unreadable()) == "unknown: AWS does not allow s3:GetObject."  # type: ignore[arg-type]
    assert holding.describe(WithoutBucket()) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lock", "refused"),
    [
        (ObservedLock(), False),
        (observed(record(state=FREE)), False),
        (observed(record(playbook="site")), True),
        (observed(record(playbook="destroy")), True),
        (observed(record(playbook="image")), False),
        (observed(record(playbook="destroy", process=ENDED)), False),
        (observed(record(playbook="destroy"), 1000), False),
        (ObservedLock(etag='"0123"'), False),
    ],
)
def test_no_run_starts_while_the_number_of_nodes_may_change(
    lock: ObservedLock, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.read = lambda: lock  # type: ignore[method-assign]
    monkeypatch.setattr(run_starts, "LockStore", lambda _aws, _cluster: store)
    sentence = run_starts.blocking_sentence(None, "red")  # type: ignore[arg-type]
    assert ("is changing the cluster red, so no run starts now" in sentence) is refused
    assert refused or not sentence


@pytest.mark.parametrize(
    "problem",
    [
        NoLocking("AWS does not allow s3:GetObject."),
        NoBucket("The bucket does not exist."),
        AwsError("The AWS credentials have expired.", "ExpiredToken", is_fatal=True),
    ],
)
def test_whoever_cannot_read_the_lock_may_train(problem: UserError, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Unreadable()
    store.problem = problem
    monkeypatch.setattr(run_starts, "LockStore", lambda _aws, _cluster: store)
    assert run_starts.blocking_sentence(None, "red") == ""  # type: ignore[arg-type]


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time that a former holder needs to notice pass at once."""
    monkeypatch.setattr(holding, "NOTICE_SECONDS", 0.0)


def test_whoever_takes_over_from_a_live_holder_waits_until_it_has_noticed(
    clock: Callable[[Callable[[], None]], None],
) -> None:
    pauses: list[int] = []
    clock(lambda: pauses.append(1))
    store, lines = MemoryStore(), list[str]()
    store.put(record())
    breaking = replace(ME, break_lock=record().id)
    holding.take(store, breaking, lines.append)  # type: ignore[arg-type]
    assert pauses and lines[-1] == "Waiting for 0:35 until the former holder has noticed it."
    # Nobody waits for a process that has ended.
    pauses.clear()
    store.put(record(process=ENDED))
    holding.take(store, breaking, lines.append)  # type: ignore[arg-type]
    assert not pauses


def test_destroy_asks_first_although_it_does_not_wait(notices: None) -> None:
    store = MemoryStore()
    store.put(record())
    holding.take(store, replace(DESTROY, wait_seconds=0), lambda _line: None)  # type: ignore[arg-type]
    asked = parse(store.writes[1])
    assert asked is not None and asked.stop_requested_by == "bob@desk" and held_in(store).playbook == "destroy"


def test_destroy_does_not_go_on_beside_a_live_holder_while_s3_fails(
    clock: Callable[[Callable[[], None]], None],
) -> None:
    store = MemoryStore()
    store.put(record())
    read, reads = store.read, list[int]()

    def read_once() -> ObservedLock:
        reads.append(1)
        if len(reads) > 1:
            raise NoLocking("s3:GetObject failed: Service Unavailable (503).")
        return read()

    store.read = read_once  # type: ignore[method-assign]
    with pytest.raises(NoLocking):
        holding.take(store, DESTROY, lambda _line: None)  # type: ignore[arg-type]
    assert len(reads) * holding.POLL_SECONDS >= DESTROY.wait_seconds


def test_a_removal_is_told_from_other_changes() -> None:
    store = MemoryStore()
    store.put(record(playbook="site", state=FREE, id="00000000000000bb"))
    assert holding.removal_since(store, record().id) == ""  # type: ignore[arg-type]
    assert "has changed the cluster red" in holding.change_since(store, record().id)  # type: ignore[arg-type]
    store.put(record(playbook="destroy", id="00000000000000bb"))
    assert "has removed the cluster red" in holding.removal_since(store, record().id)  # type: ignore[arg-type]
    assert holding.removal_since(store, "00000000000000bb") == ""  # type: ignore[arg-type]
    assert holding.removal_since(WithoutBucket(), "a") == "The cluster red was removed"  # type: ignore[arg-type]
