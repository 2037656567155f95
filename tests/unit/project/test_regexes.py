"""Every regular expression in YAML and templates compiles with the Python that runs Ansible.

Jinja2 evaluates the arguments of a test such as `search` only where it needs them: an `until` hides an invalid
one until the task fails, and then it hides why.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_NAMES = "search|match|regex|regex_search|regex_findall|regex_replace"
_CALL = re.compile(rf"""\b(?:{_NAMES})\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")
"""`is search('…')` and `| regex_replace('…', …)`."""
_MAPPED = re.compile(rf"""['"](?:{_NAMES})['"],\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")
"""`| map('regex_replace', '…')` and `| select('search', '…')`."""


def expressions(text: str) -> Iterator[str]:
    for pattern in (_CALL, _MAPPED):
        for match in pattern.finditer(text):
            # Jinja2 reads a backslash in a literal as Python does, where it means something.
            yield (match[1] if match[1] is not None else match[2]).replace("\\\\", "\\")


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.yml", "*.yaml", "*.j2"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_the_regular_expressions_of_all_yaml_compile() -> None:
    every = [(path, regex) for path in files() for regex in expressions(path.read_text(encoding="utf-8"))]
    assert len(every) > 3
    for path, regex in every:
        try:
            re.compile(regex)
        except re.error as error:
            pytest.fail(f"{path.relative_to(ROOT)}: {regex!r}: {error}")


@pytest.mark.parametrize(
    ("text", "regexes"),
    [
        ("x is not search('a|(?i)b')", ["a|(?i)b"]),
        ("""x | regex_replace("\\.$", '')""", ["\\.$"]),
        ("{{ x | map('regex_replace', '^', 'y') | select('match', 'z') }}", ["^", "z"]),
        ("x is match(pattern)", []),
    ],
)
def test_they_are_recognized(text: str, regexes: list[str]) -> None:
    assert list(expressions(text)) == regexes
