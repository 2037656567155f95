"""Whether this machine is still the cluster's master. Only the master starts, stops and records runs."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from deeplearning.aws import AwsClient, Unavailable
from deeplearning.config import Config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.machine import instance_id
from deeplearning.members import applying, published_list

REFUSED_SECONDS = 120.0
"""How long a refused list is not checked again. Not for ever: AWS may refuse a call that it allows later."""


class Superseded(Exception):
    """Another machine has become the master, and the run is its own."""


@dataclass
class SignatureChecks:
    """Checks lists that another machine has published, with one connection to AWS for the life of this process.

    A run compares the list every few seconds. Without a memory, a forged list would cost a call to AWS each time.
    """

    aws: AwsClient | None = None
    refused: bytes = b""
    """The SHA-256 of the list that was refused last."""
    refused_until: float = 0.0

    def check(self, content: bytes, config: Config) -> None:
        """Raise UserError if this node may not use the list, Unavailable if AWS does not answer."""
        digest = hashlib.sha256(content).digest()
        if digest == self.refused and time.monotonic() < self.refused_until:
            raise UserError("the published member list was refused before.")
        try:
            applying.checked(content, config, lambda: self._connect(config.region))
        except Unavailable:
            raise
        except UserError:
            self.refused, self.refused_until = digest, time.monotonic() + REFUSED_SECONDS
            raise

    def _connect(self, region: str) -> AwsClient:
        self.aws = self.aws or AwsClient(region)
        return self.aws


signatures = SignatureChecks()
"""Of this process."""


def is_superseded(config: Config) -> bool:
    """Return True if another machine publishes the member list.

    A master that was suspended finds out by the published list, because its own copy may be old. Root of any member can
    write a list, so another machine's counts only if a master has signed it and it is not older than this node's copy.
    """
    try:
        content = published_list.content_of(paths.published(config.efs_mount, config.cluster))
        if published_list.record_of(content).get("published_by") == instance_id():
            return False
        signatures.check(content, config)
    except Unavailable:
        # A replaced master has lost its public address, and with it the way to AWS.
        return True
    except UserError:
        return False
    return True
