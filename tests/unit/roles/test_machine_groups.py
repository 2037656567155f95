"""The records of Auto Scaling groups that the role machines takes, by the spec that Ansible validates them with."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests.unit.roles.roles_kit import ROLES

README = (ROLES / "machines/README.md").read_text(encoding="utf-8")
((EXAMPLE,),) = [play["tasks"] for play in yaml.safe_load(README.split("```yaml")[1].split("```")[0])]


def problems(*groups: dict[str, Any]) -> list[str]:
    specs = yaml.safe_load((ROLES / "machines/meta/argument_specs.yml").read_text(encoding="utf-8"))
    validator = ArgumentSpecValidator(specs["argument_specs"]["main"]["options"])
    return list(validator.validate(EXAMPLE["vars"] | {"machines_groups": list(groups)}).error_messages)


def test_the_documented_records_are_valid() -> None:
    assert problems(*EXAMPLE["vars"]["machines_groups"]) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"role": "spare"}, "value of role must be one of: master, worker, got: spare found in machines_groups"),
        ({"desired_capacity": "many"}, "argument 'desired_capacity' is of type str found in 'machines_groups'"),
        ({"worker_count": 4}, "machines_groups.worker_count. Supported parameters include: desired_capacity, "),
    ],
)
def test_a_wrong_record_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(EXAMPLE["vars"]["machines_groups"][0] | wrong)
    assert sentence in problem


@pytest.mark.parametrize("name", EXAMPLE["vars"]["machines_groups"][0])
def test_a_record_without_a_fact_is_refused(name: str) -> None:
    record = {key: value for key, value in EXAMPLE["vars"]["machines_groups"][0].items() if key != name}
    assert problems(record) == [f"missing required arguments: {name} found in machines_groups"]
