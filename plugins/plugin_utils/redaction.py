# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Remove secrets from texts that people pass on, such as logs.

A secret is known by its form (keys of AWS, private keys, tokens of well-known services) or by the name in front of it
(`password=…`, `--api-key …`, `"HF_TOKEN": …`). The name stays. Nodes may send anything, so each pattern takes time that
is linear in the text.
"""

from __future__ import annotations

import re

REMOVED = "<removed>"

_NAMES = (
    r"passw(?:or)?d|passphrase|secret|token|credential|authorization|signature"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key"
)
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)+"|'[^'\n]+'|\\"(?:[^"\\\n]|\\[^"\n])+\\"|[^\s,;&"'\\}\])<]+)"""
_NAME = re.compile(_NAMES, re.IGNORECASE)
_OPTION = re.compile(rf"""(?<![\w-])(--?[\w-]{{1,80}}(?:\\?["'],)? +){_VALUE}""")
_PATTERNS = (
    # Before the names, which would take the word Bearer for the value.
    (re.compile(r"\b(Bearer|Basic) +[\w.~+/=-]{16,}", re.IGNORECASE), rf"\1 {REMOVED}"),
    (
        re.compile(
            rf"""((?:{_NAMES})[\w.-]{{0,40}}[\\"']{{0,4}} {{0,8}}[:=] {{0,8}}(?!Bearer |Basic )){_VALUE}""",
            re.IGNORECASE,
        ),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(://)[^\s/:@]{1,256}:[^\s/@]{1,256}@"), rf"\1{REMOVED}@"),
    # The ids of AWS's access keys, and the keys: these have capitals, small letters and digits, unlike checksums.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REMOVED),
    (
        re.compile(
            r"(?<![\w/+])(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z/+]{0,39}[0-9])"
            r"[A-Za-z0-9/+]{40}(?![\w/+=])"
        ),
        REMOVED,
    ),
    # Session tokens. Public keys, which are as long, begin with AAAA.
    (re.compile(r"(?<![\w/+])(?!AAAA)[A-Za-z0-9/+]{100,}={0,2}"), REMOVED),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_|glpat-|xox[abeprs]-|sk-)[\w-]{16,}"), REMOVED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REMOVED),
)

_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_END = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_LONGEST_KEY = 16384
"""Characters of a private key, with what a log puts in front of each line."""


def redact(text: str) -> str:
    """Return the text without secrets."""
    text = _OPTION.sub(_without_value, _without_private_keys(text))
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _without_value(option: re.Match[str]) -> str:
    """Remove the value of an option of a command line if the option's name is one of a secret."""
    return f"{option[1]}{REMOVED}" if _NAME.search(option[1]) else option[0]


def _without_private_keys(text: str) -> str:
    """Remove private keys, also those whose beginning or end is missing."""
    parts: list[str] = []
    position = 0
    while True:
        begin, end = _BEGIN.search(text, position), _END.search(text, position)
        if begin and not (end and end.start() < begin.start()):
            last = _END.search(text, begin.end(), begin.end() + _LONGEST_KEY)
            start, stop = begin.start(), last.end() if last else begin.end() + _LONGEST_KEY
        elif end:
            start, stop = max(position, end.start() - _LONGEST_KEY), end.end()
        else:
            return "".join([*parts, text[position:]])
        parts += [text[position:start], REMOVED]
        position = stop
