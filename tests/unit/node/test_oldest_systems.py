"""What runs on nodes runs on their system's Python (3.9 on Amazon Linux 2023, 3.10 on Ubuntu 22.04) and botocore."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLDEST = (3, 9)
MODULES = ("framework_env", "managed_files", "wait_for_nfs")
"""The modules that the roles of nodes run there."""
FILES = sorted(
    [
        *(ROOT / "files/node").rglob("*.py"),
        *(ROOT / "plugins/module_utils/contract").rglob("*.py"),
        *(ROOT / "plugins/module_utils/node").rglob("*.py"),
        *(ROOT / f"plugins/modules/{name}.py" for name in MODULES),
    ]
)
FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "oldest_botocore.json").read_text(encoding="utf-8"))
NEWER_KEYWORDS = {"strict": "zip", "slots": "dataclass", "kw_only": "dataclass", "root_dir": "glob"}
NEWER_NAMES = {
    *("pairwise", "StrEnum", "UTC", "tomllib", "TaskGroup", "ExceptionGroup", "file_digest", "chdir", "aclosing"),
    *("bit_count", "add_note", "NoneType", "EllipsisType", "TypeAlias", "ParamSpec", "Self", "batched", "anext"),
}
"""Of the standard library, by its documentation ("New in version 3.10" and later)."""
NOT_OF_THE_LIBRARY = {"os.chdir"}


def newer(source: str) -> Iterator[str]:
    """Yield what the oldest Python does not have."""
    try:
        tree = ast.parse(source, feature_version=OLDEST)
    except SyntaxError as error:
        yield str(error)
        return
    annotations = {
        id(part)
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation
        for part in ast.walk(annotation)
    }
    if annotations and "from __future__ import annotations" not in source:
        yield "annotations are evaluated"
    for node in ast.walk(tree):
        # Of several with statements in parentheses, match and except*, the first is parsed in any case.
        if isinstance(node, (ast.Match, ast.TryStar)):
            yield type(node).__name__
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in annotations:
            if any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right)):
                yield "a union of types"
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func).rpartition(".")[2]
            yield from (f"{function}({k.arg})" for k in node.keywords if NEWER_KEYWORDS.get(k.arg or "") == function)
        elif isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) not in NOT_OF_THE_LIBRARY:
            yield from NEWER_NAMES & {getattr(node, "attr", ""), getattr(node, "id", "")}
        elif isinstance(node, ast.ImportFrom):
            yield from NEWER_NAMES & {name.name for name in node.names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_oldest_python_runs_it(path: Path) -> None:
    assert list(newer(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1: pass",
        "try: pass\nexcept* OSError: pass",
        "zip(a, b, strict=True)",
        "@dataclass(slots=True)\nclass A: pass",
        "from itertools import pairwise",
        "datetime.UTC",
        "T = str | None",
        "def f(a: int): pass",
    ],
)
def test_what_is_newer_is_seen(source: str) -> None:
    assert list(newer(source))


def test_what_is_older_is_not() -> None:
    assert list(newer("from __future__ import annotations\ndef f(a: int | None) -> str | None: os.chdir(1 | 2)")) == []


@pytest.fixture(scope="module")
def node_calls() -> ModuleType:
    spec = importlib.util.spec_from_file_location("node_calls", ROOT / "tools/node_calls.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_botocore_of_ubuntu_22_04_knows_all_calls(node_calls: ModuleType) -> None:
    """Its package python3-botocore is 1.23.34."""
    calls = list(node_calls.calls())
    assert FACTS["botocore"] == "1.23.34"
    # After a new call, tools/node_calls.py writes the facts again.
    assert {f"{call.service} {call.operation}" for call in calls} == set(FACTS["operations"])
    for call in calls:
        known = FACTS["operations"][f"{call.service} {call.operation}"]
        assert set(call.arguments) <= set(known["input"]), call
        if call.pages:
            assert known["pages"] and call.pages in known["output"], call


def test_a_member_that_is_too_new_is_seen(node_calls: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('aws.call("s3", "put_object", Bucket=1, ChecksumCRC64NVME=2)\n')
    (call,) = node_calls.calls(tmp_path)
    assert set(call.arguments) - set(FACTS["operations"]["s3 put_object"]["input"]) == {"ChecksumCRC64NVME"}
