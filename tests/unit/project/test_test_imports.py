"""What test files share is in kits: nothing imports a test file, which would also bring its fixtures and hooks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORT = re.compile(r"^\s*(?:from|import) (?:[\w.]+\.)?test_\w+.*", re.MULTILINE)


def test_nothing_imports_a_test_file() -> None:
    # Scripts in bench have no suffix.
    sources = {
        path: path.read_text(encoding="utf-8")
        for folder in ("tests", "localcloud/tests", "bench", "molecule")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and (path.suffix == ".py" or path.parent == ROOT / "bench")
    }
    assert ROOT / "bench/chaos" in sources and Path(__file__) in sources
    imports = {str(path.relative_to(ROOT)): IMPORT.findall(text) for path, text in sources.items()}
    assert {path: lines for path, lines in imports.items() if lines} == {}
