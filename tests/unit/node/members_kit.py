"""A cluster without machines: its AWS, one shared file system, and nodes that are folders."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deeplearning import machine, safe_files
from deeplearning.aws import AwsClient, NotFound, Unavailable
from deeplearning.config import Config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.names import GROUP_TAG, JOB_FLOW_TAG, RANK_TAG, RUN_TAG
from deeplearning.contract.report import key_of
from deeplearning.members import applying, publishing, rendering, signing

from tests.nvml import Gpus
from tests.unit.node.users_kit import NOBODY

REAL_TARGETS = rendering.TARGETS
REAL_PATHS = {
    name: value
    for name, value in vars(paths).items()
    if not name.startswith("_") and isinstance(value, str) and value.startswith("/")
}
# It has the default environment that it read last. The kit of the master sets ON_NODE for other machines.
SYSTEMCTL = """\
cd $NODE_ROOT
case $1 in
    show-environment) cat run/manager-environment; exit ;;
    list-units)
        if [ -e {folder}/before-list-units ]; then . {folder}/before-list-units; fi
        for unit in $(cat run/active-units 2>/dev/null); do
            case $unit in $5) echo $unit loaded active running ;; esac
        done
        exit ;;
    daemon-reload)
        sed -n 's/^DefaultEnvironment=//p' etc/systemd/system.conf.d/* | tr ' ' '\\n' > run/manager-environment ;;
esac
echo "${{ON_NODE:+$ON_NODE: }}$*" >> {folder}/systemctl.log
"""
MASTER_ROLE, WORKER_ROLE = "AROAMASTER", "AROAWORKER"
JOB_FLOW = "j-2AXXXXXXGAPLF"


def instance(number: int) -> str:
    return f"i-{number:017x}"


@cache
def host_key(number: int) -> str:
    """Return a well-formed key without a private part."""
    return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5" + hashlib.sha256(str(number).encode()).hexdigest()[:48]


@dataclass
class FakeAws(AwsClient):
    """As much of AWS as a master asks, with the answers in AWS's shape."""

    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    masters: set[str] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    """life cycle states, by instance id"""
    desired: dict[str, int] = field(default_factory=lambda: {"demo-master": 1, "demo-workers": 0})
    objects: dict[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    listed: int = 0
    """how many objects the last listing had"""
    user_id: str = ""
    emr: bool = False
    """whether the machines are those of an EMR cluster"""
    idle_timeout: int = 0
    """of the auto-termination policy; 0 if there is none"""
    scheduled: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """scheduled actions, by group and name"""
    keeps_fields: bool = False
    """whether a scheduled action keeps the fields that a new request leaves out"""
    denied: set[str] = field(default_factory=set)
    reachable: bool = True
    before: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """what happens before the next calls of an operation; one a call"""

    def add(self, number: int, master: bool = False, tag: str = "") -> str:
        group = "demo-master" if master else "demo-workers"
        own = {JOB_FLOW_TAG: JOB_FLOW} if self.emr else {GROUP_TAG: group}
        tags = {**own, **({RANK_TAG: tag} if tag else {})}
        address = f"10.0.{number // 250}.{number % 250 + 4}"
        self.masters |= {instance(number)} if master else set()
        self.instances[instance(number)] = {
            "InstanceId": instance(number),
            "State": {"Name": "running"},
            "PrivateIpAddress": address,
            "PrivateDnsName": f"ip-{address.replace('.', '-')}.ec2.internal",
            "InstanceType": "p3.16xlarge",
            "LaunchTime": f"2026-11-21 10:{number // 60:02}:{number % 60:02}",
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
        self.states[instance(number)] = "InService"
        self.desired["demo-workers"] = sum(not self._is_master(id_) for id_ in self.instances)
        return instance(number)

    def report(self, number: int, **changed: Any) -> str:
        instance_id = instance(number)
        role = MASTER_ROLE if self.emr or self._is_master(instance_id) else WORKER_ROLE
        content = {
            "schema": 1,
            "instance_id": instance_id,
            "host_keys": [host_key(number)],
            "gpus": 8,
            "state": "ready",
            "bundle": "",
            "step": "",
            "log": [],
            "reported_at": "2026-11-21T10:00:00Z",
        }
        key = key_of(f"{role}:{instance_id}")
        self.objects[key] = json.dumps({**content, **changed}).encode()
        return key

    def end(self, number: int) -> None:
        del self.instances[instance(number)], self.states[instance(number)]

    def tag_of(self, number: int, key: str = RANK_TAG) -> str:
        tags = {tag["Key"]: tag["Value"] for tag in self.instances[instance(number)]["Tags"]}
        return str(tags.get(key, ""))

    def used(self) -> dict[int, str]:
        """Return the runs of the tags, by the numbers of the instances that have one."""
        runs = {number: self.tag_of(number, RUN_TAG) for number in range(1, len(self.instances) + 1)}
        return {number: run for number, run in runs.items() if run}

    def _is_master(self, instance_id: str) -> bool:
        return instance_id in self.masters

    # What the program asks

    def client(self, service: str) -> None:
        return None

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        self._happen(operation)
        if operation == "get_object":
            if arguments["Key"] not in self.objects:
                raise NotFound(operation)
            return {"Body": io.BytesIO(self.objects[arguments["Key"]])}
        if operation == "put_object":
            self.objects[arguments["Key"]] = arguments["Body"]
        if operation == "put_scheduled_update_group_action":
            action = (arguments["AutoScalingGroupName"], arguments["ScheduledActionName"])
            merged = {**(self.scheduled.get(action, {}) if self.keeps_fields else {}), **arguments}
            if merged.get("EndTime", merged["StartTime"]) < merged["StartTime"]:
                raise UserError("Given end time is before the start time")
            self.scheduled[action] = merged
        if operation == "create_tags":
            keys = {tag["Key"] for tag in arguments["Tags"]}
            for instance_id in arguments["Resources"]:
                tags = self.instances[instance_id]["Tags"]
                tags[:] = [tag for tag in tags if tag["Key"] not in keys] + arguments["Tags"]
        if operation == "get_auto_termination_policy":
            return {"AutoTerminationPolicy": {"IdleTimeout": self.idle_timeout}} if self.idle_timeout else {}
        if operation == "remove_auto_termination_policy":
            self.idle_timeout = 0
        if operation == "put_auto_termination_policy":
            self.idle_timeout = arguments["AutoTerminationPolicy"]["IdleTimeout"]
        return {"UserId": self.user_id} if operation == "get_caller_identity" else {}

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        self._happen(operation)
        if operation == "list_objects_v2":
            listed = [
                {"Key": name, "ETag": hashlib.md5(body).hexdigest(), "LastModified": place}
                for place, (name, body) in enumerate(self.objects.items())
            ][: arguments["PaginationConfig"]["MaxItems"]]
            self.listed = len(listed)
            return listed
        if operation == "describe_scheduled_actions":
            return [
                item for (_group, name), item in self.scheduled.items() if name in arguments["ScheduledActionNames"]
            ]
        if operation == "list_instances":
            return [
                {
                    "Ec2InstanceId": instance_id,
                    "Status": {"State": "RUNNING" if self.states[instance_id] == "InService" else "BOOTSTRAPPING"},
                }
                for instance_id in self.instances
                if self._is_master(instance_id) == (arguments["InstanceGroupTypes"] == ["MASTER"])
            ]
        if operation == "describe_instances":
            states = next(item["Values"] for item in arguments["Filters"] if item["Name"] == "instance-state-name")
            return [{"Instances": [item]} for item in self.instances.values() if item["State"]["Name"] in states]
        return [
            {
                "AutoScalingGroupName": group,
                "DesiredCapacity": desired,
                "Instances": [
                    {
                        "InstanceId": instance_id,
                        "LifecycleState": self.states[instance_id],
                    }
                    for instance_id in self.instances
                    if self._is_master(instance_id) == (group == "demo-master")
                ],
            }
            for group, desired in self.desired.items()
        ]

    def _happen(self, operation: str) -> None:
        if not self.reachable:
            raise Unavailable("AWS does not answer.")
        self.calls.append(operation)
        if self.before.get(operation):
            self.before[operation].pop(0)()
        if operation in self.denied:
            raise UserError(f"this machine's role is not allowed {operation}.")


def file_version(path: Path) -> tuple[int, int]:
    """Return what differs after a file was written or replaced. Its other attributes change when it is read."""
    seen = path.stat()
    return seen.st_ino, seen.st_mtime_ns


def usage_of(nodes: Sequence[str]) -> publishing.Usage:
    return publishing.Usage(dict.fromkeys(nodes, "run1"), bool(nodes))


@dataclass
class Node:
    """One machine. What is done `with` it, is done there."""

    number: int
    root: Path
    config: Config
    aws: FakeAws
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        for folder in ("run/deeplearning", "var/lib/deeplearning", "etc/ssh", "opt/deeplearning"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "run/deeplearning/instance-id").write_text(instance(self.number))
        (self.root / "etc/deeplearning").mkdir()
        (self.root / "etc/deeplearning/cluster.json").write_text(
            json.dumps({"schema": 1, **vars(self.config), "vpc_cidrs": list(self.config.vpc_cidrs)})
        )
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (self.root / "etc/mounts").write_text(f"fs-1:/ {self.config.efs_mount} nfs4 rw 0 0\n")
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "root@x", "-f", str(self.key)]
        subprocess.run(command, check=True)

    @property
    def key(self) -> Path:
        return self.root / "etc/ssh/ssh_host_ed25519_key"

    @property
    def public_key(self) -> str:
        return " ".join(self.key.with_suffix(".pub").read_text().split()[:2])

    @contextmanager
    def here(self) -> Iterator[None]:
        with self.monkeypatch.context() as patch:
            for name, value in REAL_PATHS.items():
                patch.setattr(paths, name, self._whole(value))
            targets = tuple(replace(target, path=self._whole(target.path)) for target in REAL_TARGETS)
            patch.setattr(pwd, "getpwnam", lambda _name: SimpleNamespace(pw_uid=NOBODY, pw_gid=NOBODY, pw_dir="/"))
            patch.setattr(rendering, "TARGETS", targets)
            patch.setenv("NODE_ROOT", str(self.root))
            patch.setattr(signing, "KEY", str(self.key))
            patch.setattr(machine, "HOST_KEYS", f"{self.root}/etc/ssh/ssh_host_*_key.pub")
            patch.setattr(machine, "MOUNTS", f"{self.root}/etc/mounts")
            yield

    def _whole(self, path: str) -> str:
        return f"{self.root}{path}"

    def text(self, path: str) -> str:
        return Path(self._whole(path)).read_text()

    def publish(self, nodes_in_use: Sequence[str] = ()) -> publishing.PublishOutcome:
        usage = usage_of(nodes_in_use)
        with self.here():
            return publishing.publish(self.config, self.aws, lambda: usage)

    def apply(self) -> applying.ApplyOutcome:
        with self.here():
            return applying.apply(self.config, lambda: self.aws)

    def signed(self, record: dict[str, Any]) -> dict[str, Any]:
        with self.here():
            return signing.signed({key: value for key, value in record.items() if key != "signature"})


@dataclass
class Cluster:
    folder: Path
    config: Config
    aws: FakeAws
    monkeypatch: pytest.MonkeyPatch

    def node(self, number: int) -> Node:
        return Node(number, self.folder / f"node{number}", self.config, self.aws, self.monkeypatch)

    def master(self, number: int = 1) -> Node:
        """In service, and it has reported its own key."""
        self.aws.add(number, master=True)
        node = self.node(number)
        self.aws.report(number, host_keys=[node.public_key])
        return node

    def workers(self, *numbers: int) -> None:
        for number in numbers:
            self.aws.add(number)
            self.aws.report(number)

    @property
    def path(self) -> Path:
        return Path(paths.published(self.config.efs_mount, self.config.cluster))

    @property
    def list(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.path.read_text())
        return record

    def put(self, record: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(record))

    def addresses(self) -> dict[str, str]:
        return {member["aliases"][0]: member["private_ip"] for member in self.list["members"]}


def replaced(cluster: Cluster) -> Node:
    """Another machine becomes the master, and publishes."""
    cluster.aws.end(1)
    new = cluster.master(8)
    new.publish()
    return new


def write_program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def cluster_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    efs, programs = folder / "efs", folder / "bin"
    efs.mkdir(mode=0o1777)
    programs.mkdir()
    for name, lines in {
        "systemctl": SYSTEMCTL.format(folder=folder),
        # Called as `sudo -n`.
        "sudo": 'shift; exec "$@"',
    }.items():
        write_program(programs / name, lines)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    gpus = Gpus(folder)
    gpus.set(count=8)
    for name, value in gpus.environment.items():
        monkeypatch.setenv(name, value)
    # A list belongs to root, and tests may run as another user.
    monkeypatch.setattr(safe_files, "OWNER", os.getuid())
    config = Config(
        cluster="demo",
        cluster_id="sg-0123456789abcdef0",
        region="us-east-1",
        bucket="demo-123456789012-us-east-1",
        vpc_cidrs=("10.0.0.0/16",),
        user="ubuntu",
        role="master",
        master_role_id=MASTER_ROLE,
        master_trains=True,
        efs_mount=str(efs),
        efs_name="fs-1.efs.us-east-1.amazonaws.com",
        default_framework=None,
        gpus=8,
        bundle="",
    )
    return Cluster(folder, config, FakeAws(), monkeypatch)
