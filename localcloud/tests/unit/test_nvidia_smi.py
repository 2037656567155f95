"""The stand-in for nvidia-smi that machines of GPU types find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.machines.nspawn import files_for, nvidia_smi
from localcloud.tests.unit.views_kit import machine

GPUS = machine(10, id="i-0123456789abcdef0", gpus=2, gpu_name="NVIDIA V100", gpu_memory_mib=16384)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = folder / "nvidia-smi"
    program.write_text(nvidia_smi(GPUS), encoding="utf-8")
    return subprocess.run([sys.executable, "-ES", program, *words], capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("option", ["-L", "--list-gpus"])
def test_the_list(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, option)
    assert done.returncode == 0
    assert done.stdout == (
        "GPU 0: NVIDIA V100 (UUID: GPU-01234567-0000-0000-0000-000000000000)\n"
        "GPU 1: NVIDIA V100 (UUID: GPU-01234567-0000-0000-0000-000000000001)\n"
    )


@pytest.mark.parametrize(
    "query, form, lines",
    [
        ("index,name", "csv,noheader", ["0, NVIDIA V100", "1, NVIDIA V100"]),
        ("index, memory.total", "csv", ["index, memory.total [MiB]", "0, 16384 MiB", "1, 16384 MiB"]),
        ("memory.total", "csv,noheader,nounits", ["16384", "16384"]),
        ("count", "csv,noheader", ["2", "2"]),
        ("index,utilization.gpu", "csv,noheader", ["0, [N/A]", "1, [N/A]"]),
    ],
)
def test_queries(tmp_path: Path, query: str, form: str, lines: list[str]) -> None:
    done = run(tmp_path, f"--query-gpu={query}", f"--format={form}")
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


@pytest.mark.parametrize("words", [[], ["-q"], ["--query-gpu=name"], ["--query-gpu=name", "--format=xml"]])
def test_whatever_else_is_asked_it_says_that_there_is_nothing_behind_it(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPUs are made up" in done.stderr


def test_only_types_with_gpus_have_it() -> None:
    assert files_for(GPUS)["/usr/bin/nvidia-smi"][0] == 0o755
    assert "/usr/bin/nvidia-smi" not in files_for(machine(10))
