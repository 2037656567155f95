"""Elastic File System: policies of file systems."""

from __future__ import annotations

from localcloud.api.efs.records import find_available, find_file_system
from localcloud.api.iam.documents import check_document
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.errors import AwsError


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
        raise AwsError("PolicyNotFound", f"The file system '{file_system.id}' has no policy.", 404)
    return {"FileSystemId": file_system.id, "Policy": file_system.policy}


@answers("efs", "DeleteFileSystemPolicy")
def delete_file_system_policy(call: Call) -> Result:
    find_available(call, call.params["FileSystemId"]).policy = None
    return None
