# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A file system and its mount targets: what to make of what exists.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._launch import same
from ansible_collections.deeplearning.aws.plugins.module_utils._names import CLUSTER_TAG, tag_list, tags_of
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

NFS = 2049
MOST_GROUPS = 5
"""that AWS lets a network interface have"""
TLS_POLICY_ID = "deeplearning-require-tls"
"""Marks the policies that this collection made: others are neither replaced nor removed."""


@dataclass(frozen=True)
class Wanted:
    """What the file system shall be. With `file_system_id` it is somebody's own: only its mount target is seen to."""

    name: str = ""
    token: str = ""
    file_system_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    encrypted: bool = True
    throughput_mode: str = "elastic"
    performance_mode: str = "generalPurpose"
    subnet_id: str = ""
    security_groups: Sequence[str] = ()
    clients: Sequence[str] = ()
    """security groups of those who will mount it"""
    may_extend: bool = True
    require_tls: bool = False
    """by a policy of the file system, unless it is somebody's own"""


@dataclass(frozen=True)
class Subnet:
    id: str
    vpc_id: str
    zone: str
    cidr: str


@dataclass(frozen=True)
class Target:
    """A mount target."""

    id: str
    subnet_id: str
    vpc_id: str
    zone: str
    ip: str
    state: str
    security_groups: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "subnet_id": self.subnet_id,
            "vpc_id": self.vpc_id,
            "zone": self.zone,
            "ip": self.ip,
            "state": self.state,
            "security_groups": sorted(self.security_groups),
        }


def find(listed: Iterable[Mapping[str, Any]], wanted: Wanted) -> Mapping[str, Any] | None:
    """The file system that is meant, if it exists: by its id, else by its creation token, else by its name and tags."""
    systems = list(listed)
    if wanted.file_system_id:
        found = [one for one in systems if one["FileSystemId"] == wanted.file_system_id]
        if not found:
            raise AwsProblem(
                f"There is no file system {wanted.file_system_id} in this region: give the id of one that exists, or "
                "none for a new one."
            )
        return found[0]
    found = [one for one in systems if one["CreationToken"] == wanted.token]
    if not found:
        found = [one for one in systems if _is_called(one, wanted)]
    if len(found) > 1:
        ids = ", ".join(sorted(one["FileSystemId"] for one in found))
        raise AwsProblem(f"File systems {ids} are all called {wanted.name}: say which one by its id.")
    if found and not _is_ours(found[0], wanted.tags):
        raise AwsProblem(
            f"File system {found[0]['FileSystemId']} has the creation token {wanted.token} but not the tag "
            f"{CLUSTER_TAG}={wanted.tags.get(CLUSTER_TAG, '')}, so it is somebody else's: give it by its id, or take "
            "another name."
        )
    return found[0] if found else None


def _is_called(listed: Mapping[str, Any], wanted: Wanted) -> bool:
    mark = wanted.tags.get(CLUSTER_TAG)
    tags = tags_of(listed.get("Tags"))
    return mark is not None and tags.get("Name") == wanted.name and tags.get(CLUSTER_TAG) == mark


def _is_ours(listed: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    mark = tags.get(CLUSTER_TAG)
    return mark is None or tags_of(listed.get("Tags")).get(CLUSTER_TAG) == mark


def shown(listed: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a file system."""
    return {
        "id": listed["FileSystemId"],
        "name": tags_of(listed.get("Tags")).get("Name", ""),
        "creation_token": listed["CreationToken"],
        "state": listed["LifeCycleState"],
        "encrypted": bool(listed.get("Encrypted")),
        "performance_mode": listed.get("PerformanceMode", ""),
        "throughput_mode": listed.get("ThroughputMode", ""),
        "tags": tags_of(listed.get("Tags")),
    }


def lets_in(rules: Iterable[Mapping[str, Any]], clients: Sequence[str], cidr: str) -> bool:
    """Do these rules (IpPermissions) let NFS in from the clients' groups, or from all of the subnet?"""
    place = ipaddress.ip_network(cidr)
    for rule in rules:
        if rule["IpProtocol"] not in ("-1", "tcp"):
            continue
        if rule["IpProtocol"] == "tcp" and not rule.get("FromPort", 0) <= NFS <= rule.get("ToPort", 65535):
            continue
        if set(clients) & {pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", ())}:
            return True
        ranges = (ipaddress.ip_network(one["CidrIp"], strict=False) for one in rule.get("IpRanges", ()))
        if any(place.version == one.version and place.subnet_of(one) for one in ranges):  # type: ignore[arg-type]
            return True
    return False


def tls_policy(file_system_arn: str) -> dict[str, Any]:
    """Return the policy that lets clients do what they may without one, provided that they use TLS."""
    clients = {
        "Principal": {"AWS": "*"},
        "Action": [f"elasticfilesystem:Client{what}" for what in ("Mount", "RootAccess", "Write")],
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


class FileSystem:
    """One file system and what was done about it. In check mode nothing is, and `after` says what would be."""

    def __init__(self, aws: Aws, wanted: Wanted, check: bool = False, seconds: float = 600) -> None:
        self._aws = aws
        self._wanted = wanted
        self._check = check
        self._seconds = seconds
        self.changed = False
        self.created = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self._listed: Mapping[str, Any] | None = None
        self._target: Target | None = None
        self.notes: list[str] = []

    # Reading

    def _list(self) -> list[Any]:
        if self._wanted.file_system_id:
            try:
                return self._aws.pages(
                    "efs", "describe_file_systems", "FileSystems", FileSystemId=self._wanted.file_system_id
                )
            except AwsProblem as problem:
                if problem.code == "FileSystemNotFound":
                    return []
                raise
        return self._aws.pages("efs", "describe_file_systems", "FileSystems")

    def _subnet(self) -> Subnet:
        answer = self._aws.call("ec2", "describe_subnets", SubnetIds=[self._wanted.subnet_id])["Subnets"][0]
        return Subnet(answer["SubnetId"], answer["VpcId"], answer["AvailabilityZone"], answer["CidrBlock"])

    def targets(self, file_system_id: str, with_groups: bool = False) -> list[Target]:
        listed = self._aws.pages("efs", "describe_mount_targets", "MountTargets", FileSystemId=file_system_id)
        return [self._as_target(one, with_groups) for one in listed]

    def _as_target(self, listed: Mapping[str, Any], with_groups: bool) -> Target:
        groups: Sequence[str] = ()
        if with_groups and listed["LifeCycleState"] not in ("deleting", "deleted"):
            groups = self._groups(listed["MountTargetId"])
        return Target(
            id=listed["MountTargetId"],
            subnet_id=listed["SubnetId"],
            vpc_id=listed.get("VpcId", ""),
            zone=listed.get("AvailabilityZoneName", ""),
            ip=listed.get("IpAddress", ""),
            state=listed["LifeCycleState"],
            security_groups=groups,
        )

    def _groups(self, target_id: str) -> Sequence[str]:
        answer = self._aws.call("efs", "describe_mount_target_security_groups", MountTargetId=target_id)
        return tuple(answer["SecurityGroups"])

    # Present

    def present(self, wait: bool) -> dict[str, Any]:
        listed = find(self._list(), self._wanted)
        if listed is not None and listed["LifeCycleState"] == "deleting":
            self._after_deletion(listed)
            listed = None
        self.before = shown(listed) if listed else {}
        self._listed = listed
        if listed is None:
            self._create()
        elif not self._wanted.file_system_id:
            self._adjust(listed)
        # Before there is a mount target, so that nobody can mount a new one without TLS.
        if self._listed is not None and not self._wanted.file_system_id:
            self._apply_policy(self._listed)
        if self._wanted.subnet_id and self._listed is not None:
            self._see_to_target(self._listed)
        elif self._wanted.subnet_id:
            self.after["mount_target"] = {"subnet_id": self._wanted.subnet_id}
        if wait and not self._check:
            self.wait_until_available()
        return self.result()

    def _after_deletion(self, listed: Mapping[str, Any]) -> None:
        """The old one of that name is still going: the token is free when it has gone."""
        if self._wanted.file_system_id:
            raise AwsProblem(f"File system {listed['FileSystemId']} is being deleted: give another one.")
        if not self._check:
            gone = until(lambda: True if find(self._list(), self._wanted) is None else None, self._seconds)
            if gone is None:
                raise AwsProblem(
                    f"File system {listed['FileSystemId']} has been deleting for {self._seconds:g} s: run it again."
                )

    def _create(self) -> None:
        wanted = self._wanted
        self.changed = self.created = True
        tags = {"Name": wanted.name, **wanted.tags}
        self.after = {
            "name": wanted.name,
            "creation_token": wanted.token,
            "encrypted": wanted.encrypted,
            "performance_mode": wanted.performance_mode,
            "throughput_mode": wanted.throughput_mode,
            "tags": tags,
            "requires_tls": wanted.require_tls,
        }
        if self._check:
            return
        try:
            self._listed = self._aws.call(
                "efs",
                "create_file_system",
                CreationToken=wanted.token,
                PerformanceMode=wanted.performance_mode,
                Encrypted=wanted.encrypted,
                ThroughputMode=wanted.throughput_mode,
                Tags=tag_list(tags),
            )
        except AwsProblem as problem:
            if problem.code != "FileSystemAlreadyExists":
                raise
            # An earlier try of this very call came through, and only its answer was lost.
            self._listed = find(self._list(), wanted)
            if self._listed is None:
                raise

    def _adjust(self, listed: Mapping[str, Any]) -> None:
        """What can be changed on one of ours."""
        wanted, file_system_id = self._wanted, str(listed["FileSystemId"])
        self.after = dict(self.before)
        if bool(listed.get("Encrypted")) != wanted.encrypted or listed["PerformanceMode"] != wanted.performance_mode:
            self.notes.append(
                f"File system {file_system_id} stays as it was made (encrypted: {bool(listed.get('Encrypted'))}, "
                f"{listed['PerformanceMode']}): AWS cannot change that."
            )
        if listed["ThroughputMode"] != wanted.throughput_mode:
            self.changed = True
            self.after["throughput_mode"] = wanted.throughput_mode
            if not self._check:
                self._until_state(file_system_id)
                self._aws.call(
                    "efs", "update_file_system", FileSystemId=file_system_id, ThroughputMode=wanted.throughput_mode
                )
        have = tags_of(listed.get("Tags"))
        missing = {key: value for key, value in wanted.tags.items() if have.get(key) != value}
        if missing:
            self.changed = True
            self.after["tags"] = {**have, **missing}
            if not self._check:
                self._aws.call("efs", "tag_resource", ResourceId=file_system_id, Tags=tag_list(missing))

    def _apply_policy(self, listed: Mapping[str, Any]) -> None:
        """Put the policy that requires TLS on a file system of this cluster, or remove it, as the setting says."""
        file_system_id, required = str(listed["FileSystemId"]), self._wanted.require_tls
        if self.created and not required:
            return
        current = self._policy(file_system_id)
        if current and current.get("Id") != TLS_POLICY_ID:
            if required:
                raise AwsProblem(
                    f"File system {file_system_id} has a policy that this cluster did not make, so TLS cannot be "
                    "required of its clients: require it in that policy and set cluster_efs_tls to false, or remove "
                    f"the policy. Example: aws efs delete-file-system-policy --file-system-id {file_system_id}"
                )
            return
        desired = tls_policy(str(listed["FileSystemArn"])) if required else {}
        unchanged = same(desired, current) if required else not current
        self.before["requires_tls"] = required if unchanged else not required
        self.after["requires_tls"] = required
        if unchanged:
            return
        self.changed = True
        if self._check:
            return
        self._until_state(file_system_id)
        if required:
            policy = json.dumps(desired)
            self._aws.call("efs", "put_file_system_policy", FileSystemId=file_system_id, Policy=policy)
        else:
            self._aws.call("efs", "delete_file_system_policy", FileSystemId=file_system_id)

    def _policy(self, file_system_id: str) -> dict[str, Any]:
        try:
            answer = self._aws.call("efs", "describe_file_system_policy", FileSystemId=file_system_id)
        except AwsProblem as problem:
            if problem.code == "PolicyNotFound":
                return {}
            raise
        policy: dict[str, Any] = json.loads(answer["Policy"])
        return policy

    def _see_to_target(self, listed: Mapping[str, Any]) -> None:
        file_system_id = str(listed["FileSystemId"])
        self.after = self.after or dict(self.before)
        subnet = self._subnet_or_none()
        if subnet is None:
            # Check mode on an account where the subnet is yet to be made.
            self.changed = True
            self.after["mount_target"] = {"subnet_id": self._wanted.subnet_id}
            return
        living = self._living(file_system_id)
        elsewhere = [one for one in living if one.vpc_id and one.vpc_id != subnet.vpc_id]
        if elsewhere:
            raise AwsProblem(
                f"File system {file_system_id} has its mount targets in {elsewhere[0].vpc_id}, the cluster is in "
                f"{subnet.vpc_id}, and AWS allows one VPC only: give the cluster that VPC, or another file system."
            )
        in_zone = [one for one in living if one.zone == subnet.zone]
        if in_zone:
            self._use(in_zone[0], subnet)
        else:
            self._create_target(file_system_id, subnet)

    def _subnet_or_none(self) -> Subnet | None:
        try:
            return self._subnet()
        except AwsProblem as problem:
            if self._check and problem.code.startswith("InvalidSubnetID"):
                return None
            raise

    def _living(self, file_system_id: str) -> list[Target]:
        """Its mount targets; those that are just being deleted are waited for, as they still hold their zone."""

        def settled() -> list[Target] | None:
            found = self.targets(file_system_id)
            going = [one for one in found if one.state in ("deleting", "deleted")]
            return [one for one in found if one not in going] if self._check or not going else None

        found = until(settled, self._seconds)
        if found is None:
            raise AwsProblem(
                f"Mount targets of {file_system_id} have been deleting for {self._seconds:g} s: run it again later."
            )
        return found

    def _use(self, target: Target, subnet: Subnet) -> None:
        """The one that is there: as it is, if it lets us in; with our group beside its own, if that may be."""
        groups = self._groups(target.id)
        missing = [one for one in self._wanted.security_groups if one not in groups]
        self.before["mount_target"] = {"id": target.id, "security_groups": sorted(groups)}
        if missing and not self._lets_us_in(groups, subnet):
            if not self._wanted.may_extend:
                raise AwsProblem(
                    f"Mount target {target.id} in {target.zone} has security groups ({', '.join(groups)}) that do not "
                    f"let the cluster in on port {NFS}: let {', '.join(self._wanted.clients) or 'it'} in there."
                )
            groups = (*groups, *missing)
            if len(groups) > MOST_GROUPS:
                raise AwsProblem(
                    f"Mount target {target.id} would have {len(groups)} security groups and AWS allows {MOST_GROUPS}: "
                    f"take one off, or let {', '.join(self._wanted.clients)} in on port {NFS} by one that it has."
                )
            self.changed = True
            if not self._check:
                self._aws.call(
                    "efs",
                    "modify_mount_target_security_groups",
                    MountTargetId=target.id,
                    SecurityGroups=list(groups),
                )
        self.after["mount_target"] = {"id": target.id, "security_groups": sorted(groups)}
        self._target = Target(
            target.id, target.subnet_id, target.vpc_id, target.zone, target.ip, target.state, tuple(groups)
        )

    def _lets_us_in(self, groups: Sequence[str], subnet: Subnet) -> bool:
        answer = self._aws.call("ec2", "describe_security_groups", GroupIds=list(groups))["SecurityGroups"]
        rules = [rule for group in answer for rule in group["IpPermissions"]]
        return lets_in(rules, self._wanted.clients, subnet.cidr)

    def _create_target(self, file_system_id: str, subnet: Subnet) -> None:
        self.changed = True
        self.after["mount_target"] = {"subnet_id": subnet.id, "security_groups": sorted(self._wanted.security_groups)}
        if self._check:
            return
        self._until_state(file_system_id)
        made = self._aws.call(
            "efs",
            "create_mount_target",
            FileSystemId=file_system_id,
            SubnetId=subnet.id,
            SecurityGroups=list(self._wanted.security_groups),
        )
        self._target = Target(
            id=made["MountTargetId"],
            subnet_id=made["SubnetId"],
            vpc_id=made.get("VpcId", subnet.vpc_id),
            zone=made.get("AvailabilityZoneName", subnet.zone),
            ip=made.get("IpAddress", ""),
            state=made["LifeCycleState"],
            security_groups=tuple(self._wanted.security_groups),
        )
        self.after["mount_target"]["id"] = self._target.id

    def _until_state(self, file_system_id: str) -> None:
        """Until the file system can be changed: seconds after its creation."""

        def look() -> Mapping[str, Any] | None:
            answer = self._aws.call("efs", "describe_file_systems", FileSystemId=file_system_id)["FileSystems"][0]
            return answer if answer["LifeCycleState"] == "available" else None

        if self._listed is not None and self._listed["LifeCycleState"] == "available":
            return
        found = until(look, self._seconds)
        if found is None:
            raise AwsProblem(
                f"File system {file_system_id} is not available after {self._seconds:g} s: run it again later."
            )
        self._listed = found

    def wait_until_available(self) -> None:
        """File system and mount target, or a sentence when the time is up."""
        if self._listed is None:
            return
        file_system_id = str(self._listed["FileSystemId"])
        self._until_state(file_system_id)
        if self._target is None or self._target.state == "available":
            return
        wanted = self._target

        def look() -> Target | None:
            found = [one for one in self.targets(file_system_id) if one.id == wanted.id]
            if not found or found[0].state in ("error", "deleting", "deleted"):
                raise AwsProblem(f"Mount target {wanted.id} of {file_system_id} could not be made: run it again.")
            return found[0] if found[0].state == "available" else None

        found = until(look, self._seconds)
        if found is None:
            raise AwsProblem(
                f"Mount target {wanted.id} is not available after {self._seconds:g} s: run it again later."
            )
        self._target = Target(
            found.id, found.subnet_id, found.vpc_id, found.zone, found.ip, found.state, wanted.security_groups
        )

    def result(self) -> dict[str, Any]:
        return {
            "file_system": shown(self._listed) if self._listed else {**self.after, "id": "", "state": "absent"},
            "mount_target": self._target.as_dict() if self._target else {},
            "created": self.created,
            "reused": not self.created,
        }

    # Absent

    def absent(self, keep: bool, wait: bool) -> dict[str, Any]:
        """Its own mount targets go, and the file system if it is not to be kept; what others have made stays."""
        try:
            listed = find(self._list(), self._wanted)
        except AwsProblem as problem:
            if problem.code or not self._wanted.file_system_id:
                raise
            listed = None
        if listed is None:
            return {"file_system": {}, "kept": False, "mount_targets_deleted": []}
        self._listed = listed
        self.before = shown(listed)
        file_system_id = str(listed["FileSystemId"])
        going = listed["LifeCycleState"] in ("deleting", "deleted")
        deleted = [] if going else self._delete_targets(file_system_id)
        given = bool(self._wanted.file_system_id)
        kept = not going and (keep or given)
        self.after = dict(self.before) if kept else {}
        if going or (kept and not (wait and deleted)):
            return {"file_system": self.after, "kept": kept, "mount_targets_deleted": deleted}
        if not self._check:
            self._until_targets_gone(file_system_id, deleted)
        if not kept:
            self._delete(file_system_id, wait)
        return {"file_system": self.after, "kept": kept, "mount_targets_deleted": deleted}

    def _delete_targets(self, file_system_id: str) -> list[str]:
        """Ours are those with our security group alone, and those in a subnet that bears the cluster's tag."""
        ours = set(self._wanted.security_groups)
        deleted = []
        for target in self.targets(file_system_id, with_groups=True):
            groups = set(target.security_groups)
            if target.state in ("deleting", "deleted"):
                deleted.append(target.id)
            elif ours & groups and (groups <= ours or self._is_our_subnet(target.subnet_id)):
                self.changed = True
                deleted.append(target.id)
                if not self._check:
                    self._aws.call("efs", "delete_mount_target", MountTargetId=target.id)
            elif ours & groups:
                # Somebody else's, which we were let into.
                self.changed = True
                if not self._check:
                    self._aws.call(
                        "efs",
                        "modify_mount_target_security_groups",
                        MountTargetId=target.id,
                        SecurityGroups=sorted(groups - ours),
                    )
        return deleted

    def _is_our_subnet(self, subnet_id: str) -> bool:
        mark = self._wanted.tags.get(CLUSTER_TAG)
        answer = self._aws.call("ec2", "describe_subnets", SubnetIds=[subnet_id])["Subnets"][0]
        return mark is not None and tags_of(answer.get("Tags")).get(CLUSTER_TAG) == mark

    def _until_targets_gone(self, file_system_id: str, ids: Sequence[str]) -> None:
        def look() -> bool | None:
            return None if any(one.id in ids for one in self.targets(file_system_id)) else True

        if ids and until(look, self._seconds) is None:
            raise AwsProblem(
                f"Mount targets of {file_system_id} are still being deleted after {self._seconds:g} s: run it again."
            )

    def _delete(self, file_system_id: str, wait: bool) -> None:
        if not self._check:
            foreign = [one.id for one in self.targets(file_system_id)]
            if foreign:
                raise AwsProblem(
                    f"File system {file_system_id} is kept: mount targets that this cluster did not make use it "
                    f"({', '.join(foreign)}). Delete those first, or keep it."
                )
        self.changed = True
        if self._check:
            return
        self._aws.call("efs", "delete_file_system", FileSystemId=file_system_id)
        if wait and until(lambda: self._gone(file_system_id), self._seconds) is None:
            raise AwsProblem(f"File system {file_system_id} is still being deleted after {self._seconds:g} s.")

    def _gone(self, file_system_id: str) -> bool | None:
        try:
            found = self._aws.call("efs", "describe_file_systems", FileSystemId=file_system_id)["FileSystems"]
        except AwsProblem as problem:
            if problem.code == "FileSystemNotFound":
                return True
            raise
        return None if found else True


def listed_with_targets(aws: Aws, file_system_id: str, name: str, tags: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that answer to the description, each with its mount targets."""
    asked = {"FileSystemId": file_system_id} if file_system_id else {}
    found = [shown(one) for one in aws.pages("efs", "describe_file_systems", "FileSystems", **asked)]
    found = [
        one
        for one in found
        if (not name or one["name"] == name) and all(one["tags"].get(key) == str(tags[key]) for key in tags)
    ]
    for one in found:
        system = FileSystem(aws, Wanted(file_system_id=one["id"]))
        one["mount_targets"] = [target.as_dict() for target in system.targets(one["id"], with_groups=True)]
    return found
