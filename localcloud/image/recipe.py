"""The contents of the base image: packages, the local cloud's files, and masked units."""

from __future__ import annotations

import hashlib
from pathlib import Path

from localcloud.core import settings

FILES = Path(__file__).parent / "files"

SUITE = settings.SUITE

# The packages of Debian's and Ubuntu's cloud images that roles or users' scripts need. Open MPI is on the Deep Learning
# AMIs as well. Without libpam-systemd, which would start a systemd for each login.
PACKAGES = (
    "ca-certificates",
    "cloud-init",
    "curl",
    "dbus",
    "git",
    "iproute2",
    "iputils-ping",
    "netcat-openbsd",
    "openmpi-bin",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "python3-boto3",
    "python3-venv",
    "rsync",
    "sudo",
    "systemd",
    "systemd-sysv",
    "wget",
)

# Units without a purpose in a container, which would only make each boot slower.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "cloud-init-hotplugd.socket",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "modprobe@.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-logind.service",
    "systemd-network-generator.service",
    "systemd-networkd.service",
    "systemd-pstore.service",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
    "systemd-update-utmp-runlevel.service",
)


def base_hash() -> str:
    """Return a hash of all contents of the base image."""
    digest = hashlib.sha256()
    for part in (SUITE, *PACKAGES, *MASKED):
        digest.update(part.encode() + b"\0")
    for path in sorted(FILES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes() + b"\0")
    builder = Path(__file__).with_name("build.py")
    digest.update(builder.read_bytes())
    return digest.hexdigest()[:12]
