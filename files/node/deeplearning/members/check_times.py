"""When the master checks the members: at once if a node asks for it, otherwise seldom. Most ticks of the timer find
nothing to do, so this must be cheap.

A node asks by a file in a folder of the shared file system. The master lists the folder: NFS reports no events, and
caches attributes and missing names. A full check reads all machines and reports. A quick one finds out with two calls,
whatever the size of the cluster, whether a machine entered or left service.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from deeplearning import safe_files
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.identifiers import is_run_id

QUICK_SECONDS, FULL_SECONDS = 30, 300
END_SECONDS = 60
"""Between checks of the scheduled end of the machines."""
UNSETTLED_SECONDS = 15
"""Between full checks while a machine in service is no member, and after an error."""
EXPEDITED_SECONDS = 60
"""After a request, each tick makes a quick check for so long: a machine reports before it is in service."""


def request_check(efs_mount: str, cluster: str, name: str) -> None:
    """Ask the master to check at once. It checks later if this is not possible. `name`: the instance that asks."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError), _opened(efs_mount, cluster) as folder:
        os.close(os.open(name, flags, 0o644, dir_fd=folder))


def should_check() -> bool:
    record = _read()
    if time.monotonic() >= float(record["next"]):
        return True
    with contextlib.suppress(OSError), _opened(*record["watched"]) as folder:
        return bool(_requests(folder))
    return False


def take_requests(efs_mount: str, cluster: str) -> bool:
    """Remove the requests before a check, so that none that is made during it is lost. Return whether there was any."""
    taken = False
    with contextlib.suppress(OSError), _opened(efs_mount, cluster) as folder:
        for name in _requests(folder):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
                taken = True
    if taken:
        _write(_read() | {"expedited_until": time.monotonic() + EXPEDITED_SECONDS, "full": 0.0, "next": 0.0})
    return taken


def is_due(kind: str) -> bool:
    """`kind`: "full", or "end" for a check of the scheduled end."""
    return time.monotonic() >= float(_read()[kind])


def has_seen(seen: str) -> bool:
    """Return whether the last full check saw the same."""
    return bool(_read()["seen"] == seen)


def record_quick_check() -> None:
    record = _read()
    now = time.monotonic()
    pause = 0 if now < record["expedited_until"] else QUICK_SECONDS
    _write(record | {"next": min(now + pause, record["full"])})


def record_full_check(efs_mount: str, cluster: str, seen: str, settled: bool) -> None:
    """`seen`: what a quick check compares; empty after an error."""
    full = time.monotonic() + (FULL_SECONDS if settled else UNSETTLED_SECONDS)
    _write(_read() | {"watched": [efs_mount, cluster], "seen": seen, "full": full})
    record_quick_check()


def record_end_check() -> None:
    _write(_read() | {"end": time.monotonic() + END_SECONDS})


def _opened(efs_mount: str, cluster: str) -> contextlib.AbstractContextManager[int]:
    return safe_files.open_folder(efs_mount, paths.check_requests(efs_mount, cluster))


def _requests(folder: int) -> list[str]:
    """Return the names of requests, which are ids of instances. Nothing else is removed."""
    return [name for name in os.listdir(folder) if is_run_id(name)]


def _read() -> dict[str, Any]:
    """Return the times of this boot; a check is due if there was none."""
    record = {"watched": ["/", ""], "seen": "", "full": 0.0, "next": 0.0, "expedited_until": 0.0, "end": 0.0}
    with contextlib.suppress(OSError, ValueError), open(paths.CHECK_TIMES, encoding="utf-8") as file:
        record.update(json.load(file))
    return record


def _write(record: dict[str, Any]) -> None:
    atomic_file.write_if_changed(paths.CHECK_TIMES, json.dumps(record))
