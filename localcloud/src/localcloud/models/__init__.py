"""Requests and answers against the models of AWS's services in botocore."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from localcloud.core.caller import Caller
from localcloud.core.lateness import OBSERVER

VARIABLE = "LOCALCLOUD_FORMS"
"""The variable of the environment that names the file. Without it, nothing is compared."""
ORIGINS = "LOCALCLOUD_FORMS_OF"
"""The variable of the environment that says whose requests are compared; `origins_variable` writes it. Without it, the
requests of all programs except observers are compared, and their origin is `instance` or `other`."""


@dataclass(frozen=True)
class Origin:
    """A program whose requests are compared."""

    name: str
    agent: str
    """a regular expression that the beginning of its user agent matches"""
    on_instances: bool = False
    """whether it runs on instances, with the credentials of their roles"""


def origins_variable(*origins: Origin) -> dict[str, str]:
    """Return the variable of the environment that limits the comparison to requests of these programs."""
    return {ORIGINS: json.dumps([asdict(origin) for origin in origins])}


def origins_from(environment: Mapping[str, str]) -> tuple[Origin, ...]:
    """Return the programs that `origins_variable` has written, or all programs."""
    text = environment.get(ORIGINS)
    if not text:
        return (Origin("instance", "", True), Origin("other", f"(?!.*{OBSERVER})"))
    return tuple(Origin(**origin) for origin in json.loads(text))


def origin_of(caller: Caller, headers: Mapping[str, str], origins: tuple[Origin, ...]) -> str:
    """Return the name of the program that calls, or nothing if its requests are not compared."""
    agent = headers.get("user-agent", "")
    on_instance = caller.kind == "role" and caller.arn.rpartition("/")[2].startswith("i-")
    for origin in origins:
        if origin.on_instances == on_instance and re.match(origin.agent, agent):
            return origin.name
    return ""
