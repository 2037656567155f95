"""What both sides agree on: one form each of names, sources, requests and files."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.filter.node_config import node_config
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import (
    atomic_file,
    frameworks,
    git_source,
    hosts,
    identifiers,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.git_source import GitSource
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import conflicts

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = ROOT / "plugins/module_utils/contract"
CLUSTER = {
    "cluster": "red",
    "cluster_id": "sg-0123456789abcdef0",
    "region": "us-east-1",
    "bucket": "red-123456789012-us-east-1",
    "vpc_cidrs": ["10.0.0.0/16"],
    "user": "ubuntu",
    "master_role_id": "AROA0123456789EXAMPLE",
    "master_trains": True,
    "efs_mount": "/efs",
    "efs_name": "fs-1.efs.us-east-1.amazonaws.com",
    "default_framework": None,
}


@pytest.mark.parametrize("file", sorted(CONTRACT.glob("*.py")), ids=lambda file: file.stem)
def test_it_imports_the_standard_library_and_itself_alone(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 1 or str(node.module).partition(".")[0] in sys.stdlib_module_names
        elif isinstance(node, ast.Import):
            assert all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in node.names)


def test_the_nodes_program_contains_it() -> None:
    """By links to its files: a link to the folder is not allowed in a collection."""
    links = (ROOT / "files/node/deeplearning/contract").glob("*.py")
    assert {link.resolve() for link in links if link.is_symlink()} == set(CONTRACT.glob("*.py"))


def test_the_master_has_one_canonical_name() -> None:
    assert hosts.aliases(1) == ("deeplearning-worker1", "deeplearning-master")
    assert [hosts.inventory_name(rank) for rank in (1, 2)] == ["deeplearning-master", "deeplearning-worker2"]


@pytest.mark.parametrize(
    ("text", "expected"), [("lenet-1", True), ("x" * 48, True), ("x" * 49, False), ("all", False), ("A", False)]
)
def test_ids_of_runs(text: str, expected: bool) -> None:
    assert identifiers.is_run_id(text) is expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git+https://h/r.git@v1:a/b.py", GitSource("https://h/r.git", "v1", "a/b.py")),
        ("git+https://h/r.git:b.py", GitSource("https://h/r.git", "", "b.py")),
        ("git+https://me:a@b@h:8443/r@v1:b.py", GitSource("https://me:a@b@h:8443/r", "v1", "b.py")),
        ("git+git@h:r.git@v1:b.py", GitSource("git@h:r.git", "v1", "b.py")),
        ("git+/home/me/models@v1:b.py", GitSource("/home/me/models", "v1", "b.py")),
        ("git+https://h/r.git@v1:a/../../b.py", None),
        ("git+https://h/r.git@v1:/b.py", None),
        ("git+https://h/r.git@:b.py", None),
        ("git+https://h@v1:b.py", None),
        ("git+https://h/r.git@v1", None),
        ("https://h/r.git@v1:b.py", None),
    ],
)
def test_sources_in_git(script: str, expected: GitSource | None) -> None:
    assert git_source.parse(script) == expected


def test_which_sources_log_in_with_ssh() -> None:
    scripts = ("git+ssh://git@h/r@v1:b.py", "git+git@h:r@v1:b.py", "git+https://h/r@v1:b.py", "git+/r/r@v1:b.py")
    sources = [git_source.parse(script) for script in scripts]
    assert [source.uses_ssh for source in sources if source] == [True, True, False, False]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"framework": "pytorch", "distribution": "ddp", "nodes": 4}, None),
        ({"framework": "pytorch", "distribution": "local"}, "does not have: give one of ddp, horovod"),
        ({"framework": "mxnet", "distribution": "local", "nodes": ["a", "b"]}, "give nodes=1, or another"),
        ({"framework": "mxnet", "servers": 2}, None),
        ({"framework": "tensorflow", "servers": 2}, "servers is 2, and tensorflow has no parameter servers"),
        ({"framework": "mxnet", "script_args": ["s3://b/x"]}, "Example: -e dataset=s3://b/folder"),
        ({"framework": "mxnet", "script_args": ["s3://b/x"], "python": "/efs/env/bin/python"}, None),
    ],
)
def test_keys_of_a_request_that_conflict(request_: dict[str, Any], expected: str | None) -> None:
    problems = list(conflicts(request_))
    assert len(problems) == (expected is not None)
    assert not expected or expected in problems[0]


def test_every_default_is_a_distribution_of_its_framework() -> None:
    for framework, known in frameworks.DISTRIBUTIONS.items():
        assert all(
            frameworks.default_distribution(framework, nodes, gpus) in known for nodes in (1, 2) for gpus in (0, 8)
        )


def test_a_file_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "new/a"
    assert atomic_file.write_if_changed(str(file), "1", 0o600) is True
    assert atomic_file.write_if_changed(str(file), "1", 0o600) is False
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("1", 0o600)
    with pytest.raises(IsADirectoryError):
        atomic_file.replace(str(tmp_path / "new"), b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_the_file_that_names_a_nodes_cluster() -> None:
    text = node_config(CLUSTER, "worker", "8")
    defaults = {"monitoring": False, "bundle": "", "job_flow": "", "emr_idle_seconds": 0, "idle_seconds": 0}
    assert json.loads(text) == {**CLUSTER, **defaults, "schema": 1, "role": "worker", "gpus": 8}
    assert json.loads(node_config({**CLUSTER, "bundle": "a" * 64}, "master"))["bundle"] == "a" * 64
    assert json.loads(node_config(CLUSTER, "master"))["gpus"] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"regoin": "us-east-1"}, "cluster.json has unknown keys: regoin"),
        ({"efs_mount": "efs"}, "efs_mount is 'efs', not an absolute path"),
        ({"default_framework": "caffe"}, "default_framework is 'caffe', not one of tensorflow, mxnet"),
        ({"bundle": "a" * 63}, "bundle is 'a+', not a SHA-256"),
    ],
)
def test_a_file_that_nodes_would_refuse_is_not_made(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        node_config({**CLUSTER, **changed}, "worker")
