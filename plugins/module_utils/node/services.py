# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check whether systemd and its services have read the files on disk, and reload those that have not.

If the process that wrote the files was killed before the reload, the next run reloads.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence

from ..contract import atomic_file
from ..contract.errors import UserError

# These functions have no module whose run_command they could call.
# pylint: disable=ansible-bad-function

RECORDS = "/run/deeplearning/reloaded"
"""A file for each service that has read its files, with the service's invocation id. A reboot removes them."""
UNITS = "/etc/systemd/system"
STOPPED = ("inactive", "failed")


def is_current(service: str) -> bool:
    """Return whether a service has read its files since they were changed. A stopped one reads them when it starts."""
    invocation = _invocation(service)
    return not invocation or atomic_file.read_or_none(_record(service)) == invocation


def mark_stale(service: str) -> None:
    """Record that the service has not read its files. Call it before they are changed."""
    atomic_file.remove(_record(service))


def reload(service: str) -> None:
    """Reload the service, and record that it has read its files."""
    invocation = _invocation(service)
    _systemctl("reload", service)
    atomic_file.write_if_changed(_record(service), invocation)


def units_are_current(paths: Iterable[str]) -> bool:
    """Return whether systemd has read the unit files among these paths as they are now."""
    units = [_loaded(os.path.basename(path)) for path in paths if os.path.dirname(path) == UNITS]
    return not units or "yes" not in values_of("NeedDaemonReload", *units)


def values_of(name: str, *units: str) -> Sequence[str]:
    """Return a property of units. A path means the unit that mounts there."""
    return _systemctl("show", f"--property={name}", "--value", *units).split()


def reload_units() -> None:
    """Make systemd read all unit files again."""
    _systemctl("daemon-reload")


def _loaded(unit: str) -> str:
    """Return the name of a unit, or for a template the pattern of its instances: only these are loaded."""
    return unit.replace("@.", "@*.")


def _invocation(service: str) -> str:
    """Return an id that changes with each start of the service, but not with a reload; empty if it is stopped."""
    names = ("LoadState", "ActiveState", "InvocationID")
    output = _systemctl("show", *(f"--property={name}" for name in names), f"{service}.service")
    properties = dict(line.partition("=")[::2] for line in output.splitlines())
    if properties["LoadState"] != "loaded":
        raise UserError(f"{service} is no service that systemd knows here ({properties['LoadState']}): install it.")
    return "" if properties["ActiveState"] in STOPPED else properties["InvocationID"]


def _record(service: str) -> str:
    return os.path.join(RECORDS, service)


def _systemctl(*arguments: str) -> str:
    command: Sequence[str] = ["systemctl", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = process.stderr.strip() or f"exit code {process.returncode}"
        raise UserError(f"{' '.join(command)} fails: {reason}. See journalctl -xe on the machine.")
    return process.stdout
