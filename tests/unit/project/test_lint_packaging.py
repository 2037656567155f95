"""The check of the built collection: the missing repository is expected, and any other complaint fails."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lint import packaging

FINE = ["Importing with galaxy-importer", "Importer processing completed successfully"]
REFUSED = (1, [FINE[0], packaging.EXPECTED])
WARNED = "WARNING: Could not get role description, no role metadata found"


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


@pytest.mark.parametrize(
    ("as_built", "with_address", "fails"),
    [
        (REFUSED, (0, FINE), False),
        # The complaint is gone: somebody has named a repository.
        ((0, FINE), (0, FINE), True),
        ((1, [FINE[0], packaging.EXPECTED.replace("repository", "readme")]), (0, FINE), True),
        ((1, [FINE[0], WARNED, packaging.EXPECTED]), (0, FINE), True),
        (REFUSED, (0, [*FINE, WARNED]), True),
        (REFUSED, (1, [*FINE, "ERROR: The import failed"]), True),
        (REFUSED, (1, ["Traceback (most recent call last):"]), True),
    ],
)
def test_only_the_missing_repository_is_expected(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tarball: Path,
    as_built: tuple[int, list[str]],
    with_address: tuple[int, list[str]],
    fails: bool,
) -> None:
    answers = {tarball: as_built}

    def importer(words: Sequence[str | Path], folder: Path) -> tuple[int, list[str]]:
        return answers.get(Path(words[-1]), with_address)

    monkeypatch.setattr(packaging, "run", importer)
    copies = tmp_path / "copies"
    copies.mkdir()
    assert bool(packaging.problems_for_galaxy(tarball, copies)) == fails


def test_the_copy_differs_in_the_repository_only(tmp_path: Path, tarball: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    copy = packaging.with_repository(tarball, copies)
    assert copy.name == tarball.name
    with tarfile.open(copy) as archive:
        assert archive.getnames() == ["MANIFEST.json", "README.md", "files/README.md", "LICENSE"]
        manifest, readme, _, _ = (archive.extractfile(name) for name in archive.getnames())
        assert archive.getmember("files/README.md").linkname == "../README.md"
        assert manifest and readme and readme.read() == b"# A"
        info = {"name": "aws", "repository": packaging.REPOSITORY}
        assert json.load(manifest) == {"collection_info": info, "format": 1}


@pytest.mark.parametrize(
    ("code", "lines", "problems"),
    [(0, [], []), (3, ["x.py:1: bad"], ["x.py:1: bad"]), (1, [], ["antsibull-docs ended with 1"])],
)
def test_each_line_of_the_documentation_linter_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, lines: list[str], problems: list[str]
) -> None:
    monkeypatch.setattr(packaging, "run", lambda words, folder: (code, lines))
    assert packaging.problems_in_documentation(tmp_path, tmp_path) == problems


NOTHING: tuple[int, list[str]] = (0, [])


def generate(words: Sequence[str | Path], folder: Path) -> tuple[int, list[str]]:
    if words[-1] == "generate":
        (folder / packaging.CHANGELOG).write_text((packaging.ROOT / packaging.CHANGELOG).read_text())
    return NOTHING


def test_a_changelog_that_is_what_its_source_makes_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packaging, "run", generate)
    assert packaging.problems_in_changelog(tmp_path) == []


def test_a_changelog_that_is_out_of_date_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def differently(words: Sequence[str | Path], folder: Path) -> tuple[int, list[str]]:
        (folder / packaging.CHANGELOG).write_text("another")
        return NOTHING

    monkeypatch.setattr(packaging, "run", differently)
    assert packaging.problems_in_changelog(tmp_path) == [
        "CHANGELOG.rst differs from changelogs/changelog.yaml: run antsibull-changelog generate"
    ]


def test_a_fragment_that_is_wrong_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    complaint = 'changelogs/fragments/x.yml:0:0: section "fixes" is unknown'
    monkeypatch.setattr(packaging, "run", lambda words, folder: (3, [complaint]) if words[-1] == "lint" else NOTHING)
    assert packaging.problems_in_changelog(tmp_path) == [complaint]


def test_what_an_image_would_lack_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tarball: Path) -> None:
    found = "- 'openssh-client [platform:dpkg]  # from collection deeplearning.aws'"

    def without_boto3(words: Sequence[str | Path], folder: Path) -> tuple[int, list[str]]:
        return (0, [found]) if words[1] == "introspect" else NOTHING

    monkeypatch.setattr(packaging, "run", without_boto3)
    missing = packaging.problems_in_execution_environment(tarball, tmp_path)
    assert "ansible-builder introspect does not find boto3>=1.35.0" in missing
    assert not any("openssh-client [" in problem for problem in missing)
