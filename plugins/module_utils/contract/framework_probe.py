# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Import a framework, count the GPUs that it sees, compute on one of them, and print that as JSON.

`gpu_proof` runs this file's text in the framework's own Python, which may be a user's: `python -c TEXT torch`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
SIZE = 256
"""Rows and columns of the matrices of ones, whose product is therefore this number everywhere."""


def torch(module: Any) -> tuple[str, int, Callable[[], float]]:
    seen = module.cuda.device_count() if module.cuda.is_available() else 0

    def compute() -> float:
        ones = module.ones(SIZE, SIZE).to("cuda:0")
        return float((ones @ ones)[0, 0].item())

    return module.version.cuda or "", seen, compute


def tensorflow(module: Any) -> tuple[str, int, Callable[[], float]]:
    gpus = module.config.list_physical_devices("GPU")
    # It would prepare all of them for the product.
    module.config.set_visible_devices(gpus[:1], "GPU")

    def compute() -> float:
        with module.device("/GPU:0"):
            # A constant is copied, while `ones` would be a kernel, which may have to be compiled first.
            ones = module.constant([[1.0] * SIZE] * SIZE)
            return float(module.matmul(ones, ones)[0, 0].numpy())

    # The builds for processors have no such key.
    return module.sysconfig.get_build_info().get("cuda_version", ""), len(gpus), compute


def mxnet(module: Any) -> tuple[str, int, Callable[[], float]]:
    if not module.runtime.Features().is_enabled("CUDA"):
        return "", 0, lambda: 0.0

    def compute() -> float:
        ones = module.nd.array([[1.0] * SIZE] * SIZE, ctx=module.gpu(0))
        return float(module.nd.dot(ones, ones)[0][0].asscalar())

    # It does not tell its version of CUDA: its last release with GPUs has 11.2.
    return "11.2", module.context.num_gpus(), compute


PACKAGES = {"torch": torch, "tensorflow": tensorflow, "mxnet": mxnet}


def probe(package: str) -> dict[str, Any]:
    """Return what a package sees, and in `error` the first thing that failed."""
    # Kernels are loaded when they are used first. TensorFlow takes the memory that it needs, and not all of it.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    answer: dict[str, Any] = {"imported": False, "version": "", "cuda": "", "seen": 0, "computed": False, "error": ""}
    try:
        module = importlib.import_module(package)
        answer.update(imported=True, version=str(module.__version__))
        answer["cuda"], answer["seen"], compute = PACKAGES[package](module)
        # Without a GPU it tells why there is none, or computes on the processor.
        product = compute() if answer["cuda"] else 0.0
        answer["computed"] = bool(answer["seen"]) and product == SIZE
    # MXNet's own errors, and those of a library that does not fit, are of any class.
    except Exception as error:  # pylint: disable=broad-exception-caught
        answer.update(error=f"{type(error).__name__}: {error}", missing=is_missing(error, package))
    return {**answer, "driver": driver()}


def is_missing(error: Exception, package: str) -> bool:
    """Return whether this Python does not have the package at all."""
    return isinstance(error, ModuleNotFoundError) and error.name == package


def driver() -> dict[str, Any]:
    """Return what the driver's library says to this process: the newest CUDA that it runs, and its devices."""
    answer = {"library": "", "error": "", "cuda": "", "devices": 0}
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {**answer, "library": str(error)}
    number = ctypes.c_int(0)
    if not library.cuDriverGetVersion(ctypes.byref(number)):
        answer["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    code = library.cuInit(0)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        answer["error"] = f"{(text.value or b'unknown error').decode()} ({code})"
    elif not library.cuDeviceGetCount(ctypes.byref(number)):
        answer["devices"] = number.value
    return answer


def main() -> None:
    # Whatever a framework prints must not be taken for the answer.
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        json.dump(probe(sys.argv[1]), output)


if __name__ == "__main__":
    main()
