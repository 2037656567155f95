"""Where a run's processes keep what they compile: on the node's own disk, as each node can make it again.

By default it is in the user's home and next to the code, which thousands of processes may share over the network.
Downloads, such as those of Hugging Face, are no part of it: where they are kept is the user's decision.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from deeplearning import safe_paths
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError

FOLDER = "/var/tmp/deeplearning-cache"
"""For all processes and runs of a user, whose number follows."""
CUDA_BYTES = 4 * 2**30


def create() -> tuple[str, str]:
    """Return the folder of this user, and why there is none. Other users may create folders of this name as well."""
    path = f"{FOLDER}-{os.getuid()}"
    try:
        safe_paths.own_folder(path, mode=0o700)
    except (UserError, OSError) as error:
        return "", f"what it compiles is not kept on this node's disk: {error}"
    return path, ""


def variables(folder: str, start: Mapping[str, Any], gpus: int) -> dict[str, str]:
    """Return the variables for a process of a node with so many GPUs. `start`: the attempt's plan.json."""
    if not folder:
        return {}
    result = {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    if gpus:
        # The driver keeps what it compiles for a GPU that a framework has no kernels for, which may take half an hour.
        # By default it keeps 1 GiB.
        result |= {"CUDA_CACHE_PATH": f"{folder}/cuda", "CUDA_CACHE_MAXSIZE": str(CUDA_BYTES)}
    # The collection's Python was compiled when it was installed. With a prefix, each node would compile it again.
    if start["folder"] != paths.TRAINERS or not paths.is_in_environment(start["python"]):
        result["PYTHONPYCACHEPREFIX"] = f"{folder}/python"
    return result
