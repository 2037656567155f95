"""Whether a process sees the GPUs that the launcher gives it, and what they can. Independent of frameworks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def require(package: str, count: Callable[[], int]) -> None:
    """End with a sentence if the launcher gives this process GPUs and the framework counts fewer.

    Otherwise it would train on the processor, much slower, and nothing would say so.
    """
    expected = int(os.environ.get("DEEPLEARNING_GPUS") or 0)
    seen = count() if expected else 0
    if seen < expected:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        sys.exit(
            f"{package} sees {seen} of this process's {expected} GPUs (CUDA_VISIBLE_DEVICES is {visible}): run "
            "`nvidia-smi` on its node. To train without GPUs: -e processor=true"
        )


def require_bfloat16(capability: tuple[int, int]) -> None:
    """End with a sentence if a GPU of this compute capability only emulates bfloat16, slower than with 32 bits."""
    if capability < (8, 0):
        sys.exit(
            f"--mixed-precision is given, and this GPU (compute capability {capability[0]}.{capability[1]}) has no "
            "bfloat16, which came with 8.0: leave it out, or use newer GPUs such as g5's."
        )
