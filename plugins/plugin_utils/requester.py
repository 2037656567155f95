# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Who runs a playbook, as runs and the lock of a cluster record it."""

from __future__ import annotations

import getpass
import os
import socket

LONGEST_REQUESTER = 256


def requester() -> str:
    """Return who runs this playbook, and where, as runs record it.

    A container may run as a user without a name, and names of the system may have bytes that are not UTF-8.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    name = f"{user}@{socket.gethostname()}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:LONGEST_REQUESTER]
