# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A file system and its mount target: `decide` compares desired and existing, `converge` makes the changes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.polling import until
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG, tag_list, tags_of
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.ports import NFS
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.launch_template import matches

Item = Mapping[str, Any]
"""An item of an answer of AWS."""

MAX_SECURITY_GROUPS = 5
"""AWS's limit for a network interface."""
ENCRYPTED, PERFORMANCE_MODE, THROUGHPUT_MODE = True, "generalPurpose", "elastic"
TLS_POLICY_ID = "deeplearning-require-tls"
"""Marks the policies of this collection. Other policies are neither replaced nor removed."""
_DELETING = ("deleting", "deleted")


@dataclass(frozen=True)
class DesiredFileSystem:
    """The options. With `file_system_id` the file system is the user's own, and only its mount target is managed."""

    name: str = ""
    creation_token: str = ""
    file_system_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    subnet_id: str = ""
    security_groups: Sequence[str] = ()
    clients: Sequence[str] = ()
    """Security groups of the machines that mount it."""
    require_tls: bool = False


@dataclass(frozen=True)
class ExistingFileSystem:
    """The state in AWS: the file system, if it exists, and what its changes depend on."""

    file_system: Item | None = None
    policy: Item = field(default_factory=dict)
    mount_targets: Sequence[Item] = ()
    subnet: Item | None = None
    """None in check mode, if the subnet itself is yet to be created."""
    security_groups: Sequence[str] = ()
    """Those of the mount target in the subnet's zone."""
    ingress_rules: Sequence[Item] = ()
    """Their IpPermissions."""

    @property
    def mount_target(self) -> Item | None:
        """The mount target in the subnet's zone. A zone has at most one."""
        zone = self.subnet["AvailabilityZone"] if self.subnet else None
        return next((target for target in self.mount_targets if target.get("AvailabilityZoneName", "") == zone), None)

    @property
    def is_deleting(self) -> bool:
        return any(map(_is_deleting, (self.file_system, *self.mount_targets)))


@dataclass(frozen=True)
class Change:
    """A call of EFS, without the id of the file system, and the difference that it makes."""

    operation: str
    params: Mapping[str, Any]
    after: Mapping[str, Any]
    before: Mapping[str, Any] = field(default_factory=dict)


# Decisions: no calls and no clock.


def find(file_systems: Iterable[Item], desired: DesiredFileSystem) -> Item | None:
    """Return the file system by its id, else by its creation token, else by its name and tags.

    Raise UserError if no file system has the id, or if the choice is ambiguous or another cluster's.
    """
    systems = list(file_systems)
    if desired.file_system_id:
        matching = [system for system in systems if system["FileSystemId"] == desired.file_system_id]
        if not matching:
            raise UserError(
                f"There is no file system {desired.file_system_id} in this region: give the id of one that exists, or "
                "none for a new one."
            )
        if _is_deleting(matching[0]):
            raise UserError(f"File system {desired.file_system_id} is being deleted: give another one.")
        return matching[0]
    matching = [system for system in systems if system["CreationToken"] == desired.creation_token]
    matching = matching or [system for system in systems if _has_name_and_tag(system, desired)]
    if len(matching) > 1:
        ids = ", ".join(sorted(system["FileSystemId"] for system in matching))
        raise UserError(f"The file systems {ids} all have the name {desired.name}: choose one by its id.")
    cluster = desired.tags.get(CLUSTER_TAG)
    if matching and cluster is not None and tags_of(matching[0].get("Tags")).get(CLUSTER_TAG) != cluster:
        raise UserError(
            f"File system {matching[0]['FileSystemId']} has the creation token {desired.creation_token} but not the "
            f"tag {CLUSTER_TAG}={cluster}, so it is not this cluster's: choose it by its id, or choose another name."
        )
    return matching[0] if matching else None


def _has_name_and_tag(system: Item, desired: DesiredFileSystem) -> bool:
    cluster, tags = desired.tags.get(CLUSTER_TAG), tags_of(system.get("Tags"))
    return cluster is not None and tags.get("Name") == desired.name and tags.get(CLUSTER_TAG) == cluster


def _is_deleting(item: Item | None) -> bool:
    """Return whether a file system or mount target is being deleted."""
    return item is not None and item["LifeCycleState"] in _DELETING


def decide(existing: ExistingFileSystem, desired: DesiredFileSystem) -> list[Change]:
    """Return the calls, in order. Raise UserError if something in the way is not ours to change.

    The policy comes before the mount target, so that a new file system cannot be mounted without TLS.
    """
    changes: list[Change] = []
    if not desired.file_system_id:
        changes += _changes_of_file_system(existing.file_system, desired)
        changes += _changes_of_policy(existing, desired)
    if desired.subnet_id:
        changes += _changes_of_mount_target(existing, desired)
    return changes


def _changes_of_file_system(system: Item | None, desired: DesiredFileSystem) -> list[Change]:
    if system is None:
        params = {
            "CreationToken": desired.creation_token,
            "PerformanceMode": PERFORMANCE_MODE,
            "Encrypted": ENCRYPTED,
            "ThroughputMode": THROUGHPUT_MODE,
            "Tags": tag_list({"Name": desired.name, **desired.tags}),
        }
        return [Change("create_file_system", params, _settings(params))]
    changes = []
    if system["ThroughputMode"] != THROUGHPUT_MODE:
        after = {"throughput_mode": THROUGHPUT_MODE}
        changes.append(Change("update_file_system", {"ThroughputMode": THROUGHPUT_MODE}, after))
    tags = tags_of(system.get("Tags"))
    missing = {key: value for key, value in desired.tags.items() if tags.get(key) != value}
    if missing:
        changes.append(Change("tag_resource", {"Tags": tag_list(missing)}, {"tags": {**tags, **missing}}))
    return changes


def _changes_of_policy(existing: ExistingFileSystem, desired: DesiredFileSystem) -> list[Change]:
    """Add or repair our policy if TLS is required, else remove it."""
    system, policy = existing.file_system or {}, existing.policy
    if policy and policy.get("Id") != TLS_POLICY_ID:
        if not desired.require_tls:
            return []
        raise UserError(
            f"File system {system['FileSystemId']} has a policy that this cluster did not make, so TLS cannot be "
            "required of its clients: require it in that policy and set cluster_efs_tls to false, or remove the "
            f"policy. Example: aws efs delete-file-system-policy --file-system-id {system['FileSystemId']}"
        )
    before, after = {"requires_tls": not desired.require_tls}, {"requires_tls": desired.require_tls}
    if desired.require_tls and not (system and matches(tls_policy(system["FileSystemArn"]), policy)):
        return [Change("put_file_system_policy", {}, after, before)]
    if policy and not desired.require_tls:
        return [Change("delete_file_system_policy", {}, after, before)]
    return []


def tls_policy(file_system_arn: str) -> dict[str, Any]:
    """Return the policy that lets clients do what they may without one, provided that they use TLS."""
    clients = {
        "Principal": {"AWS": "*"},
        "Action": [f"elasticfilesystem:Client{action}" for action in ("Mount", "RootAccess", "Write")],
        "Resource": file_system_arn,
    }
    # A policy without this condition would count as public, and EFS refuses those.
    by_mount_target = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    without_tls = {"Bool": {"aws:SecureTransport": "false"}}
    return {
        "Version": "2012-10-17",
        "Id": TLS_POLICY_ID,
        "Statement": [
            {"Sid": "AllowClients", "Effect": "Allow", **clients, "Condition": by_mount_target},
            {"Sid": "DenyWithoutTls", "Effect": "Deny", **clients, "Condition": without_tls},
        ],
    }


def _changes_of_mount_target(existing: ExistingFileSystem, desired: DesiredFileSystem) -> list[Change]:
    """Reuse the existing mount target of the zone, adding our security groups if needed, or create one."""
    subnet, target, current = existing.subnet, existing.mount_target, existing.security_groups
    vpc_ids = [other.get("VpcId", "") for other in existing.mount_targets]
    other_vpcs = [vpc_id for vpc_id in vpc_ids if subnet and vpc_id not in ("", subnet["VpcId"])]
    if subnet and existing.file_system and other_vpcs:
        raise UserError(
            f"File system {existing.file_system['FileSystemId']} has its mount targets in {other_vpcs[0]}, the cluster "
            f"is in {subnet['VpcId']}, and AWS allows one VPC only: give the cluster that VPC, or another file system."
        )
    if subnet is None or target is None:
        params = {"SubnetId": desired.subnet_id, "SecurityGroups": list(desired.security_groups)}
        after = {"subnet_id": desired.subnet_id, "security_groups": sorted(desired.security_groups)}
        return [Change("create_mount_target", params, {"mount_target": after})]
    missing = [group for group in desired.security_groups if group not in current]
    if not missing or lets_in(existing.ingress_rules, desired.clients, subnet["CidrBlock"]):
        return []
    target_id, groups = target["MountTargetId"], [*current, *missing]
    if len(groups) > MAX_SECURITY_GROUPS:
        raise UserError(
            f"Mount target {target_id} would have {len(groups)} security groups and AWS allows {MAX_SECURITY_GROUPS}: "
            f"remove one, or let {', '.join(desired.clients)} in on port {NFS} by one that it has."
        )
    return [
        Change(
            "modify_mount_target_security_groups",
            {"MountTargetId": target_id, "SecurityGroups": groups},
            {"mount_target": {"id": target_id, "security_groups": sorted(groups)}},
            {"mount_target": {"id": target_id, "security_groups": sorted(current)}},
        )
    ]


def lets_in(rules: Iterable[Item], clients: Sequence[str], cidr: str) -> bool:
    """Return whether rules (IpPermissions) let NFS in from the clients' groups, or from all of the subnet."""
    subnet = ipaddress.ip_network(cidr)
    for rule in rules:
        if rule["IpProtocol"] not in ("-1", "tcp"):
            continue
        if rule["IpProtocol"] == "tcp" and not rule.get("FromPort", 0) <= NFS <= rule.get("ToPort", 65535):
            continue
        if set(clients) & {pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", ())}:
            return True
        blocks = (ipaddress.ip_network(block["CidrIp"], strict=False) for block in rule.get("IpRanges", ()))
        if any(subnet.version == block.version and subnet.subnet_of(block) for block in blocks):  # type: ignore[arg-type]
            return True
    return False


def notes_on(existing: ExistingFileSystem, desired: DesiredFileSystem) -> list[str]:
    """Return a note on each difference that AWS cannot change."""
    system = existing.file_system
    if system is None or desired.file_system_id:
        return []
    encrypted, mode = bool(system.get("Encrypted")), system["PerformanceMode"]
    if (encrypted, mode) == (ENCRYPTED, PERFORMANCE_MODE):
        return []
    return [
        f"File system {system['FileSystemId']} stays as it is (encrypted: {encrypted}, {mode}): AWS cannot change that."
    ]


def _settings(system: Item) -> dict[str, Any]:
    tags = tags_of(system.get("Tags"))
    return {
        "name": tags.get("Name", ""),
        "creation_token": system["CreationToken"],
        "encrypted": bool(system.get("Encrypted")),
        "performance_mode": system.get("PerformanceMode", ""),
        "throughput_mode": system.get("ThroughputMode", ""),
        "tags": tags,
    }


def described(system: Item) -> dict[str, Any]:
    """Return a file system as the module returns it."""
    return {"id": system["FileSystemId"], "state": system["LifeCycleState"], **_settings(system)}


# Calls


class Reader:
    def __init__(self, aws: Aws, desired: DesiredFileSystem, check: bool) -> None:
        self._aws = aws
        self._desired = desired
        self._check = check

    def read(self) -> ExistingFileSystem:
        system = self.file_system()
        existing = ExistingFileSystem(system, subnet=self._subnet() if self._desired.subnet_id else None)
        if system is None or _is_deleting(system):
            return existing
        file_system_id = str(system["FileSystemId"])
        existing = replace(
            existing,
            policy={} if self._desired.file_system_id else self._policy(file_system_id),
            mount_targets=mount_targets(self._aws, file_system_id) if self._desired.subnet_id else (),
        )
        target = existing.mount_target
        if target is None or _is_deleting(target):
            return existing
        answer = self._aws.call("efs", "describe_mount_target_security_groups", MountTargetId=target["MountTargetId"])
        groups = answer["SecurityGroups"]
        rules: list[Item] = []
        if not set(self._desired.security_groups) <= set(groups):
            answer = self._aws.call("ec2", "describe_security_groups", GroupIds=groups)
            rules = [rule for group in answer["SecurityGroups"] for rule in group["IpPermissions"]]
        return replace(existing, security_groups=groups, ingress_rules=rules)

    def file_system(self) -> Item | None:
        filters = {"FileSystemId": self._desired.file_system_id} if self._desired.file_system_id else {}
        try:
            systems = self._aws.pages("efs", "describe_file_systems", "FileSystems", **filters)
        except AwsError as error:
            if error.code != "FileSystemNotFound":
                raise
            systems = []
        return find(systems, self._desired)

    def _subnet(self) -> Item | None:
        missing = ("InvalidSubnetID.NotFound", "InvalidSubnetID.Malformed") if self._check else ()
        answer = self._aws.find("ec2", "describe_subnets", missing, SubnetIds=[self._desired.subnet_id])
        return next(iter(answer.get("Subnets", ())), None)

    def _policy(self, file_system_id: str) -> dict[str, Any]:
        answer = self._aws.find("efs", "describe_file_system_policy", ("PolicyNotFound",), FileSystemId=file_system_id)
        return dict(json.loads(answer.get("Policy", "{}")))


def mount_targets(aws: Aws, file_system_id: str) -> list[Item]:
    return aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=file_system_id)


class Applier:
    """Apply changes one after the other, and keep track of the file system and the mount target."""

    def __init__(self, aws: Aws, existing: ExistingFileSystem, reader: Reader, seconds: float) -> None:
        self._aws = aws
        self._reader = reader
        self._seconds = seconds
        self.file_system = existing.file_system or {}
        self.mount_target = existing.mount_target or {}
        self.security_groups = existing.security_groups

    def apply(self, change: Change) -> None:
        operation, params = change.operation, dict(change.params)
        if operation == "create_file_system":
            self.file_system = self._create(params)
        elif operation == "tag_resource":
            self._aws.call("efs", operation, ResourceId=self.file_system["FileSystemId"], **params)
        elif operation == "modify_mount_target_security_groups":
            self._aws.call("efs", operation, **params)
            self.security_groups = params["SecurityGroups"]
        else:
            # These calls refuse a file system that is not available yet.
            self.wait_for_file_system()
            if operation == "put_file_system_policy":
                params["Policy"] = json.dumps(tls_policy(self.file_system["FileSystemArn"]))
            answer = self._aws.call("efs", operation, FileSystemId=self.file_system["FileSystemId"], **params)
            if operation == "update_file_system":
                self.file_system = answer  # it is updating now, and takes the next change later
            elif operation == "create_mount_target":
                self.mount_target, self.security_groups = answer, params["SecurityGroups"]

    def _create(self, params: Mapping[str, Any]) -> Item:
        try:
            return self._aws.call("efs", "create_file_system", **params)
        except AwsError as error:
            # An earlier attempt of this very call succeeded, and only its answer was lost.
            system = self._reader.file_system() if error.code == "FileSystemAlreadyExists" else None
            if system is None:
                raise
            return system

    def wait_for_file_system(self) -> None:
        file_system_id = self.file_system["FileSystemId"]

        def poll() -> bool | None:
            if self.file_system["LifeCycleState"] != "available":
                answer = self._aws.call("efs", "describe_file_systems", FileSystemId=file_system_id)
                self.file_system = answer["FileSystems"][0]
            return self.file_system["LifeCycleState"] == "available" or None

        if not until(poll, self._seconds):
            raise UserError(
                f"File system {file_system_id} is not available after {self._seconds:g} s: run it again later."
            )

    def wait_for_mount_target(self) -> None:
        if not self.mount_target or self.mount_target["LifeCycleState"] == "available":
            return
        file_system_id, target_id = str(self.file_system["FileSystemId"]), self.mount_target["MountTargetId"]

        def poll() -> bool | None:
            targets = mount_targets(self._aws, file_system_id)
            self.mount_target = next((target for target in targets if target["MountTargetId"] == target_id), {})
            if self.mount_target.get("LifeCycleState", "deleted") in ("error", *_DELETING):
                raise UserError(f"Mount target {target_id} of {file_system_id} could not be created: run it again.")
            return self.mount_target["LifeCycleState"] == "available" or None

        if not until(poll, self._seconds):
            raise UserError(f"Mount target {target_id} is not available after {self._seconds:g} s: run it again later.")

    def described_mount_target(self) -> dict[str, Any]:
        target = self.mount_target
        if not target:
            return {}
        return {
            "id": target["MountTargetId"],
            "subnet_id": target["SubnetId"],
            "vpc_id": target.get("VpcId", ""),
            "zone": target.get("AvailabilityZoneName", ""),
            "ip": target.get("IpAddress", ""),
            "state": target["LifeCycleState"],
            "security_groups": sorted(self.security_groups),
        }


def converge(aws: Aws, desired: DesiredFileSystem, check: bool, wait: bool, seconds: float) -> dict[str, Any]:
    """Create or change the file system and its mount target, and return the module's result. Check mode only reads."""
    reader = Reader(aws, desired, check)
    existing = reader.read()
    if existing.is_deleting:
        existing = _without_deleting(existing) if check else _read_when_deleted(reader, existing, seconds)
    changes, notes = decide(existing, desired), notes_on(existing, desired)
    applier = Applier(aws, existing, reader, seconds)
    if not check:
        for change in changes:
            applier.apply(change)
        if wait:
            applier.wait_for_file_system()
            applier.wait_for_mount_target()
    before = described(existing.file_system) if existing.file_system else {}
    after = dict(before)
    for change in changes:
        before, after = {**before, **change.before}, {**after, **change.after}
    planned = {**after, "id": "", "state": "absent"}
    return {
        "changed": bool(changes),
        "created": existing.file_system is None,
        "file_system": described(applier.file_system) if applier.file_system else planned,
        "mount_target": applier.described_mount_target(),
        "notes": notes,
        "diff": {"before": before, "after": after},
    }


def _read_when_deleted(reader: Reader, first: ExistingFileSystem, seconds: float) -> ExistingFileSystem:
    """Wait until nothing is being deleted: until then it holds the creation token or the zone."""

    def poll() -> ExistingFileSystem | None:
        existing = reader.read()
        return None if existing.is_deleting else existing

    existing = until(poll, seconds)
    if existing:
        return existing
    system = first.file_system or {}
    subject = "File system {} has" if _is_deleting(system) else "Mount targets of {} have"
    raise UserError(f"{subject.format(system['FileSystemId'])} been deleting for {seconds:g} s: run it again later.")


def _without_deleting(existing: ExistingFileSystem) -> ExistingFileSystem:
    if _is_deleting(existing.file_system):
        return ExistingFileSystem(subnet=existing.subnet)
    return replace(existing, mount_targets=[target for target in existing.mount_targets if not _is_deleting(target)])
