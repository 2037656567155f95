# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The frameworks, and how their processes can work together."""

from __future__ import annotations

from collections.abc import Mapping

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("multi_worker_mirrored", "parameter_server"),
    "mxnet": ("dist_sync", "dist_device_sync", "dist_async", "local", "device"),
    "pytorch": ("ddp",),
    "tensorpack": ("horovod",),
}
"""By framework. The first one is the default; MXNet's also depends on the machines. Horovod's last release, of 2023, is
older than the versions of PyTorch and TensorFlow here."""
FRAMEWORKS = tuple(DISTRIBUTIONS)
ON_ONE_NODE = ("local", "device")
WITH_SERVERS = ("parameter_server", "dist_sync", "dist_device_sync", "dist_async")
"""Those that start parameter servers."""


def default_distribution(framework: str, nodes: int, gpus: int) -> str:
    """Return the distribution of a run that names none. `gpus`: the most GPUs that one of its nodes has."""
    if framework != "mxnet":
        return DISTRIBUTIONS[framework][0]
    if nodes == 1:
        return "device" if gpus >= 4 else "local"
    return "dist_device_sync" if gpus else "dist_sync"


def distribution_problem(framework: str, distribution: str) -> str:
    """Return a sentence if the framework does not have this distribution; empty if it has."""
    known = DISTRIBUTIONS[framework]
    if distribution in known:
        return ""
    owner = next((f"only {name}" for name, others in DISTRIBUTIONS.items() if distribution in others), "no framework")
    return (
        f"distribution is {distribution}, which {owner} has: give {framework}'s {' or '.join(known)}. Example: "
        f"-e distribution={known[0]}"
    )


def may_have_servers(framework: str | None, distribution: str | None) -> bool:
    """Return whether a run may start parameter servers."""
    if distribution:
        return distribution in WITH_SERVERS
    return framework in (None, "mxnet")
