"""The process that renews a lock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import keeper
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.record import FREE, LockRecord

from tests.unit.plugins.lock.lock_kit import MemoryStore, record


def renew(store: MemoryStore, lock: LockRecord, etag: str) -> keeper.Renewal:
    return keeper.renew(store, lock, etag)  # type: ignore[arg-type]


def test_each_renewal_has_another_etag() -> None:
    store = MemoryStore()
    first = store.put(record())
    renewal = renew(store, record(), first)
    again = renew(store, renewal.record, renewal.etag)
    assert (again.record.renewals, again.lost) == (2, "") and len({first, renewal.etag, again.etag}) == 3
    # Whoever has read the first one cannot replace it any more.
    assert store.replace(record(id="00000000000000bb"), first) == ""


def test_a_request_to_stop_is_kept_and_is_no_loss() -> None:
    store = MemoryStore()
    etag = store.put(record())
    store.put(record(stop_requested_by="bob@desk"))
    renewal = renew(store, record(), etag)
    assert (renewal.lost, renewal.record.stop_requested_by) == ("", "bob@desk")
    assert renew(store, renewal.record, renewal.etag).record.stop_requested_by == "bob@desk"


def test_a_lost_answer_of_s3_is_no_loss() -> None:
    store = MemoryStore()
    etag = store.put(record())
    store.loses_answers = 1
    renewal = renew(store, record(), etag)
    assert (renewal.lost, renewal.record.renewals, renewal.etag) == ("", 1, store.read().etag)


@pytest.mark.parametrize(
    ("current", "lost"),
    [
        (
            record(id="00000000000000bb", user="eve@pc"),
            "eve@pc (site.yml, since 2026-11-28T12:00:00Z) has taken it over",
        ),
        (record(state=FREE), "its object was removed or replaced"),
        (None, "its object was removed or replaced"),
    ],
)
def test_a_lock_of_another_is_lost(current: LockRecord | None, lost: str) -> None:
    store = MemoryStore()
    etag = store.put(record())
    store.content = current.to_json() if current else b""
    assert renew(store, record(), etag).lost == lost


class Unreachable(MemoryStore):
    """S3 answers no request, and the keeper's machine has a clock of its own."""

    def replace(self, lock: LockRecord, etag: str) -> str:
        raise UserError("AWS cannot be reached.")


def keeper_of(store: MemoryStore, folder: Path, pid: int) -> keeper.Keeper:
    etag = store.put(record())
    return keeper.Keeper(store, folder, pid, record(), etag)  # type: ignore[arg-type]


def test_it_renews_until_the_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "TICK_SECONDS", 0.0)
    store, folder = MemoryStore(), tmp_path / "lock"
    folder.mkdir()
    written = store.put

    def put(lock: LockRecord) -> str:
        if lock.renewals == 3:
            keeper.shutil.rmtree(folder)
        return written(lock)

    store.put = put  # type: ignore[method-assign]
    keeper_of(store, folder, os.getpid()).run()
    assert store.read().record == record(renewals=3) and not folder.exists()


def test_it_reports_a_loss_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "TICK_SECONDS", 0.0)
    store = MemoryStore()
    running = keeper_of(store, tmp_path, os.getpid())
    store.put(record(id="00000000000000bb"))
    running.run()
    state = keeper.read_state(tmp_path)
    assert state is not None and "has taken it over" in state.lost


def test_a_renewal_that_fails_leaves_the_state_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RENEW_SECONDS", 0.0)
    keeper.write_state(tmp_path, keeper.KeptLock(5.0))
    running = keeper_of(Unreachable(), tmp_path, os.getpid())
    assert running._renew() and keeper.read_state(tmp_path) == keeper.KeptLock(5.0)


def test_a_full_disk_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    store = MemoryStore()
    running = keeper_of(store, tmp_path, os.getpid())
    monkeypatch.setattr(keeper, "replace_file", full)
    assert running._renew() and store.read().record == record(renewals=1)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_it_outlives_the_task_and_ends_with_the_playbook(tmp_path: Path) -> None:
    """It holds no file of ours open, and removes its folder at its end."""
    folder = tmp_path / "lock"
    folder.mkdir()
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as playbook:
        keeper.start(keeper_of(MemoryStore(), folder, playbook.pid))
        os.close(writing)
        with os.fdopen(reading, "rb") as output:
            assert output.read() == b"", "the keeper holds the pipe open"
        assert folder.exists()
        playbook.communicate(b"\n")
    wait_until(lambda: not folder.exists())


def test_a_suspended_playbook_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RENEW_SECONDS", 0.0)
    store, folder = MemoryStore(), tmp_path / "lock"
    folder.mkdir()
    ticks: list[int] = []

    def tick(_seconds: float) -> None:
        ticks.append(1)
        if len(ticks) == 3:
            keeper.shutil.rmtree(folder)

    monkeypatch.setattr(keeper.time, "sleep", tick)
    monkeypatch.setattr(keeper.process, "is_stopped", lambda _pid: True)
    keeper_of(store, folder, os.getpid()).run()
    assert store.read().record == record()
