"""Names, numbers and places that are the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ACCOUNT = "123456789012"
OTHER_ACCOUNT = "210987654321"
"""The owner of foreign buckets."""

DEFAULT_REGION = "us-east-1"

DATA = Path(__file__).parents[1] / "data"
"""Tables of facts about AWS."""

_DEFAULT_HOME = Path("/var/lib/localcloud") if os.geteuid() == 0 else Path.home() / ".local/share/localcloud"
HOME = Path(os.environ.get("LOCALCLOUD_HOME", _DEFAULT_HOME))
"""Everything that the local cloud stores: images, and `run`, which `down` removes."""

SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
SUITE = os.environ.get("LOCALCLOUD_SUITE", "bookworm")
"""The release of Debian that all machines boot."""
SYSTEM = SUITES.get(SUITE, SUITE)
IMAGE_NAME = f"localcloud-{SYSTEM.lower().replace(' ', '-')}"
"""That of the base image, as an AMI."""
LOGIN_USER = "ubuntu"
"""The user whom the base image makes."""


def image_with(features: Sequence[str]) -> str:
    """Return the name of the image with these frameworks."""
    return "-".join((IMAGE_NAME, *features))


PORT = 4599
"""The API answers here on loopback. Machines ask AWS's own names, which lead them to EDGE_ADDRESS and TLS_PORT."""

TLS_PORT = 443

PUBLIC_NETWORK = "198.51.100.0/24"
"""Public addresses: a range that RFC 5737 keeps for documentation, routed to our links and nowhere else."""

EDGE_ADDRESS = "198.51.100.1"
"""The operator's side of the public network: the address from which machines see the operator come."""

TRANSIT_NETWORK = "198.18.0.0/16"
"""What comes through an S3 gateway endpoint has a source address of this range (RFC 2544), one for each VPC."""

METADATA_ADDRESS = "169.254.169.254"
RESOLVER_ADDRESS = "169.254.169.253"
