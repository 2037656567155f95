"""Which layers a change needs beside the gate: the base of the comparison, and a table from changed paths to layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests import git
from tests.layers.catalogue import path_layers

PATH_LAYERS = tuple(path_layers())
"""The layers that run in full only for a change that concerns them."""


@dataclass(frozen=True)
class Rule:
    """Layers and nightly parts that a change of certain paths needs."""

    paths: tuple[str, ...]
    """Folders, which end with a slash, and names of files, in which * matches anything but a slash."""
    layers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def concerns(self, path: str) -> bool:
        return any(_matches(path, pattern) for pattern in self.paths)


def _matches(path: str, pattern: str) -> bool:
    if pattern.endswith("/"):
        return path.startswith(pattern)
    return path.count("/") == pattern.count("/") and fnmatch(path, pattern)


RULES = (
    # What decides how tests run, and the packages of all.
    Rule(
        (
            *(".ci/", ".config/", "Makefile", "ansible.cfg", "conftest.py", "pyproject.toml", "requirements.txt"),
            *("tests/*.py", "tests/layers/", "tests/forking/", "localcloud.toml"),
        ),
        layers=PATH_LAYERS,
        parts=("newest-lint", "newest-sanity", "newest-unit", "newest-account"),
    ),
    Rule(("localcloud/",), layers=("localcloud-unit", "localcloud"), parts=("long-localcloud",)),
    # What runs on nodes.
    Rule(("roles/",), layers=("molecule", "packaging"), parts=("long-molecule", "clusters", "debian-13")),
    Rule(("roles/framework/", "roles/tensorpack/"), layers=("integration",), parts=("runs", "gpu-environments")),
    Rule(
        ("files/node/", "plugins/module_utils/contract/"),
        layers=("integration", "molecule"),
        parts=("clusters", "runs", "emr", "debian-11", "debian-13"),
    ),
    Rule(("files/trainers/", "files/recipes/"), layers=("integration",), parts=("runs",)),
    Rule(("plugins/module_utils/node/",), layers=("integration", "molecule"), parts=("gpu-environments",)),
    Rule(("molecule/", "tests/molecule/"), layers=("molecule",), parts=("long-molecule",)),
    # What runs on the operator's machine.
    Rule(
        (
            *("roles/iam/", "roles/bucket/", "roles/network/", "roles/storage/", "roles/machines/"),
            *("roles/emr_cluster/", "docs/iam/", "inventory/"),
        ),
        layers=("account",),
        parts=("long-account",),
    ),
    Rule(
        ("plugins/",),
        layers=("sanity", "packaging", "account"),
        parts=("newest-sanity", "newest-unit", "newest-account", "long-account"),
    ),
    Rule(("playbooks/", "*.yml"), layers=("account", "integration"), parts=("long-account", "clusters", "runs")),
    Rule(("roles/emr_cluster/", "playbooks/emr.yml", "emr.yml"), parts=("emr",)),
    # Documentation, and the collection that is built.
    Rule(
        (
            *("docs/", "*.md", "changelogs/", "meta/", "galaxy.yml", "execution-environment.yml"),
            *("tools/site/", "tests/lint/"),
        ),
        layers=("packaging",),
    ),
    # Tests.
    Rule(("tests/sanity/",), layers=("sanity",)),
    Rule(("tests/account/",), layers=("account",), parts=("long-account",)),
    Rule(("tests/integration/",), layers=("integration",), parts=("clusters", "runs", "emr")),
    Rule(("tests/debian_11/",), parts=("debian-11",)),
    Rule(("tests/gpu/",), parts=("gpu-environments",)),
)


@dataclass(frozen=True)
class Base:
    """The commit that a checkout is compared with; without a commit, everything counts as changed."""

    commit: str
    reason: str

    def __str__(self) -> str:
        return f"{self.commit[:8]} ({self.reason})" if self.commit else f"none ({self.reason})"


class UnknownBase(Exception):
    """The base that was asked for is not a commit of this repository."""


def _commit(repository: Path, revision: str) -> str:
    return git.output(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")


def find_base(repository: Path, wanted: str, ci_base: str) -> Base:
    """Choose the base: the developer's own, CI_BASE, the branch point from origin/main, or a day ago."""
    if wanted:
        commit = _commit(repository, wanted)
        if not commit:
            raise UnknownBase(f"BASE is {wanted}, which is not a commit here. Example: make test BASE=main")
        return Base(commit, f"BASE={wanted}")
    # GitHub gives zeros where there was nothing before: for the first push of a branch.
    if ci_base.strip("0"):
        commit = _commit(repository, ci_base)
        return Base(commit, "CI_BASE" if commit else f"CI_BASE is {ci_base}, which is not in this clone")
    head = _commit(repository, "HEAD")
    if not head:
        return Base("", "not a git repository with a commit")
    branch_point = git.output(repository, "merge-base", "origin/main", "HEAD")
    if branch_point and branch_point != head:
        return Base(branch_point, "branch point from origin/main")
    day_old = git.output(repository, "log", "-1", "--before=24 hours ago", "--format=%H")
    return Base(day_old, "newest commit that is at least a day old" if day_old else "no commit is a day old")


def changed_paths(repository: Path, base: Base) -> list[str]:
    """Return the paths that differ from the base, including files that git does not track yet."""
    differing = git.output(repository, "diff", "--name-only", "--no-renames", base.commit).splitlines()
    unknown = git.output(repository, "ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({*differing, *unknown})


@dataclass(frozen=True)
class Selection:
    """What a change needs beside the gate, each with the first path that needs it."""

    layers: dict[str, str]
    parts: dict[str, str]


def select(paths: Iterable[str], rules: Sequence[Rule] = RULES) -> Selection:
    layers: dict[str, str] = {}
    parts: dict[str, str] = {}
    for path in paths:
        for rule in rules:
            if not rule.concerns(path):
                continue
            for layer in rule.layers:
                layers.setdefault(layer, path)
            for part in rule.parts:
                parts.setdefault(part, path)
    return Selection(layers, parts)


def everything(layers: Iterable[str], parts: Iterable[str]) -> Selection:
    """Return the selection for a checkout without a base: every layer, and every nightly part may be concerned."""
    reason = "everything, as there is no base"
    return Selection(dict.fromkeys(layers, reason), dict.fromkeys(parts, reason))
