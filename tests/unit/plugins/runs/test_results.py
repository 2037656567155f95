"""Getting the files of a run: the node's own program sends them, and a master that lies sends something else."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import run_files
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.bucket import file_sha256
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import result_targets, results
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.result_targets import LocalFolder

from tests.unit.actions import run_action
from tests.unit.plugins.runs.results_kit import MODEL, content_of, here, install, program_in, run_in, write


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return program_in(tmp_path, monkeypatch)


@pytest.fixture
def run(tmp_path: Path, program: Path) -> Path:
    return run_in(tmp_path, program)


class Display:
    """Records what is shown. `on_transfer` is called after each."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []
        self.on_transfer: Callable[[], object] = lambda: None

    def transfer(self, what: str, done: int, total: int) -> None:
        self.shown.append((what, done, total))
        self.on_transfer()


def ignore(what: str, done: int, total: int) -> None:
    """Show nothing."""


def fetch(to: Path, what: str = "model", display: Display | None = None) -> results.Fetch:
    display, way = display or Display(), Way("deeplearning-master")
    made = results.Fetch(way, "r1", what, LocalFolder(to, what, display.transfer), display.transfer)
    made.run(results.list_files(way, "r1", what))
    return made


def test_all_files_come_and_a_second_time_none(run: Path, tmp_path: Path) -> None:
    display = Display()
    first = fetch(tmp_path / "here", display=display)
    assert content_of(tmp_path / "here") == here(MODEL) and len(first.received) == len(MODEL)
    total = sum(map(len, MODEL.values()))
    assert display.shown[-1] == ("r1", total, total) and len(display.shown) > len(MODEL)
    again = fetch(tmp_path / "here")
    assert again.received == [] and len(again.were_there) == len(MODEL)
    assert content_of(tmp_path / "here") == here(MODEL)


class Interrupted(Exception):
    pass


def test_what_was_interrupted_resumes_where_it_was(run: Path, tmp_path: Path) -> None:
    display = Display()

    def interrupt() -> None:
        if display.shown[-1][1] > 2_000_000:
            raise Interrupted

    display.on_transfer = interrupt
    with pytest.raises(Interrupted):
        fetch(tmp_path / "here", display=display)
    part = tmp_path / "here/.partial/model/model/model.pt"
    begun = part.stat().st_size
    assert 1_000_000 < begun < len(MODEL["model.pt"])
    requests: list[int] = []
    original = results.receive

    def receive(way: Way, run_id: str, asked: Any, show: Any) -> Any:
        requests.extend(request.start for request in asked)
        return original(way, run_id, asked, show)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "receive", receive)
        fetch(tmp_path / "here")
    assert begun in requests
    assert content_of(tmp_path / "here") == here(MODEL)


def test_two_processes_do_not_fetch_to_one_folder(run: Path, tmp_path: Path) -> None:
    display, errors = Display(), set()

    def fetch_too() -> None:
        with pytest.raises(UserError) as error:
            fetch(tmp_path / "here")
        errors.add(str(error.value))

    display.on_transfer = fetch_too
    fetch(tmp_path / "here", display=display)
    assert errors == {
        f"Another process is fetching the model to {tmp_path}/here: wait for it, or name another folder. "
        "Example: -e to=r1-new"
    }
    assert content_of(tmp_path / "here") == here(MODEL) and not (tmp_path / "here/.partial").exists()


def test_a_lock_that_another_process_removes_at_its_end_is_none(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = results.fcntl.flock

    def flock_late(lock: Any, operation: int) -> None:
        shutil.rmtree(tmp_path / "here/.partial")
        flock(lock, operation)

    monkeypatch.setattr(results.fcntl, "flock", flock_late)
    with pytest.raises(UserError, match="Another process is fetching"):
        fetch(tmp_path / "here")


def test_a_beginning_of_another_file_is_thrown_away(run: Path, tmp_path: Path) -> None:
    write(tmp_path / "here/.partial/model/model", {"model.pt": b"other" * 10, "config.json": b"longer than the file"})
    fetch(tmp_path / "here")
    assert content_of(tmp_path / "here") == here(MODEL)


@pytest.mark.parametrize("other", [b"{]", b"another length"])
def test_another_file_of_that_name_is_never_replaced(run: Path, tmp_path: Path, other: bytes) -> None:
    write(tmp_path / "here/model", {"config.json": other})
    with pytest.raises(UserError, match="model/config.json is there already, and is another file"):
        fetch(tmp_path / "here")
    assert content_of(tmp_path / "here") == {"model/config.json": other}


def test_no_link_is_followed_here(run: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here/model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="has to be a folder, and is a link"):
        fetch(tmp_path / "here")
    (tmp_path / "here/model").unlink()
    (tmp_path / "here/model").mkdir()
    (tmp_path / "here/model/model.pt").symlink_to(tmp_path / "elsewhere/model.pt")
    with pytest.raises(UserError, match="another file"):
        fetch(tmp_path / "here")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_no_link_is_followed_on_the_master(run: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret", {"key": b"secret"})
    (run / "model/key").symlink_to(tmp_path / "secret/key")
    (run / "model/folder").symlink_to(tmp_path / "secret")
    listing = results.list_files(Way("n"), "r1", "model")
    reason = "it is a link or a special file"
    assert listing.left_out.text == f"model/folder ({reason}), model/key ({reason})"
    assert {file.name for file in listing.files} == set(here(MODEL))
    # One that is put in the place of a folder after that is not followed either.
    shutil.rmtree(run / "model")
    (run / "model").symlink_to(tmp_path / "secret")
    stolen = results.RunFile("model/key", 6, 0)
    made = results.Fetch(Way("n"), "r1", "model", LocalFolder(tmp_path / "here", "model", ignore), ignore)
    made.run(results.Listing("finished", [stolen]))
    assert made.gone == ["model/key"] and content_of(tmp_path / "here") == {}


def test_a_file_that_the_run_changes_is_fetched_again(run: Path, tmp_path: Path) -> None:
    display = Display()
    changes = iter([b"newer weights" * 1000])

    def change() -> None:
        for content in changes:
            (run / "model/model.pt").write_bytes(content)

    display.on_transfer = change
    fetch(tmp_path / "here", display=display)
    assert (tmp_path / "here/model/model.pt").read_bytes() == b"newer weights" * 1000


def test_one_that_never_stays_as_it_is_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[results.Listing] = []

    def list_files(way: Way, run_id: str, what: str) -> results.Listing:
        lists.append(original(way, run_id, what))
        (run / "model/a b").write_text("y" * len(lists))
        return lists[-1]

    original = results.list_files
    monkeypatch.setattr(results, "list_files", list_files)
    with pytest.raises(UserError, match=r"1 file of r1 cannot be had as a whole: model/a b \(the run changes it\)"):
        fetch(tmp_path / "here")
    assert len(lists) == results.ROUNDS
    assert not (tmp_path / "here/model/a b").exists() and (tmp_path / "here/model/model.pt").exists()


def test_logs_of_an_active_run_may_have_grown_since(run: Path, tmp_path: Path) -> None:
    write(run, {"logs/n.worker0.log": b"one\n", "events.jsonl": b"{}\n", "environment.json": b"secret"})
    fetch(tmp_path / "here", "logs")
    with (run / "logs/n.worker0.log").open("ab") as log:
        log.write(b"two\n")
    fetch(tmp_path / "here", "logs")
    assert content_of(tmp_path / "here") == {"logs/n.worker0.log": b"one\ntwo\n", "events.jsonl": b"{}\n"}
    (run / "logs/n.worker0.log").write_bytes(b"another run's log\n")
    with pytest.raises(UserError, match="another file"):
        fetch(tmp_path / "here", "logs")


def test_a_full_disk_is_reported_before_and_during_a_transfer(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_targets.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(UserError, match=r"0.0 GiB are still to come, and .* has 0.0 GiB left: make room, or name"):
        fetch(tmp_path / "here")
    assert content_of(tmp_path / "here") == {}
    full = results.write_error(OSError(errno.ENOSPC, "No space left on device"), tmp_path)
    assert str(full) == f"{tmp_path} is full: make room, and run the same command again. It resumes there."


HEX = "0" * 64
LISTED = {"name": "model/a", "size": 3, "modified": 0}
GOOD = b'{"at": 0, "bytes": 3}\nabc'


@pytest.mark.parametrize(
    "files",
    [
        [{**LISTED, "name": name}]
        for name in (
            *("/etc/passwd", "model/../../x", "../x", "model//x", "model/.", "model/\nx", "model/\x1b[0m", "other/x"),
            *("model/" + "a/" * 20 + "x", "model/" + "x" * 300, "model\\x", "", None, 3, ".partial/x", "model/\u202ex"),
        )
    ]
    + [
        [{**LISTED, "size": -1}],
        [{**LISTED, "size": 1 << 60}],
        [LISTED, LISTED],
        [LISTED, {**LISTED, "name": "model/a/b"}],
        [{}],
        "x",
        None,
        [{**LISTED, "name": f"model/{number}"} for number in range(run_files.MOST_FILES + 1)],
    ],
)
def test_a_list_that_is_malformed_is_refused(program: Path, tmp_path: Path, files: Any) -> None:
    (tmp_path / "answer").write_text(json.dumps({"state": "finished", "files": files, "left_out": []}))
    install(program, f"#!/bin/sh\ncat {tmp_path}/answer\n")
    with pytest.raises(UserError, match="answered `deeplearning run files` with something unexpected"):
        results.list_files(Way("n"), "r1", "model")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"{}\n",
        b"x" * 1500,
        b"[" * 1000 + b"\n",
        b'{"at": 1, "bytes": 2}\nbc',
        b'{"at": 0, "bytes": 4}\nabcd{"sha256": "%s", "changed": false}\n' % HEX.encode(),
        b'{"at": 0, "bytes": 2}\nab{"sha256": "%s", "changed": false}\n' % HEX.encode(),
        b'{"at": 0, "bytes": -1}\n',
        b'{"at": 0, "bytes": 3, "name": "../x"}\nabc',
        GOOD[:-1],
        GOOD,
        GOOD + b'{"sha256": "x", "changed": false}\n',
        GOOD + b'{"sha256": null}\n',
        GOOD + b'{"problem": 3, "changed": true}\n',
    ],
)
def test_what_is_malformed_is_no_file(program: Path, tmp_path: Path, sent: bytes) -> None:
    (tmp_path / "answer").write_bytes(sent)
    install(program, f"#!/bin/sh\ncat {tmp_path}/answer\n")
    made = results.Fetch(Way("n"), "r1", "model", LocalFolder(tmp_path / "here", "model", ignore), ignore)
    with pytest.raises(UserError, match="answered `deeplearning run send` with something unexpected"):
        made.run(results.Listing("finished", [results.RunFile("model/a", 3, 0)]))
    assert not (tmp_path / "here/model").exists()


def test_more_than_was_asked_for_is_not_read(program: Path, tmp_path: Path) -> None:
    install(program, """#!/bin/sh\nexec yes '{"at": 0, "bytes": 0}'\n""")
    made = results.Fetch(Way("n"), "r1", "model", LocalFolder(tmp_path / "here", "model", ignore), ignore)
    with pytest.raises(UserError, match="sends far more than is expected"):
        made.run(results.Listing("finished", [results.RunFile("model/a", 3, 0)]))


def test_a_checksum_that_differs_is_noticed(program: Path, tmp_path: Path) -> None:
    listing = json.dumps({"state": "finished", "files": [LISTED], "left_out": []})
    (tmp_path / "files").write_text(listing)
    (tmp_path / "send").write_bytes(GOOD + json.dumps({"sha256": HEX, "changed": False}).encode() + b"\n")
    install(program, f"#!/bin/sh\ncat {tmp_path}/$2\n")
    with pytest.raises(UserError, match=r"model/a \(its checksum differs\)"):
        fetch(tmp_path / "here")
    assert content_of(tmp_path / "here") == {}


def test_a_lost_connection_says_how_it_resumes(program: Path, tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(GOOD)
    install(program, f"#!/bin/sh\ncat {tmp_path}/answer; echo gone >&2; exit 255\n")
    made = results.Fetch(Way("n"), "r1", "model", LocalFolder(tmp_path / "here", "model", ignore), ignore)
    with pytest.raises(UserError, match="^The connection to n was lost: gone. Run the same command again"):
        made.run(results.Listing("finished", [results.RunFile("model/a", 3, 0)]))
    assert content_of(tmp_path / "here") == {".partial/model/model/a": b"abc"}


def action(tmp_path: Path, check: bool = False, **arguments: Any) -> dict[str, Any]:
    options = {"region": "us-east-1", "run_id": "r1", "to": str(tmp_path / "here"), "folder": str(tmp_path / "get")}
    return run_action("fetch_results", check=check, **{**options, **arguments})


def test_check_mode_lists_and_gets_nothing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert action(tmp_path, check=True)["changed"]
    assert not (tmp_path / "here").exists()
    printed = capsys.readouterr().out
    assert "3.3 MiB  model/model.pt" in printed
    assert f"To get: 4 files, 3.3 MiB, to {tmp_path / 'here'}\n" in printed
    result = action(tmp_path)
    assert result["changed"] and result["place"] == str(tmp_path / "here")
    printed = capsys.readouterr().out
    assert f"4 files of r1, 3.3 MiB, in {tmp_path / 'here'}. All were compared by SHA-256." in printed
    assert not action(tmp_path, check=True)["changed"] and not action(tmp_path)["changed"]


def test_a_run_without_such_files_is_answered_in_a_sentence(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "model")
    result = action(tmp_path)
    assert result["failed"] and "r1 has no model/ in its folder. " in result["msg"]
    assert "-e what=checkpoints" in result["msg"]
    assert "r1 has no checkpoints. " in action(tmp_path, what="checkpoints")["msg"]


def test_what_is_left_out_is_a_warning(run: Path, tmp_path: Path) -> None:
    (run / "model/link").symlink_to("/etc/passwd")
    (warning,) = action(tmp_path)["warnings"]
    assert warning.startswith("Left out: model/link (it is a link or a special file). docs/getting-results-out.md ")


def test_digests_are_of_whole_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_sha256(tmp_path / "a").startswith("ba7816bf")
