# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check whether systemd and its services follow the files on disk, and reload those that do not.

A reload that is lost, because whoever wrote the files was killed, is repeated by the next run.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence

# These functions know no module whose run_command they could call.
# pylint: disable=ansible-bad-function

RECORDS = "/run/deeplearning/reloaded"
"""A file for each service that has read its files: the service's invocation id. A reboot removes them."""
UNITS = "/etc/systemd/system"
STOPPED = ("inactive", "failed")


class ServiceError(Exception):
    """Why a service cannot be reloaded: one sentence."""


def follows(service: str) -> bool:
    """Return whether a service has read its files since they were changed. A stopped one reads them when it starts."""
    invocation = _invocation(service)
    return not invocation or _recorded(service) == invocation


def forget(service: str) -> None:
    """Before its files are changed: from now on the service does not follow them."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_record(service))


def reload(service: str) -> None:
    """Reload the service, and record that it follows its files."""
    invocation = _invocation(service)
    _systemctl("reload", service)
    new = f"{_record(service)}.new"
    os.makedirs(RECORDS, exist_ok=True)
    with open(new, "w", encoding="ascii") as file:
        file.write(invocation)
    os.rename(new, _record(service))


def units_follow(paths: Iterable[str]) -> bool:
    """Return whether systemd has read the unit files among these paths as they are now."""
    units = [_loaded(os.path.basename(path)) for path in paths if os.path.dirname(path) == UNITS]
    return not units or "yes" not in _systemctl("show", "--property=NeedDaemonReload", "--value", *units).split()


def reload_units() -> None:
    """Have systemd read all unit files again."""
    _systemctl("daemon-reload")


def _loaded(unit: str) -> str:
    """Return the name of a unit. Of a template only instances are loaded, so a pattern for these."""
    return unit.replace("@.", "@*.")


def _invocation(service: str) -> str:
    """Return the id of the service's present run. It changes with each start, and not with a reload."""
    wanted = ("LoadState", "ActiveState", "InvocationID")
    shown = _systemctl("show", *(f"--property={name}" for name in wanted), f"{service}.service")
    found = dict(line.partition("=")[::2] for line in shown.splitlines())
    if found["LoadState"] != "loaded":
        raise ServiceError(f"{service} is no service that systemd knows here ({found['LoadState']}): install it.")
    return "" if found["ActiveState"] in STOPPED else found["InvocationID"]


def _recorded(service: str) -> str:
    try:
        with open(_record(service), encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _record(service: str) -> str:
    return os.path.join(RECORDS, service)


def _systemctl(*words: str) -> str:
    command: Sequence[str] = ["systemctl", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        reason = ran.stderr.strip() or f"it ended with {ran.returncode}"
        raise ServiceError(f"{' '.join(command)} fails: {reason}. See journalctl -xe on the machine.")
    return ran.stdout
