"""The two kinds of refusal: one that AWS would word, and one sentence for the person at the command line."""

from __future__ import annotations


class AwsError(Exception):
    """An error of the API, serialized by the front in the protocol of the service that was called."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class Refusal(Exception):
    """Something that the command line cannot do: one sentence, exit status 2."""
