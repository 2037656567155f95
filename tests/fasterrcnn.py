"""What TensorPack's FasterRCNN example imports and uses, and a program that imports it."""

from __future__ import annotations

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
