"""`make aws-smoke` on booted machines: all stages but the optional ones, and interruptions."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.account.smoke_kit import Command
from tests.integration.machines import Cloud
from tests.smoke.earlier import OUTLIVED

pytestmark = pytest.mark.long

SETTINGS = {"provision_settle_seconds": 1, "emr_poll_seconds": 1}
MOST_CALLS = 600
"""A stage of three clusters makes more."""


def start(cloud: Cloud, folder: Path, stages: str = "") -> Command:
    assert cloud.forking
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_"))}
    environment = {**usual, **cloud.variables, "SMOKE_USD": "5", "SMOKE_STAGES": stages}
    return Command(folder, cloud.forking.ansible_playbook(), cloud.folder, environment, SETTINGS)


def calls(command: Command) -> int:
    return sum(file.read_text(encoding="utf-8").count('"call"') for file in command.folder.glob("*.jsonl"))


def left(cloud: Cloud) -> list[Any]:
    """Return what bears the command's tag, or a name of its clusters."""
    tags = {"Filters": [{"Name": "key", "Values": ["aws-smoke"]}]}
    tagged = cloud.client("autoscaling").describe_tags(**tags)["Tags"]
    tagged += [tag for tag in cloud.client("ec2").describe_tags(**tags)["Tags"] if tag["ResourceType"] not in OUTLIVED]
    names = [role["RoleName"] for role in cloud.client("iam").list_roles()["Roles"]]
    names += [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
    names += [system.get("Name", "") for system in cloud.client("efs").describe_file_systems()["FileSystems"]]
    return [*tagged, *(name for name in names if name.startswith("smoke-"))]


@pytest.mark.parametrize("number", [1, 2])
def test_all_stages_pass_twice_and_leave_nothing(number: int, cloud_with_machines: Cloud, tmp_path: Path) -> None:
    command = start(cloud_with_machines, tmp_path)
    code, output = command.end()
    passed = [line.split()[:3] for line in output.splitlines() if line.startswith("stage ") and " ok " in line]
    assert code == 0 and [words[1] for words in passed] == ["0", "1", "2", "3", "4"], output
    assert "the three images are Debian under three names" in output
    assert left(cloud_with_machines) == []
    # Machines are seen by their facts, and the new master by its address.
    for item in ("python-of-ubuntu-22.04", "fields-of-scheduled-actions", "address-of-a-replaced-master"):
        assert f"{item}: settled: " in output, output


@pytest.mark.parametrize("seed", range(5))
def test_interrupted_at_a_random_moment_it_leaves_nothing(
    seed: int, cloud_with_machines: Cloud, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    number, place = chance.choice([signal.SIGINT, signal.SIGTERM]), chance.randrange(100, MOST_CALLS)
    command = start(cloud_with_machines, tmp_path, "1,2")
    command.wait(lambda: calls(command) >= place)
    command.process.send_signal(number)
    code, output = command.end()
    assert code == 1 and f"interrupted by {number.name}" in output, (place, output)
    assert left(cloud_with_machines) == [], output
