# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The frameworks, and how their processes can work together."""

from __future__ import annotations

from collections.abc import Mapping

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("multi_worker_mirrored", "parameter_server", "horovod"),
    "mxnet": ("dist_sync", "dist_device_sync", "dist_async", "local", "device"),
    "pytorch": ("ddp", "horovod"),
    "tensorpack": ("horovod",),
}
"""By framework. The first one is the default; MXNet's also depends on the machines."""
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


def may_have_servers(framework: str | None, distribution: str | None) -> bool:
    """Return whether a run may start parameter servers."""
    if distribution:
        return distribution in WITH_SERVERS
    return framework in (None, "mxnet")
