"""List the calls to AWS of the node program, and what an older botocore knows of them.

Nodes use the botocore of their system's packages; the oldest is that of Ubuntu 22.04. Run this after a call was added:

    pip download --no-deps botocore==1.23.34
    python tools/node_calls.py botocore-1.23.34-py3-none-any.whl > tests/unit/node/oldest_botocore.json
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

NODE = Path(__file__).resolve().parents[1] / "files/node/deeplearning"
CALL, PAGES = "call", "pages"
READERS = ("read_range", "stream_object")
READ = ("Bucket", "Key")
"""Methods of the node program's AwsClient. The readers name an object by these two."""
PAGING = "PaginationConfig"
"""Of botocore's paginators, and not in a request."""


class Call(NamedTuple):
    service: str
    operation: str
    arguments: tuple[str, ...]
    pages: str = ""
    """the key of the items, if the answer has pages"""


def calls(folder: Path = NODE) -> Iterator[Call]:
    """Yield the calls whose service and operation are literals, with the names of their arguments."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from _call(node, node.func.attr)


def _call(node: ast.Call, method: str) -> Iterator[Call]:
    names = tuple(keyword.arg for keyword in node.keywords if keyword.arg and keyword.arg != PAGING)
    words = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    if method in READERS:
        yield Call("s3", "get_object", (*READ, *names))
    elif method == CALL and len(words) == 2:
        yield Call(words[0], words[1], names)
    elif method == PAGES and len(words) == 3:
        yield Call(words[0], words[1], names, words[2])


def facts(wheel: Path) -> dict[str, Any]:
    """Return the members of each operation's request, inner ones as `Filters[].Name`, and those of its answer."""
    with zipfile.ZipFile(wheel) as file:
        known: dict[str, Any] = {}
        for service, operation in sorted({call[:2] for call in calls()}):
            model = _load(file, service, "service-2")
            paginators = _load(file, service, "paginators-1")["pagination"]
            (name,) = [name for name in model["operations"] if _snake_case(name) == operation]
            request, answer = (model["operations"][name].get(kind, {}).get("shape") for kind in ("input", "output"))
            known[f"{service} {operation}"] = {
                "input": sorted(_members(model["shapes"], request)),
                "output": sorted(model["shapes"].get(answer, {}).get("members", {})),
                "pages": name in paginators,
            }
    return {"botocore": wheel.name.split("-")[1], "operations": known}


def _members(shapes: dict[str, Any], name: str | None, path: str = "") -> Iterator[str]:
    """Yield the paths of members. No request of these calls has a structure within itself."""
    shape = shapes.get(name or "", {})
    if shape.get("type") == "list":
        yield from _members(shapes, shape["member"]["shape"], f"{path}[]")
    for member, of in shape.get("members", {}).items():
        inner = f"{path}.{member}" if path else member
        yield inner
        yield from _members(shapes, of["shape"], inner)


def _load(file: zipfile.ZipFile, service: str, kind: str) -> dict[str, Any]:
    paths = [name for name in file.namelist() if re.fullmatch(rf"botocore/data/{service}/[\d-]+/{kind}\.json", name)]
    content: dict[str, Any] = json.loads(file.read(max(paths)))
    return content


def _snake_case(name: str) -> str:
    """Return botocore's name of a method, for operations without abbreviations but a final V2."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    print(json.dumps(facts(Path(sys.argv[1])), indent=1))
