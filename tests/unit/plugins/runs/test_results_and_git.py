"""Git, with its defaults, in each folder that `get` has written: files of training code make it run no command."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_files, report_files, result_targets
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import logs

from tests.unit.actions import run_action
from tests.unit.plugins.runs.results_kit import MODEL, content_of, here, install, program_in, run_in, write

REPOSITORY = {"HEAD": b"ref: refs/heads/main\n", "objects/info/packs": b"\n", "refs/heads/keep": b""}
HARMLESS = {"weights/model.pt": b"weights", "checkpoint/.metadata": b"metadata", "Config": b"1", "config.json": b"{}"}
WITHOUT_THE_CHECK = """
from deeplearning.contract import forbidden_names
forbidden_names.NameFilter.accept = lambda self, name, is_folder=False: ""
listing = results.listing
def older_listing(run, what):
    answer = listing(run, what)
    del answer["left_out_count"]
    return answer
results.listing = older_listing
"""
"""What makes the node's program one of an earlier version, or of an attacker who has removed the check."""


@dataclass(frozen=True)
class Attack:
    """Files below a folder, which make Git run a command there that creates a file."""

    folder: Path
    pwned: Path

    @property
    def command(self) -> bytes:
        return b'\tfsmonitor = "touch %s; false"\n' % bytes(self.pwned)

    def in_a_hidden_folder(self) -> dict[str, bytes]:
        config = b"[core]\n\trepositoryformatversion = 0\n" + self.command
        return {f".git/{name}": content for name, content in {**REPOSITORY, "config": config}.items()}

    def in_a_folder_below(self) -> dict[str, bytes]:
        return {f"a/b/{name}": content for name, content in self.in_a_hidden_folder().items()}

    def as_a_bare_repository(self) -> dict[str, bytes]:
        worktree = b"\tworktree = %s\n" % bytes(self.folder)
        config = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n" + worktree + self.command
        return {**REPOSITORY, "config": config}

    def as_a_link_to_a_repository(self) -> dict[str, bytes]:
        repository = {f"data/{name}": content for name, content in self.as_a_bare_repository().items()}
        return {".git": b"gitdir: data\n", **repository}

    def with_a_common_folder(self) -> dict[str, bytes]:
        """HEAD without objects and refs, which `commondir` has in another folder, without HEAD."""
        common = {f"data/{name}": content for name, content in REPOSITORY.items() if name != "HEAD"}
        common["data/config"] = b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n"
        worktree = b"\tworktree = %s\n" % bytes(self.folder)
        config = b"[core]\n" + worktree + self.command
        return {**common, "HEAD": REPOSITORY["HEAD"], "commondir": b"data\n", "config.worktree": config}


ATTACKS = (
    Attack.in_a_hidden_folder,
    Attack.in_a_folder_below,
    Attack.as_a_bare_repository,
    Attack.as_a_link_to_a_repository,
    Attack.with_a_common_folder,
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return program_in(tmp_path, monkeypatch)


@pytest.fixture
def run(tmp_path: Path, program: Path) -> Path:
    return run_in(tmp_path, program)


@pytest.fixture(params=["honest", "hostile"])
def node(request: pytest.FixtureRequest, run: Path, program: Path) -> str:
    if request.param == "hostile":
        let_all_pass(program)
    return str(request.param)


def let_all_pass(program: Path) -> None:
    before, action, after = program.read_text().partition("action, run_id")
    install(program, before + WITHOUT_THE_CHECK + action + after)


def get(tmp_path: Path, check: bool = False, **options: Any) -> dict[str, Any]:
    values = {"region": "us-east-1", "run_id": "r1", "to": str(tmp_path / "here"), "folder": str(tmp_path / "get")}
    return run_action("fetch_results", check=check, **{**values, **options})


def folders_in(folder: Path) -> Iterator[Path]:
    for path, _folders, _files in os.walk(folder):
        yield Path(path)


def run_git(folder: Path, home: Path) -> None:
    """Run `git status` in each folder, as a shell prompt does, with Git's defaults."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    for each in folders_in(folder):
        subprocess.run(["git", "status"], cwd=each, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("attack", ATTACKS)
def test_git_runs_no_command_in_what_arrived(run: Path, node: str, tmp_path: Path, attack: Any) -> None:
    folder, pwned = tmp_path / "here/model/evil", tmp_path / "pwned"
    files = attack(Attack(folder, pwned))
    write(run / "model/evil", {**files, **HARMLESS})
    result = get(tmp_path)
    arrived = content_of(tmp_path / "here")
    assert here({**MODEL, **{f"evil/{name}": content for name, content in HARMLESS.items()}}).items() <= arrived.items()
    (warning,) = result["warnings"]
    assert warning.startswith("Left out: model/evil/") and "Git would take it for a repository" in warning
    run_git(tmp_path / "here", tmp_path)
    assert not pwned.exists()
    # A second time nothing else comes.
    assert not get(tmp_path)["changed"] and content_of(tmp_path / "here") == arrived
    # The same files do run a command if nothing is left out.
    write(folder, files)
    run_git(tmp_path / "here", tmp_path)
    assert pwned.exists()


@pytest.mark.parametrize("what", ["checkpoints", "logs", "tensorboard"])
def test_the_same_goes_for_all_kinds_of_files(run: Path, node: str, tmp_path: Path, what: str) -> None:
    folder, pwned = tmp_path / "here" / what / "evil", tmp_path / "pwned"
    attack = Attack(folder, pwned)
    write(run / what / "evil", {**attack.as_a_bare_repository(), **attack.in_a_hidden_folder(), "weights": b"1"})
    (warning,) = get(tmp_path, what=what)["warnings"]
    assert warning.startswith(f"Left out: {what}/evil/") and (folder / "weights").exists()
    run_git(tmp_path / "here", tmp_path)
    assert not pwned.exists()


@pytest.mark.parametrize("first", [["HEAD", "config"], ["objects/info/packs", "refs/heads/keep", "config"]])
def test_a_repository_does_not_come_in_two_parts(run: Path, node: str, tmp_path: Path, first: list[str]) -> None:
    pwned = tmp_path / "pwned"
    files = Attack(tmp_path / "here/model", pwned).as_a_bare_repository()
    write(run / "model", {name: files[name] for name in first})
    assert get(tmp_path)["warnings"] == []
    for name in first:
        (run / "model" / name).unlink()
    write(run / "model", {name: content for name, content in files.items() if name not in first})
    (warning,) = get(tmp_path)["warnings"]
    assert "Git would take it for a repository" in warning
    run_git(tmp_path / "here", tmp_path)
    assert not pwned.exists()


def test_what_has_not_arrived_completely_counts_too(run: Path, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    partial = tmp_path / "here/.partial/model/model"
    files = Attack(partial, pwned).as_a_bare_repository()
    write(partial, {name: files[name] for name in ("HEAD", "config")})
    write(run / "model", {"refs/x": b"1", "objects/x": b"1"})
    (warning,) = get(tmp_path)["warnings"]
    assert warning.startswith("Left out: model/objects/x (") and "model/refs/x (" in warning


def test_ten_thousand_forbidden_files_are_a_few_names_and_a_number(run: Path, node: str, tmp_path: Path) -> None:
    count = 10_000 - len(MODEL)
    write(run / "model", {f".hidden-{number:05}": b"" for number in range(count)})
    for check in (True, False):
        (warning,) = get(tmp_path, check=check)["warnings"]
        assert "model/.hidden-00000 (its name begins with a dot)" in warning
        assert f" and {count - 5:,} more. " in warning
        assert len(warning) < 1000
    assert content_of(tmp_path / "here") == here(MODEL)


def test_if_all_is_left_out_the_reason_is_named(run: Path, node: str, tmp_path: Path) -> None:
    for name in MODEL:
        (run / "model" / name).unlink()
    write(run / "model", {"ansible.cfg": b"[defaults]\n", ".envrc": b"touch pwned\n"})
    result = get(tmp_path)
    assert result["failed"] and "All files of the model of r1 are left out: model/.envrc (" in result["msg"]
    assert "model/ansible.cfg (Ansible would take it for its configuration)" in result["msg"]
    assert not (tmp_path / "here").exists()


def test_names_in_another_case_do_not_overwrite_each_other(
    run: Path, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(run / "model", {"Config.json": b"another", "A B/x": b"1"})
    assert get(tmp_path)["warnings"] == [] and len(content_of(tmp_path / "here")) == len(MODEL) + 2
    monkeypatch.setattr(result_targets, "ignores_case", lambda folder: True)
    (warning,) = get(tmp_path, to=str(tmp_path / "mac"))["warnings"]
    reason = "the file system does not distinguish its name from another one"
    assert f"model/a b ({reason}), model/config.json ({reason})" in warning
    assert content_of(tmp_path / "mac")["model/Config.json"] == b"another"


def test_whether_a_file_system_ignores_case_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not result_targets.ignores_case(tmp_path / "new/folder") and not list(tmp_path.iterdir())
    monkeypatch.setattr(Path, "exists", lambda path: path.parent == tmp_path and path.name.startswith("DEEPLEARNING"))
    assert result_targets.ignores_case(tmp_path)


def test_reports_and_logs_use_the_same_rule(tmp_path: Path) -> None:
    text = "H4sIAAAAAAAAA0sEAEO+t+gBAAAA"
    lines = [f"{name} {text}" for name in ("a.json", ".git/config", "HEAD", "objects", "ansible.cfg")]
    assert [name for name, _content in node_files.read(lines, lambda name: True, 10, 100)] == ["a.json", "HEAD"]
    runs = ["ansible.cfg", "r1"]
    report_files.write([f"{run}/run.json {text}" for run in runs], runs, tmp_path / "report")
    assert set(content_of(tmp_path / "report")) == {"r1/run.json"}
    with logs.new_archive(tmp_path / "logs.tar.gz") as archive:
        for name in ("nodes/a/.git/config", "nodes/a/HEAD", "nodes/a/refs", "nodes/a/boot.log"):
            archive.add(name, "text")
        assert [name.partition(" (")[0] for name in archive.left_out] == ["nodes/a/.git/config", "nodes/a/refs"]
    with tarfile.open(tmp_path / "logs.tar.gz") as members:
        assert members.getnames() == ["logs/nodes/a/HEAD", "logs/nodes/a/boot.log"]
