"""The names of TensorFlow that TensorPack's sources use are in the pinned wheel, or their lines are never reached."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import TENSORPACK_COMMIT

from tools.tensorflow_names import FILE, Names

ROOT = Path(__file__).resolve().parents[3]
RECORD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
NEVER_REACHED = {
    r"tensorflow\.compat\.v2\.image\.resize_images": "model_fpn.py catches AttributeError and takes another function",
    r"tensorflow\.(compat\.v1\.)?contrib\.layers\.": "models/conv2d.py, fc.py, regularize.py: up to TensorFlow 1.12",
    r"tensorflow\.contrib\.nccl\b": "graph_builder/utils.py, models/batch_norm.py: up to TensorFlow 1.12",
    r"tensorflow\.contrib\.compiler\.xla": "train/tower.py catches ImportError and takes another module",
    r"tensorflow\.contrib\.graph_editor": "dependency.py, sesscreate.py catch ImportError and take another module",
    r"tensorflow\.contrib\.memory_stats": "callbacks/prof.py catches ImportError and disables GPUMemoryTracker",
    r"tensorflow\.contrib\.training": "graph_builder/distributed.py: parameter servers",
    r"tensorflow\.layers\.dropout": "models/regularize.py: up to TensorFlow 1.12",
    r"tensorflow\.python\.layers\.normalization": "models/tflayer.py: before TensorFlow 1.4",
    r"tensorflow\.python\.util\.deprecation_wrapper": "libinfo.py catches every exception",
    r"tensorflow\.saved_model\.tag_constants": "tfutils/export.py: before TensorFlow 1.12",
    r"tensorflow\.(Event|RunOptions)\b": "callbacks/prof.py: GraphProfiler, which the example does not use",
    r"tensorflow\.train\.SessionRunArgs": "callbacks/prof.py: GraphProfiler, or GPUMemoryTracker where it is enabled",
    r"tensorflow\.(Print|log)$": "symbolic_functions.py: print_stat and psnr, which the example does not use",
    r"tensorflow\.check_numerics": "tfutils/gradproc.py: CheckGradient, which the example does not use",
    r"tensorflow\.FIFOQueue": "BatchQueueInput and parameter servers; the example's QueueInput takes tfv1.FIFOQueue",
    r"tensorflow\.(local_variables|model_variables)$": "graph_builder/distributed.py: parameter servers",
    r"tensorflow\.(local_variables_initializer|global_variables_initializer)": "tfutils/distributed.py: no Horovod",
    r"tensorflow\.(logging|report_uninitialized_variables)": "tfutils/distributed.py: parameter servers",
    r"tensorflow\.train\.(SessionCreator|SessionManager)": "tfutils/distributed.py: parameter servers",
    r"tensorflow\.train\.replica_device_setter": "graph_builder: TRAINER=replicated, and parameter servers",
    r"tensorflow\.get_default_graph": "parameter servers; optimizer.py: PostProcessOptimizer, which is not used",
    r"tensorflow\.use_scope": "models/linearwrap.py: `layer` is a layer of TensorPack there",
}


def lacking(names: list[str], old_names: tuple[str, ...] = ()) -> list[str]:
    """Return the names that TensorFlow's modules do not have. Attributes of classes are not checked."""
    exports = {module: set(words.split()) for module, words in RECORD["exports"].items()}
    exports["tensorflow"] |= set(old_names)
    result = []
    for name in names:
        module = "tensorflow"
        for part in name.split(".")[1:]:
            if part.startswith("__"):
                break
            private = name.startswith("tensorflow.python.")
            if name not in RECORD["private"] if private else part not in exports[module]:
                result.append(name)
                break
            module += f".{part}"
            if module not in exports:
                break
    return result


def old_names() -> tuple[str, ...]:
    text = (ROOT / "files/trainers/fasterrcnn.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "OLD_NAMES"
    )


@pytest.mark.parametrize("sources", RECORD["names"])
def test_tensorflow_has_what_tensorpack_names(sources: str) -> None:
    rest = lacking(RECORD["names"][sources], old_names())
    assert [name for name in rest if not any(re.match(known, name) for known in NEVER_REACHED)] == []


def test_each_old_name_is_lacking_and_the_old_api_has_it() -> None:
    names = old_names()
    assert [name for name in names if name not in RECORD["exports"]["tensorflow.compat.v1"].split()] == []
    used = {name.split(".")[1] for sources in RECORD["names"].values() for name in lacking(sources)}
    assert set(names) <= used


def test_each_exception_is_needed() -> None:
    names = {name for sources in RECORD["names"].values() for name in lacking(sources, old_names())}
    assert [known for known in NEVER_REACHED if not any(re.match(known, name) for name in names)] == []


def test_the_record_is_of_the_staged_commit_and_the_pinned_wheels() -> None:
    assert RECORD["commit"] == TENSORPACK_COMMIT
    for variant in ("cpu", "gpu"):
        pins = (ROOT / f"roles/framework/files/tensorpack/requirements-{variant}.txt").read_text(encoding="utf-8")
        for package, version in RECORD["versions"].items():
            # The packages for GPUs have no suffix.
            name = package if variant == "cpu" else package.removesuffix("-cpu")
            assert re.search(rf"^{name}=={re.escape(version)} ", pins, re.M), (variant, name, version)


def test_names_are_followed_through_imports() -> None:
    text = """
import tensorflow as tf
from tensorpack import tfv1
from tensorflow.python.ops import nccl_ops
def one(x):
    return tf.nn.relu(tfv1.layers.dense(x)).shape
if __name__ == "__main__":
    tf.placeholder(1)
"""
    assert Names(ast.parse(text)).names == {
        "tensorflow.nn.relu",
        "tensorflow.compat.v1.layers.dense",
        "tensorflow.python.ops.nccl_ops",
    }
