"""The master signs the member list with its host key, by ssh-keygen. Nodes compare it with the reported keys.

The shared file system lets root on any machine write anywhere, so a list's path does not prove who wrote it.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplearning import programs
from deeplearning.aws import AwsClient, NotFound
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.names import PRIMARY
from deeplearning.contract.report import key_of
from deeplearning.members import report
from deeplearning.members.cloud import instances_of

KEY = "/etc/ssh/ssh_host_ed25519_key"
NAMESPACE = "deeplearning-members"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def signed(record: Mapping[str, Any]) -> dict[str, Any]:
    done = programs.run("ssh-keygen", "-Y", "sign", "-q", "-f", KEY, "-n", NAMESPACE, input=canonical(record))
    body = "".join(line for line in done.stdout.splitlines() if line not in (_BEGIN, _END))
    if done.returncode or not body:
        raise UserError(f"the member list cannot be signed with {KEY}: {programs.last_line(done.stderr)}")
    return {**record, "signature": body}


def verify(record: Mapping[str, Any], public_keys: Sequence[str]) -> bool:
    """Return whether one of the keys has signed exactly this record."""
    with tempfile.TemporaryDirectory() as folder:
        allowed, signature = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text("".join(f'master namespaces="{NAMESPACE}" {key}\n' for key in public_keys))
        signature.write_text(f"{_BEGIN}\n{record['signature']}\n{_END}\n")
        command = ["ssh-keygen", "-Y", "verify", "-q", "-f", allowed, "-I", "master", "-n", NAMESPACE, "-s", signature]
        return programs.run(*map(str, command), input=canonical(record)).returncode == 0


def check_signature(record: dict[str, Any], config: Config, connect: Callable[[], AwsClient]) -> None:
    """Raise UserError for a wrong signature. Call AWS only if the cached keys do not verify it."""
    master = record["published_by"]
    cache = f"{paths.STATE}/masters/{master}"
    keys = (atomic_file.read_or_none(cache) or "").splitlines()
    if keys and verify(record, keys):
        return
    aws = connect()
    if config.job_flow:
        # All nodes have one role there, so EMR is asked which of them is the master.
        primary = instances_of(aws, config.job_flow, PRIMARY)
        if master not in [instance["Ec2InstanceId"] for instance in primary]:
            raise UserError(f"the member list is by {master}, which is not the primary node of {config.job_flow}.")
    key = key_of(f"{config.master_role_id}:{master}")
    try:
        keys = report.read(aws, config.bucket, key)["host_keys"]
    except NotFound:
        raise UserError(f"the member list is by {master}, which has never been this cluster's master.") from None
    if not verify(record, keys):
        raise UserError(f"the member list is not signed by the master that it names ({master}).")
    # Only root may write the cache; a run calls AWS again.
    with contextlib.suppress(PermissionError):
        atomic_file.write_if_changed(cache, "".join(f"{key}\n" for key in keys))


def canonical(record: Mapping[str, Any]) -> str:
    """Return what is signed: everything but the signature, in one form."""
    content = {key: value for key, value in record.items() if key != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
