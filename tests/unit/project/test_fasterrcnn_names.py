"""What TensorPack's FasterRCNN example imports and uses, and the pins that have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

FILES = Path(__file__).resolve().parents[3] / "roles/framework/files/tensorpack"
NAMES = [
    # name, package, versions that have it
    ("cv2.resize", "opencv-python-headless", ""),
    ("numpy.int", "numpy", "<1.24"),
    ("numpy.bool", "numpy", "<1.24"),
    ("pycocotools.coco.COCO", "pycocotools", ""),
    ("pycocotools.cocoeval.COCOeval", "pycocotools", ""),
    ("pycocotools.mask.iou", "pycocotools", ""),
    ("scipy.interpolate.interp2d", "scipy", "<1.14"),
    ("six.string_types", "six", ""),
    ("tabulate.tabulate", "tabulate", ""),
    ("termcolor.colored", "termcolor", ""),
    ("tqdm.tqdm", "tqdm", ""),
    ("tensorflow.compat.v1.random_normal", "tensorflow", "<2.16"),
    ("tensorpack.tfv1", "tensorpack", "==0.11"),
    ("tensorpack.callbacks.Callback", "tensorpack", "==0.11"),
    ("tensorpack.dataflow.imgaug.ResizeTransform", "tensorpack", "==0.11"),
    ("tensorpack.models.l2_regularizer", "tensorpack", "==0.11"),
    ("tensorpack.tfutils.collect_env_info", "tensorpack", "==0.11"),
    ("tensorpack.tfutils.varreplace.custom_getter_scope", "tensorpack", "==0.11"),
    ("tensorpack.utils.palette.PALETTE_RGB", "tensorpack", "==0.11"),
    # Imported by pycocotools, and by TensorPack to receive data.
    ("matplotlib.pyplot.figure", "matplotlib", ""),
    ("ujson.loads", "ujson", ""),
]
"""Not tensorflow.contrib, which only a test in one of the example's files needs. Horovod is built, not pinned."""
PROGRAM = f"""
import importlib
for name in {[name for name, _package, _versions in NAMES]!r}:
    module, _, attribute = name.rpartition(".")
    getattr(importlib.import_module(module), attribute)
print("complete")
"""
"""Run in the environment by tests/integration/test_tensorpack.py."""


def pins(build: str, python: str) -> dict[str, str]:
    text = (FILES / f"requirements-{build}.txt").read_text(encoding="utf-8")
    lines = re.findall(r"^([a-z][^\\\n]*)", text, re.M)
    here = {"python_full_version": f"{python}.0", "python_version": python}
    found = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(here)]
    return {pin.name.removesuffix("-cpu"): str(pin.specifier).removeprefix("==") for pin in found}


@pytest.mark.parametrize("python", ["3.10", "3.11"])
@pytest.mark.parametrize("build", ["cpu", "gpu"])
def test_the_pins_have_what_the_example_imports(build: str, python: str) -> None:
    pinned = pins(build, python)
    assert {package for _name, package, _versions in NAMES} <= pinned.keys()
    assert [name for name, package, versions in NAMES if pinned[package] not in SpecifierSet(versions)] == []
