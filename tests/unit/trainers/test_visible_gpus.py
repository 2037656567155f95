"""Trainers end if they do not see the GPUs that the launcher gives them. The frameworks here are stand-ins."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import fasterrcnn
import preflight
import pytest
import visible_gpus


@pytest.mark.parametrize(("expected", "seen"), [("", 0), ("0", 0), ("2", 2), ("2", 8)])
def test_enough_gpus_are_seen(monkeypatch: pytest.MonkeyPatch, expected: str, seen: int) -> None:
    monkeypatch.setenv("DEEPLEARNING_GPUS", expected)
    visible_gpus.require("torch", lambda: seen)


def test_nothing_is_expected_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPLEARNING_GPUS", raising=False)
    visible_gpus.require("torch", lambda: pytest.fail("the framework was asked"))


def test_too_few_gpus_end_the_process_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLEARNING_GPUS", "8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(SystemExit, match=r"torch sees 2 of this process's 8 GPUs \(CUDA_VISIBLE_DEVICES is 0,1\)"):
        visible_gpus.require("torch", lambda: 2)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (12, 0)])
def test_gpus_that_have_bfloat16_use_it(capability: tuple[int, int]) -> None:
    visible_gpus.require_bfloat16(capability)


def test_bfloat16_is_not_emulated() -> None:
    with pytest.raises(SystemExit, match=r"this GPU \(compute capability 7.5\) has no bfloat16, .*: leave it out"):
        visible_gpus.require_bfloat16((7, 5))


def blind(name: str) -> dict[str, Any]:
    """Return the modules of a framework that sees no GPU."""
    none = SimpleNamespace(
        distributed=None,
        cuda=SimpleNamespace(is_available=lambda: False),
        config=SimpleNamespace(list_physical_devices=lambda kind: []),
        context=SimpleNamespace(num_gpus=lambda: 0),
    )
    return {name: none, f"{name}.distributed": none}


@pytest.mark.parametrize(
    ("package", "framework", "distribution"),
    [
        ("torch", "pytorch", "ddp"),
        ("tensorflow", "tensorflow", "multi_worker_mirrored"),
        ("mxnet", "mxnet", "dist_sync"),
    ],
)
def test_the_preflight_does_not_fall_back_to_the_processor(
    monkeypatch: pytest.MonkeyPatch, package: str, framework: str, distribution: str
) -> None:
    for name, module in blind(package).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("DEEPLEARNING_GPUS", "1")
    with pytest.raises(SystemExit, match=f"{package} sees 0 of this process's 1 GPUs"):
        preflight.exchange_of(distribution)


def test_nor_does_horovod_of_tensorpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", blind("tensorflow")["tensorflow"])
    hvd = SimpleNamespace(init=lambda: None, local_rank=lambda: 0)
    monkeypatch.setitem(sys.modules, "horovod", SimpleNamespace(tensorflow=hvd))
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)
    monkeypatch.setenv("DEEPLEARNING_GPUS", "1")
    with pytest.raises(SystemExit, match="tensorflow sees 0 of this process's 1 GPUs"):
        preflight.exchange_of("horovod")


def test_an_example_without_tensorflow_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEPLEARNING_GPUS", "1")
    (tmp_path / "train.py").write_text("open('started', 'w')\n")
    fasterrcnn.execute(tmp_path, ["train.py"])
    assert (tmp_path / "started").exists()


def test_nor_does_the_front_of_mask_rcnn(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", blind("tensorflow")["tensorflow"])
    monkeypatch.setenv("DEEPLEARNING_GPUS", "1")
    with pytest.raises(SystemExit, match="tensorflow sees 0 of this process's 1 GPUs"):
        fasterrcnn.execute(tmp_path, ["train.py"])
