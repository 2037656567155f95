# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Machines that configure themselves: the bundle in the cluster's bucket, and the launch lifecycle hook."""

from __future__ import annotations

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

NETWORK_SECONDS = 600
"""How long a machine repeats what needs the network, which may come up after it: first_stage.py's own figure."""
FAILURE_SECONDS = 1800
"""How long a machine counts that has failed to configure itself: first_stage.py counts them."""


def bundle_key(sha256: str) -> str:
    return f"{BUNDLES}{sha256}.tar"


def bootstrap_key(sha256: str) -> str:
    """Return the key of EMR's bootstrap action."""
    return f"{BUNDLES}{sha256}.py"
