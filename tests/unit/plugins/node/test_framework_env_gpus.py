"""A new environment on a machine with GPUs proves that its framework uses them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import gpu_proof
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import Environment
from ansible_collections.deeplearning.aws.plugins.modules import framework_env

SEES_ALL = gpu_proof.Answer(imported=True, version="2.13.0+cu130", cuda="13.0", seen=8, computed=True)
Machine = Callable[..., list[tuple[gpu_proof.NodeGpus, Mapping[str, str]]]]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment("pytorch", {"cpu": "", "gpu": ""}, ["3.11"], ["torch"], folder=tmp_path)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Be a machine with this many GPUs and this answer of the framework. Return what it was asked."""

    def be(gpus: int, answer: gpu_proof.Answer = SEES_ALL) -> list[tuple[gpu_proof.NodeGpus, Mapping[str, str]]]:
        asked: list[tuple[gpu_proof.NodeGpus, Mapping[str, str]]] = []
        monkeypatch.setattr(gpu_proof, "driver_gpus", lambda: gpus)
        monkeypatch.setattr(gpu_proof, "driver_version", lambda: "580.105.08")
        monkeypatch.setattr(gpu_proof, "prove", lambda *question: asked.append(question) or answer)
        return asked

    return be


def test_the_framework_is_asked_in_its_own_environment(
    environment: Environment, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = machine(8)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    framework_env.prove_gpus(environment)
    ((node, variables),) = asked
    assert (node.framework, node.python, node.gpus) == ("pytorch", str(environment.python), 8)
    assert "PYTHONPATH" not in variables and variables["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("gpus", "processor"), [(0, False), (8, True)])
def test_nothing_is_proved_without_gpus(environment: Environment, machine: Machine, gpus: int, processor: bool) -> None:
    asked = machine(gpus)
    framework_env.prove_gpus(replace(environment, processor=processor))
    assert asked == []


def test_a_framework_that_does_not_see_the_gpus_is_an_error(environment: Environment, machine: Machine) -> None:
    machine(8, replace(SEES_ALL, seen=0, computed=False))
    with pytest.raises(UserError, match=r"torch 2.13.0\+cu130 sees 0 of 8 GPUs \(driver 580.105.08"):
        framework_env.prove_gpus(environment)


def test_memory_that_a_run_uses_is_no_error(environment: Environment, machine: Machine) -> None:
    machine(8, replace(SEES_ALL, computed=False, error="OutOfMemoryError: CUDA out of memory"))
    framework_env.prove_gpus(environment)


@pytest.mark.parametrize(("installed", "proofs"), [(False, 1), (True, 0)])
def test_only_a_new_environment_is_asked(
    environment: Environment, machine: Machine, monkeypatch: pytest.MonkeyPatch, installed: bool, proofs: int
) -> None:
    """One that is there, and gets Horovod or sources, may be in use."""
    asked = machine(8)
    states = iter([{"ready": False, "installed": installed}, {"ready": True, "installed": True}])
    monkeypatch.setattr(framework_env, "inspect", lambda *_arguments: next(states))
    monkeypatch.setattr(framework_env, "install", lambda *_arguments: dict[str, Any]())
    assert framework_env.present(environment, {}, check=False)["ready"]
    assert len(asked) == proofs
