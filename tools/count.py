"""Count what makes the product hard to read: tools/count.py [--check]

Pronouns and participles as identifiers, words of a private dialect in prose, public classes that share a name, entry
points and lines. With --check exit with 1 if a figure is above its limit.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("plugins", "files")
PLAIN = (*PRODUCT, "localcloud")
"""The folders whose identifiers and prose are checked."""
BANNED_IDENTIFIERS = frozenset({"given", "wanted", "found", "told", "said", "there"})
BANNED_WORDS = re.compile(r"\b(whoever|nobody|somebody|shall|told)\b", re.IGNORECASE)
NO_PLAYBOOKS = ("execution-environment.yml", "galaxy.yml", "requirements.yml")
PROSE = (".py", ".yml", ".md", ".sh", ".service", ".timer")


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


def python_in(*folders: str) -> list[Path]:
    return [path for path in tracked(*folders) if path.suffix == ".py"]


def identifiers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string


def prose(path: Path) -> str:
    """Return the comments and strings of a Python file, and any other file whole."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
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


def banned_identifiers() -> Figure:
    counts: Counter[str] = Counter()
    for path in python_in(*PLAIN):
        hits = sum(name in BANNED_IDENTIFIERS for name in identifiers(path.read_text(encoding="utf-8")))
        counts[str(path.relative_to(ROOT))] += hits
    return Figure("banned identifiers", counts.total(), 0, most(counts))


def banned_words() -> Figure:
    counts: Counter[str] = Counter()
    folders = (*PLAIN, "roles", "playbooks", "inventory", "docs", "README.md", "SECURITY.md")
    for path in tracked(*folders):
        if path.suffix in PROSE and path.name != "glossary.md":
            counts[str(path.relative_to(ROOT))] += len(BANNED_WORDS.findall(prose(path)))
    return Figure("banned words in prose", counts.total(), 0, most(counts))


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


def figures() -> list[Figure]:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in python_in(*PRODUCT))
    return [
        banned_identifiers(),
        banned_words(),
        shared_class_names(),
        *entry_points(),
        Figure("lines of product Python", lines, 20_000),
    ]


def main(words: list[str]) -> int:
    counted = figures()
    for figure in counted:
        print(f"{figure.name}: {figure.value} (at most {figure.limit}){'' if figure.ok else ': too many'}")
        for example in () if figure.ok else figure.examples:
            print(f"    {example}")
    return 0 if "--check" not in words or all(figure.ok for figure in counted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
