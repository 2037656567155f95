"""Each open question about AWS is settled by what a record has, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.smoke import items

PUT, READ = "autoscaling:PutScheduledUpdateGroupAction", "autoscaling:DescribeScheduledActions"
WHOLE = {"call": PUT, "stage": "1", "request": {"Recurrence": "1 2 3 4 *", "EndTime": "x"}}
PART = {"call": PUT, "stage": "1", "request": {"StartTime": "x"}}
DRY = {"call": "ec2:DeleteNetworkInterface", "request": {"DryRun": True}, "code": "UnauthorizedOperation"}
STARTED = {"call": "emr:RunJobFlow", "request": {"CustomAmiId": "<id ami>"}}


def read(**fields: Any) -> dict[str, Any]:
    return {"call": READ, "stage": "1", "answer": {"ScheduledUpdateGroupActions": [fields]}}


def facts(image: str, **values: str) -> dict[str, Any]:
    return {"image": image, "facts": values}


def emr(state: str) -> dict[str, Any]:
    return {
        "call": "emr:DescribeCluster",
        "answer": {"Cluster": {"CustomAmiId": "<id ami>", "Status": {"State": state}}},
    }


def outcomes(*entries: dict[str, Any]) -> dict[str, str]:
    """Return what is settled."""
    return {
        line["item"]: line["outcome"].removeprefix("settled: ")
        for line in items.lines(entries)
        if line["outcome"] != items.NOT_SEEN
    }


def test_nothing_is_settled_by_an_empty_record() -> None:
    assert outcomes() == {} and len(items.lines([])) == len({item.name for item in items.ITEMS}) == 12


@pytest.mark.parametrize(
    ("entries", "item", "answer"),
    [
        ([facts("ubuntu2204", **{"python3.11": "3.11.0rc1"})], "python-of-ubuntu-22.04",
         "a machine of it has configured itself with Python 3.11.0rc1"),
        ([WHOLE, PART, read(StartTime="x")], "fields-of-scheduled-actions", "replaced"),
        ([WHOLE, PART, read(StartTime="x", Recurrence="1 2 3 4 *")], "fields-of-scheduled-actions", "kept"),
        ([WHOLE, {**PART, "code": "ValidationError"}], "fields-of-scheduled-actions",
         "kept, as the second call was refused: ValidationError"),
        ([{"killed": "master", "has_address": True}], "address-of-a-replaced-master", "moved to the new master"),
        ([{"killed": "master", "has_address": False}], "address-of-a-replaced-master", "not moved to the new master"),
        ([DRY, {"call": "efs:DeleteMountTarget"}], "mount-target-by-tags",
         "deleted, although the caller may not delete it"),
        ([DRY, {"call": "efs:DeleteMountTarget", "code": "AccessDenied"}], "mount-target-by-tags",
         "refused: AccessDenied"),
        ([{"linked_role_existed": False}, {"call": "autoscaling:CreateAutoScalingGroup"}], "first-linked-role",
         "the first group was created at once"),
        ([{"linked_role_existed": False}, {"call": "autoscaling:CreateAutoScalingGroup", "code": "ValidationError"}],
         "first-linked-role", "the first group was refused: ValidationError"),
        ([{"call": "ec2:DescribeTags", "code": "RequestLimitExceeded"}], "throttling",
         "seen in 1 calls: ec2:DescribeTags"),
        ([facts("al2023", dlami_nvme="no", mdadm="yes", mkfs_xfs="yes")], "own-disk-of-al2023",
         "dlami_nvme no, mdadm yes, mkfs_xfs yes"),
        ([facts("efa", wait_online="1min 2s")], "wait-online-with-many-cards", "wait_online 1min 2s"),
        ([facts("ubuntu2404", boto3_by="pip")], "boto3-by-pip", "configured all the same"),
        ([facts("al2023", **{"rpm_python3-boto3": "no"})], "boto3-and-awscli-of-al2023", "rpm_python3-boto3 no"),
        ([facts("al2023", selinux="Permissive")], "selinux-of-al2023", "selinux Permissive"),
        ([STARTED, emr("WAITING")], "own-image-on-emr", "its cluster became WAITING"),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value else "",
)  # fmt: skip
def test_what_settles_an_item(entries: list[dict[str, Any]], item: str, answer: str) -> None:
    assert outcomes(*entries) == {item: answer}


@pytest.mark.parametrize(
    "entries",
    [
        [WHOLE, WHOLE, read(StartTime="x")],
        [WHOLE, PART, {"call": READ, "stage": "1", "answer": {"ScheduledUpdateGroupActions": []}}],
        [{**DRY, "code": "DryRunOperation"}, {"call": "efs:DeleteMountTarget"}],
        [{"linked_role_existed": True}, {"call": "autoscaling:CreateAutoScalingGroup"}],
        [{"killed": "workers", "has_address": False}],
        [STARTED, emr("STARTING")],
        [facts("al2023", wait_online="1s"), facts("efa", selinux="none")],
        [{"call": "ec2:DescribeTags", "code": "UnauthorizedOperation"}],
    ],
)
def test_what_settles_nothing(entries: list[dict[str, Any]]) -> None:
    assert outcomes(*entries) == {}
