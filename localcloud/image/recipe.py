"""What goes into an image: packages, our files, and what is switched off."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILES = Path(__file__).parent / "files"

SUITE = "bookworm"

# What cloud images of Debian and Ubuntu have, as far as our roles or people's scripts count on it. Open MPI is on the
# Deep Learning AMIs as well. No libpam-systemd: it would start a systemd for each login and give nobody anything.
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

# Units that have nothing to do in a container, or that would only cost time at each boot.
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


@dataclass(frozen=True)
class Feature:
    """A framework environment that an image may bring along, as our roles make it."""

    name: str
    script: str
    """run in the image, as root"""


def _environment(name: str, packages: str, module: str, before: str = "", after: str = "") -> Feature:
    """A virtual environment, and a look at whether what matters in it can be imported."""
    python = f"/opt/deeplearning/env/{name}/bin/python"
    install = f"{python} -m pip install --quiet --no-cache-dir"
    steps = (
        before,
        f"python3 -m venv /opt/deeplearning/env/{name}",
        f"{install} {packages}",
        after.format(install=install),
        f"cd / && {python} -c 'import {module}'",
    )
    return Feature(name, "\n".join(step for step in steps if step))


# Horovod's last release is from 2023: it builds with tools of its time only, in six to seven minutes on two cores.
_HOROVOD = """\
{install} cmake==3.27.9 'setuptools<70' wheel
export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
export PATH=/opt/deeplearning/env/tensorpack/bin:$PATH
{install} --no-build-isolation horovod==0.28.1"""
_COMPILER = """\
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends g++ make libopenmpi-dev python3-dev"""

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        _environment("tensorflow", "tensorflow-cpu==2.21.0 tf_keras==2.21.0", "tensorflow"),
        _environment("mxnet", "mxnet==1.9.1 'numpy<1.24'", "mxnet"),
        _environment("pytorch", "torch==2.13.0", "torch"),
        _environment(
            "tensorpack",
            "tensorflow-cpu==2.15.1 tensorpack==0.11",
            "tensorpack, horovod.tensorflow",
            before=_COMPILER,
            after=_HOROVOD,
        ),
    )
}


def base_hash() -> str:
    """Changes whenever something that goes into the base image does."""
    digest = hashlib.sha256()
    for part in (SUITE, *PACKAGES, *MASKED):
        digest.update(part.encode() + b"\0")
    for path in sorted(FILES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes() + b"\0")
    builder = Path(__file__).with_name("build.py")
    digest.update(builder.read_bytes())
    return digest.hexdigest()[:12]


def feature_hash(names: tuple[str, ...]) -> str:
    digest = hashlib.sha256(base_hash().encode())
    for name in names:
        digest.update(FEATURES[name].script.encode() + b"\0")
    return digest.hexdigest()[:12]
