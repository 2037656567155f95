"""Files that other users may have prepared: what is read, and how much of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from deeplearning import safe_files
from deeplearning.contract.errors import UserError

from tests.unit.node.users_kit import HOSTILE, NOBODY, as_nobody, bounded, open_folder, prepare


@pytest.fixture
def mount() -> Iterator[Path]:
    """A folder in which every user may make some."""
    with open_folder() as folder:
        yield folder


@pytest.mark.root
@pytest.mark.parametrize("kind", HOSTILE)
def test_only_a_regular_file_is_read_and_only_up_to_its_limit(mount: Path, kind: str) -> None:
    prepare(mount / "state.json", kind)
    message = "has more than the" if kind == "endless" else "is a link, a pipe or a folder, and has to be a file"
    before = set(os.listdir("/proc/self/fd"))
    assert message in bounded(lambda: safe_files.read(f"{mount}/state.json").decode())
    with pytest.raises(UserError, match=message):
        safe_files.read(f"{mount}/state.json")
    # What an earlier test has left open may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(("size", "accepted"), [(0, True), (9, True), (10, True), (11, False)])
def test_a_file_may_have_as_many_bytes_as_the_limit(mount: Path, size: int, accepted: bool) -> None:
    (mount / "x").write_bytes(b"x" * size)
    if accepted:
        assert safe_files.read(f"{mount}/x", 10) == b"x" * size
    else:
        with pytest.raises(UserError, match="x has more than the 10 bytes"):
            safe_files.read(f"{mount}/x", 10)


def test_complete_lines_are_read_without_those_that_no_record_has(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_files, "RECORD_BYTES", 8)
    (mount / "x").write_bytes(b"one\n" + b"long" * 9 + b"\n\ntwo\n1234567\n12345678\nlast")
    assert list(safe_files.lines(f"{mount}/x", 1000)) == [b"one\n", b"\n", b"two\n", b"1234567\n"]
    assert list(safe_files.lines(f"{mount}/x", 5)) == [b"one\n"]


@pytest.mark.root
def test_an_endless_file_has_no_lines(mount: Path) -> None:
    prepare(mount / "x", "endless")
    assert bounded(lambda: list(safe_files.lines(f"{mount}/x", 2**28))) == []


@pytest.mark.root
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["link", "folder", "link to a folder"])
def test_a_folder_that_another_user_may_have_prepared_is_not_opened(mount: Path, depth: int, kind: str) -> None:
    names = [".deeplearning", "red", "check"]
    above = mount
    for name in names[: depth - 1]:
        above /= name
        above.mkdir()
    above.chmod(0o777)
    foreign = above / names[depth - 1]
    if kind == "link to a folder":
        (mount / "victim/red/check").mkdir(parents=True)
        as_nobody(lambda: foreign.symlink_to(mount / "victim"))
    else:
        prepare(foreign, kind)
        if kind == "folder":
            as_nobody(lambda: foreign.joinpath(*names[depth:]).mkdir(parents=True, exist_ok=True))
    before = os.listdir("/proc/self/fd")
    for create in (False, True):
        with pytest.raises(OSError), safe_files.open_folder(str(mount), f"{mount}/{'/'.join(names)}", create):
            pass
    assert os.listdir("/proc/self/fd") == before and not list(mount.glob("victim/load"))


@pytest.mark.root
def test_the_last_folder_is_created_on_request(mount: Path) -> None:
    (mount / "a").mkdir()
    with pytest.raises(FileNotFoundError), safe_files.open_folder(str(mount), f"{mount}/a/b"):
        pass
    with safe_files.open_folder(str(mount), f"{mount}/a/b", create=True) as folder:
        assert os.listdir(folder) == []
    with pytest.raises(FileNotFoundError), safe_files.open_folder(str(mount), f"{mount}/x/y", create=True):
        pass
    os.chown(mount / "a", NOBODY, -1)
    with pytest.raises(PermissionError), safe_files.open_folder(str(mount), f"{mount}/a/b"):
        pass
