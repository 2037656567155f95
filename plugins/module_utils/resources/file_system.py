# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A file system and its mount target: `decide` compares desired and existing, `converge` makes the changes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..aws.client import Aws, AwsError
from ..aws.polling import until
from ..contract.errors import UserError
from ..contract.names import CLUSTER_TAG, missing_tags, tag_list, tags_of
from ..contract.ports import NFS
from .launch_template import matches

Item = Mapping[str, Any]
"""An item of an answer of AWS."""
Options = Mapping[str, Any]
"""The options of the module `file_system`, as it documents them. With `file_system_id` the file system is the user's
own, and only its mount target is managed."""

MAX_SECURITY_GROUPS = 5
"""AWS's limit for a network interface."""
ENCRYPTED, PERFORMANCE_MODE = True, "generalPurpose"
ELASTIC, BURSTING, PROVISIONED = "elastic", "bursting", "provisioned"
"""AWS's throughput modes."""
THROUGHPUT_MODES = (ELASTIC, BURSTING)
"""Those that a cluster can choose. A file system that has another mode keeps it."""
TLS_POLICY_ID = "deeplearning-require-tls"
"""Marks the policies of this collection. Other policies are neither replaced nor removed."""
_DELETING = ("deleting", "deleted")


@dataclass(frozen=True)
class ExistingFileSystem:
    """The state in AWS: the file system, and what its changes depend on. What does not exist is empty."""

    file_system: Item = field(default_factory=dict)
    policy: Item = field(default_factory=dict)
    mount_targets: Sequence[Item] = ()
    subnet: Item = field(default_factory=dict)
    """Empty in check mode, if the subnet itself is yet to be created."""
    security_groups: Sequence[str] = ()
    """Those of the mount target in the subnet's zone."""
    ingress_rules: Sequence[Item] = ()
    """Their IpPermissions."""

    @property
    def mount_target(self) -> Item:
        """The mount target in the subnet's zone. A zone has at most one."""
        zone = self.subnet.get("AvailabilityZone")
        return next((target for target in self.mount_targets if target.get("AvailabilityZoneName", "") == zone), {})

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


def throughput_mode_of(system: Item, chosen: str, is_external: bool) -> str:
    """Return the throughput mode that a file system will have; empty if it is unknown.

    `system`: empty if it is yet to be created. `chosen`: the setting; empty for no change. `is_external`: the file
    system is the user's own, so it is not changed.
    """
    current = str(system.get("ThroughputMode", ""))
    if is_external:
        return current
    if chosen:
        return chosen
    return current if system else ELASTIC


def find(file_systems: Iterable[Item], options: Options) -> Item:
    """Return the file system by its id, else by its creation token, else by its name and tags; empty if none has them.

    Raise UserError if no file system has the id, or if the choice is ambiguous or another cluster's.
    """
    systems = list(file_systems)
    if own_id := options["file_system_id"]:
        matching = [system for system in systems if system["FileSystemId"] == own_id]
        if not matching:
            raise UserError(
                f"There is no file system {own_id} in this region: give the id of one that exists, or none for a new "
                "one."
            )
        if _is_deleting(matching[0]):
            raise UserError(f"File system {own_id} is being deleted: give another one.")
        return matching[0]
    matching = [system for system in systems if system["CreationToken"] == options["creation_token"]]
    matching = matching or [system for system in systems if _has_name_and_tag(system, options)]
    if len(matching) > 1:
        ids = ", ".join(sorted(system["FileSystemId"] for system in matching))
        raise UserError(f"The file systems {ids} all have the name {options['name']}: choose one by its id.")
    cluster = options["tags"].get(CLUSTER_TAG)
    if matching and cluster is not None and tags_of(matching[0].get("Tags")).get(CLUSTER_TAG) != cluster:
        raise UserError(
            f"File system {matching[0]['FileSystemId']} has the creation token {options['creation_token']} but not the "
            f"tag {CLUSTER_TAG}={cluster}, so it is not this cluster's: choose it by its id, or choose another name."
        )
    return matching[0] if matching else {}


def _has_name_and_tag(system: Item, options: Options) -> bool:
    cluster, tags = options["tags"].get(CLUSTER_TAG), tags_of(system.get("Tags"))
    return cluster is not None and tags.get("Name") == options["name"] and tags.get(CLUSTER_TAG) == cluster


def _is_deleting(item: Item) -> bool:
    """Return whether a file system or mount target is being deleted."""
    return item.get("LifeCycleState") in _DELETING


def decide(existing: ExistingFileSystem, options: Options) -> list[Change]:
    """Return the calls, in order. Raise UserError if something in the way is not ours to change.

    The policy comes before the mount target, so that a new file system cannot be mounted without TLS.
    """
    changes: list[Change] = []
    if not options["file_system_id"]:
        changes += _changes_of_file_system(existing.file_system, options)
        changes += _changes_of_policy(existing, options)
    if options["subnet_id"]:
        changes += _changes_of_mount_target(existing, options)
    return changes


def _changes_of_file_system(system: Item, options: Options) -> list[Change]:
    if not system:
        params = {
            "CreationToken": options["creation_token"],
            "PerformanceMode": PERFORMANCE_MODE,
            "Encrypted": ENCRYPTED,
            "ThroughputMode": throughput_mode_of({}, options["throughput_mode"], is_external=False),
            "Tags": tag_list({"Name": options["name"], **options["tags"]}),
        }
        return [Change("create_file_system", params, _settings(params))]
    changes = []
    mode = throughput_mode_of(system, options["throughput_mode"], is_external=False)
    if mode != system["ThroughputMode"]:
        changes.append(Change("update_file_system", {"ThroughputMode": mode}, {"throughput_mode": mode}))
    tags = tags_of(system.get("Tags"))
    if missing := missing_tags(options["tags"], tags):
        changes.append(Change("tag_resource", {"Tags": tag_list(missing)}, {"tags": {**tags, **missing}}))
    return changes


def _changes_of_policy(existing: ExistingFileSystem, options: Options) -> list[Change]:
    """Add or repair our policy if TLS is required, else remove it."""
    system, policy = existing.file_system, existing.policy
    if policy and policy.get("Id") != TLS_POLICY_ID:
        if not options["require_tls"]:
            return []
        raise UserError(
            f"File system {system['FileSystemId']} has a policy that this cluster did not make, so TLS cannot be "
            "required of its clients: require it in that policy and set cluster_efs_tls to false, or remove the "
            f"policy. Example: aws efs delete-file-system-policy --file-system-id {system['FileSystemId']}"
        )
    before, after = {"requires_tls": not options["require_tls"]}, {"requires_tls": options["require_tls"]}
    if options["require_tls"] and not (system and matches(tls_policy(system["FileSystemArn"]), policy)):
        return [Change("put_file_system_policy", {}, after, before)]
    if policy and not options["require_tls"]:
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


def _changes_of_mount_target(existing: ExistingFileSystem, options: Options) -> list[Change]:
    """Reuse the existing mount target of the zone, adding our security groups if needed, or create one."""
    subnet, target, current = existing.subnet, existing.mount_target, existing.security_groups
    vpc_ids = [other.get("VpcId", "") for other in existing.mount_targets]
    other_vpcs = [vpc_id for vpc_id in vpc_ids if subnet and vpc_id not in ("", subnet["VpcId"])]
    if subnet and existing.file_system and other_vpcs:
        raise UserError(
            f"File system {existing.file_system['FileSystemId']} has its mount targets in {other_vpcs[0]}, the cluster "
            f"is in {subnet['VpcId']}, and AWS allows one VPC only: give the cluster that VPC, or another file system."
        )
    if not subnet or not target:
        params = {"SubnetId": options["subnet_id"], "SecurityGroups": list(options["security_groups"])}
        after = {"subnet_id": options["subnet_id"], "security_groups": sorted(options["security_groups"])}
        return [Change("create_mount_target", params, {"mount_target": after})]
    missing = [group for group in options["security_groups"] if group not in current]
    if not missing or lets_in(existing.ingress_rules, options["clients"], subnet["CidrBlock"]):
        return []
    target_id, groups = target["MountTargetId"], [*current, *missing]
    if len(groups) > MAX_SECURITY_GROUPS:
        raise UserError(
            f"Mount target {target_id} would have {len(groups)} security groups and AWS allows {MAX_SECURITY_GROUPS}: "
            f"remove one, or let {', '.join(options['clients'])} in on port {NFS} by one that it has."
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


def notes_on(existing: ExistingFileSystem, options: Options) -> list[str]:
    """Return a note on each difference that AWS cannot change."""
    system = existing.file_system
    if not system or options["file_system_id"]:
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


class FileSystem:
    """The file system and its mount target, as they were read, and as changes have left them."""

    def __init__(self, aws: Aws, options: Options, check: bool) -> None:
        self._aws = aws
        self._options = options
        self._check = check
        self.state = self._read()
        if self.state.is_deleting:
            self.state = _without_deleting(self.state) if check else self._read_when_deleted()

    def _read(self) -> ExistingFileSystem:
        own_id, subnet_id = self._options["file_system_id"], self._options["subnet_id"]
        state = ExistingFileSystem(self._find(), subnet=self._subnet(subnet_id) if subnet_id else {})
        if not state.file_system or _is_deleting(state.file_system):
            return state
        file_system_id = state.file_system["FileSystemId"]
        state = replace(
            state,
            policy={} if own_id else self._policy(file_system_id),
            mount_targets=self._mount_targets(file_system_id) if subnet_id else (),
        )
        target = state.mount_target
        if not target or _is_deleting(target):
            return state
        answer = self._aws.call("efs", "describe_mount_target_security_groups", MountTargetId=target["MountTargetId"])
        groups = answer["SecurityGroups"]
        rules: list[Item] = []
        if not set(self._options["security_groups"]) <= set(groups):
            answer = self._aws.call("ec2", "describe_security_groups", GroupIds=groups)
            rules = [rule for group in answer["SecurityGroups"] for rule in group["IpPermissions"]]
        return replace(state, security_groups=groups, ingress_rules=rules)

    def _read_when_deleted(self) -> ExistingFileSystem:
        """Wait until nothing is being deleted: until then it holds the creation token or the zone."""

        def poll() -> ExistingFileSystem | None:
            state = self._read()
            return None if state.is_deleting else state

        seconds = self._options["wait_timeout"]
        if state := until(poll, seconds):
            return state
        system = self.state.file_system
        subject = "File system {} has" if _is_deleting(system) else "Mount targets of {} have"
        raise UserError(
            f"{subject.format(system['FileSystemId'])} been deleting for {seconds:g} s: run it again later."
        )

    def _find(self) -> Item:
        own_id = self._options["file_system_id"]
        filters = {"FileSystemId": own_id} if own_id else {}
        try:
            systems = self._aws.pages("efs", "describe_file_systems", "FileSystems", **filters)
        except AwsError as error:
            if error.code != "FileSystemNotFound":
                raise
            systems = []
        return find(systems, self._options)

    def _subnet(self, subnet_id: str) -> Item:
        missing = ("InvalidSubnetID.NotFound", "InvalidSubnetID.Malformed") if self._check else ()
        answer = self._aws.find("ec2", "describe_subnets", missing, SubnetIds=[subnet_id])
        return next(iter(answer.get("Subnets", ())), {})

    def _policy(self, file_system_id: str) -> Item:
        answer = self._aws.find("efs", "describe_file_system_policy", ("PolicyNotFound",), FileSystemId=file_system_id)
        return dict(json.loads(answer.get("Policy", "{}")))

    def _mount_targets(self, file_system_id: str) -> list[Item]:
        return self._aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=file_system_id)

    def apply(self, change: Change) -> None:
        operation, params = change.operation, dict(change.params)
        system = self.state.file_system
        if operation == "create_file_system":
            self._update(file_system=self._create(params))
        elif operation == "tag_resource":
            self._aws.call("efs", operation, ResourceId=system["FileSystemId"], **params)
        elif operation == "modify_mount_target_security_groups":
            self._aws.call("efs", operation, **params)
            self._update(security_groups=params["SecurityGroups"])
        else:
            # These calls refuse a file system that is not available yet.
            self.wait_for_file_system()
            if operation == "put_file_system_policy":
                params["Policy"] = json.dumps(tls_policy(system["FileSystemArn"]))
            if operation == "update_file_system":
                # It is updating now, and takes the next change later.
                self._update(file_system=self._change_throughput(params))
                return
            answer = self._aws.call("efs", operation, FileSystemId=system["FileSystemId"], **params)
            if operation == "create_mount_target":
                # Not all answers of AWS name the zone, by which the target is chosen among those of the file system.
                zone = {"AvailabilityZoneName": self.state.subnet["AvailabilityZone"]}
                targets = [*self.state.mount_targets, {**zone, **answer}]
                self._update(mount_targets=targets, security_groups=params["SecurityGroups"])

    def _change_throughput(self, params: Mapping[str, Any]) -> Item:
        system = self.state.file_system
        try:
            return self._aws.call("efs", "update_file_system", FileSystemId=system["FileSystemId"], **params)
        except AwsError as error:
            if error.code != "TooManyRequests":
                raise
            raise UserError(
                f"AWS does not change the throughput mode of file system {system['FileSystemId']} from "
                f"{system['ThroughputMode']} to {params['ThroughputMode']} yet, because its throughput was changed in "
                "the last 24 hours: run the same command again later, or keep the present mode for now. Example: -e "
                "cluster_efs_throughput="
            ) from error

    def _update(self, **values: Any) -> None:
        self.state = replace(self.state, **values)

    def _create(self, params: Mapping[str, Any]) -> Item:
        try:
            return self._aws.call("efs", "create_file_system", **params)
        except AwsError as error:
            # An earlier attempt of this very call succeeded, and only its answer was lost.
            system = self._find() if error.code == "FileSystemAlreadyExists" else None
            if not system:
                raise
            return system

    def wait_for_file_system(self) -> None:
        file_system_id = self.state.file_system["FileSystemId"]

        def read() -> Item:
            answer = self._aws.call("efs", "describe_file_systems", FileSystemId=file_system_id)
            self._update(file_system=answer["FileSystems"][0])
            return self.state.file_system

        self._wait(self.state.file_system, f"File system {file_system_id}", read)

    def wait_for_mount_target(self) -> None:
        if not self.state.mount_target:
            return
        file_system_id, target_id = self.state.file_system["FileSystemId"], self.state.mount_target["MountTargetId"]

        def read() -> Item:
            self._update(mount_targets=self._mount_targets(file_system_id))
            target = self.state.mount_target
            if target.get("LifeCycleState", "deleted") in ("error", *_DELETING):
                raise UserError(f"Mount target {target_id} of {file_system_id} could not be created: run it again.")
            return target

        self._wait(self.state.mount_target, f"Mount target {target_id}", read)

    def _wait(self, item: Item, name: str, read: Callable[[], Item]) -> None:
        """Read the item again until it is available."""
        seconds = self._options["wait_timeout"]
        if item["LifeCycleState"] != "available" and not until(
            lambda: read()["LifeCycleState"] == "available" or None, seconds
        ):
            raise UserError(f"{name} is not available after {seconds:g} s: run it again later.")


def _without_deleting(existing: ExistingFileSystem) -> ExistingFileSystem:
    if _is_deleting(existing.file_system):
        return ExistingFileSystem(subnet=existing.subnet)
    return replace(existing, mount_targets=[target for target in existing.mount_targets if not _is_deleting(target)])


def converge(aws: Aws, options: Options, check: bool) -> dict[str, Any]:
    """Create or change the file system and its mount target, and return the module's result. Check mode only reads."""
    file_system = FileSystem(aws, options, check)
    existing = file_system.state
    changes, notes = decide(existing, options), notes_on(existing, options)
    if not check:
        for change in changes:
            file_system.apply(change)
        if options["wait"]:
            file_system.wait_for_file_system()
            file_system.wait_for_mount_target()
    before = described(existing.file_system) if existing.file_system else {}
    after = dict(before)
    for change in changes:
        before, after = {**before, **change.before}, {**after, **change.after}
    system = file_system.state.file_system
    return {
        "changed": bool(changes),
        "created": not existing.file_system,
        "file_system": described(system) if system else {**after, "id": "", "state": "absent"},
        "mount_target": _described_mount_target(file_system.state),
        "notes": notes,
        "diff": {"before": before, "after": after},
    }


def _described_mount_target(state: ExistingFileSystem) -> dict[str, Any]:
    """Return the mount target as the module returns it; empty if there is none."""
    target = state.mount_target
    if not target:
        return {}
    return {
        "id": target["MountTargetId"],
        "subnet_id": target["SubnetId"],
        "vpc_id": target.get("VpcId", ""),
        "zone": target.get("AvailabilityZoneName", ""),
        "ip": target.get("IpAddress", ""),
        "state": target["LifeCycleState"],
        "security_groups": sorted(state.security_groups),
    }
