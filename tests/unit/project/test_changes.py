"""Which layers a change needs, and what it is compared with."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.layers import catalogue, changes
from tests.layers.changes import RULES, Base, Rule, find_base, select

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("path", "layers"),
    [
        ("README.md", {"packaging"}),
        ("docs/security.md", {"packaging"}),
        ("localcloud/pyproject.toml", {"localcloud-unit", "localcloud"}),
        ("localcloud/README.md", {"localcloud-unit", "localcloud"}),
        ("roles/efs_mount/tasks/main.yml", {"molecule", "packaging"}),
        ("roles/network/tasks/main.yml", {"molecule", "packaging", "account"}),
        ("files/node/deeplearning/runs/wrapper.py", {"integration", "molecule"}),
        ("plugins/modules/plan.py", {"sanity", "packaging", "account"}),
        ("site.yml", {"account", "integration"}),
        ("molecule/default/molecule.yml", {"molecule"}),
        ("tests/account/test_lock.py", {"account"}),
        ("requirements.txt", set(changes.PATH_LAYERS)),
        ("tests/unit/project/test_changes.py", set()),
        ("tools/demo", set()),
    ],
)
def test_a_changed_path_needs_layers(path: str, layers: set[str]) -> None:
    assert set(select([path]).layers) == layers


def test_the_first_path_that_needs_a_layer_is_its_reason() -> None:
    rules = [Rule(("a/",), layers=("x",)), Rule(("a/b/", "c"), layers=("x", "y"), parts=("night",))]
    selection = select(["a/z", "a/b/q", "c", "d"], rules)
    assert selection.layers == {"x": "a/z", "y": "a/b/q"}
    assert selection.parts == {"night": "a/b/q"}


def test_rules_name_layers_and_paths_that_exist() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for rule in RULES:
        assert set(rule.layers) <= set(changes.PATH_LAYERS) and set(rule.parts) <= set(catalogue.NIGHTLY), rule
        for pattern in rule.paths:
            alone = Rule((pattern,))
            assert any(alone.concerns(path) for path in tracked), f"{pattern} matches no file"


def test_each_path_layer_and_each_nightly_part_is_needed_by_some_path() -> None:
    assert {layer for rule in RULES for layer in rule.layers} == set(changes.PATH_LAYERS)
    assert {part for rule in RULES for part in rule.parts} == set(catalogue.NIGHTLY)
    assert set(catalogue.path_layers()) == set(changes.PATH_LAYERS)


class Repository:
    """A repository whose commits have the ages that a test gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, **variables: str) -> str:
        identity = {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        words = ("git", "-C", str(self.folder), *words)
        environment = {**os.environ, **identity, **variables}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, name: str, hours_ago: float) -> str:
        (self.folder / name).write_text(name)
        self.git("add", ".")
        date = f"{int(time.time() - hours_ago * 3600)} +0000"
        self.git("commit", "-q", "-m", name, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def test_without_anything_else_a_day_old_commit_is_the_base(repository: Repository) -> None:
    repository.commit("old", hours_ago=50)
    day_old = repository.commit("day", hours_ago=25)
    repository.commit("new", hours_ago=2)
    base = find_base(repository.folder, "", "")
    assert base == Base(day_old, "newest commit that is at least a day old")
    assert str(base) == f"{day_old[:8]} (newest commit that is at least a day old)"
    assert changes.changed_paths(repository.folder, base) == ["new"]


def test_without_any_base_every_layer_runs(repository: Repository) -> None:
    assert find_base(repository.folder, "", "") == Base("", "not a git repository with a commit")
    repository.commit("new", hours_ago=2)
    base = find_base(repository.folder, "", "")
    assert base == Base("", "no commit is a day old") and str(base) == "none (no commit is a day old)"
    everything = changes.everything(["account"], ["clusters"])
    assert set(everything.layers) == {"account"} and set(everything.parts) == {"clusters"}


def test_a_branch_is_compared_with_its_branch_point(repository: Repository) -> None:
    branch_point = repository.commit("old", hours_ago=50)
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert find_base(repository.folder, "", "").reason == "newest commit that is at least a day old"
    repository.commit("new", hours_ago=2)
    assert find_base(repository.folder, "", "") == Base(branch_point, "branch point from origin/main")


def test_ci_and_the_developer_may_name_the_base(repository: Repository) -> None:
    first = repository.commit("first", hours_ago=90)
    second = repository.commit("second", hours_ago=80)
    repository.commit("third", hours_ago=70)
    assert find_base(repository.folder, "", first) == Base(first, "CI_BASE")
    assert find_base(repository.folder, "HEAD~1", first) == Base(second, "BASE=HEAD~1")
    assert find_base(repository.folder, "", "0" * 40).reason == "newest commit that is at least a day old"
    missing = "1" * 40
    assert find_base(repository.folder, "", missing) == Base("", f"CI_BASE is {missing}, which is not in this clone")
    with pytest.raises(changes.UnknownBase, match=r"BASE is mian, which is not a commit here"):
        find_base(repository.folder, "mian", "")


def test_what_is_not_committed_counts_as_changed(repository: Repository) -> None:
    repository.commit("kept", hours_ago=50)
    commit = repository.commit("moved", hours_ago=50)
    repository.git("mv", "moved", "renamed")
    (repository.folder / "kept").write_text("edited")
    (repository.folder / "unknown").write_text("new")
    changed = changes.changed_paths(repository.folder, Base(commit, ""))
    assert changed == ["kept", "moved", "renamed", "unknown"]
