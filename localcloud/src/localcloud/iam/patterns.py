"""Text with wildcards and variables in IAM policies.

A pattern is parsed once into pieces, and its variables are replaced for each request. Easy to get wrong:

* The value of a variable is literal text: a user who is named `*` does not become a wildcard.
* `${*}`, `${?}` and `${$}` are the characters themselves.
* A variable without a default for which the request has no single value makes the *statement* not match:
  the exception `Unresolved`, caught where statements are matched.
* In a Resource, variables are replaced behind the fifth colon only: not in the region, nor in the account.
* ARNs are compared part by part, so `*` in the region does not match part of the account. The sixth part may hold
  colons. A pattern with fewer than six parts matches only if it ends in `*` (`arn:aws:s3*`).

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_resource.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A condition key has one value, or a list of them (aws:TagKeys).
Value = str | Sequence[str]
# Keys are lower case: IAM compares the names of keys, the tag's part included, without regard to case.
Context = Mapping[str, Value]

_VARIABLE = re.compile(r"\$\{(?:(?P<char>[*?$])|\s*(?P<key>[^{},\s]+)\s*(?:,\s*'(?P<default>[^']*)')?\s*)\}")
_WILD = {"*": ".*", "?": "."}


class Unresolved(Exception):
    """A policy variable that has no value in this request."""


@dataclass(frozen=True)
class Variable:
    key: str
    default: str | None = None

    def value(self, context: Context) -> str:
        value = context.get(self.key.lower(), self.default)
        if not isinstance(value, str):  # absent, or a list: only single values can replace a variable
            raise Unresolved(self.key)
        return value


@dataclass(frozen=True)
class Wildcard:
    char: str


Piece = str | Variable | Wildcard


def context_of(*sources: Mapping[str, Value]) -> dict[str, Value]:
    """Merge contexts into one; later ones win, names become lower case."""
    return {key.lower(): value for source in sources for key, value in source.items()}


def _pieces(text: str, variables: bool) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    end = 0
    for match in _VARIABLE.finditer(text) if variables else ():
        pieces += _wildcards(text[end : match.start()])
        pieces.append(match["char"] or Variable(match["key"], match["default"]))
        end = match.end()
    return (*pieces, *_wildcards(text[end:]))


def _wildcards(text: str) -> list[Piece]:
    return [
        Wildcard(part) if part in _WILD else part for part in re.split(r"(\*|\?)", re.sub(r"\*+", "*", text)) if part
    ]


def _regex(pieces: Sequence[Piece], context: Context) -> str:
    def regex(piece: Piece) -> str:
        match piece:
            case Wildcard(char):
                return _WILD[char]
            case Variable():
                return re.escape(piece.value(context))
            case _:
                return re.escape(piece)

    return "".join(map(regex, pieces))


def _split_arn(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split at the first five colons of the policy's text; those inside values and variables do not count."""
    parts: list[list[Piece]] = [[]]
    for piece in pieces:
        if not isinstance(piece, str):
            parts[-1].append(piece)
            continue
        first, *rest = piece.split(":", 6 - len(parts))
        parts[-1].append(first)
        parts += [[text] for text in rest]
    return parts


@dataclass(frozen=True)
class Pattern:
    text: str
    pieces: tuple[Piece, ...]

    @classmethod
    def parse(cls, text: str, *, variables: bool = True) -> Pattern:
        return cls(text, _pieces(text, variables))

    @property
    def has_early_variable(self) -> bool:
        """Return whether an ARN has a variable before its fifth colon, where IAM does not replace any."""
        early = _split_arn(self.pieces)[:5]
        return any(isinstance(piece, Variable) for part in early for piece in part)

    def literal(self, context: Context) -> str:
        """Return the text with the values of its variables; `*` and `?` are plain characters here."""

        def text(piece: Piece) -> str:
            match piece:
                case Wildcard(char):
                    return char
                case Variable():
                    return piece.value(context)
                case _:
                    return piece

        return "".join(map(text, self.pieces))

    def matches(self, value: str, context: Context, *, ignore_case: bool = False) -> bool:
        flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        return re.fullmatch(_regex(self.pieces, context), value, flags) is not None

    def matches_arn(self, arn: str, context: Context) -> bool:
        if self.text == "*":
            return True
        patterns = [_regex(part, context) for part in _split_arn(self.pieces)]
        parts = arn.split(":", 5)
        if len(patterns) < 6 and self.text.endswith("*"):
            patterns += [".*"] * (6 - len(patterns))
        return len(patterns) == len(parts) and all(
            re.fullmatch(pattern, part, re.DOTALL) for pattern, part in zip(patterns, parts, strict=True)
        )
