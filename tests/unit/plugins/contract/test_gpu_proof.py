"""Whether a framework uses a node's GPUs, and the sentence if it does not. The packages here are stand-ins."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import framework_probe, gpu_proof
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.gpu_proof import Answer, NodeGpus

CONTRACT = Path(gpu_proof.__file__).parent
NODE = NodeGpus("pytorch", "/opt/deeplearning/env/pytorch/bin/python", 8, "580.105.08", processor="x86_64")
CUDA = {"library": "", "error": "", "cuda": "13.0", "devices": 8}
GOOD = Answer(imported=True, version="2.13.0+cu130", cuda="13.0", seen=8, computed=True, driver=CUDA)
BLIND = replace(GOOD, seen=0, computed=False, driver={**CUDA, "devices": 0})


def test_all_devices_and_a_product_are_a_proof() -> None:
    assert gpu_proof.problem_of(NODE, GOOD) == ""
    assert gpu_proof.problem_of(NODE, replace(GOOD, seen=7)) != ""
    assert gpu_proof.problem_of(NODE, replace(GOOD, computed=False)) != ""


def test_a_python_of_the_users_without_the_package_is_not_judged() -> None:
    """It trains with something else."""
    missing = Answer(missing=True, error="ModuleNotFoundError: No module named 'torch'", driver=CUDA)
    assert gpu_proof.problem_of(replace(NODE, own_python=True), missing) == ""
    assert "torch cannot be imported" in gpu_proof.problem_of(NODE, missing)


OWN = {"own_python": True, "python": "/efs/env/bin/python"}
NO_LIBCUDA = "libcuda.so.1: cannot open shared object file: No such file or directory"
OLD = replace(BLIND, driver={**CUDA, "cuda": "12.2", "devices": 8})
SIX_OF_CUDA_12 = {"imported": True, "version": "2.21.0", "cuda": "12.5.1"}


@pytest.mark.parametrize(
    ("node", "answer", "parts"),
    [
        pytest.param(
            {"driver": "535.183.01"}, OLD,
            ["torch 2.13.0+cu130 sees 0 of 8 GPUs (driver 535.183.01, CUDA of torch: 13.0)", "CUDA 12.2 at most",
             "needs driver 580.65.06 or newer", "cluster_image"],
            id="a driver that is too old",
        ),
        pytest.param(
            {"mig": (0, 3)}, replace(BLIND, seen=1, driver={**CUDA, "devices": 1}),
            ["sees 1 of 8 GPUs", "MIG is on", "sudo nvidia-smi -i 0,3 -mig 0"],
            id="MIG",
        ),
        pytest.param(
            {}, replace(BLIND, seen=7, computed=True, driver={**CUDA, "devices": 7}),
            ["sees 7 of 8 GPUs", "CUDA lists 7 devices, while the driver has 8", "terminate the node"],
            id="7 of 8",
        ),
        pytest.param(
            OWN, replace(BLIND, cuda="", version="2.13.0+cpu"),
            ["torch 2.13.0+cpu sees 0 of 8 GPUs", "CUDA of torch: none",
             "/efs/env/bin/python has a build without CUDA: install one with CUDA"],
            id="a build for processors in the user's Python",
        ),
        pytest.param(
            {}, replace(BLIND, cuda="", version="2.13.0+cpu", driver={**CUDA, "library": NO_LIBCUDA}),
            ["its environment has the packages for processors: train.yml installs those for GPUs"],
            id="a build for processors in our environment",
        ),
        pytest.param(
            {"variables": {"CUDA_VISIBLE_DEVICES": "0"}}, replace(BLIND, seen=1, computed=True),
            ["sees 1 of 8 GPUs", "env sets CUDA_VISIBLE_DEVICES to '0': leave it out", "processes_per_node"],
            id="the user's CUDA_VISIBLE_DEVICES",
        ),
        pytest.param(
            {"variables": {"CUDA_VISIBLE_DEVICES": ""}},
            replace(BLIND, driver={**CUDA, "devices": 0, "error": "no CUDA-capable device is detected (100)"}),
            ["env sets CUDA_VISIBLE_DEVICES to '': leave it out"],
            id="the user's empty CUDA_VISIBLE_DEVICES",
        ),
        pytest.param(
            {"variables": {"LD_LIBRARY_PATH": "/usr/local/cuda-11/lib64"}},
            Answer(error="ImportError: libtorch_cuda.so: undefined symbol: cublasLtGetVersion", driver=CUDA),
            ["torch cannot be imported", "undefined symbol", "env sets LD_LIBRARY_PATH to '/usr/local/cuda-11/lib64'",
             "leave it out"],
            id="LD_LIBRARY_PATH that breaks the import",
        ),
        pytest.param(
            {"variables": {"LD_LIBRARY_PATH": "/x"}}, Answer(ended="was ended by SIGSEGV (no output)"),
            ["its process was ended by SIGSEGV", "env sets LD_LIBRARY_PATH to '/x'"],
            id="LD_LIBRARY_PATH that ends the process",
        ),
        pytest.param(
            {"variables": {"LD_LIBRARY_PATH": "/x"}}, replace(BLIND, driver=CUDA),
            ["sees 0 of 8 GPUs", "env sets LD_LIBRARY_PATH to '/x'"],
            id="LD_LIBRARY_PATH that hides the GPUs",
        ),
        pytest.param(
            {"framework": "tensorflow"}, Answer(**SIX_OF_CUDA_12, driver=CUDA),
            ["tensorflow 2.21.0 sees 0 of 8 GPUs", "CUDA itself lists all of them",
             "a library of CUDA cannot be opened", "TF_CPP_MAX_VLOG_LEVEL=3"],
            id="a library that TensorFlow cannot open",
        ),
        pytest.param(
            {"framework": "mxnet"}, Answer(error=f"OSError: {NO_LIBCUDA}", driver={**CUDA, "library": NO_LIBCUDA}),
            ["mxnet cannot be imported", NO_LIBCUDA, "Install NVIDIA's driver"],
            id="no libcuda",
        ),
        pytest.param(
            {"processor": "aarch64"}, Answer(error="ImportError: wrong ELF class", driver=CUDA),
            ["the node's processor is aarch64, and the packages are for x86_64", "Intel or AMD"],
            id="arm64",
        ),
        pytest.param(
            {}, replace(BLIND, driver={**CUDA, "devices": 0, "error": "system not yet initialized (802)"}),
            ["system not yet initialized (802)", "sudo systemctl start nvidia-fabricmanager"],
            id="no fabric manager",
        ),
        pytest.param(
            {}, replace(BLIND, driver={**CUDA, "devices": 0, "error": "unknown error (999)"}),
            ["unknown error (999)", "Look for Xid in `dmesg`"],
            id="an error of the driver",
        ),
        pytest.param(
            {}, replace(GOOD, computed=False, error="RuntimeError: CUDA error: no kernel image is available"),
            ["sees 8 GPUs and cannot compute on one", "no kernel image", "choose another instance type"],
            id="no kernels for the GPU",
        ),
        pytest.param(
            {}, replace(GOOD, computed=False, error="OutOfMemoryError: CUDA out of memory"),
            ["cannot compute on one", "Another process uses the GPU's memory"],
            id="memory that is still in use",
        ),
        pytest.param(
            {}, replace(GOOD, computed=False),
            ["a product of matrices is wrong", "Terminate the node"],
            id="a wrong product",
        ),
        pytest.param(
            {}, Answer(ended="gave no answer within 180 s"),
            ["torch gives no answer (driver", "its process gave no answer within 180 s", "does `nvidia-smi` answer?"],
            id="a driver that hangs",
        ),
        pytest.param(
            {}, Answer(error="ImportError: libcudnn.so.9: file too short", driver=CUDA),
            ["libcudnn.so.9: file too short: remove /opt/deeplearning/env/pytorch on the node"],
            id="a damaged environment",
        ),
    ],
)  # fmt: skip
def test_each_cause_has_its_sentence(node: dict[str, Any], answer: Answer, parts: list[str]) -> None:
    sentence = gpu_proof.problem_of(replace(NODE, **node), answer)
    assert [part for part in parts if part not in sentence] == [], sentence
    assert sentence.endswith("To train without GPUs: -e processor=true") and "\n" not in sentence


def test_a_newer_minor_version_of_cuda_is_no_reason() -> None:
    """CUDA 12.5 runs on a driver with 12.2."""
    answer = Answer(imported=True, version="2.21.0", cuda="12.5.1", driver={**CUDA, "cuda": "12.2"})
    assert "needs" not in gpu_proof.problem_of(replace(NODE, framework="tensorflow"), answer)


TORCH = """
import os
__version__ = "2.0+stand-in"
print("a line of the framework's")
class version: cuda = os.environ.get("STAND_IN_CUDA", "13.0")
class cuda:
    device_count = staticmethod(lambda: int(os.environ["STAND_IN_GPUS"]))
    is_available = staticmethod(lambda: os.environ["STAND_IN_GPUS"] != "0")
class Tensor:
    def __init__(self, value): self.value = value
    def to(self, device):
        if "STAND_IN_ERROR" in os.environ: raise RuntimeError(os.environ["STAND_IN_ERROR"])
        return self
    def __matmul__(self, other): return Tensor(float(os.environ.get("STAND_IN_PRODUCT", 256)))
    def __getitem__(self, key): return self
    def item(self): return self.value
def ones(*size): return Tensor(1.0)
"""
TENSORFLOW = """
import contextlib, os
__version__ = "2.21.0"
class config:
    list_physical_devices = staticmethod(lambda kind: [0] * int(os.environ["STAND_IN_GPUS"]))
    set_visible_devices = staticmethod(lambda devices, kind: None)
class sysconfig:
    get_build_info = staticmethod(lambda: {"cuda_version": "12.5.1"} if "STAND_IN_CUDA" not in os.environ else {})
device = lambda name: contextlib.nullcontext()
constant = lambda values: values
class matmul:
    def __init__(self, a, b): self.value = float(len(a))
    def __getitem__(self, key): return self
    def numpy(self): return self.value
"""
MXNET = """
import os
__version__ = "1.9.1"
class runtime:
    class Features:
        def is_enabled(self, name): return "STAND_IN_CUDA" not in os.environ
class context:
    num_gpus = staticmethod(lambda: int(os.environ["STAND_IN_GPUS"]))
gpu = int
class Value:
    def __init__(self, value): self.value = value
    def __getitem__(self, key): return self
    def asscalar(self): return self.value
class nd:
    array = staticmethod(lambda values, ctx: values)
    dot = staticmethod(lambda a, b: Value(float(len(a))))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with stand-ins for the frameworks, which count as many GPUs as STAND_IN_GPUS."""
    for name, text in (("torch", TORCH), ("tensorflow", TENSORFLOW), ("mxnet", MXNET)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def prove(packages: Path, framework: str = "pytorch", seconds: float = 30, **variables: str) -> Answer:
    node = replace(NODE, framework=framework, python=sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(packages), "STAND_IN_GPUS": "8", **variables}
    return gpu_proof.prove(node, environment, seconds)


@pytest.mark.parametrize(
    ("framework", "version", "cuda"),
    [
        ("pytorch", "2.0+stand-in", "13.0"),
        ("tensorflow", "2.21.0", "12.5.1"),
        ("tensorpack", "2.21.0", "12.5.1"),
        ("mxnet", "1.9.1", "11.2"),
    ],
)
def test_a_framework_answers(packages: Path, framework: str, version: str, cuda: str) -> None:
    answer = prove(packages, framework)
    assert (answer.version, answer.cuda, answer.seen, answer.computed) == (version, cuda, 8, True)
    assert gpu_proof.problem_of(replace(NODE, framework=framework), answer) == ""
    answer = prove(packages, framework, STAND_IN_GPUS="0")
    assert (answer.imported, answer.seen, answer.computed) == (True, 0, False)
    answer = prove(packages, framework, STAND_IN_GPUS="0", STAND_IN_CUDA="")
    assert (answer.cuda, answer.error) == ("", "")
    assert "the packages for processors" in gpu_proof.problem_of(NODE, answer)


def test_a_product_that_fails_or_is_wrong_is_no_proof(packages: Path) -> None:
    answer = prove(packages, STAND_IN_ERROR="CUDA error: out of memory\nCompile with ...\n")
    assert (answer.seen, answer.computed, answer.error) == (8, False, "RuntimeError: CUDA error: out of memory")
    assert gpu_proof.is_out_of_memory(answer)
    assert not prove(packages, STAND_IN_PRODUCT="255").computed


def test_a_framework_without_gpus_says_why(packages: Path) -> None:
    answer = prove(packages, STAND_IN_GPUS="0", STAND_IN_ERROR="No CUDA GPUs are available")
    assert (answer.seen, answer.computed, answer.error) == (0, False, "RuntimeError: No CUDA GPUs are available")
    sentence = gpu_proof.problem_of(NODE, replace(answer, driver=CUDA))
    assert "CUDA itself lists all of them (RuntimeError: No CUDA GPUs are available): remove /opt/" in sentence
    assert ".." not in sentence


def test_a_package_that_cannot_be_imported_is_told_from_one_that_is_missing(packages: Path) -> None:
    (packages / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')\n")
    answer = prove(packages)
    assert (answer.imported, answer.missing) == (False, False)
    assert answer.error == "OSError: libcudart.so.13: cannot open shared object file"
    (packages / "torch.py").write_text("import nowhere\n")
    assert not prove(packages).missing
    (packages / "torch.py").unlink()
    assert prove(packages).missing


def test_a_process_that_gives_no_answer_is_left_alone(packages: Path) -> None:
    (packages / "torch.py").write_text("import os\nos.read(os.pipe()[0], 1)\n")
    started = time.monotonic()
    answer = prove(packages, seconds=1)
    assert answer.ended == "gave no answer within 1 s" and time.monotonic() - started < 100 * 1


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV (no output)"),
        (
            "import os, sys; print('x: undefined symbol: cuInit, error', file=sys.stderr, flush=True); os._exit(3)",
            "ended with 3 (x: undefined symbol: cuInit, error)",
        ),
    ],
)
def test_how_a_process_without_an_answer_has_ended(packages: Path, line: str, ended: str) -> None:
    (packages / "torch.py").write_text(f"{line}\n")
    assert prove(packages).ended == ended


def test_a_reason_is_one_line_that_can_be_printed() -> None:
    text = "MXNetError: Traceback (most recent call last):\n  File x, line 9\nMXNetError: CUDA error\x1b: no.\nmore"
    assert gpu_proof.reason_of(text) == "MXNetError: CUDA error : no"
    assert gpu_proof.reason_of("") == "no output"
    assert len(gpu_proof.reason_of("x" * 1000)) == 300


class Driver:
    """A stand-in for libcuda."""

    def __init__(self, version: int = 12020, code: int = 0, devices: int = 8) -> None:
        self.version, self.code, self.devices = version, code, devices

    def cuDriverGetVersion(self, pointer: Any) -> int:
        pointer._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:
        return self.code

    def cuGetErrorString(self, code: int, pointer: Any) -> None:
        pointer._obj.value = b"no CUDA-capable device is detected"

    def cuDeviceGetCount(self, pointer: Any) -> int:
        pointer._obj.value = self.devices
        return 0


def test_the_drivers_own_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_probe, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": lambda name: Driver()}))
    assert framework_probe.driver() == {"library": "", "error": "", "cuda": "12.2", "devices": 8}
    failing = SimpleNamespace(**vars(ctypes) | {"CDLL": lambda name: Driver(13000, code=100)})
    monkeypatch.setattr(framework_probe, "ctypes", failing)
    error = "no CUDA-capable device is detected (100)"
    assert framework_probe.driver() == {"library": "", "error": error, "cuda": "13.0", "devices": 0}


def test_a_library_that_cannot_be_opened_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_probe, "LIBRARY", "libnowhere.so.1")
    assert framework_probe.driver()["library"].startswith("libnowhere.so.1: cannot open shared object file")


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (root@x)",
            "580.105.08",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91  Release Build", "595.91"),
        ("something else", ""),
        (None, ""),
    ],
)
def test_the_kernel_module_says_its_version_and_its_gpus(tmp_path: Path, line: str | None, version: str) -> None:
    if line:
        (tmp_path / "version").write_text(f"{line}\nGCC version: gcc 12.2.0\n")
    assert gpu_proof.driver_version(str(tmp_path)) == version
    assert gpu_proof.driver_gpus(str(tmp_path)) == 0
    for bus in ("0000:10:1c.0", "0000:20:1c.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
    assert gpu_proof.driver_gpus(str(tmp_path)) == 2


def test_the_text_of_the_probe_is_found_in_a_module_that_ansible_packs(packages: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "module.zip", "w") as archive:
        for name in ("__init__", "bounded_program", "framework_probe", "frameworks", "gpu_proof", "paths"):
            archive.write(CONTRACT / f"{name}.py", f"contract/{name}.py")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'module.zip')!r}); from contract import gpu_proof as p; "
        "import os; print(p.prove(p.NodeGpus('pytorch', sys.executable, 8), os.environ).seen)"
    )
    environment = {**os.environ, "PYTHONPATH": str(packages), "STAND_IN_GPUS": "8"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == 8
