"""What TensorPack's FasterRCNN example imports and uses, and the pins that have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.fasterrcnn import NAMES

FILES = Path(__file__).resolve().parents[3] / "roles/framework/files/tensorpack"


def pins(build: str, python: str) -> dict[str, str]:
    text = (FILES / f"requirements-{build}.txt").read_text(encoding="utf-8")
    lines = re.findall(r"^([a-z][^\\\n]*)", text, re.M)
    here = {"python_full_version": f"{python}.0", "python_version": python}
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(here)]
    return {pin.name.removesuffix("-cpu"): str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("python", ["3.10", "3.11"])
@pytest.mark.parametrize("build", ["cpu", "gpu"])
def test_the_pins_have_what_the_example_imports(build: str, python: str) -> None:
    pinned = pins(build, python)
    assert {package for _name, package, _versions in NAMES} <= pinned.keys()
    assert [name for name, package, versions in NAMES if pinned[package] not in SpecifierSet(versions)] == []
