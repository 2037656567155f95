# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The frameworks: a record for each, from which options, forms, environments and documents derive.

Another framework is another record here, with its pins in roles/framework/files/NAME, and a trainer
files/trainers/cifar10_NAME.py if it has one. It is Python because modules get no other files on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ON_ONE_NODE = ("local", "device")
WITH_SERVERS = ("parameter_server", "dist_sync", "dist_device_sync", "dist_async")
"""Those that start parameter servers."""

CUDNN_8 = ("libcudnn_ops_infer.so.8", "libcudnn_cnn_infer.so.8")
"""Versions before 9 do not run on GPUs that are newer than they are, although they have PTX (read on 2026-11-24):
https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/developer/forward-compatibility.html"""
_CUDNN_9 = ("libcudnn_ops.so.9", "libcudnn_engines_precompiled.so.9")
_TENSORFLOW = ("libtensorflow_cc.so.2",)


def _cublas(major: int) -> tuple[str, ...]:
    return (f"libcublas.so.{major}", f"libcublasLt.so.{major}")


@dataclass(frozen=True)
class Framework:
    """What the collection knows about a framework."""

    distributions: tuple[str, ...]
    """How its processes can work together. The first one is the default, unless `choose` returns another."""
    package: str
    """The package that computes on GPUs."""
    imports: Sequence[str]
    """Modules that must be importable. The first one is the framework's own."""
    pythons: Sequence[str]
    """Versions of Python that its packages exist for."""
    kernels: Mapping[str, Sequence[str]]
    """By package: the libraries that have kernels for GPUs. The framework's own is the first one."""
    index: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By variant (cpu, gpu) and package: the package's own index, used if pip's settings do not lead to it."""
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By operating system: the packages of the system that it needs."""
    links_cuda: bool = False
    """Its libraries look for CUDA's only in their own folder, where NVIDIA's wheels install nothing."""
    reads_s3: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its processes. `{run_dir}` is the run's folder."""
    processor_variables: Mapping[str, str] = field(default_factory=dict)
    """The same, for runs on the processors of nodes."""
    choose: Callable[[int, int], str] | None = None
    """Returns the default distribution for a number of nodes, and the most GPUs that one of them has."""

    @property
    def has_horovod(self) -> bool:
        """Horovod's last release, of 2023, is older than the versions of PyTorch and TensorFlow here."""
        return "horovod" in self.distributions


def _key_value_store(nodes: int, gpus: int) -> str:
    if nodes == 1:
        return "device" if gpus >= 4 else "local"
    return "dist_device_sync" if gpus else "dist_sync"


RECORDS: Mapping[str, Framework] = {
    "tensorflow": Framework(
        distributions=("multi_worker_mirrored", "parameter_server"),
        package="tensorflow",
        imports=("tensorflow", "tf_keras", "tensorboard"),
        pythons=("3.10", "3.11", "3.12", "3.13"),
        kernels={"tensorflow": _TENSORFLOW, "nvidia-cublas-cu12": _cublas(12), "nvidia-cudnn-cu12": _CUDNN_9},
        # Keras 3 cannot train under MultiWorkerMirroredStrategy.
        variables={"TF_USE_LEGACY_KERAS": "1"},
    ),
    "mxnet": Framework(
        distributions=("dist_sync", "dist_device_sync", "dist_async", "local", "device"),
        package="mxnet",
        imports=("mxnet", "tensorboard"),
        pythons=("3.10", "3.11"),
        kernels={"mxnet-cu112": ("libmxnet.so",), "nvidia-cublas-cu11": _cublas(11), "nvidia-cudnn-cu11": CUDNN_8},
        libraries={
            "debian": ("libgomp1", "libquadmath0"),
            "ubuntu": ("libgomp1", "libquadmath0"),
            "amzn": ("libgomp", "libquadmath"),
        },
        links_cuda=True,
        reads_s3=False,
        choose=_key_value_store,
    ),
    "pytorch": Framework(
        distributions=("ddp",),
        package="torch",
        imports=("torch", "tensorboard"),
        pythons=("3.10", "3.11", "3.12", "3.13"),
        kernels={"torch": ("libtorch_cuda.so",), "nvidia-cublas": _cublas(13), "nvidia-cudnn-cu13": _CUDNN_9},
        index={"cpu": {"torch": "https://download.pytorch.org/whl/cpu"}},
        variables={
            # Have NCCL's newest operations recorded, and written when one times out. PyTorch appends the process rank.
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": "{run_dir}/logs/flight-recorder.rank",
        },
    ),
    "tensorpack": Framework(
        distributions=("horovod",),
        package="tensorflow",
        imports=("tensorpack", "cv2", "pycocotools", "tensorboard"),
        pythons=("3.10", "3.11"),
        kernels={"tensorflow": _TENSORFLOW, "nvidia-cublas-cu12": _cublas(12), "nvidia-cudnn-cu12": CUDNN_8},
        # See startup/deeplearning_trackers.py of the node program.
        processor_variables={"DEEPLEARNING_GPU_TRACKERS": "off"},
    ),
}
COMPILERS: Mapping[str, Sequence[str]] = {
    "debian": ("g++", "make", "{python}-dev"),
    "ubuntu": ("g++", "make", "{python}-dev"),
    "amzn": ("gcc-c++", "make", "{python}-devel"),
}
"""By operating system: its packages that compile an extension of a Python such as python3.11."""
FRAMEWORKS = tuple(RECORDS)
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {name: record.distributions for name, record in RECORDS.items()}


def default_distribution(framework: str, nodes: int, gpus: int) -> str:
    """Return the distribution of a run that names none. `gpus`: the most GPUs that one of its nodes has."""
    record = RECORDS[framework]
    return record.choose(nodes, gpus) if record.choose else record.distributions[0]


def distribution_problem(framework: str, distribution: str) -> str:
    """Return a sentence if the framework does not have this distribution; empty if it has."""
    known = DISTRIBUTIONS[framework]
    if distribution in known:
        return ""
    owners = [name for name, others in DISTRIBUTIONS.items() if distribution in others]
    owner = f"only {' or '.join(owners)}" if owners else "no framework"
    return (
        f"distribution is {distribution}, which {owner} has: give {framework}'s {' or '.join(known)}. Example: "
        f"-e distribution={known[0]}"
    )


def may_have_servers(framework: str | None, distribution: str | None) -> bool:
    """Return whether a run may start parameter servers."""
    name = distribution or (DISTRIBUTIONS[framework][0] if framework else "")
    return not name or name in WITH_SERVERS
