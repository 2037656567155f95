"""The check of the built collection fails for what the tools complain about. That they find nothing in this checkout
but the missing repository is shown by the layer lint, which runs them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.lint import packaging

FINE = "echo Importing with galaxy-importer"
REFUSED = f'{FINE}; echo "{packaging.EXPECTED}"; exit 1'
WARNING = "WARNING: Could not get role description, no role metadata found"


@pytest.fixture
def tarball(tmp_path: Path) -> Path:
    path = tmp_path / "deeplearning-aws-1.0.0.tar.gz"
    manifest = {"collection_info": {"name": "aws", "repository": None}, "format": 1}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("MANIFEST.json", json.dumps(manifest)), ("README.md", "# A"), ("LICENSE", "GPL")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
            if name == "README.md":
                link = tarfile.TarInfo("files/README.md")
                link.type, link.linkname = tarfile.SYMTYPE, "../README.md"
                archive.addfile(link)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs in the place of the tools, which have an environment of their own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(packaging, "TOOLS", folder)
    return folder


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("as_built", "with_address", "fails"),
    [
        (REFUSED, FINE, False),
        # The complaint is gone: a repository is named.
        (FINE, FINE, True),
        (f"echo '{WARNING}'; {REFUSED}", FINE, True),
        (REFUSED, f"echo '{WARNING}'", True),
        (REFUSED, "echo 'Traceback (most recent call last):'; exit 1", True),
    ],
)
def test_only_the_missing_repository_is_expected(
    tarball: Path, folder: Path, tools: Path, as_built: str, with_address: str, fails: bool
) -> None:
    write(tools / "python", f'case "$3" in {tarball}) {as_built};; *) {with_address};; esac')
    assert bool(packaging.problems_for_galaxy(tarball, folder)) == fails


def test_the_copy_differs_in_the_repository_only(folder: Path, tarball: Path) -> None:
    copy = packaging.with_repository(tarball, folder)
    assert copy.name == tarball.name
    with tarfile.open(copy) as archive:
        assert archive.getnames() == ["MANIFEST.json", "README.md", "files/README.md", "LICENSE"]
        manifest, readme, _, _ = (archive.extractfile(name) for name in archive.getnames())
        assert archive.getmember("files/README.md").linkname == "../README.md"
        assert manifest and readme and readme.read() == b"# A"
        info = {"name": "aws", "repository": packaging.REPOSITORY}
        assert json.load(manifest) == {"collection_info": info, "format": 1}


@pytest.mark.parametrize(
    ("script", "problem"), [("echo x.py:1: bad; exit 3", "x.py:1: bad"), ("exit 1", "antsibull-docs ended with 1")]
)
def test_what_the_documentation_linter_finds_is_a_problem(folder: Path, tools: Path, script: str, problem: str) -> None:
    write(tools / "antsibull-docs", script)
    assert packaging.problems_in_documentation(folder, folder) == [problem]


def test_links_that_lead_to_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "[a](docs/a.md#part) [b](docs/b.md) [c](https://c.example) [d](#d) [e](docs) `[f](f)`\n```\n[g](g.md)\n```\n"
    )
    (tmp_path / "docs/a.md").write_text("[r](reference/index.rst) [up](../README.md)")
    assert packaging.problems_in_links(tmp_path) == ["README.md links to docs/b.md, which is not in the collection"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            f"echo another > {packaging.CHANGELOG}",
            "CHANGELOG.rst differs from changelogs/changelog.yaml: run antsibull-changelog generate",
        ),
        ("[ $1 = generate ] || { echo 'section is unknown'; exit 3; }", "section is unknown"),
        ("[ $1 = generate ] || exit 3", "antsibull-changelog lint ended with 3"),
    ],
)
def test_a_wrong_or_old_changelog_is_a_problem(folder: Path, tools: Path, script: str, problem: str) -> None:
    write(tools / "antsibull-changelog", script)
    assert packaging.problems_in_changelog(folder) == [problem]


def test_what_an_image_would_lack_is_a_problem(folder: Path, tools: Path, tarball: Path) -> None:
    line = "- 'openssh-client [platform:dpkg]  # from collection deeplearning.aws'"
    write(tools / "ansible-builder", f'[ $1 != introspect ] || echo "{line}"')
    missing = packaging.problems_in_execution_environment(tarball, folder)
    assert "ansible-builder introspect does not find boto3>=1.35.69" in missing
    assert not any("openssh-client [" in problem for problem in missing)
