"""Which Auto Scaling groups get the end of machines that never come into service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from tests.unit.roles.roles_kit import ROLES, value

MASTER, WORKERS = "red-master", "red-workers"


def group(name: str, *states: str) -> dict[str, Any]:
    instances = [{"lifecycle_state": state} for state in states]
    return {"auto_scaling_group_name": name, "desired_capacity": len(states), "instances": instances}


@pytest.mark.parametrize(
    ("existing", "with_end", "groups"),
    [
        ([], [], [MASTER, WORKERS]),
        ([group(MASTER), group(WORKERS)], [MASTER, WORKERS], [MASTER, WORKERS]),
        ([group(MASTER, "Pending:Wait"), group(WORKERS, "Pending:Wait")], [MASTER, WORKERS], [MASTER, WORKERS]),
        ([group(MASTER, "InService"), group(WORKERS, "Pending:Wait")], [WORKERS], [WORKERS]),
        ([group(MASTER, "InService"), group(WORKERS, "InService")], [MASTER, WORKERS], []),
        ([group(MASTER, "InService"), group(WORKERS)], [], []),
        ([group(MASTER, "Terminating"), group(WORKERS, "Pending")], [], []),
    ],
    ids=["new", "brought back", "none in service", "workers failed", "in service", "grows", "replaced"],
)
def test_new_machines_get_an_end_and_those_that_have_one_a_later_one(
    existing: Sequence[dict[str, Any]], with_end: Sequence[str], groups: Sequence[str]
) -> None:
    tasks = yaml.safe_load((ROLES / "machines/tasks/ends.yml").read_text(encoding="utf-8"))
    (task,) = [task for task in tasks if "never come into service" in task["name"]]
    result = value(
        "machines",
        task["vars"]["machines_end_groups"].strip("{} "),
        "",
        machines_groups=[{"name": name, "desired_capacity": 1} for name in (MASTER, WORKERS)],
        machines_ends={"setup": dict.fromkeys(with_end, 1.8e9)},
        __machines_existing={"results": existing},
        ansible_check_mode=False,
    )
    assert sorted(result) == sorted(groups)
