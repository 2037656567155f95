"""Wheels of Horovod in a bucket: kept once, brought to the next cluster, and never in the way of a run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _wheels
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket

from tests.unit.conftest import Account

ROOT = Path(__file__).resolve().parents[2]
KEY = "horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_x86_64"
WHEEL = f"{KEY}/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
OTHER = "horovod-0.28.1_tensorflow-2.15.1_cp311_openmpi-4.1.4_x86_64/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
CONTENT = bytes(range(256)) * 3000


def wheels(folder: Path, state: str, **more: Any) -> dict[str, Any]:
    given = {"region": "us-east-1", "cluster": "red", "framework": "pytorch", "folder": str(folder), "state": state}
    return {"deeplearning.aws.wheels": {**given, **more}}


def played(folder: Path, *tasks: dict[str, Any], check: bool = False) -> list[dict[str, Any]]:
    """What each task returned, on this machine as the node."""
    registered = [{**task, "register": f"task{number}"} for number, task in enumerate(tasks)]
    names = ", ".join(f"task{number}" for number in range(len(tasks)))
    told = {"content": "{{ [" + names + "] | to_json }}", "dest": str(folder / "told.json")}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [*registered, {"ansible.builtin.copy": told, "check_mode": False}],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(folder / "play.yml")]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*command, "-i", "localhost,", *(["--check"] if check else [])],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "told.json").read_text())
    return found


def test_what_one_cluster_has_built_another_takes_from_the_bucket(aws: Account, tmp_path: Path) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="tools")
    s3.put_object(Bucket="tools", Key=f"shared/wheels/{OTHER}", Body=b"for TensorFlow")
    s3.put_object(Bucket="tools", Key=f"shared/wheels/{KEY}/$(reboot).whl", Body=b"no wheel")
    red, blue = tmp_path / "red's", tmp_path / "blue's"
    (red / KEY).mkdir(parents=True)
    (red / WHEEL).write_bytes(CONTENT)
    (red / KEY / ".horovod-0.28.1.whl.half").write_bytes(b"half")
    shared = {"bucket": "tools/shared"}
    kept, again, brought, again_brought = played(
        tmp_path,
        wheels(red, "kept", **shared),
        wheels(red, "kept", **shared),
        wheels(blue, "brought", cluster="blue", **shared),
        wheels(blue, "brought", cluster="blue", **shared),
    )
    assert (kept["changed"], kept["wheels"]) == (True, [WHEEL]) and not again["changed"]
    assert (brought["changed"], brought["wheels"]) == (True, [WHEEL]) and not again_brought["changed"]
    assert [str(one.relative_to(blue)) for one in blue.rglob("*") if one.is_file()] == [WHEEL]
    assert (blue / WHEEL).read_bytes() == CONTENT
    calls = aws.calls()
    assert calls.count("s3:PutObject") == 3 and calls.count("s3:GetObject") == 1


def test_without_a_shared_bucket_it_is_the_clusters_own(aws: Account, tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    (tmp_path / WHEEL).write_bytes(b"wheel")
    aws.client("s3").create_bucket(Bucket="red-123456789012-us-east-1")
    (checked,) = played(tmp_path, wheels(tmp_path, "kept"), check=True)
    assert checked["changed"] and "s3:PutObject" not in aws.calls()[1:]
    (kept,) = played(tmp_path, wheels(tmp_path, "kept"))
    assert kept["changed"]
    listed = aws.client("s3").list_objects_v2(Bucket="red-123456789012-us-east-1")["Contents"]
    assert [one["Key"] for one in listed] == [f"wheels/{WHEEL}"]


def test_a_bucket_that_cannot_be_used_costs_a_build_and_no_run(aws: Account, tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    (tmp_path / WHEEL).write_bytes(b"wheel")
    told = played(tmp_path, wheels(tmp_path, "kept"), wheels(tmp_path, "brought"))
    for one, state in zip(told, ("kept", "brought"), strict=True):
        assert not one["changed"] and f"No wheel of Horovod could be {state}: " in one["warnings"][0], one


def test_a_wheel_that_cannot_be_read_costs_no_run_either(aws: Account, tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    (tmp_path / WHEEL).symlink_to("nowhere")
    aws.client("s3").create_bucket(Bucket="red-123456789012-us-east-1")
    (told,) = played(tmp_path, wheels(tmp_path, "kept"))
    assert not told["changed"] and "No wheel of Horovod could be kept: " in told["warnings"][0], told


def test_the_clusters_own_bucket_has_to_be_of_its_account(aws: Account) -> None:
    bucket = Bucket(Aws("us-east-1"), "red", "wheels", "210987654321")
    with mock.patch.object(Aws, "call", return_value={"Body": io.BytesIO(CONTENT)}) as call:
        assert bucket.read(WHEEL) == CONTENT
    with mock.patch.object(Aws, "pages", return_value=[]) as pages:
        _wheels.stored(bucket, "pytorch")
    assert {one.call_args.kwargs["ExpectedBucketOwner"] for one in (call, pages)} == {"210987654321"}


def test_a_node_that_has_horovod_already_is_brought_nothing(tmp_path: Path) -> None:
    command = _wheels.look(str(tmp_path), "pytorch").replace("/opt/deeplearning", str(tmp_path))
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout == ""
    marker = tmp_path / "env/pytorch/.deeplearning.json"
    marker.parent.mkdir(parents=True)
    marker.write_text(json.dumps({"versions": {"horovod": "0.28.1"}}, indent=1))
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [_wheels.READY]


def test_many_wheels_are_all_seen(aws: Account) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="tools")
    for number in range(3):
        s3.put_object(Bucket="tools", Key="wheels/" + WHEEL.replace("2.13.0", f"2.{number}.0"), Body=b"")
    assert len(_wheels.stored(Bucket(Aws("us-east-1"), "tools", "wheels"), "pytorch")) == 3
    assert _wheels.stored(Bucket(Aws("us-east-1"), "tools", "wheels"), "tensorpack") == set()
