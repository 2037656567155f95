"""What the first stage, which is alone on the machine, does for the program of the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.request import Request


class OwnMachine(Protocol):
    """The interface of first_stage.InstanceApi that the program of the bundle uses."""

    parameters: dict[str, Any]
    instance_id: str
    passing: tuple[type[Exception], ...]
    """What calls raise that may succeed later."""

    def log(self, text: str) -> None: ...

    def metadata(self, path: str) -> str: ...

    def call(self, service: str, request: Request, seconds: float) -> bytes: ...

    def query(self, service: str, version: str, seconds: float, **values: str) -> None: ...

    def object(self, key: str) -> Request: ...

    def report(self, state: str, step: str, lines: Sequence[str] = (), seconds: float | None = None) -> None: ...

    def lifecycle(self, action: str, seconds: float, **values: str) -> bool: ...

    def complete(self, result: str) -> None: ...

    def fail(self, step: str, lines: Sequence[str]) -> None: ...
