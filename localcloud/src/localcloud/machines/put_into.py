"""Run as a program: `put_into.py PID SOURCE TARGET ro|rw` mounts a folder of this machine in another mount namespace.

It clones the mount (open_tree), enters the namespace of PID (setns) and attaches the mount there (move_mount), so that
the host's tree need not be visible inside. It is a program of its own, as setns for mounts fails with several threads.
"""

import ctypes
import os
import sys

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_FDCWD = 1, 0x8000, -100
_MOVE_MOUNT_F_EMPTY_PATH = 4
_CLONE_NEWNS = 0x00020000
_MS_REMOUNT, _MS_BIND, _MS_RDONLY = 32, 4096, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"{what}: {os.strerror(number)}")
    return result


def main() -> None:
    pid, source, target, mode = sys.argv[1:]
    tree = _check(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, source.encode(), _OPEN_TREE_CLONE | _AT_RECURSIVE), source)
    inside = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    _check(_libc.setns(inside, _CLONE_NEWNS), "setns")
    os.fchdir(root)
    os.chroot(".")
    moved = _libc.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    _check(moved, target)
    if mode == "ro":
        _check(_libc.mount(None, target.encode(), None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY, None), target)


main()
