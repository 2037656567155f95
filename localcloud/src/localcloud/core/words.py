"""AWS's errors in its own words, from data/aws_errors.toml.

The local cloud answers with them, and the collection's code that reads errors is tested against them.
"""

from __future__ import annotations

import functools
import string
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA

RECORDED, DOCUMENTED, READ = "recorded", "documented", "read"
ANY = "any"


@dataclass(frozen=True)
class Entry:
    """One error of AWS, or one reason that AWS gives in the description of a resource."""

    service: str
    operations: Sequence[str]
    status: int
    code: str
    evidence: str
    source: str
    message: str = ""
    means: Sequence[str] = ()

    @property
    def placeholders(self) -> frozenset[str]:
        return frozenset(name for _text, name, *_rest in string.Formatter().parse(self.message) if name)

    def answers(self, operation: str) -> bool:
        """Return whether an operation such as `ec2:RunInstances` answers it; `ec2:*` is any operation of EC2."""
        service, _colon, name = operation.partition(":")
        return self.service in (service, ANY) and ("*" in self.operations or name in self.operations)

    def error(self, **values: object) -> AwsError:
        return AwsError(self.code, self.message.format(**values), self.status)


@functools.cache
def entries() -> tuple[Entry, ...]:
    tables = tomllib.loads((DATA / "aws_errors.toml").read_text(encoding="utf-8"))
    return tuple(Entry(service, **entry) for service, listed in tables.items() for entry in listed)


def aws_error(operation: str, code: str, part: str = "", **values: object) -> AwsError:
    """Return the error with which an operation answers. The values are those of its message. If the code has several
    sentences, the one with these placeholders is meant, and with this part."""
    (entry,) = matches(operation, code, part, frozenset(values))
    return entry.error(**values)


def sentence(operation: str, code: str, part: str = "", **values: object) -> str:
    """Return AWS's sentence alone, for a description."""
    return aws_error(operation, code, part, **values).message


@functools.cache
def matches(operation: str, code: str, part: str, placeholders: frozenset[str]) -> tuple[Entry, ...]:
    """Return the entries that `aws_error` may mean: those of the service if there are any, otherwise those of all."""
    every = tuple(
        entry
        for entry in entries()
        if entry.code == code
        and entry.answers(operation)
        and entry.placeholders == placeholders
        and part in entry.message
    )
    return tuple(entry for entry in every if entry.service != ANY) or every
