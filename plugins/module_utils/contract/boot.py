# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Machines that configure themselves: the bundle in the cluster's bucket, and the launch lifecycle hook."""

from __future__ import annotations

from typing import Any

HOOK = "deeplearning-configure"
"""The launch lifecycle hook of both Auto Scaling groups: a machine is not in service before it is configured."""
HOOK_SECONDS = 900
"""Without a heartbeat for so long, AWS abandons the machine."""

BUNDLES = "bundles/"
"""The prefix in the cluster's bucket. Members read it, and cannot write it."""
COLLECTION = "collections/ansible_collections/deeplearning/aws"
"""Where this collection is in a bundle."""

FOLDER = "/opt/deeplearning/boot"
"""On the node: first_stage.py, and the unpacked bundle."""
LOG = "/var/log/deeplearning-boot.log"
CONFIGURED = "/var/lib/deeplearning/configured"
"""A machine has this file when it is configured."""
UNIT_FILE = "/etc/systemd/system/deeplearning-boot.service"

NETWORK_SECONDS = 600
"""How long a machine repeats what needs the network, which may come up after it."""
ATTEMPTS, FAILURE_SECONDS = 3, 1800
"""After so many failures of its role's machines in so long, a machine that fails keeps its place."""


def first_stage_parameters() -> dict[str, Any]:
    """Return what first_stage.py needs to know of this: it is alone on a machine, and can import nothing of ours."""
    return {
        "hook": HOOK,
        "folder": FOLDER,
        "program": f"{COLLECTION}/files/node",
        "log": LOG,
        "configured": CONFIGURED,
        "unit_file": UNIT_FILE,
        "network_seconds": NETWORK_SECONDS,
        "attempts": ATTEMPTS,
        "failure_seconds": FAILURE_SECONDS,
    }


def bundle_key(sha256: str) -> str:
    return f"{BUNDLES}{sha256}.tar"


def bootstrap_key(sha256: str) -> str:
    """Return the key of EMR's bootstrap action."""
    return f"{BUNDLES}{sha256}.py"
