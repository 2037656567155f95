"""The role framework on a Debian 12 with NVIDIA's driver and no GPU: what is published for GPUs is installed and
imported, and TensorPack's Horovod is built by a real nvcc. Each downloads 2 to 3 GB and takes 4 to 6 GB of disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from localcloud.testing.images import base_image, connected, overlay, scratch_folder
from tests.gpu import kit

ROOT = Path(__file__).resolve().parents[2]
WHEELS = "/efs/.deeplearning/wheels"

IMPORTS = {
    "mxnet": """
import mxnet
from mxnet.runtime import Features
print(mxnet.__version__, mxnet.nd.ones(3).sum().asscalar(), mxnet.context.num_gpus())
print(*(name for name in ("CUDA", "CUDNN", "NCCL", "DIST_KVSTORE") if Features().is_enabled(name)))
""",
    "pytorch": """
import torch
print(torch.__version__, torch.version.cuda, torch.ones(3).sum().item(), torch.cuda.device_count())
print(torch.backends.cuda.is_built(), torch.distributed.is_nccl_available(), torch.cuda.nccl.version())
import torchvision
boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]])
print(torchvision.__version__, torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist())
""",
    "tensorflow": """
import tensorflow, tf_keras
print(tensorflow.__version__, tensorflow.sysconfig.get_build_info()["cuda_version"], tf_keras.__version__)
print(tensorflow.test.is_built_with_cuda(), float(sum(tensorflow.ones(3))))
print(tensorflow.config.list_physical_devices("GPU"))
""",
    "tensorpack": """
import ctypes, tensorflow, tensorpack.tfutils, horovod.tensorflow
print(tensorflow.__version__, tensorflow.sysconfig.get_build_info()["cuda_version"])
print(horovod.tensorflow.mpi_built(), horovod.tensorflow.nccl_built())
libraries = {line.split()[-1] for line in open("/proc/self/maps")}
print(*sorted(path for path in libraries if "/libnccl.so" in path or "/libmpi.so" in path))
version = ctypes.c_int()
ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
print(version.value)
""",
}
EXPECTED = {
    "mxnet": ["1.9.1 3.0 0", "CUDA CUDNN NCCL DIST_KVSTORE"],
    "pytorch": ["2.13.0+cu130 13.0 3.0 0", "True True (2, 29, 7)", "0.28.0+cu130 [0, 2]"],
    "tensorflow": ["2.21.0 12.5.1 2.21.0", "True 3.0", "[]"],
    "tensorpack": [
        "2.15.1 12.2",
        # Horovod names the NCCL that it was built for.
        "True 22105",
        "/opt/deeplearning/env/tensorpack/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2 "
        "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
        "22105",
    ],
}

BUILD_PACKAGES = """
import json, os
from deeplearning.runs import packages
from deeplearning.runs.folder import Folder
for folder in ("/run-folder", "/build"):
    os.mkdir(folder)
folder = Folder("/run-folder")
folder.write("environment.json", {"environment": {"TORCH_CUDA_ARCH_LIST": "9.0"}})
python = "/opt/deeplearning/env/pytorch/bin/python"
marker = json.load(open(python.replace("bin/python", packages.paths.MARKER)))
chosen = packages.Packages("torchsort==0.1.10", "pytorch", python, marker)
packages.Builder(chosen, "/build", folder).build("/made.tar")
"""
USE_PACKAGES = """
import torch, torchsort, torchsort.isotonic_cuda
print(torchsort.soft_rank(torch.tensor([[8.0, 0, 5, 3, 2]]), regularization_strength=0.1).tolist())
"""


class Machine:
    """A root folder in which the role works as on a node: Ansible's modules run in it."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root = root
        self.python = python
        python.write_text(
            f'#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 exec chroot {root} python3 "$@"\n'
        )
        python.chmod(0o755)

    def run(self, *command: str) -> str:
        return subprocess.run(["chroot", self.root, *command], stdout=subprocess.PIPE, text=True, check=True).stdout

    def install(self, framework: str) -> str:
        """Run the role, and return what it changed."""
        task = {
            "name": "Install the framework",
            "ansible.builtin.include_role": {"name": "deeplearning.aws.framework"},
            "vars": {"framework_name": framework, "framework_horovod_wheels": WHEELS},
        }
        play = {"hosts": "node", "connection": "local", "gather_facts": False, "tasks": [task]}
        playbook = self.python.with_name("play.yml")
        playbook.write_text(yaml.safe_dump([play]))
        command = [Path(sys.executable).parent / "ansible-playbook", "-i", "node,", playbook]
        command += ["-e", json.dumps({"ansible_python_interpreter": str(self.python)})]
        played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        output = played.stdout + played.stderr
        assert played.returncode == 0, output
        return output


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Debian 12 as the local cloud's machines have it, with NVIDIA's driver and toolkits of CUDA."""
    base = base_image()
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        root = stack.enter_context(overlay(base, scratch / "upper", prefix=str(scratch / "root")))
        stack.enter_context(connected(root, ["/dev"]))
        # A mount of its own: what is mounted below the machine's own /proc would be seen by all.
        subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "driver", root / "proc/driver"], check=True)
        (root / "proc/driver/nvidia").mkdir()
        (root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module\n")
        kit.build_driver(root / "usr/lib/x86_64-linux-gnu")
        kit.put_toolkits(root / "usr/local")
        yield Machine(root, scratch / "python")


@pytest.mark.long
@pytest.mark.parametrize("framework", sorted(IMPORTS))
def test_what_is_published_for_gpus_is_installed_and_imported(machine: Machine, framework: str) -> None:
    machine.install(framework)
    python = f"/opt/deeplearning/env/{framework}/bin/python"
    assert machine.run(python, "-c", IMPORTS[framework]).splitlines() == EXPECTED[framework]
    # A node whose wheel exists needs nothing more, and a second run changes nothing.
    assert "changed" not in machine.install(framework)
    if framework == "tensorpack":
        (wheel,) = (machine.root / WHEELS.lstrip("/")).rglob("*.whl")
        # AWS's images have several toolkits: that of the framework's CUDA builds, not the newest.
        assert "_cuda-12.4_nccl-2.21.5_" in wheel.parent.name


@pytest.mark.long
def test_a_package_of_cuda_sources_is_compiled_by_the_toolkit_of_the_frameworks_cuda(machine: Machine) -> None:
    """/usr/local/cuda leads to a newer toolkit, and one of CUDA 12 is there, too."""
    machine.install("pytorch")
    (libraries,) = machine.root.glob("opt/deeplearning/env/pytorch/lib/python3.*/site-packages/nvidia/cu13")
    kit.put_published_toolkit(machine.root / "usr/local", libraries)
    shutil.copytree(ROOT / "files/node", machine.root / "program")
    machine.run("env", "PYTHONPATH=/program", "python3", "-c", BUILD_PACKAGES)
    log = (machine.root / "run-folder/logs/packages.log").read_text()
    assert "Successfully installed torchsort-0.1.10" in log
    python = "/opt/deeplearning/env/pytorch/bin/python"
    assert (
        machine.run("env", "PYTHONPATH=/build/packages", python, "-c", USE_PACKAGES) == "[[5.0, 1.0, 4.0, 3.0, 2.0]]\n"
    )
    (library,) = (machine.root / "build/packages/torchsort").glob("isotonic_cuda*.so")
    # It has code for GPUs.
    assert b".nv_fatbin" in library.read_bytes()
