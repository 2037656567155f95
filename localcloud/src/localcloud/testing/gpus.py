"""NVIDIA's management library without a GPU, for programs on this machine and in machines."""

from localcloud.gpu.files import DRIVER as DRIVER
from localcloud.gpu.files import STATE as STATE
from localcloud.gpu.library import build as build_library

__all__ = ["DRIVER", "STATE", "build_library"]
