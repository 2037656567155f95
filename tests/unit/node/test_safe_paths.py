"""Folders and files where other users may prepare some: what is used, what is closed first, and what is refused."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning import safe_paths
from deeplearning.contract.errors import UserError
from deeplearning.safe_paths import WrongKind

from tests.unit.node.users_kit import NOBODY, as_nobody, open_folder


@pytest.fixture
def mount() -> Iterator[Path]:
    """A folder in which every user may make some; the umask of Ubuntu, which lets the group write."""
    before = os.umask(0o002)
    with open_folder() as folder:
        yield folder
    os.umask(before)


def create_path(path: str) -> None:
    safe_paths.check_path(path, create=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def folder(path: Path, bits: int, owner: int = 0) -> Path:
    path.mkdir()
    path.chmod(bits)
    os.chown(path, owner, -1)
    return path


@pytest.mark.root
@pytest.mark.parametrize(
    ("create", "bits"),
    [
        (safe_paths.own_folder, 0o755),
        (lambda path: safe_paths.own_folder(path, mode=0o700), 0o700),
        (safe_paths.shared_folder, 0o1777),
        (safe_paths.folder_for_all, 0o1777),
        (create_path, 0o755),
    ],
)
def test_a_folder_has_its_mode_whatever_the_umask(mount: Path, create: Callable[[str], None], bits: int) -> None:
    for _again in range(2):
        create(f"{mount}/new")
        assert mode(mount / "new") == bits
    if create is not safe_paths.folder_for_all:
        (mount / "file").touch()
        with pytest.raises((UserError, NotADirectoryError), match="file is a file"):
            create(f"{mount}/file")


@pytest.mark.root
@pytest.mark.parametrize("create", [safe_paths.own_folder, safe_paths.shared_folder])
def test_a_name_with_a_final_slash_is_the_same_folder(mount: Path, create: Callable[[str], None]) -> None:
    (mount / "link").symlink_to(folder(mount / "real", 0o755))
    with pytest.raises(UserError, match="link/ is a link"):
        create(f"{mount}/link/")


@pytest.mark.root
@pytest.mark.parametrize(
    ("bits", "content", "own", "shared"),
    [
        # By mode; then whether it counts as a folder of our own, and as one that all use.
        (0o755, "ours", True, True),
        (0o1777, "", True, True),
        (0o1777, "ours", True, True),
        (0o1777, "theirs", False, True),
        # Who may write in a folder that is not sticky may have exchanged what is in it.
        (0o777, "", True, True),
        (0o777, "ours", False, False),
        (0o777, "theirs", False, False),
        # Only the group, which is ours alone on Ubuntu.
        (0o775, "ours", True, True),
        (0o1775, "theirs", True, True),
    ],
)
def test_an_open_folder_of_our_own_is_closed_if_others_put_nothing_into_it(
    mount: Path, bits: int, content: str, own: bool, shared: bool
) -> None:
    for check, accepted in ((safe_paths.own_folder, own), (safe_paths.shared_folder, shared)):
        path = folder(mount / check.__name__, bits)
        if content:
            (path / "file").touch()
            os.chown(path / "file", NOBODY if content == "theirs" else 0, -1)
        if accepted:
            check(str(path))
            kept = check is safe_paths.shared_folder and bits & stat.S_ISVTX
            assert mode(path) == (bits if kept else bits & ~0o022)
        else:
            example = "+t" if check is safe_paths.shared_folder else "go-w"
            with pytest.raises(UserError, match=f"has mode {bits:04o}, so other users .* sudo chmod {example[:1]}"):
                check(str(path))
            assert mode(path) == bits


@pytest.mark.root
@pytest.mark.parametrize(("owner", "target", "accepted"), [(0, NOBODY, True), (NOBODY, 0, False)])
def test_a_link_is_its_own_owners_wherever_it_leads(mount: Path, owner: int, target: int, accepted: bool) -> None:
    (mount / "target").touch()
    os.chown(mount / "target", target, -1)
    path = folder(mount / "own", 0o1777)
    (path / "link").symlink_to(mount / "target")
    os.chown(path / "link", owner, -1, follow_symlinks=False)
    if accepted:
        safe_paths.own_folder(str(path))
        assert mode(path) == 0o1755
    else:
        with pytest.raises(UserError, match="has mode 1777"):
            safe_paths.own_folder(str(path))


@pytest.mark.root
@pytest.mark.parametrize(
    ("check", "message"),
    [
        (safe_paths.own_folder, "belongs to nobody and has to be a folder of root: .* sudo mv {0} {0}.old$"),
        (
            safe_paths.shared_folder,
            "belongs to nobody and has to be a folder of root or root: .* sudo chown root: {0} ",
        ),
        (lambda path: safe_paths.own_folder(path, owner=4242), "has to be a folder of user 4242: "),
        (create_path, "is no safe place for runs, as {0} belongs to nobody: "),
        (safe_paths.check_path, "is no safe place for runs, as {0} belongs to nobody: .*belong to root or root,"),
    ],
)
def test_a_folder_of_another_user_is_refused(mount: Path, check: Callable[[str], None], message: str) -> None:
    path = folder(mount / "theirs", 0o755, NOBODY)
    with pytest.raises(UserError, match=message.format(path)) as refusal:
        check(str(path))
    assert not isinstance(refusal.value, WrongKind)


@pytest.mark.root
def test_a_folder_may_belong_to_another_user_who_is_named(mount: Path) -> None:
    safe_paths.own_folder(str(folder(mount / "theirs", 0o755, NOBODY)), owner=NOBODY)
    # It is not ours to close.
    with pytest.raises(UserError, match="belongs to root and has to be a folder of nobody"):
        safe_paths.own_folder(str(folder(mount / "ours", 0o755)), owner=NOBODY)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["link", "file"])
@pytest.mark.parametrize(
    ("check", "example"), [(safe_paths.own_folder, "sudo mv {0} {0}.old"), (safe_paths.shared_folder, "sudo rm {0}")]
)
def test_what_is_no_folder_is_refused(mount: Path, check: Callable[[str], None], example: str, kind: str) -> None:
    path = mount / "x"
    path.symlink_to(folder(mount / "real", 0o755)) if kind == "link" else path.touch()
    with pytest.raises(
        UserError, match=f"x is a {kind} and has to be a folder of .*{example.format(path)}$"
    ) as refusal:
        check(str(path))
    # A file of our own is a mistake; a link may be an attack.
    assert isinstance(refusal.value, WrongKind) is (kind == "file")


@pytest.mark.root
def test_the_way_to_a_folder_is_created_and_each_folder_on_it_checked(mount: Path) -> None:
    create_path(f"{mount}/a/b/c")
    assert [mode(mount / name) for name in ("a", "a/b", "a/b/c")] == [0o755] * 3
    safe_paths.check_path(f"{mount}/a/b/c")
    folder(mount / "a/open", 0o777)
    (mount / "a/open/file").touch()
    (mount / "a/open/c").mkdir()
    for check in (create_path, safe_paths.check_path):
        with pytest.raises(
            UserError, match="open/c is no safe place for runs, as .*/a/open has mode 0777: give a path"
        ):
            check(f"{mount}/a/open/c")
    (mount / "a/link").symlink_to(mount / "a/b")
    with pytest.raises(UserError, match="as .*/a/link is a link: "):
        safe_paths.check_path(f"{mount}/a/link/c")
    with pytest.raises(FileNotFoundError):
        safe_paths.check_path(f"{mount}/a/b/d")


@pytest.mark.root
def test_root_takes_a_folder_over_for_all(mount: Path) -> None:
    path = folder(mount / "x", 0o700, NOBODY)
    (path / "file").touch()
    safe_paths.folder_for_all(str(path))
    assert (mode(path), path.stat().st_uid, path.stat().st_gid) == (0o1777, 0, 0)
    (mount / "link").symlink_to(folder(mount / "victim", 0o700))
    with pytest.raises(OSError) as refusal:
        safe_paths.folder_for_all(f"{mount}/link")
    assert refusal.value.errno in (errno.ELOOP, errno.ENOTDIR) and mode(mount / "victim") == 0o700


@pytest.mark.root
@pytest.mark.parametrize(
    ("bits", "owner", "usable"),
    [(0o755, 0, True), (0o700, 0, True), (0o775, 0, False), (0o757, 0, False), (0o755, 1, False)],
)
def test_a_folder_can_be_held_while_it_is_renamed(mount: Path, bits: int, owner: int, usable: bool) -> None:
    path = folder(mount / "x", bits, owner)
    (path / "file").write_text("ours")
    before = os.listdir("/proc/self/fd")
    if not usable:
        with pytest.raises(PermissionError, match="Not closed to other users"), safe_paths.held_folder(str(path)):
            pass
    else:
        with safe_paths.held_folder(str(path)) as held:
            path.rename(mount / "y")
            (folder(mount / "x", 0o755) / "file").write_text("theirs")
            assert Path(held, "file").read_text() == "ours"
    assert os.listdir("/proc/self/fd") == before


def opened(path: Path, *words: Any) -> None:
    """Open it, write to it and read that again."""
    with open(safe_paths.own_file(str(path), *words), "r+b") as file:
        file.write(b"x")
        file.seek(0)
        assert file.read(1) == b"x" and not os.get_inheritable(file.fileno())


def test_a_file_of_our_own_is_created_and_opened_again(mount: Path) -> None:
    opened(mount / "lock", 0o600)
    opened(mount / "lock")
    opened(mount / "other")
    assert (mode(mount / "lock"), mode(mount / "other")) == (0o600, 0o644)
    assert (mount / "lock").read_bytes() == b"x"


@pytest.mark.root
@pytest.mark.parametrize(
    ("kind", "message", "mistake"),
    [
        ("theirs", "belongs to nobody", False),
        ("link", "is a link", False),
        ("second name", "has a second name", False),
        ("folder", "is a folder", True),
        ("their folder", "is a folder", False),
        ("pipe", "is a file", False),
        ("socket", "is a file", False),
    ],
)
def test_a_file_that_another_user_may_have_prepared_is_refused(
    mount: Path, kind: str, message: str, mistake: bool
) -> None:
    path = mount / "lock"
    if kind == "theirs":
        as_nobody(path.touch)
    elif kind == "link":
        path.symlink_to(mount / "victim")
    elif kind == "second name":
        (mount / "victim").touch()
        path.hardlink_to(mount / "victim")
    elif "folder" in kind:
        folder(path, 0o755, NOBODY if kind.startswith("their") else 0)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFSOCK | 0o644)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(
        UserError, match=f"lock {message} and has to be a file of root alone: .* sudo rm {path}$"
    ) as refusal:
        safe_paths.own_file(str(path))
    assert isinstance(refusal.value, WrongKind) is mistake
    assert os.listdir("/proc/self/fd") == before and not (mount / "victim").exists() or kind == "second name"


def test_a_file_where_there_is_no_folder_is_the_systems_error(mount: Path) -> None:
    with pytest.raises(FileNotFoundError):
        safe_paths.own_file(f"{mount}/nowhere/lock")
