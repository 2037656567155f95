"""What a call needs to be allowed, and whether its caller may: IAM, applied to the records that moto keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localcloud.api.registry import Call


@dataclass(frozen=True)
class Needs:
    action: str
    resource: str

    def as_json(self) -> list[dict[str, Any]]:
        return []


def required(call: Call) -> Needs:
    return Needs(f"{call.service}:{call.operation}", "*")


def enforce(call: Call, needs: Needs, source: str) -> None:
    """Placeholder until localcloud.iam is wired in."""
