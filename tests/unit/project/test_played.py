"""Records of what tests play, and the file that keeps them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import played, run
from tests.layers.commands import Ended

NAMED = "tests/account/test_status.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of records, with a file of its own that keeps them."""
    monkeypatch.setattr(played, "RECORDS", tmp_path)
    monkeypatch.setattr(played, "FILE", tmp_path / "played.json")
    monkeypatch.setenv(played.VARIABLE, str(tmp_path / "account.jsonl"))
    played.FILE.write_text("{}", encoding="utf-8")
    return tmp_path


def play(monkeypatch: pytest.MonkeyPatch, test: str, *names: str) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
    played.record(f"{played.ROOT}/status.yml", names)


def test_records_of_named_tests_replace_what_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = f"{NAMED}::test_watching_prints_it_again_until_it_is_interrupted"
    play(monkeypatch, test, "watch")
    play(monkeypatch, test, "watch", "cluster_name")
    play(monkeypatch, f"{NAMED}::test_no_longer_there", "watch")
    play(monkeypatch, "tests/account/test_throttling.py::test_a", "watch")
    played.merge()
    kept = {f"{test} (call)": {"status.yml": [["cluster_name", "watch"]]}}
    assert json.loads(played.FILE.read_text()) == kept
    assert not list(folder.glob("*.jsonl"))

    play(monkeypatch, test, "format")
    assert played.stale(folder / "account.jsonl") == [f"{test} (call)"]
    play(monkeypatch, test, "cluster_name", "watch", "region")
    assert not played.stale(folder / "account.jsonl")


def test_a_layer_fails_whose_record_is_stale(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = f"{NAMED}::test_watching_prints_it_again_until_it_is_interrupted"
    played.FILE.write_text(json.dumps({f"{test} (call)": {"status.yml": [["format"]]}}), encoding="utf-8")

    def pytest_plays(*words: str, **_limits: object) -> Ended:
        (file,) = (word.partition("=")[2] for word in words if word.startswith(f"{played.VARIABLE}="))
        monkeypatch.setenv(played.VARIABLE, file)
        play(monkeypatch, test, "watch")
        report = '<testsuites><testsuite tests="5" failures="0" errors="0" skipped="0"/></testsuites>'
        Path(file).with_suffix(".xml").write_text(report)
        return Ended(0)

    monkeypatch.setattr(run, "REPORTS", folder)
    monkeypatch.setattr(run, "command", pytest_plays)
    result = run.run_and_count(Path(sys.prefix), hang=1)
    assert (result.ok, result.detail) == (False, f"5 passed, tests/played.json is stale: {played.UPDATE}")
    assert f"{test} (call) played. Update it: {played.UPDATE}" in capsys.readouterr().out
    played.merge()
    assert run.run_and_count(Path(sys.prefix), hang=1) == run.Result(True, "5 passed")


def test_a_playbook_that_a_test_wrote_itself_is_not_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = f"{NAMED}::test_watching_prints_it_again_until_it_is_interrupted"
    play(monkeypatch, test, "watch")
    played.record(f"{folder}/meet.yml", ["watch"])
    played.record(f"{played.ROOT}/status.yml", ["watch"])
    played.merge()
    assert json.loads(played.FILE.read_text()) == {f"{test} (call)": {"status.yml": [["watch"]]}}


@pytest.mark.parametrize(
    ("test", "named", "belongs"),
    [
        ("a.py::test_b (call)", "a.py::test_b", True),
        ("a.py::test_b[1] (call)", "a.py::test_b", True),
        ("a.py::test_b (call)", "a.py", True),
        ("a.py::test_c (setup)", "a.py::test_b", True),
        ("a.py::test_c (call)", "a.py::test_b", False),
        ("a.py::test_bc (call)", "a.py::test_b", False),
        ("b.py::test_b (setup)", "a.py::test_b", False),
    ],
)
def test_plays_of_fixtures_belong_to_all_tests_of_their_file(test: str, named: str, belongs: bool) -> None:
    assert played.belongs(test, named) == belongs
