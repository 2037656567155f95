"""What machines of GPU types have: a library that answers as NVIDIA's does, and a front of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.core.errors import Refusal
from localcloud.gpu import files, library
from localcloud.machines.nspawn import files_for
from localcloud_kits.debian import installed_program
from localcloud_kits.views_kit import machine

GPUS = machine(10, id="i-0123456789abcdef0", gpus=2, gpu_name="NVIDIA V100", gpu_memory_mib=16384)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_program("cc", "gcc", "libc6-dev")
    monkeypatch.setattr(files, "HOME", tmp_path_factory.getbasetemp())


def run(folder: Path, *words: str, state: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program of a machine on this one."""
    for path, (mode, content) in files.files_for(GPUS).items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    with (folder / "etc/localcloud/gpus").open("a") as file:
        file.write(state)
    environment = {"LD_LIBRARY_PATH": f"{folder}/usr/lib", "LOCALCLOUD_GPUS": f"{folder}/etc/localcloud/gpus"}
    command = [sys.executable, "-ES", folder / "usr/bin/nvidia-smi", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env=os.environ | environment)


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
        ("memory.total,memory.free", "csv,noheader,nounits", ["16384, 16384", "16384, 15872"]),
        ("count,driver_version", "csv,noheader", ["2, 595.91.07", "2, 595.91.07"]),
        ("index,fan.speed", "csv,noheader", ["0, [N/A]", "1, [N/A]"]),
        ("utilization.gpu,memory.used", "csv,noheader", ["0 %, 0 MiB", "97 %, 512 MiB"]),
        ("utilization.gpu,temperature.gpu", "csv,noheader,nounits", ["0, 30", "97, 30"]),
        (
            "uuid,serial,pci.bus_id",
            "csv,noheader",
            [f"GPU-01234567-0000-0000-0000-{n:012d}, 00190887430{n}, 00000000:00:1{n}.0" for n in (0, 1)],
        ),
        ("power.draw,persistence_mode,mig.mode.current", "csv,noheader", ["60.00 W, Disabled, Disabled"] * 2),
        (
            "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total",
            "csv,noheader",
            ["0, 0", "0, 7"],
        ),
    ],
)
def test_queries(tmp_path: Path, query: str, form: str, lines: list[str]) -> None:
    state = f"1.busy 97\n1.memory_used {2**29}\n1.ecc_uncorrected 7\n"
    done = run(tmp_path, f"--query-gpu={query}", f"--format={form}", state=state)
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


def test_a_summary_for_people(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.stdout.splitlines()[1] == "0, NVIDIA V100, 595.91.07, 0 MiB, 16384 MiB, 0 %"


@pytest.mark.parametrize("words", [["-q"], ["--query-gpu=name"], ["--query-gpu=name", "--format=xml"]])
def test_whatever_else_is_asked_it_says_that_there_is_nothing_behind_it(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPUs are made up" in done.stderr


def test_a_gpu_that_is_lost(tmp_path: Path) -> None:
    done = run(tmp_path, "-L", state="1.lost 1\n")
    assert (done.returncode, done.stdout) == (15, "Unable to determine the device handle for GPU1: GPU is lost\n")


def test_only_types_with_gpus_have_it() -> None:
    assert files_for(GPUS)["/usr/bin/nvidia-smi"][0] == 0o755
    others = files_for(machine(10))
    assert not others.keys() & files.files_for(GPUS).keys()


def test_the_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = library.build(tmp_path)
    assert built.name == "libnvidia-ml.so.1" and [path.name for path in built.parent.iterdir()] == [built.name]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert library.build(tmp_path) == built


def test_a_host_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="machines with GPUs need a C compiler on this host: apt-get install gcc"):
        library.build(tmp_path)
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'stdio.h: No such file' >&2; exit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(Refusal, match=r"nvml.c cannot be compiled .*: stdio.h: No such file"):
        library.build(tmp_path)
