"""Filters and tests, by the names that playbooks use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.loader import filter_loader, test_loader
from ansible_collections.deeplearning.aws.plugins.filter import core
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS

ROOT = Path(__file__).resolve().parents[4]
LOADERS = {"filter": filter_loader, "test": test_loader}
DOCUMENTED = [(folder, path.stem) for folder in LOADERS for path in sorted((ROOT / f"plugins/{folder}").glob("*.yml"))]


def filtered(name: str, *values: Any, **options: Any) -> Any:
    """Call a filter as a template finds it."""
    return filter_loader.get(f"deeplearning.aws.{name}").j2_function(*values, **options)


@pytest.mark.parametrize(("folder", "name"), DOCUMENTED)
def test_each_is_found_by_the_name_of_its_documentation(folder: str, name: str) -> None:
    assert callable(LOADERS[folder].get(f"deeplearning.aws.{name}").j2_function)


def test_each_is_documented() -> None:
    names = []
    for folder, plugin, listing in (("filter", "FilterModule", "filters"), ("test", "TestModule", "tests")):
        for file in (ROOT / f"plugins/{folder}").glob("*.py"):
            module = import_module(f"ansible_collections.deeplearning.aws.plugins.{folder}.{file.stem}")
            names += [(folder, name) for name in getattr(getattr(module, plugin)(), listing)()]
    assert sorted(names) == DOCUMENTED


def test_a_text_of_a_node_becomes_one_line() -> None:
    assert "\n" not in filtered("one_line", "first\nsecond")


def test_each_framework_has_a_pin_unless_some_are_named() -> None:
    pins = filtered("framework_pins", [])
    assert list(pins) == list(FRAMEWORKS) and len(set(pins.values())) == len(FRAMEWORKS)
    assert all(len(pin) == 12 and set(pin) <= set("0123456789abcdef") for pin in pins.values())
    (first, second, *_others) = FRAMEWORKS
    assert filtered("framework_pins", (name for name in [second])) == {second: pins[second]} != {first: pins[first]}


def test_a_pin_changes_with_each_file_that_packages_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "FILES", tmp_path)
    folder = tmp_path / "pytorch"
    folder.mkdir()
    pins = []
    for variant, content in (("cpu", "b==1"), ("gpu", "b==1"), ("gpu", "b==1.1"), ("cpu", "b==2")):
        (folder / f"requirements-{variant}.txt").write_text(content)
        pins.append(core.framework_pins(["pytorch"])["pytorch"])
    assert len(set(pins)) == 4
    # Other files are not installed.
    (folder / "README.md").write_text("words")
    (folder / "gpu.json").write_text("{}")
    assert core.framework_pins(["pytorch"])["pytorch"] == pins[-1]


POLICY = {"cluster": "red", "region": "us-east-1", "account": "123456789012", "bucket": "red-1"}


def test_locations_of_a_policy_may_end_with_a_slash() -> None:
    plain = filtered("member_policy", "worker", read=["a/b"], write=["c"], **POLICY)
    assert filtered("member_policy", "worker", read=["a/b/"], write=["c/"], **POLICY) == plain
    for options in ({}, {"read": ["a/b"]}, {"write": ["c"]}, {"read": ["c"], "write": ["a/b"]}):
        assert filtered("member_policy", "worker", **options, **POLICY) != plain
    assert filtered("member_policy", "master", read=["a/b"], write=["c"], **POLICY) != plain


def test_a_verdict_has_its_lines_and_counts_a_training_that_was_made() -> None:
    no_answer = {"deeplearning-master": {"unreachable": True, "msg": "no route"}}
    verdict = filtered("health_verdict", no_answer, "red")
    assert verdict["ok"] is False and verdict["lines"][-1] == "Cluster red is not healthy: 1 check fails."
    # A run that was skipped, or not requested, is no check.
    for training in (None, {}, {"skipped": True, "rc": 1}):
        assert filtered("health_verdict", no_answer, "red", [], training) == verdict
    failed = filtered("health_verdict", no_answer, "red", training={"failed": True, "rc": 1, "msg": "it stopped"})
    assert len(failed["checks"]) == len(verdict["checks"]) + 1
    joining = filtered("health_verdict", no_answer, "red", ["i-1"])
    assert [check["node"] for check in joining["checks"]] == ["deeplearning-master", "i-1"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [({"code": "InvalidSubnetID.NotFound"}, True), ({"code": "SubnetFull"}, False), ({}, False), (None, False)],
)
def test_the_code_of_an_error_counts_if_the_message_has_none(error: dict[str, str] | None, expected: bool) -> None:
    function = test_loader.get("deeplearning.aws.failed_not_found").j2_function
    assert function({"failed": True, "msg": "It failed", "error": error}) is expected
    # It comes before what the message says.
    message = "An error occurred (Other.NotFound) when calling it"
    assert function({"failed": True, "msg": message, "error": error}) is (expected or not error)


def test_a_nodes_record_is_readable_and_always_the_same() -> None:
    record = {
        **{"cluster": "red", "cluster_id": "red-1", "region": "us-east-1", "bucket": "b", "vpc_cidrs": ["10.0.0.0/16"]},
        **{"user": "ubuntu", "master_role_id": "AROA1", "master_trains": True, "efs_mount": "/efs", "efs_name": "fs-1"},
        "default_framework": None,
    }
    text = filtered("node_config", record, "worker", "8")
    assert text.endswith("\n}\n") and text.startswith('{\n  "bucket": "b",\n  "bundle": ')
    assert text == filtered("node_config", dict(reversed(record.items())), "worker", 8)
