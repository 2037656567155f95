"""Settings of EMR clusters of booted machines."""

from __future__ import annotations

from typing import Any

# EMR takes images of Amazon Linux alone. In the local cloud it boots the built image that has PyTorch.
SETTINGS: dict[str, Any] = {
    "image": "oss-nvidia-driver-gpu-pytorch-2.9-amazon-linux-2023",
    "root_volume_gib": 100,
    "instance_type": "m5.xlarge",
    "login_user": "",
}

CREATED_FOR = "tests/integration/test_emr.py::test_the_nodes_are_members_and_train_as_hadoop (setup)"
"""The test that emr.yml in the background is recorded for."""


def readable_bucket(cluster: str) -> str:
    """Return the name of a bucket that the members of the shared cluster may read."""
    return f"{cluster}-data"
