"""Record the names of TensorFlow that TensorPack uses, and those that the pinned TensorFlow has.

    tools/tensorflow_names.py REPOSITORY PYTHON

REPOSITORY is a clone of TensorPack with the commit of contract/datasets.py. PYTHON runs an environment in which
roles/framework/files/tensorpack/requirements-cpu.txt is installed, with any version of Python that nodes may have.
tests/unit/project/test_tensorflow_names.py compares the two lists, without either.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests/unit/project/tensorflow_names.json"
EXAMPLE = "examples/FasterRCNN"
PRIVATE = "tensorflow.python."
OLD = "tensorflow.compat.v1"
"""What TensorPack calls tfv1."""

OBSERVE = """
import importlib, importlib.metadata, json, os, sys
from pathlib import Path
example, names = Path(sys.argv[1]), json.loads(sys.stdin.read())
sys.path.insert(0, str(example))
os.chdir(example)
for file in sorted(example.rglob("*.py")):
    if file.stem not in ("__init__", "convert_d2"):
        importlib.import_module(".".join(file.relative_to(example).with_suffix("").parts))
import tensorflow, tensorpack
exports, private = {}, []
def has(value, name):
    try:
        return hasattr(value, name)
    except ImportError:
        return False
for name in names:
    module, value = "tensorflow", tensorflow
    for part in name.split(".")[1:]:
        if has(value, "__path__") or has(value, "__file__"):
            exports.setdefault(module, sorted(word for word in dir(value) if not word.startswith("_")))
        try:
            value = getattr(value, part) if has(value, part) else importlib.import_module(f"{module}.{part}")
        except ImportError:
            break
        module += f".{part}"
    else:
        private += [name] if name.startswith("tensorflow.python.") else []
package = Path(tensorpack.__file__).parent
print(json.dumps({
    "versions": {name: importlib.metadata.version(name) for name in ("tensorflow-cpu", "tensorpack")},
    "exports": {module: " ".join(words) for module, words in exports.items() if not module.startswith("tensorflow.py")},
    "private": private,
    "package": str(package),
    "imported": sorted(str(Path(module.__file__).relative_to(package)) for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "tensorpack" and module.__file__),
}))
"""
"""Run by PYTHON: which modules of TensorPack the example imports, and what the modules of TensorFlow have by then."""


class Names(ast.NodeVisitor):
    """The dotted names of TensorFlow in a Python file, without those that only run as `python FILE`."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self.names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.aliases.update(
                    {name.asname or "tensorflow": "tensorflow" for name in node.names if name.name == "tensorflow"}
                )
            elif isinstance(node, ast.ImportFrom):
                self.aliases.update({name.asname or "tfv1": OLD for name in node.names if name.name == "tfv1"})
        self.visit(tree)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Compare) and getattr(node.test.left, "id", "") == "__name__"):
            self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if (node.module or "").partition(".")[0] == "tensorflow":
            self.names |= {f"{node.module}.{name.name}" for name in node.names}

    def visit_Import(self, node: ast.Import) -> None:
        self.names |= {name.name for name in node.names if name.name.startswith("tensorflow.")}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        value: ast.expr = node
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id in self.aliases:
            self.names.add(".".join([self.aliases[value.id], *reversed(parts)]))
        else:
            self.generic_visit(node)


def names_in(files: Iterator[Path]) -> list[str]:
    return sorted(set().union(*(Names(ast.parse(file.read_text())).names for file in files)))


def main(repository: str, python: str) -> None:
    sys.path.insert(0, str(ROOT / "collections"))
    from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import TENSORPACK_COMMIT

    archive = subprocess.run(["git", "-C", repository, "archive", TENSORPACK_COMMIT], capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        example = Path(folder, EXAMPLE)
        used = names_in(example.rglob("*.py"))

        def observe(names: list[str]) -> dict[str, Any]:
            command = [python, "-c", OBSERVE, str(example)]
            process = subprocess.run(
                command,
                input=json.dumps(names),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            return dict(json.loads(process.stdout.splitlines()[-1]))

        facts = observe([])
        imported = facts["imported"]
        sources = {
            EXAMPLE: used,
            "the release": names_in(Path(facts["package"], name) for name in imported),
            "the sources": names_in(Path(folder, "tensorpack", name) for name in imported),
        }
        facts = observe(sorted(set().union(*sources.values())))
    record = {"commit": TENSORPACK_COMMIT, "versions": facts["versions"], "names": sources}
    record |= {"exports": facts["exports"], "private": facts["private"]}
    FILE.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
