"""The master's signature under the member list, by ssh-keygen with its host key.

The shared file system lets any machine's root write anywhere, so where a list lies says nothing about who wrote it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning import Refusal

KEY = "/etc/ssh/ssh_host_ed25519_key"
NAMESPACE = "deeplearning-members"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def signed(record: Mapping[str, Any]) -> dict[str, Any]:
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", KEY, "-n", NAMESPACE]
    done = subprocess.run(command, input=canonical(record), capture_output=True, check=False)
    body = "".join(line for line in done.stdout.decode("ascii").splitlines() if line not in (_BEGIN, _END))
    if done.returncode or not body:
        raise Refusal(f"the member list cannot be signed with {KEY}: {_last_line(done.stderr)}")
    return {**record, "signature": body}


def verify(record: Mapping[str, Any], public_keys: Sequence[str]) -> bool:
    """Whether one of the keys has signed exactly this."""
    with tempfile.TemporaryDirectory() as folder:
        allowed, signature = os.path.join(folder, "allowed"), os.path.join(folder, "signature")
        with open(allowed, "w", encoding="ascii") as file:
            file.writelines(f'master namespaces="{NAMESPACE}" {key}\n' for key in public_keys)
        with open(signature, "w", encoding="ascii") as file:
            file.write(f"{_BEGIN}\n{record['signature']}\n{_END}\n")
        command = ["ssh-keygen", "-Y", "verify", "-q", "-f", allowed, "-I", "master", "-n", NAMESPACE, "-s", signature]
        return subprocess.run(command, input=canonical(record), capture_output=True, check=False).returncode == 0


def canonical(record: Mapping[str, Any]) -> bytes:
    """What is signed: all but the signature, in one form."""
    content = {key: value for key, value in record.items() if key != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "ssh-keygen says nothing"
