"""Runs whose files training code has replaced: other runs are listed, and what is read has a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning.runs.folder import Folder

from tests.unit.node.commands_kit import Master, master_in
from tests.unit.node.runs_kit import UNREADABLE, replace_file


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Master]:
    with master_in(tmp_path, monkeypatch, capsys) as master:
        yield master


WRONG = [
    ("state.json", '{"schema": 1, "nodes": 5}'),
    ("state.json", '{"schema": 1, "progress": 5}'),
    ("result.json", '{"schema": 1, "state": "evil"}'),
]


@pytest.mark.parametrize(("name", "form"), [*UNREADABLE, *WRONG])
def test_a_run_that_cannot_be_read_keeps_no_other_from_being_listed(master: Master, name: str, form: str) -> None:
    for run_id in ("a", "b", "c"):
        master.add(run_id, "finished" if run_id != "b" else "running")
    replace_file(Folder(f"{master.root}/b"), name, form)
    for words in (["list"], ["list", "--json"]):
        code, output, errors = master.call(*words)
        assert code == 0 and errors.startswith("deeplearning: ") and f"{master.root}/b" in errors
        listed = [run["run_id"] for run in json.loads(output)["runs"]] if "--json" in words else output.split()
        assert {"a", "b", "c"} & set(listed) == {"a", "c"}
    code, _output, errors = master.call("show", "r9")
    assert code == 2 and "There is no run r9. The latest are a, " in errors


# No float holds this loss.
@pytest.mark.parametrize("state", [{"progress": {"loss": 10**400}}, {"processes": [{}]}])
def test_a_run_in_another_form_is_shown_as_a_sentence(master: Master, state: dict[str, Any]) -> None:
    folder = master.add("r1", "running")
    folder.write("state.json", {"processes": [], **state})
    code, _output, errors = master.call("show", "r1")
    assert code == 2 and f"the files in {folder.path} are not in the expected form" in errors


LINE = b'{"epoch": 3, "samples": 9}\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        (b"", None),
        (b'{"epoch": 1}\n' + LINE, {"epoch": 3, "samples": 9}),
        # It is still being written.
        (LINE + b'{"epoch": 4', {"epoch": 3, "samples": 9}),
        # A line longer than any record.
        (LINE + b"x" * (9 << 20) + b"\n", {"epoch": 3, "samples": 9}),
        (LINE + b"evil\n", "is not JSON"),
        ("pipe", "is a link, a pipe or a folder"),
        ("link", "is a link, a pipe or a folder"),
        ("folder", "is a link, a pipe or a folder"),
    ],
    ids=["none", "empty", "two", "cut", "long", "no JSON", "pipe", "link", "folder"],
)
def test_the_result_of_the_last_evaluation_is_read_with_a_limit(
    master: Master, content: bytes | str | None, expected: Any
) -> None:
    folder = master.add("r1", "finished")
    if isinstance(content, str):
        replace_file(folder, "metrics/evaluation.jsonl", content)
    elif content is not None:
        Path(folder.file("metrics/evaluation.jsonl")).write_bytes(content)
    code, output, errors = master.call("evaluation", "r1")
    if isinstance(expected, str):
        assert code == 2 and expected in errors
    else:
        assert code == 0 and json.loads(output) == {"evaluation": expected}
