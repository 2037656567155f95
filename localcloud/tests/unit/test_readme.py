"""What the README has in tables is what the local cloud has."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import localcloud
from localcloud.core.latency import AWS
from localcloud.gpu import library
from localcloud.image.recipes import read_recipes
from localcloud_kits.cli_kit import COMMANDS, FAULTS

PROJECT = Path(__file__).parents[2]
PACKAGE = Path(localcloud.__file__).parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """From a heading to the next of its kind."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", text.replace("\\|", "/"), re.M)


def test_figures_of_the_latency_profile() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", section("Latencies"), re.M)
    assert {what: float(seconds) for what, seconds in rows} == AWS


def test_faults() -> None:
    named = {name for cell in first_cells(section("Faults")) for name in re.findall(r"`([a-z-]+)", cell)}
    assert named | {"clear"} == set(FAULTS)


def test_commands() -> None:
    assert {cell.strip("`").split()[0] for cell in first_cells(section("Commands"))} == set(COMMANDS)


def test_the_recipe_of_the_page_is_one(tmp_path: Path) -> None:
    file = tmp_path / "recipes.py"
    file.write_text(blocks("Images")[0], encoding="utf-8")
    assert list(read_recipes(file).features) == ["editor"]


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["localcloud.testing.fixtures"]\n', encoding="utf-8")
    example = blocks("Testing")[0].replace('pytest_plugins = ["localcloud.testing.fixtures"]\n', "")
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_each_public_module_is_on_the_page_and_documented() -> None:
    folder = PACKAGE / "testing"
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    named = {name for cell in first_cells(section("Testing")) for name in re.findall(r"`(\w+)`", cell)}
    assert named == modules
    missing = []
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        public = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))]
        missing += [
            f"{path.name}: {name}"
            for node in public
            if not (name := getattr(node, "name", "the module")).startswith("_") and not ast.get_docstring(node)
        ]
    assert missing == []


def blocks(title: str) -> list[str]:
    """Return the Python programs of a section."""
    return re.findall(r"^```python\n(.*?)^```", section(title), re.M | re.S)


def test_each_place_that_it_names_is_there() -> None:
    places = {
        word
        for cell in first_cells(section("For the next developer"))
        for word in re.findall(r"`([^`]+)`", cell)
        if "*" not in word
    }
    missing = [place for place in sorted(places) if not (PROJECT / place).exists() and not (PACKAGE / place).exists()]
    assert missing == []


def test_keys_of_the_state_of_gpus() -> None:
    named = {name for cell in first_cells(section("Machines")) for name in re.findall(r"`([a-z_]+)", cell)}
    source = (Path(library.__file__).with_name("nvml.c")).read_text(encoding="utf-8")
    known = set(re.findall(r'(?:find|number|copy|is_on)\([^"()]+, "([a-z_]+)"', source))
    known |= set(re.findall(r'^(?:TEXT|NUMBER)\(.*"([a-z_]+)"\)', source, re.M)) | {"ecc_uncorrected", "ecc_corrected"}
    assert known <= named and "memory_total" in known and "lost" in known
