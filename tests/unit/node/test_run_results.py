"""The files of a run that the master lists and sends."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import run_files
from deeplearning.contract.errors import UserError
from deeplearning.runs import results
from deeplearning.runs.folder import Folder

from tests.unit.node.commands_kit import Master, master_in

DCP = ("__0_0.distcp", "__1_0.distcp")


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Master]:
    with master_in(tmp_path, monkeypatch, capsys) as master:
        yield master


def write(folder: Folder, *names: str, content: str = "abc") -> None:
    for name in names:
        path = Path(folder.file(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def names(master: Master, what: str) -> list[str]:
    return [file["name"] for file in master.answer("files", "r1", what)["files"]]


def test_each_kind_of_files_is_listed_and_no_secret(master: Master) -> None:
    run = master.add("r1", "finished")
    write(
        run, "model/model.pt", "model/variables/v", "tensorboard/events.out", "metrics/rank0.jsonl", "environment.json"
    )
    write(run, "logs/mpirun.log", "code/train.py", "checkpoints/epoch-1.pt")
    answer = master.answer("files", "r1", "model")
    assert (answer["state"], answer["left_out"]) == ("finished", [])
    seen = os.stat(run.file("model/model.pt"))
    assert answer["files"][0] == {"name": "model/model.pt", "size": 3, "modified": seen.st_mtime_ns}
    assert names(master, "model") == ["model/model.pt", "model/variables/v"]
    assert names(master, "checkpoints") == ["checkpoints/epoch-1.pt"]
    assert names(master, "tensorboard") == ["tensorboard/events.out"]
    own = ["logs/mpirun.log", "metrics/rank0.jsonl", "events.jsonl", "run.json", "result.json"]
    assert names(master, "logs") == own


def test_of_checkpoints_the_complete_ones_are_listed(master: Master) -> None:
    run = master.add("r1", "running")
    complete = [*(f"checkpoints/step-1/{name}" for name in (".metadata", *DCP)), "checkpoints/tf/model-1.index"]
    complete += ["checkpoints/tf/model-1.data-00000-of-00001", "checkpoints/tf/checkpoint", "checkpoints/latest"]
    write(run, *complete, *(f"checkpoints/step-2/{name}" for name in DCP))
    write(
        run, "checkpoints/tf/model-12.data-00000-of-00001", "checkpoints/.tmp/a", "checkpoints/checkpoint-3/model.bin"
    )
    assert names(master, "checkpoints") == sorted(complete)


@pytest.mark.parametrize("in_its_place", [None, "a file"])
def test_checkpoints_that_are_removed_meanwhile_are_left_out(
    master: Master, monkeypatch: pytest.MonkeyPatch, in_its_place: str | None
) -> None:
    run = master.add("r1", "running")
    write(run, *(f"checkpoints/step-{number}/{name}" for number in (1, 2) for name in (".metadata", *DCP)))
    oldest = run.file("checkpoints/step-1")
    listdir = os.listdir

    def remove_first(path: str) -> list[str]:
        if path == oldest:
            shutil.rmtree(path)
            if in_its_place:
                Path(path).write_text(in_its_place)
        return listdir(path)

    monkeypatch.setattr(results.os, "listdir", remove_first)
    assert names(master, "checkpoints") == sorted(f"checkpoints/step-2/{name}" for name in (".metadata", *DCP))


def test_a_run_in_a_folder_of_its_own_is_listed_through_its_link(master: Master, tmp_path: Path) -> None:
    run = master.add("r1", "finished")
    write(run, "model/model.pt")
    os.rename(run.path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", run.path)
    assert names(master, "model") == ["model/model.pt"]


def test_links_and_names_that_no_file_of_a_run_has_are_left_out(master: Master) -> None:
    run = master.add("r1", "finished")
    write(run, "model/a", "model/b\n", "model/c\\", "model/d\x1b", "/".join(["model", *"e" * 20]))
    os.mkfifo(run.file("model/pipe"))
    os.symlink("/etc", run.file("model/link"))
    Path(os.fsdecode(os.fsencode(run.file("model")) + b"/\xff")).write_text("")
    answer = master.answer("files", "r1", "model")
    assert [file["name"] for file in answer["files"]] == ["model/a"]
    left_out = [text.partition(" (")[0] for text in answer["left_out"]]
    assert len(left_out) == answer["left_out_count"] == 7 and {"model/pipe", "model/link"} <= set(left_out)
    for name in range(100):
        os.symlink("/etc", run.file(f"model/link{name}"))
    answer = master.answer("files", "r1", "model")
    assert (len(answer["left_out"]), answer["left_out_count"]) == (results.MOST_LEFT_OUT, 107)


def test_a_place_that_is_a_link_is_left_out(master: Master) -> None:
    run = master.add("r1", "finished")
    os.symlink("/etc", run.file("model"))
    answer = master.answer("files", "r1", "model")
    assert answer["files"] == [] and answer["left_out"] == [f"model ({results.NO_FILE})"]


def test_more_files_than_an_answer_holds_are_refused(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "MOST_FILES", 2)
    write(master.add("r1", "finished"), "model/a", "model/b", "model/c")
    code, _output, errors = master.call("files", "r1", "model")
    assert code == 2 and "Run r1 has more than 2 files in its model: pack them on the master" in errors


def test_a_run_that_does_not_exist_is_answered_with_those_that_do(master: Master) -> None:
    master.add("r2", "finished")
    code, _output, errors = master.call("files", "r1", "model")
    assert code == 2 and "There is no run r1. The latest are r2." in errors


def request(name: str, size: int = 6, modified: int = 0, start: int = 0) -> dict[str, Any]:
    return {"name": name, "size": size, "modified": modified, "start": start}


def send(folder: Folder, *files: dict[str, Any]) -> list[Any]:
    """What is sent: records, and the bytes between them."""
    out = io.BytesIO()
    results.send(folder, files, out)
    out.seek(0)
    sent: list[Any] = []
    while line := out.readline():
        sent.append(json.loads(line))
        if sent[-1].get("bytes"):
            sent.append(out.read(sent[-1]["bytes"]))
    return sent


def test_a_file_is_sent_in_chunks_and_its_beginning_only_read(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "CHUNK", 4)
    write(run, "model/a", content="abcdef")
    modified = os.stat(run.file("model/a")).st_mtime_ns
    end = {"sha256": hashlib.sha256(b"abcdef").hexdigest(), "changed": False}
    whole = [{"at": 0, "bytes": 4}, b"abcd", {"at": 4, "bytes": 2}, b"ef", end]
    assert send(run, request("model/a", modified=modified)) == whole
    rest = [{"at": 0, "bytes": 0}, {"at": 3, "bytes": 3}, b"def", end]
    assert send(run, request("model/a", modified=modified, start=3)) == rest
    none = [{"at": 0, "bytes": 0}, {"at": 4, "bytes": 0}, end]
    assert send(run, request("model/a", modified=modified, start=6)) == none


def test_what_was_added_since_the_list_is_not_sent(run: Folder) -> None:
    write(run, "logs/a.log", content="abcdef and more")
    (chunk, data, end) = send(run, request("logs/a.log"))
    assert data == b"abcdef" and end == {"sha256": hashlib.sha256(b"abcdef").hexdigest(), "changed": True}


def test_a_file_that_cannot_be_read_does_not_end_the_others(run: Folder) -> None:
    write(run, "model/a", "model/b")
    os.symlink("a", run.file("model/link"))
    os.symlink(run.file("model"), run.file("tensorboard/folder"))
    requests = [request(name, 3) for name in ("model/gone", "model/link", "tensorboard/folder/a", "model/b")]
    sent = send(run, *requests[:3], request("model/a", 6), requests[3])
    assert [record["problem"] for record in sent if isinstance(record, dict) and "problem" in record] == [
        "No such file or directory",
        "it is no file any more",
        "Not a directory",
        "it has become shorter",
    ]
    assert sent[-2] == b"abc"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[" * 2000, "3", "[3]", json.dumps([request("../x")]), json.dumps([request("/etc/passwd")])),
        *(json.dumps([{**request("model/a"), "more": 1}]), json.dumps([request("model/a", start=-1)])),
    ],
)
def test_a_malformed_request_is_refused(master: Master, text: str) -> None:
    master.add("r1", "finished")
    code, output, errors = master.call("send", "r1", stdin=text)
    assert (code, output) == (2, "") and "The request on standard input is malformed" in errors


def test_a_run_says_what_it_has_left(run: Folder) -> None:
    assert results.present(run) == {}
    write(run, "checkpoints/1.pt", "model/model.pt")
    assert results.present(run) == {"model": run.file("model"), "checkpoints": run.file("checkpoints")}


def test_the_listing_of_an_unreadable_state_fails_in_a_sentence(run: Folder) -> None:
    write(run, "result.json", content="[")
    with pytest.raises(UserError, match="is not JSON"):
        results.listing(run, "model")


def test_what_git_or_ansible_would_run_commands_from_is_left_out(master: Master) -> None:
    run = master.add("r1", "finished")
    write(run, "model/.git/config", "model/gitfile/.git", "model/Ansible.cfg", "model/.envrc", "model/dcp/.metadata")
    write(run, "model/a/HEAD", "model/a/refs/x", "model/a/w.pt", "model/B/HEAD", "model/b/objects/x")
    answer = master.answer("files", "r1", "model")
    sent = ["model/B/HEAD", "model/a/HEAD", "model/a/w.pt", "model/dcp/.metadata"]
    assert [file["name"] for file in answer["files"]] == sent
    left_out = [text.partition(" (")[0].removeprefix("model/") for text in answer["left_out"]]
    assert left_out == [".envrc", ".git", "Ansible.cfg", "a/refs", "b/objects", "gitfile/.git"]
    assert answer["left_out_count"] == len(left_out)


def test_a_folder_that_is_left_out_is_counted_once_and_ten_thousand_files_are_no_error(master: Master) -> None:
    run = master.add("r1", "finished")
    write(run, "model/w.pt", *(f"model/.git/{number}" for number in range(10)))
    write(run, *(f"model/.hidden-{number}" for number in range(10_000)))
    answer = master.answer("files", "r1", "model")
    assert [file["name"] for file in answer["files"]] == ["model/w.pt"]
    assert (len(answer["left_out"]), answer["left_out_count"]) == (results.MOST_LEFT_OUT, 10_001)


def test_checkpoints_that_are_still_written_are_not_named_as_left_out(master: Master) -> None:
    run = master.add("r1", "running")
    write(run, "checkpoints/step-1/.metadata", "checkpoints/step-1/__0_0.distcp", "checkpoints/step-1/.git/config")
    write(run, "checkpoints/.tmp/.git/config", "checkpoints/.tmp/a")
    answer = master.answer("files", "r1", "checkpoints")
    assert [text.partition(" (")[0] for text in answer["left_out"]] == ["checkpoints/step-1/.git"]


def test_a_run_whose_files_are_all_left_out_has_nothing(run: Folder) -> None:
    write(run, "model/.git/config")
    assert results.present(run) == {}
