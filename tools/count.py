"""Count lines of code, and find public classes that share a name: tools/count.py [--check|--record]

With --check exit with 1 if classes share a name. With --record write the lines of code by folder to
bench/results/lines.md.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("plugins", "files")
DOCUMENTATION = frozenset({"DOCUMENTATION", "EXAMPLES", "RETURN"})
LINES = {
    "plugins and the node program": ("plugins", "files/node"),
    "trainers": ("files/trainers",),
    "roles and playbooks": ("roles", "playbooks"),
    "the local cloud": ("localcloud",),
}
"""The folders whose lines of code are counted. Tests are not counted, including the local cloud's."""


def tracked(*folders: str) -> list[Path]:
    """Return the files that git knows below the folders, without links."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def is_python(path: Path) -> bool:
    return path.suffix == ".py" or (not path.suffix and b"python" in path.read_bytes().partition(b"\n")[0])


def python_in(*folders: str) -> list[Path]:
    return [path for path in tracked(*folders) if is_python(path)]


def public_classes(path: Path) -> list[str]:
    """Return the names of the public classes of a module, without Ansible's own names for plugins."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plugins = {"ActionModule", "CallbackModule", "FilterModule", "InventoryModule", "ModuleDocFragment", "TestModule"}
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in plugins
    ]


def shared_class_names() -> list[str]:
    """Return each name that several public classes of the product have, with their files."""
    places: dict[str, list[str]] = {}
    for path in python_in(*PRODUCT):
        for name in public_classes(path):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]


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
    for name, folders in LINES.items():
        python, other = lines_of(*folders)
        print(f"{name}: {python:,} lines of Python, {other:,} of YAML and Jinja")
    shared = shared_class_names()
    for line in shared:
        print(f"public classes that share a name: {line}")
    return 1 if shared and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
