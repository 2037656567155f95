"""The facts of an image: what facts.sh prints on a machine of it, if the values look like what they have to be."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.smoke.session import Session
from tests.steps import Failed, last_line

SCRIPT = Path(__file__).resolve().parent / "facts.sh"
SECONDS = 120.0
_VERSION = r"\d+(\.\d+)*[a-z]*\d*"
_YES_OR_NO = "yes|no"
VALUES = {
    "system": r"(ubuntu|debian|amzn|rhel|rocky|almalinux|centos)-[0-9.]+",
    "kernel": _VERSION,
    "systemd": r"\d+",
    **dict.fromkeys(("python3", *(f"python3.{minor}" for minor in range(9, 14))), _VERSION),
    "boto3_by": "none|pip|package",
    **dict.fromkeys(("boto3", "botocore", "openmpi"), _VERSION),
    "cuda": r"[0-9.,]*",
    **dict.fromkeys(("openmpi_of_amazon", "dlami_nvme", "mdadm", "mkfs_xfs", "aws"), _YES_OR_NO),
    **dict.fromkeys(("rpm_python3-boto3", "rpm_awscli-2", "rpm_mdadm"), _YES_OR_NO),
    "selinux": "none|Disabled|Permissive|Enforcing",
    "ssh_socket": "active|inactive|unknown",
    "held_packages": r"\d+",
    "boot_seconds": r"[0-9.]*",
    "wait_online": r"((\d+min )?[0-9.]+m?s)?",
}
"""The facts that are recorded, each with a pattern of all its values."""


def facts_in(output: str) -> dict[str, str]:
    pairs = (line.partition("=")[::2] for line in output.splitlines())
    return {name: value for name, value in pairs if name in VALUES and re.fullmatch(VALUES[name], value)}


def facts_of(session: Session, cluster: str, host: str = "deeplearning-master") -> dict[str, str]:
    """Ask a machine of a cluster by ssh, with the files that site.yml has written."""
    config = session.folder / f".deeplearning/{cluster}.ssh_config"
    words = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, "sh -s"]
    try:
        done = subprocess.run(
            words,
            input=SCRIPT.read_text(encoding="utf-8"),
            env=dict(session.environment),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{host} has not answered by ssh in {SECONDS:g} s") from None
    facts = facts_in(done.stdout)
    if done.returncode or not facts:
        raise Failed(f"{host} has not reported its facts by ssh: {last_line(done.stderr)}")
    return facts
