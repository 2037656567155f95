"""Elastic File System: tags in both generations of the API, policies of a file system, access points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.api.efs_records import (
    AccessPoint,
    AlreadyExists,
    bad_request,
    bare_id,
    find_access_point,
    find_available,
    find_file_system,
    new_id,
    page,
    records_of,
    region_of,
    show_access_point,
    without_none,
)
from localcloud.api.iam_documents import check_document
from localcloud.api.registry import Call, Result, answers
from localcloud.errors import AwsError

MAX_TAGS = 50
_TRANSITIONS = ("TransitionToIA", "TransitionToPrimaryStorageClass", "TransitionToArchive")


# Tags


def read_tags(given: Iterable[Mapping[str, str]], old: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags given, over those that were there."""
    new: dict[str, str] = {}
    for tag in given:
        key, value = tag["Key"], tag.get("Value", "")
        if key in new:
            raise bad_request(f"The tag key '{key}' is given twice.")
        if key.lower().startswith("aws:"):
            raise bad_request("Tag keys that start with 'aws:' are reserved for system use.")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise bad_request("A tag key has 1 to 128 characters, a tag value at most 256.")
        new[key] = value
    tags = {**(old or {}), **new}
    if len(tags) > MAX_TAGS:
        raise bad_request(f"A resource can have at most {MAX_TAGS} tags.")
    return tags


def _tagged(call: Call) -> dict[str, str]:
    """The tags, to be read or changed, of the file system or access point that the call names."""
    if "ResourceId" not in call.params:
        return find_file_system(call, call.params["FileSystemId"]).tags
    given = call.params["ResourceId"]
    if bare_id(given).startswith("fsap-"):
        return find_access_point(call, given).tags
    return find_file_system(call, given).tags


@answers("efs", "TagResource", "CreateTags")
def tag_resource(call: Call) -> Result:
    tags = _tagged(call)
    tags.update(read_tags(call.params["Tags"], tags))
    return None


@answers("efs", "UntagResource", "DeleteTags")
def untag_resource(call: Call) -> Result:
    tags = _tagged(call)
    for key in call.params["TagKeys"]:
        tags.pop(key, None)
    return None


@dataclass(frozen=True)
class _Tag:
    number: int
    key: str
    value: str


def _page_of_tags(call: Call, limit: int | None, marker: str | None) -> tuple[list[dict[str, str]], str | None]:
    tags = [_Tag(number, key, value) for number, (key, value) in enumerate(_tagged(call).items(), 1)]
    shown, following = page(tags, limit, marker)
    return [{"Key": tag.key, "Value": tag.value} for tag in shown], following


@answers("efs", "ListTagsForResource")
def list_tags_for_resource(call: Call) -> Result:
    tags, following = _page_of_tags(call, call.params.get("MaxResults"), call.params.get("NextToken"))
    return without_none({"Tags": tags, "NextToken": following})


@answers("efs", "DescribeTags")
def describe_tags(call: Call) -> Result:
    marker = call.params.get("Marker")
    tags, following = _page_of_tags(call, call.params.get("MaxItems"), marker)
    return without_none({"Marker": marker, "Tags": tags, "NextMarker": following})


# Policies of a file system


def _no_policy(what: str, file_system_id: str) -> AwsError:
    return AwsError("PolicyNotFound", f"The file system '{file_system_id}' has no {what}.", 404)


@answers("efs", "PutFileSystemPolicy")
def put_file_system_policy(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    text = call.params["Policy"]
    check_document(text, "resource", "InvalidPolicyException")
    file_system.policy = text
    return {"FileSystemId": file_system.id, "Policy": text}


@answers("efs", "DescribeFileSystemPolicy")
def describe_file_system_policy(call: Call) -> Result:
    file_system = find_file_system(call, call.params["FileSystemId"])
    if file_system.policy is None:
        raise _no_policy("policy", file_system.id)
    return {"FileSystemId": file_system.id, "Policy": file_system.policy}


@answers("efs", "DeleteFileSystemPolicy")
def delete_file_system_policy(call: Call) -> Result:
    find_available(call, call.params["FileSystemId"]).policy = None
    return None


@answers("efs", "PutLifecycleConfiguration")
def put_lifecycle_configuration(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    policies = call.params["LifecyclePolicies"]
    named = [key for policy in policies for key in policy]
    if any(len(policy) != 1 for policy in policies) or len(set(named)) != len(named) or set(named) - set(_TRANSITIONS):
        raise bad_request("Each LifecyclePolicy must hold one transition, and no transition may be given twice.")
    file_system.lifecycle = list(policies)
    return {"LifecyclePolicies": file_system.lifecycle}


@answers("efs", "DescribeLifecycleConfiguration")
def describe_lifecycle_configuration(call: Call) -> Result:
    return {"LifecyclePolicies": find_file_system(call, call.params["FileSystemId"]).lifecycle}


@answers("efs", "PutBackupPolicy")
def put_backup_policy(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    status = call.params["BackupPolicy"]["Status"]
    if status not in ("ENABLED", "DISABLED"):
        raise AwsError("ValidationException", "The status of a backup policy can be set to ENABLED or DISABLED.", 400)
    file_system.backup = status
    return {"BackupPolicy": {"Status": status}}


@answers("efs", "DescribeBackupPolicy")
def describe_backup_policy(call: Call) -> Result:
    file_system = find_file_system(call, call.params["FileSystemId"])
    if file_system.backup is None:
        raise _no_policy("backup policy", file_system.id)
    return {"BackupPolicy": {"Status": file_system.backup}}


@answers("efs", "DescribeReplicationConfigurations")
def describe_replication_configurations(call: Call) -> Result:
    given = call.params.get("FileSystemId")
    if given:
        found = find_file_system(call, given)
        raise AwsError("ReplicationNotFound", f"File system '{found.id}' has no replication configuration.", 404)
    return {"Replications": []}


@answers("efs", "CreateReplicationConfiguration", "DeleteReplicationConfiguration")
def refuse_replication(_call: Call) -> Result:
    raise bad_request("The local cloud does not replicate file systems.")


# Access points


@answers("efs", "CreateAccessPoint")
def create_access_point(call: Call) -> Result:
    params, region = call.params, region_of(call)
    token = params["ClientToken"]
    for old in region.access_points.values():
        if old.token == token:
            message = f"Access point '{old.id}' already exists with client token '{token}'"
            raise AlreadyExists("AccessPointAlreadyExists", message, AccessPointId=old.id)
    file_system = find_available(call, params["FileSystemId"])
    root: Mapping[str, Any] = {"Path": "/", **(params.get("RootDirectory") or {})}
    point = AccessPoint(
        id=new_id("fsap"),
        file_system_id=file_system.id,
        region=call.region,
        number=records_of(call.cloud).next_number(),
        token=token,
        posix_user=params.get("PosixUser"),
        root=root,
        tags=read_tags(params.get("Tags") or []),
    )
    region.access_points[point.id] = point

    def become_available() -> None:
        point.state = "available"

    call.cloud.clock.later(0, become_available)
    return show_access_point(point)


@answers("efs", "DescribeAccessPoints")
def describe_access_points(call: Call) -> Result:
    params = call.params
    if params.get("AccessPointId") and params.get("FileSystemId"):
        raise bad_request("Give AccessPointId or FileSystemId, not both.")
    found = list(region_of(call).access_points.values())
    if params.get("AccessPointId"):
        found = [find_access_point(call, params["AccessPointId"])]
    elif params.get("FileSystemId"):
        file_system = find_file_system(call, params["FileSystemId"])
        found = [one for one in found if one.file_system_id == file_system.id]
    shown, following = page(found, params.get("MaxResults"), params.get("NextToken"))
    return without_none({"AccessPoints": [show_access_point(one) for one in shown], "NextToken": following})


@answers("efs", "DeleteAccessPoint")
def delete_access_point(call: Call) -> Result:
    point = find_access_point(call, call.params["AccessPointId"])
    del region_of(call).access_points[point.id]
    return None


@answers("efs", "DescribeAccountPreferences", "PutAccountPreferences")
def account_preferences(call: Call) -> Result:
    if call.params.get("ResourceIdType", "LONG_ID") != "LONG_ID":
        raise bad_request("The resource id type can be LONG_ID only.")
    return {"ResourceIdPreference": {"ResourceIdType": "LONG_ID", "Resources": ["FILE_SYSTEM", "MOUNT_TARGET"]}}
