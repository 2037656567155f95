"""A stand-in for machines that configure themselves: the machines of this account do not boot. Each of them reports and
answers its launch hook with the identity of that machine, so its role's policy has to allow it."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import ATTEMPTS, BUNDLES, HOOK
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import MASTER, WORKER, Names

from tests.account.fleet import ACCOUNT, host_key
from tests.account.kit import REGION, Account, new_session

READY, BROKEN, GIVES_UP, HANGS, SILENT = "ready", "broken", "gives up", "hangs", "silent"
"""What a machine does: it configures itself; it fails, and keeps its place if others failed before; it fails and keeps
its place at once; it reports its first step and no other; it never reports."""
LOG = ["TASK [efs_mount : Mount the file system]", "mount.nfs4: No route to host"]


def nodes_of(account: Account, cluster: str, bundle: str = "") -> Nodes:
    """The machines of a cluster that site.yml has made."""
    names = Names(cluster, ACCOUNT, REGION)
    return Nodes(account, names.bucket, {names.groups[role]: names.identity(role) for role in (MASTER, WORKER)}, bundle)


class Nodes:
    """The machines of some Auto Scaling groups, as root on each of them would see itself."""

    def __init__(self, account: Account, bucket: str, roles: Mapping[str, str], bundle: str = "") -> None:
        self.account, self.bucket = account, bucket
        self.bundle = bundle
        """If empty, the newest in the bucket."""
        self.roles = roles
        """The names of the IAM roles, by the groups' names."""
        self.behaviours: dict[str, Iterator[str]] = {}
        """By group, what its next machines do; afterwards all become ready."""
        self.before_ready: Callable[[str], bool] = lambda _machine: True
        """Whether a machine can become ready."""
        self.failures: list[BaseException] = []
        self._failed: dict[str, int] = defaultdict(int)
        self._role_ids: dict[str, str] = {}
        self._doing: dict[str, str] = {}
        self._session = new_session("", "", REGION)
        self._stopped = threading.Event()

    @cached_property
    def _scaling(self) -> Any:
        return self.account.client("autoscaling")

    @contextmanager
    def boot(self) -> Iterator[None]:
        """Let machines boot in the meantime, and from then on no machine without it."""
        self.account.hold_machines()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            self._stopped.clear()
        assert not self.failures, self.failures

    @contextmanager
    def bake(self, cluster: str, behaviour: str = READY) -> Iterator[None]:
        """Let the machine of image.yml prepare and stop itself in the meantime."""
        ended = threading.Event()
        thread = threading.Thread(target=self._bake, args=(cluster, behaviour, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert not self.failures, self.failures

    def _bake(self, cluster: str, behaviour: str, ended: threading.Event) -> None:
        ec2, group = self.account.client("ec2"), Names(cluster).workers_group
        filters = [
            {"Name": "tag:Name", "Values": [f"{cluster}-image"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        while not ended.wait(0.2):
            for reservation in ec2.describe_instances(Filters=filters)["Reservations"]:
                machine = reservation["Instances"][0]["InstanceId"]
                if behaviour == READY:
                    self.report(group, machine, "ready", "clean")
                    ec2.stop_instances(InstanceIds=[machine])
                else:
                    self.report(group, machine, "failed", "framework", LOG)
                return

    def will(self, group: str, *behaviours: str) -> None:
        self.behaviours[group] = iter(behaviours)

    def _run(self) -> None:
        while not self._stopped.wait(0.2):
            try:
                self.step()
            except Exception as error:
                self.failures.append(error)
                return

    def step(self) -> None:
        """Let each machine that its hook holds do the next thing."""
        groups = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(self.roles))["AutoScalingGroups"]
        for group in groups:
            for machine in group["Instances"]:
                if machine["LifecycleState"] == "Pending:Wait":
                    self._step(group["AutoScalingGroupName"], machine["InstanceId"])

    def _step(self, group: str, machine: str) -> None:
        behaviour = self._doing.get(machine)
        if behaviour is None:
            behaviour = self._doing[machine] = next(self.behaviours.get(group, iter(())), READY)
            if behaviour in (READY, HANGS):
                self.report(group, machine, "configuring", "efs_mount")
            elif behaviour != SILENT:
                self._fail(group, machine, holds=behaviour == GIVES_UP)
        elif behaviour == READY and self.before_ready(machine):
            self._doing[machine] = "done"
            self.report(group, machine, "ready")
            self._answer(group, machine, "CONTINUE")

    def _fail(self, group: str, machine: str, holds: bool) -> None:
        self.report(group, machine, "failed", "efs_mount", LOG)
        self._failed[group] += 1
        if holds or self._failed[group] > ATTEMPTS:
            self._client(group, machine, "autoscaling").record_lifecycle_action_heartbeat(
                AutoScalingGroupName=group, LifecycleHookName=HOOK, InstanceId=machine
            )
        else:
            self._answer(group, machine, "ABANDON")

    def _answer(self, group: str, machine: str, result: str) -> None:
        self._client(group, machine, "autoscaling").complete_lifecycle_action(
            AutoScalingGroupName=group, LifecycleHookName=HOOK, InstanceId=machine, LifecycleActionResult=result
        )

    def report(self, group: str, machine: str, state: str, step: str = "", log: Sequence[str] = ()) -> None:
        body = {
            "schema": 1,
            "instance_id": machine,
            "host_keys": [host_key(machine)],
            "gpus": 0,
            "state": state,
            "bundle": self.bundle or self._stored_bundle(),
            "step": step,
            "log": list(log),
            "reported_at": "2026-11-21T10:00:00Z",
        }
        if group not in self._role_ids:
            role = self.account.client("iam").get_role(RoleName=self.roles[group])["Role"]
            self._role_ids[group] = str(role["RoleId"])
        key = f"members/{self._role_ids[group]}:{machine}/report.json"
        self._client(group, machine, "s3").put_object(Bucket=self.bucket, Key=key, Body=json.dumps(body).encode())

    def _stored_bundle(self) -> str:
        stored = self.account.client("s3").list_objects_v2(Bucket=self.bucket, Prefix=BUNDLES)["Contents"]
        newest = max(stored, key=lambda item: item["LastModified"])
        return str(newest["Key"]).removeprefix(BUNDLES).partition(".")[0]

    def _client(self, group: str, machine: str, service: str) -> Any:
        with self.account.cloud.lock:
            session = self.account.cloud.credentials.issue(self.roles[group], machine, 3600)
        keys = (session.access_key, session.secret, session.token)
        return self._session.client(service, REGION, None, True, None, self.account.endpoint, *keys)
