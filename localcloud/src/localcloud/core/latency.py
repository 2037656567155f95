"""How long things take. A profile names seconds for each kind of wait; `none` is all zeros, `aws` has AWS's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from localcloud.core.errors import Refusal
from localcloud.core.settings import DATA

# Figures as seen by users of AWS; they vary by region and hour. Each is the time from the call until the state is
# reached.
AWS: Mapping[str, float] = json.loads((DATA / "latency.json").read_text(encoding="utf-8"))


class Latency:
    """The profile in force."""

    def __init__(self, name: str, seconds: Mapping[str, float]) -> None:
        self.name = name
        """which `latency_from` understands, in whatever folder"""
        self._seconds = {**dict.fromkeys(AWS, 0.0), **seconds}

    def of(self, what: str) -> float:
        """Return the seconds of a delay. An unknown name is an error of the code."""
        return self._seconds[what]


def latency_from(value: str) -> Latency:
    """`none`, `aws`, `aws*0.1`, or the path of a JSON file that maps kinds of wait to seconds."""
    if value == "none":
        return Latency(value, {})
    if value == "aws" or value.startswith("aws*"):
        return Latency(value, {what: seconds * _factor(value) for what, seconds in AWS.items()})
    path = Path(value)
    return Latency(str(path.resolve()), _read(path))


def _factor(value: str) -> float:
    text = value.removeprefix("aws").removeprefix("*") or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < float("inf"):
        raise Refusal(
            f"latency profile {value}: what follows aws* must be a number, 0 or more. Example: --latency 'aws*0.1'"
        )
    return factor


def _read(path: Path) -> dict[str, float]:
    requested = f"Give none, aws, aws*FACTOR or a JSON file that maps any of {', '.join(AWS)} to seconds."
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"latency profile {path} cannot be read ({error.strerror}). {requested}") from error
    except ValueError as error:
        raise Refusal(f"latency profile {path} is not JSON ({error}). {requested}") from error
    if not isinstance(profile, dict):
        raise Refusal(f"latency profile {path} is not a JSON object. {requested}")
    for what, seconds in profile.items():
        if what not in AWS:
            raise Refusal(f"latency profile {path} names {what}, which nothing waits for. {requested}")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            raise Refusal(f"latency profile {path} gives {seconds!r} for {what}: give seconds, 0 or more. {requested}")
    return {what: float(seconds) for what, seconds in profile.items()}
