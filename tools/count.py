"""Count what makes the product, its tests and tools hard to read: tools/count.py [--check|--record]

Pronouns and participles as identifiers, words of a private dialect in prose, loops over "one", public classes that
share a name, entry points and lines of code. With --check exit with 1 if a figure is above its limit. With --record
write the lines of code by folder to bench/results/lines.md.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("plugins", "files")
PLAIN = (*PRODUCT, "localcloud")
"""The folders whose identifiers and prose have none of the banned words."""
TESTING = ("tests", "bench", "molecule", "tools", "conftest.py")
"""The same for tests and tools, up to the limits that they have reached."""
BANNED_IDENTIFIERS = frozenset({"given", "wanted", "found", "told", "said", "there"})
BANNED_WORDS = re.compile(r"\b(whoever|nobody|somebody|shall|told)\b", re.IGNORECASE)
LOOP_OVER_ONE = re.compile(r"\bfor one in\b")
NO_PLAYBOOKS = ("execution-environment.yml", "galaxy.yml", "requirements.yml")
PROSE = (".py", ".yml", ".md", ".sh", ".service", ".timer")
DOCUMENTATION = frozenset({"DOCUMENTATION", "EXAMPLES", "RETURN"})
LINES = {
    "plugins and the node program": ("plugins", "files/node"),
    "trainers": ("files/trainers",),
    "roles and playbooks": ("roles", "playbooks"),
    "the local cloud": ("localcloud",),
}
"""The folders whose lines of code are counted. Tests are not counted, including the local cloud's."""


@dataclass(frozen=True)
class Figure:
    name: str
    value: int
    limit: int
    examples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.value <= self.limit


def tracked(*folders: str) -> list[Path]:
    """Return the files that git knows below the folders, without links."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def is_python(path: Path) -> bool:
    return path.suffix == ".py" or (not path.suffix and b"python" in path.read_bytes().partition(b"\n")[0])


def python_in(*folders: str) -> list[Path]:
    return [path for path in tracked(*folders) if is_python(path)]


def identifiers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string


def prose(path: Path) -> str:
    """Return the comments and strings of a Python file, and any other file whole."""
    text = path.read_text(encoding="utf-8")
    if not is_python(path):
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def public_classes(path: Path) -> list[str]:
    """Return the names of the public classes of a module, without Ansible's own names for plugins."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plugins = {"ActionModule", "CallbackModule", "FilterModule", "InventoryModule", "ModuleDocFragment", "TestModule"}
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in plugins
    ]


def banned_identifiers(name: str, folders: Sequence[str], limit: int) -> Figure:
    counts: Counter[str] = Counter()
    for path in python_in(*folders):
        hits = sum(token in BANNED_IDENTIFIERS for token in identifiers(path.read_text(encoding="utf-8")))
        counts[str(path.relative_to(ROOT))] += hits
    return Figure(name, counts.total(), limit, most(counts))


def banned_words(name: str, folders: Sequence[str], limit: int) -> Figure:
    counts: Counter[str] = Counter()
    for path in tracked(*folders):
        if (path.suffix in PROSE or is_python(path)) and path.name not in ("glossary.md", "count.py"):
            counts[str(path.relative_to(ROOT))] += len(BANNED_WORDS.findall(prose(path)))
    return Figure(name, counts.total(), limit, most(counts))


def loops_over_one() -> Figure:
    counts: Counter[str] = Counter()
    for path in python_in(*PLAIN, *TESTING):
        if path.name != "count.py":
            counts[str(path.relative_to(ROOT))] += len(LOOP_OVER_ONE.findall(path.read_text(encoding="utf-8")))
    return Figure('loops over "one"', counts.total(), 0, most(counts))


def plain_language() -> list[Figure]:
    """Return the figures of names and prose. In tests, `nobody` is also the account of that name."""
    documents = ("roles", "playbooks", "inventory", "docs", "README.md", "SECURITY.md")
    return [
        banned_identifiers("banned identifiers", PLAIN, 0),
        banned_words("banned words in prose", (*PLAIN, *documents), 0),
        banned_identifiers("banned identifiers of tests and tools", TESTING, 0),
        banned_words("banned words in prose of tests and tools", TESTING, 22),
        loops_over_one(),
    ]


def shared_class_names() -> Figure:
    places: dict[str, list[str]] = {}
    for path in python_in(*PRODUCT):
        for name in public_classes(path):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    shared = [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]
    return Figure("public classes that share a name", len(shared), 0, tuple(shared))


def most(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{name}: {count}" for name, count in counts.most_common(8) if count)


def entry_points() -> list[Figure]:
    plays = [path for path in ROOT.glob("*.yml") if path.name not in NO_PLAYBOOKS]
    return [
        Figure("modules", len(tracked("plugins/modules")), 20),
        Figure("actions", len(tracked("plugins/action")), 11),
        Figure("roles", len({path.relative_to(ROOT).parts[1] for path in tracked("roles")}), 13),
        Figure("root playbooks", len(plays), 11),
    ]


def code_lines(source: str) -> int:
    """Count the lines of Python that are neither blank nor a comment, a docstring or documentation in YAML."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if _is_text(node):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def _is_text(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in DOCUMENTATION for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def lines_of(*folders: str) -> tuple[int, int]:
    """Return the lines of code in Python, and those of YAML and Jinja that are neither blank nor a comment.

    Tests are not counted, nor is the YAML next to plugins: it is the documentation of filters and tests.
    """
    paths = [path for path in tracked(*folders) if "tests" not in path.relative_to(ROOT).parts]
    paths = [path for path in paths if path.suffix == ".py" or path.relative_to(ROOT).parts[0] != "plugins"]
    texts = [(path.suffix, path.read_text(encoding="utf-8")) for path in paths if path.suffix in (".py", ".yml", ".j2")]
    others = [line.strip() for suffix, text in texts if suffix != ".py" for line in text.splitlines()]
    return (
        sum(code_lines(text) for suffix, text in texts if suffix == ".py"),
        sum(bool(line) and not line.startswith("#") for line in others),
    )


def figures() -> list[Figure]:
    return [
        *plain_language(),
        shared_class_names(),
        *entry_points(),
        Figure(
            "lines of code of plugins and the node program", lines_of(*LINES["plugins and the node program"])[0], 20_000
        ),
    ]


def record() -> None:
    rows = [(name, *lines_of(*folders)) for name, folders in LINES.items()]
    commit = subprocess.run(["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [
        "# Lines of code",
        "",
        f"Counted by `tools/count.py --record` at {commit.stdout.strip()}: no blank lines, comments,",
    ]
    lines += ["docstrings and documentation in YAML.", "", "| what | Python | YAML and Jinja |", "| --- | --- | --- |"]
    lines += [f"| {name} | {python:,} | {other:,} |" for name, python, other in rows]
    (ROOT / "bench/results/lines.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    if "--record" in words:
        record()
        return 0
    counted = figures()
    for figure in counted:
        print(f"{figure.name}: {figure.value} (at most {figure.limit}){'' if figure.ok else ': too many'}")
        for example in () if figure.ok else figure.examples:
            print(f"    {example}")
    return 0 if "--check" not in words or all(figure.ok for figure in counted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
