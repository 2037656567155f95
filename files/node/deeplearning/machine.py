"""This machine: its instance id, from the metadata service."""

from __future__ import annotations

import contextlib
import os
from http.client import HTTPConnection, HTTPException

from deeplearning import Refusal, paths

METADATA = "169.254.169.254"


def instance_id() -> str:
    """Asked once in the life of a boot: an image of a configured machine must not bring another's."""
    kept = f"{paths.RUNTIME}/instance-id"
    with contextlib.suppress(FileNotFoundError), open(kept, encoding="ascii") as file:
        return file.read()
    found = _metadata("instance-id")
    if os.geteuid() == 0:
        os.makedirs(paths.RUNTIME, exist_ok=True)
        with open(f"{kept}.new", "w", encoding="ascii") as file:
            file.write(found)
        os.rename(f"{kept}.new", kept)
    return found


def _metadata(key: str) -> str:
    try:
        token = _ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return _ask("GET", f"meta-data/{key}", {"X-aws-ec2-metadata-token": token})
    except (OSError, HTTPException) as error:
        raise Refusal(f"the metadata service does not say the {key} ({error}): is this an instance of EC2?") from None


def _ask(method: str, path: str, headers: dict[str, str]) -> str:
    connection = HTTPConnection(METADATA, timeout=5)
    try:
        connection.request(method, f"/latest/{path}", headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode("ascii")
    finally:
        connection.close()
    if answer.status != 200:
        raise HTTPException(f"HTTP {answer.status}")
    return body
