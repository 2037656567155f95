"""The reading of NVIDIA's library, made by a process of its own from a library that has made-up GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from deeplearning.gpus import nvml
from deeplearning.gpus.reading import Gpu, Reading

from tests.nvml import Gpus

GIB = 2**30


def describe_all(gpus: Gpus) -> None:
    gpus.set(
        count=8,
        memory_total=80 * GIB,
        memory_used=2 * GIB,
        memory_reserved=GIB,
        busy=97,
        ecc_uncorrected=2**40,
        remapped_rows="2 1 1 0",
        mig=0,
        gpu7_bus_id="00000000:53:00.0",
        gpu7_processes=f"41:1024 42:{2**64 - 1}",
    )


def test_all_of_eight_gpus(gpus: Gpus) -> None:
    describe_all(gpus)
    reading = nvml.read()
    assert (reading.driver, reading.error) == ("595.91.07", None)
    assert [gpu.index for gpu in reading.gpus] == list(range(8))
    assert reading.gpus[7] == Gpu(
        index=7,
        bus_id="00000000:53:00.0",
        memory_total=80 * GIB,
        memory_used=2 * GIB,
        busy_percent=97,
        ecc_uncorrected=2**40,
        remapping_pending=True,
        remapping_failed=False,
        mig=False,
        processes=(41, 42),
    )
    gpus.set(mig=1, remapped_rows="0 0 0 1")
    gpu = nvml.read().gpus[0]
    assert (gpu.mig, gpu.remapping_pending, gpu.remapping_failed) == (True, False, True)


def test_more_processes_than_expected(gpus: Gpus) -> None:
    gpus.set(count=1, processes=" ".join(f"{pid}:{pid * 10}" for pid in range(1, 201)))
    assert nvml.read().gpus[0].processes[199] == 200


def test_what_a_gpu_does_not_support_is_none(gpus: Gpus) -> None:
    gpus.set(count=1)
    assert nvml.read().gpus == (Gpu(index=0),)


def test_a_gpu_that_is_lost_leaves_the_others(gpus: Gpus) -> None:
    describe_all(gpus)
    gpus.set(gpu3_lost=1)
    reading = nvml.read()
    assert reading.gpus[3] == Gpu(index=3, lost="GPU is lost")
    assert [gpu.lost for gpu in reading.gpus].count(None) == 7 and reading.gpus[4].bus_id is None


def test_a_library_that_hangs(gpus: Gpus) -> None:
    gpus.set(count=8, gpu5_hang=1)
    started = time.monotonic()
    assert nvml.read(0.5) == Reading(error="NVIDIA's library gives no answer within 0.5 s")
    assert time.monotonic() - started < 100 * 0.5


def test_a_slow_driver_is_waited_for(gpus: Gpus) -> None:
    gpus.set(count=1, delay_ms=20)
    assert len(nvml.read(30).gpus) == 1


def test_a_process_that_cannot_be_killed_is_left_alone(monkeypatch: pytest.MonkeyPatch, gpus: Gpus) -> None:
    gpus.set(count=1, hang=1)
    kill, groups = os.killpg, list[int]()
    monkeypatch.setattr(os, "killpg", lambda group, number: groups.append(group))
    assert nvml.read(0.2).error == "NVIDIA's library gives no answer within 0.2 s"
    (child,) = groups
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_no_driver(gpus: Gpus) -> None:
    assert nvml.read() == Reading(error="NVIDIA's library cannot be used: Driver Not Loaded")


def test_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    reading = nvml.read()
    assert reading.gpus == () and reading.error is not None
    assert reading.error.startswith("NVIDIA's library cannot be loaded: libnvidia-ml.so.1: cannot open shared object")


def compile_library(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    (folder / "own.c").write_text(source, encoding="ascii")
    command = ["cc", "-shared", "-fPIC", "-o", f"{folder}/libnvidia-ml.so.1", f"{folder}/own.c"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


FEW = """
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return %s; }
const char *nvmlErrorString(int code) { return code == 16 ? "GPU requires reset" : 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *info) { info[0] = 7; info[2] = 5; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, unsigned *processes) {
    *count = 1; processes[0] = 41; return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { return 999; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) { return %s; }
"""


def test_functions_that_an_old_driver_lacks(gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_library(tmp_path, monkeypatch, FEW % ("0", "3"))
    expected = [Gpu(index=index, memory_total=7, memory_used=5, processes=(41,)) for index in range(2)]
    assert nvml.read() == Reading(gpus=tuple(expected))


@pytest.mark.parametrize(
    "handle, mig, words",
    [
        ("0", "16", "GPU requires reset"),
        ("0", "15", "NVML's error 15"),
        ("index ? 999 : 16", "0", "GPU requires reset"),
    ],
)
def test_devices_that_answer_nothing(
    handle: str, mig: str, words: str, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_library(tmp_path, monkeypatch, FEW % (handle, mig))
    assert nvml.read().gpus[0] == Gpu(index=0, lost=words)


def test_a_library_that_ends_its_process(gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_library(tmp_path, monkeypatch, "#include <stdlib.h>\nint nvmlInit_v2(void) { abort(); }")
    assert nvml.read().error == "NVIDIA's library has ended the process that uses it: code -6"


def test_the_process_uses_nothing_of_its_environment(
    gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's timers read the GPUs, and training code may write to folders that they pass through."""
    gpus.set(count=1)
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')", encoding="ascii")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert nvml.read().error is None and "PYTHONPATH" in os.environ
