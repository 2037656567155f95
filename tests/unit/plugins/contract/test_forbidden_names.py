"""Which names of files are never written to the operator's machine."""

from __future__ import annotations

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import forbidden_names as fn
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.forbidden_names import NameFilter


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        # HFS+ ignores invisible characters, NTFS dots and spaces at the end, and what follows a colon.
        *((name, fn.REPOSITORY) for name in (".git", ".GIT", ".Git", "git~1", "GIT~1", "git~2")),
        *((name, fn.REPOSITORY) for name in (".g\u200cit", "\ufeff.git", ".git\u2060", ".gi\u200et")),
        *((name, fn.REPOSITORY) for name in (".git.", ".git ", ".git. . ", "git~1. ", "\uff0egit", "\u2024GIT")),
        *((name, fn.REPOSITORY) for name in (".git::$INDEX_ALLOCATION", ".git:x", ".git . ::$DATA")),
        *((name, fn.CONFIGURATION) for name in ("ansible.cfg", "Ansible.CFG", "ansible.cfg.", "ansibl~1.cfg")),
        *((name, fn.HIDDEN) for name in (".envrc", ".gitmodules", ".gitattributes", ".vscode", ".hg", ".METADATA")),
        *((name, fn.HIDDEN) for name in ("...", "\u200b.envrc", ".metadata ")),
        *((name, "") for name in sorted(fn.ALLOWED_HIDDEN_NAMES)),
        *((name, "") for name in ("git", "model.git", "x.gitignore", "gitx~1", "ansible.cfg.md", "a.b", "a:b", "HEAD")),
        *((name, "") for name in ("events.out.tfevents.1.host.profile-empty", "__0_0.distcp", "Modèle é", "模型")),
    ],
)
def test_names_that_are_refused_alone(part: str, reason: str) -> None:
    assert fn.refusal_of_part(part) == reason
    assert NameFilter().accept(f"model/{part}") == NameFilter().accept(f"model/{part}/x") == reason


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["model/HEAD", "model/config", "model/objects/x"], ["model/objects/x"]),
        (["model/HEAD", "model/refs/heads/x"], ["model/refs/heads/x"]),
        (["model/HEAD", "model/commondir"], ["model/commondir"]),
        (["model/refs/x", "model/objects/y", "model/HEAD"], ["model/HEAD"]),
        (["model/a/HEAD", "model/a/Objects"], ["model/a/Objects"]),
        # On a file system that ignores case these are one folder.
        (["model/A/HEAD", "model/a/objects/x"], ["model/a/objects/x"]),
        (["model/x/head", "model/X./REFS/y"], ["model/X./REFS/y"]),
        # These are no repositories: HEAD has to be a file in the same folder.
        (["model/head/w.pt", "model/objects/w.pt", "model/refs"], []),
        (["model/HEAD", "model/a/objects/x", "objects/HEAD"], []),
        (["model/a", "model/A"], []),
    ],
)
def test_names_that_are_refused_together(names: list[str], refused: list[str]) -> None:
    name_filter = NameFilter()
    reasons = {name: name_filter.accept(name) for name in names}
    assert reasons == {name: fn.REPOSITORY if name in refused else "" for name in names}


@pytest.mark.parametrize(
    ("existing", "is_folder", "name", "reason"),
    [
        ("model/HEAD", False, "model/objects/x", fn.REPOSITORY),
        ("model/Objects", True, "model/HEAD", fn.REPOSITORY),
        ("model/HEAD", True, "model/objects/x", ""),
        ("model/other", False, "model/HEAD", ""),
    ],
)
def test_what_exists_already_counts(existing: str, is_folder: bool, name: str, reason: str) -> None:
    name_filter = NameFilter()
    name_filter.add_existing(existing, is_folder)
    assert name_filter.accept(name) == reason


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["model/a", "model/A", "model/b"], ["model/A"]),
        (["model/a", "model/A/x"], ["model/A/x"]),
        (["model/A/x", "model/a"], ["model/a"]),
        (["model/é", "model/e\u0301"], ["model/e\u0301"]),
        (["model/A/x", "model/a/y"], []),
    ],
)
def test_names_that_a_file_system_does_not_distinguish(names: list[str], refused: list[str]) -> None:
    name_filter = NameFilter(ignores_case=True)
    assert [name for name in names if name_filter.accept(name)] == refused


def test_a_refused_name_counts_for_no_other() -> None:
    name_filter = NameFilter(ignores_case=True)
    assert name_filter.accept("model/.git/HEAD") and name_filter.accept("model/.x/HEAD")
    assert not name_filter.accept("model/HEAD") and name_filter.accept("model/objects")
    assert not name_filter.accept("model/x") and not name_filter.accept("model/y/refs/z")


def test_the_folders_to_look_at_are_those_with_parts_of_a_repository() -> None:
    names = ["model/a/HEAD", "model/refs/objects/x", "model/b/c"]
    assert fn.repository_folders(names) == {"model/a", "model", "model/refs"}
