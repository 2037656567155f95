"""MXNet's environment for GPUs, installed whole (4 GB) on this machine, with a stand-in for the driver's library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.node import python_env
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import Environment

from localcloud.image import features

DRIVER_FUNCTIONS = (
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuGetErrorString",
    "cuGraphKernelNodeGetParams",
    "cuGraphNodeGetType",
    "cuLaunchKernel",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
)
"""What libmxnet.so needs of libcuda.so.1 (nm -D --undefined-only)."""
NO_DEVICE = 100
REPORT = """
import mxnet
from mxnet.runtime import Features
print(mxnet.nd.ones(3).sum().asscalar(), mxnet.context.num_gpus())
print(*(name for name in ("CUDA", "CUDNN", "NCCL", "DIST_KVSTORE") if Features().is_enabled(name)))
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with NVIDIA's driver that has no GPU."""
    source, folder = tmp_path / "driver.c", tmp_path / "driver"
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in DRIVER_FUNCTIONS))
    folder.mkdir()
    library = folder / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setattr(python_env, "DRIVER", library)


@pytest.mark.long
@pytest.mark.usefixtures("driver")
def test_mxnet_for_gpus_is_installed_and_imported(tmp_path: Path) -> None:
    fields = {name: value for name, value in features.needs("mxnet").items() if name not in ("libraries", "horovod")}
    environment = Environment(**fields, folder=tmp_path / "env")
    marker = python_env.install(environment)
    assert marker["versions"]["mxnet-cu112"] == "1.9.1"
    report = subprocess.run([environment.python, "-c", REPORT], stdout=subprocess.PIPE, text=True, check=True)
    assert report.stdout.splitlines() == ["3.0 0", "CUDA CUDNN NCCL DIST_KVSTORE"]
