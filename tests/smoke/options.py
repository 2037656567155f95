"""The variables that `make aws-smoke` takes, and the sentences that refuse them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.smoke.stages import STAGES

LOCAL_OPERATOR = "198.51.100.1/32"
"""How machines of the local cloud see the operator."""
NO_ADDRESS = "192.0.2.1/32"
"""One of RFC 5737, which no computer has, for stages in which nothing logs in."""


class Refused(Exception):
    """Why the command does not begin, in one sentence."""


@dataclass(frozen=True)
class Options:
    account: str
    usd: float
    stages: Sequence[int]
    """None if a cluster is to be destroyed."""
    region: str
    cidr: str
    destroy: str
    is_local: bool


def read(environment: Mapping[str, str]) -> Options:
    account = environment.get("SMOKE_ACCOUNT", "")
    if not re.fullmatch(r"\d{12}", account):
        raise Refused(f"SMOKE_ACCOUNT is {account or 'not set'}: name the account. Example: SMOKE_ACCOUNT=123456789012")
    try:
        usd = float(environment.get("SMOKE_USD", ""))
    except ValueError:
        raise Refused("SMOKE_USD is no number: it is what the command may spend. Example: SMOKE_USD=3") from None
    is_local = bool(environment.get("AWS_ENDPOINT_URL"))
    cidr = environment.get("SMOKE_CIDR") or (LOCAL_OPERATOR if is_local else "")
    destroy = environment.get("SMOKE_DESTROY", "")
    stages = [] if destroy else _stages(environment.get("SMOKE_STAGES", ""))
    if any(STAGES[number].logs_in for number in stages):
        _check_cidr(cidr)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    return Options(account, usd, stages, region, cidr or NO_ADDRESS, destroy, is_local)


def _stages(text: str) -> Sequence[int]:
    """Return the named stages in their order, or all that are not optional."""
    if not text:
        return [number for number, stage in STAGES.items() if not stage.is_optional]
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in map(str, STAGES)]:
        raise Refused(f"SMOKE_STAGES has {', '.join(unknown)}: there are {', '.join(map(str, STAGES))}")
    return sorted({int(name) for name in names})


def _check_cidr(cidr: str) -> None:
    example = "name the address that you log in from. Example: SMOKE_CIDR=203.0.113.7/32"
    try:
        ipaddress.IPv4Network(cidr)
    except ValueError:
        raise Refused(f"SMOKE_CIDR is {cidr or 'not set'}: {example}") from None
