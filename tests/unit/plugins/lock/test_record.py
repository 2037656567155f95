"""The content of a lock, and the decision whether it may be taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import process
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.record import (
    ABANDONED_SECONDS,
    FREE,
    LockName,
    LockRecord,
    ObservedLock,
    Verdict,
    decide,
    parse,
    timeout_sentence,
)

from tests.unit.plugins.lock.lock_kit import ENDED, HERE, observed, record

FOREIGN = ObservedLock(etag='"0123"', record=None)
LIVE = observed(record())


@pytest.mark.parametrize(
    ("lock", "break_lock", "verdict"),
    [
        pytest.param(ObservedLock(), "", Verdict.TAKE, id="never locked"),
        pytest.param(ObservedLock(), "00000000000000aa", Verdict.TAKE, id="never locked, an old id to break"),
        pytest.param(observed(record(state=FREE)), "", Verdict.TAKE, id="free"),
        pytest.param(observed(record(state=FREE)), "00000000000000bb", Verdict.TAKE, id="free, an old id to break"),
        pytest.param(LIVE, "", Verdict.WAIT, id="held elsewhere"),
        pytest.param(LIVE, "00000000000000aa", Verdict.TAKE, id="broken by its id"),
        pytest.param(LIVE, "00000000000000bb", Verdict.REFUSE, id="broken by an old id"),
        pytest.param(observed(record(process=HERE)), "", Verdict.WAIT, id="held by a process that runs here"),
        pytest.param(observed(record(process=ENDED)), "", Verdict.TAKE, id="held by a process that ran here"),
        pytest.param(observed(record(), ABANDONED_SECONDS - 1), "", Verdict.WAIT, id="renewed not long ago"),
        pytest.param(observed(record(), ABANDONED_SECONDS + 1), "", Verdict.TAKE, id="abandoned"),
        pytest.param(FOREIGN, "", Verdict.REFUSE, id="no lock of ours"),
        pytest.param(FOREIGN, "0123", Verdict.TAKE, id="no lock of ours, replaced by its ETag"),
        pytest.param(FOREIGN, "4567", Verdict.REFUSE, id="no lock of ours, another ETag"),
    ],
)
def test_when_the_lock_may_be_taken(lock: ObservedLock, break_lock: str, verdict: Verdict) -> None:
    decision = decide(lock, LockName("red"), break_lock, process.has_ended)
    assert decision.verdict is verdict
    if verdict is Verdict.REFUSE:
        assert lock.id in decision.note and "-e break_lock=" in decision.note


def test_the_clock_of_the_holder_does_not_matter() -> None:
    an_hour_ahead = record(since="2026-11-28T13:00:00Z")
    an_hour_behind = record(since="2026-11-28T11:00:00Z")
    for lock in (an_hour_ahead, an_hour_behind):
        assert decide(observed(lock, 10), LockName("red"), "", process.has_ended).verdict is Verdict.WAIT
        assert decide(observed(lock, 200), LockName("red"), "", process.has_ended).verdict is Verdict.TAKE


def test_a_record_survives_its_file() -> None:
    written = record(renewals=3, stop_requested_by="bob@desk", user="jürgen@büro")
    assert parse(written.to_json()) == written


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(record().to_json()), **fields}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"x" * 10_000,
        changed(id="../../etc"),
        changed(id=""),
        changed(state="taken"),
        changed(playbook="{{ lookup('pipe', 'id') }}"),
        changed(user="x" * 300),
        changed(user="ann\x1b[2J"),
        changed(since="yesterday"),
        changed(renewals=-1),
        changed(renewals="many"),
        changed(process={}),
        changed(process="7"),
        changed(more="fields"),
        changed(schema=99),
    ],
)
def test_other_content_is_not_a_lock(content: bytes) -> None:
    assert parse(content) is None


def test_who_has_waited_in_vain_is_told_what_to_do() -> None:
    sentence = timeout_sentence(LIVE, LockName("red"), "5:00")
    assert sentence == (
        "The cluster red is locked by ann@laptop (site.yml, since 2026-11-28T12:00:00Z). After a wait of 5:00 this "
        "playbook stops: run it again later, or wait longer with -e lock_wait=SECONDS. If the other playbook no longer "
        "runs, take the lock over: -e break_lock=00000000000000aa"
    )


def test_two_renewals_have_different_contents() -> None:
    first: LockRecord = record(renewals=1)
    assert first.to_json() != record(renewals=2).to_json()
