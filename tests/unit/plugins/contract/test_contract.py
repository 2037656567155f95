"""What both sides agree on: one form each of names, sources, requests and files."""

from __future__ import annotations

import ast
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.filter.core import cluster_record, node_config
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import (
    atomic_file,
    boot,
    frameworks,
    hosts,
    identifiers,
    names,
    paths,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import conflicts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import TABLE

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
    ("request_", "expected"),
    [
        ({"framework": "pytorch", "distribution": "ddp", "nodes": 4}, None),
        ({"framework": "pytorch", "distribution": "local"}, "which only mxnet has: give pytorch's ddp. Example: -e"),
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


@pytest.mark.parametrize(
    ("framework", "nodes", "gpus", "expected"),
    [
        ("pytorch", 4, 8, "ddp"),
        ("tensorflow", 1, 0, "multi_worker_mirrored"),
        ("tensorpack", 2, 8, "horovod"),
        ("mxnet", 1, 0, "local"),
        ("mxnet", 1, 3, "local"),
        ("mxnet", 1, 4, "device"),
        ("mxnet", 2, 0, "dist_sync"),
        ("mxnet", 2, 1, "dist_device_sync"),
    ],
)
def test_the_default_distribution_follows_from_the_machines(
    framework: str, nodes: int, gpus: int, expected: str
) -> None:
    assert frameworks.default_distribution(framework, nodes, gpus) == expected


@pytest.mark.parametrize(
    ("framework", "distribution", "expected"),
    [
        ("tensorflow", "parameter_server", True),
        ("mxnet", "dist_sync", True),
        ("mxnet", "local", False),
        ("mxnet", None, True),
        (None, None, True),
        (None, "ddp", False),
        ("pytorch", None, False),
    ],
)
def test_which_runs_may_have_servers(framework: str | None, distribution: str | None, expected: bool) -> None:
    assert frameworks.may_have_servers(framework, distribution) is expected


def test_things_of_a_cluster_have_names_that_only_it_has() -> None:
    red, blue = (names.Names(cluster, "123456789012", "us-east-1") for cluster in ("red", "blue"))
    assert red.groups == {"master": "red-master", "worker": "red-workers"}
    assert [red.groups[role] for role in ("master", "worker")] == [red.master_group, red.workers_group]
    assert red.identity("worker") == "red-us-east-1-worker" and red.bucket == "red-123456789012-us-east-1"
    assert red.data_bucket == blue.data_bucket == "123456789012-us-east-1-deeplearning-data"
    assert red.of("x") == "red-x"
    assert [names.domain(part) for part in ("aws", "aws-cn", "aws-us-gov")] == [
        "amazonaws.com",
        "amazonaws.com.cn",
        "amazonaws.com",
    ]


def test_tags_are_read_as_they_are_written() -> None:
    tags = {"a": "1", "b": ""}
    assert names.tag_list(tags) == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]
    assert names.tags_of(names.tag_list(tags)) == tags
    assert names.tags_of(None) == {} and names.tags_of([{"Key": "c"}]) == {"c": ""}
    assert names.tag_filter("x", "1", "2") == {"Name": "tag:x", "Values": ["1", "2"]}


def test_folders_of_clusters_on_a_shared_file_system_are_apart() -> None:
    of_cluster = [paths.runs, paths.published, paths.check_requests, paths.health, paths.load]
    folders = [place("/efs", cluster) for place in of_cluster for cluster in ("red", "blue")]
    folders += [paths.wheels("/efs"), paths.dataset("/efs", "coco")]
    assert len(set(folders)) == len(folders) and all(folder.startswith("/efs/") for folder in folders)
    assert paths.dataset("/efs", "coco") == "/efs/data/coco" and paths.dataset("/efs", "/home/me/x") == "/home/me/x"


def test_keys_of_bundles_are_below_the_prefix_that_members_may_read() -> None:
    assert boot.bundle_key("ab") == "bundles/ab.tar" and boot.bootstrap_key("ab") == "bundles/ab.py"


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


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESTALE])
@pytest.mark.parametrize(("failures", "reads"), [(0, True), (3, True), (4, False)])
def test_a_file_that_is_being_replaced_is_read_again(
    monkeypatch: pytest.MonkeyPatch, error: int, failures: int, reads: bool
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(atomic_file.time, "sleep", slept.append)
    left = [OSError(error, "gone")] * failures

    def read() -> str:
        if left:
            raise left.pop()
        return "text"

    if reads:
        assert atomic_file.retry_while_replaced(read) == "text"
    else:
        with pytest.raises(OSError, match="gone"):
            atomic_file.retry_while_replaced(read)
    assert slept == [atomic_file.RETRY_SECONDS] * min(failures, 3) and not left


def test_another_error_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file.time, "sleep", None)

    def read() -> str:
        raise PermissionError(errno.EACCES, "denied")

    with pytest.raises(PermissionError):
        atomic_file.retry_while_replaced(read)


def test_text_that_is_no_utf_8_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\n")
    text = atomic_file.read_or_none(f"{tmp_path}/a") or ""
    assert atomic_file.write_if_changed(f"{tmp_path}/a", text) is False
    assert atomic_file.write_if_changed(f"{tmp_path}/b", f"{text}x") is True
    assert (tmp_path / "b").read_bytes() == b"\xff\nx" and (tmp_path / "b").stat().st_mode & 0o777 == 0o644
    assert atomic_file.read_or_none(f"{tmp_path}/c") is None


def test_a_file_that_is_created_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("target")
    (tmp_path / "a").symlink_to("target")
    before = os.umask(0o077)
    try:
        for content in (b"1", b"2"):
            atomic_file.create(f"{tmp_path}/a", content, 0o640)
            assert (tmp_path / "a").read_bytes() == content and not (tmp_path / "a").is_symlink()
            assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    assert (tmp_path / "target").read_text() == "target"
    assert [atomic_file.remove(f"{tmp_path}/a"), atomic_file.remove(f"{tmp_path}/a")] == [True, False]


def test_the_first_network_interface_is_the_one_of_the_first_card() -> None:
    def interface(name: str, device: int, **card: int) -> dict[str, Any]:
        return {"NetworkInterfaceId": name, "Attachment": {"DeviceIndex": device, **card}}

    efa = [interface("b", 1, NetworkCardIndex=1), interface("c", 0, NetworkCardIndex=1)]
    assert hosts.primary_interface({"NetworkInterfaces": [*efa, interface("a", 0, NetworkCardIndex=0)]}) == "a"
    assert hosts.primary_interface({"NetworkInterfaces": [*efa, interface("d", 1), interface("a", 0)]}) == "a"


def test_the_file_that_names_a_nodes_cluster() -> None:
    text = node_config(CLUSTER, "worker", "8")
    defaults = {"monitoring": False, "bundle": "", "job_flow": "", "emr_idle_seconds": 0, "idle_seconds": 0}
    assert json.loads(text) == {**CLUSTER, **defaults, "schema": 1, "role": "worker", "gpus": 8}
    assert json.loads(node_config({**CLUSTER, "bundle": "a" * 64}, "master"))["bundle"] == "a" * 64
    assert json.loads(node_config(CLUSTER, "master"))["gpus"] is None


@pytest.mark.parametrize(("flow", "idle_seconds"), [({}, 0), ({"job_flow": "j-1"}, 1800)])
def test_the_record_of_a_cluster_is_made_of_settings_and_of_what_is_in_aws(
    flow: dict[str, str], idle_seconds: int
) -> None:
    settings = {option.name.removeprefix("cluster_"): option.default for option in TABLE.values()}
    settings |= {"name": "red", "region": "us-east-1", "emr_idle_minutes": 30, "idle_minutes": 5}
    own = ("cluster_id", "bucket", "vpc_cidrs", "user", "master_role_id")
    facts = {**{name: CLUSTER[name] for name in own}, "file_system_id": "fs-1", "domain": "amazonaws.com", **flow}
    record = cluster_record(settings, facts, flow.get("job_flow", ""))
    written = json.loads(node_config(record, "worker"))
    assert {name: written[name] for name in own} == {name: CLUSTER[name] for name in own}
    assert (written["cluster"], written["efs_name"]) == ("red", "fs-1.efs.us-east-1.amazonaws.com")
    assert (written["idle_seconds"], written["emr_idle_seconds"]) == (300, idle_seconds)
    assert (written["job_flow"], written["default_framework"]) == (flow.get("job_flow", ""), None)


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
