"""What members may do, as the role renders it and as the local cloud's evaluator decides it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import (
    RESULTS,
    MemberAccess,
    outside,
    policy_for,
)

from localcloud.testing.policies import Policy, context_of, decide, parse_policy

ROOT = Path(__file__).resolve().parents[4]
ACCOUNT = "123456789012"
BUCKET = f"red-{ACCOUNT}-us-east-1"
DATA = f"{ACCOUNT}-us-east-1-deeplearning-data"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ME, OTHER = "AROAWORKER:i-01", "AROAMASTER:i-02"
FULL_ACCESS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


def policy(read: Sequence[str] = (), write: Sequence[str] = ()) -> Policy:
    return parse_policy(policy_for("worker", MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, read, write)))


def decided(policies: Policy | list[Policy], action: str, place: str, account: str = ACCOUNT, **keys: str) -> str:
    principal = {"aws:userid": ME, "aws:ResourceAccount": account}
    context = context_of(principal, {f"s3:{key}": value for key, value in keys.items()})
    listed = policies if isinstance(policies, list) else [policies]
    return decide(listed, f"s3:{action}", f"arn:aws:s3:::{place}", context).outcome


@pytest.mark.parametrize(
    "write",
    [[], [BUCKET], [f"{BUCKET}/members"], [f"{BUCKET}/members/{OTHER}"], [f"{BUCKET}/results"], ["other", BUCKET]],
    ids=str,
)
@pytest.mark.parametrize("action", ["PutObject", "DeleteObject", "AbortMultipartUpload"])
def test_a_member_writes_no_report_but_its_own(action: str, write: list[str]) -> None:
    granted = policy(write=write)
    assert decided(granted, "PutObject", f"{BUCKET}/members/{ME}/report.json") == "allowed"
    other_places = (f"members/{ME}/one-of-many", f"members/{OTHER}/report.json", "members/report.json")
    for place in (*other_places, "bundles/a.tar", "data/coco/a.tar"):
        assert decided(granted, action, f"{BUCKET}/{place}") == "explicitly denied"
        # Nor when an administrator adds another policy to the role.
        assert decided([granted, parse_policy(FULL_ACCESS)], action, f"{BUCKET}/{place}") == "explicitly denied"


def test_a_bucket_of_that_name_in_another_account_is_neither_read_nor_written() -> None:
    granted, squatter = policy(), "999999999999"
    for action, place in (
        ("GetObject", f"{BUCKET}/members/{OTHER}/report.json"),
        ("PutObject", f"{BUCKET}/members/{ME}/report.json"),
        ("ListBucket", BUCKET),
    ):
        assert decided(granted, action, place) == "allowed"
        assert decided(granted, action, place, account=squatter) != "allowed"


def test_data_sets_of_the_account_are_read_and_not_written() -> None:
    granted = policy(write=[DATA])
    assert decided(granted, "GetObject", f"{DATA}/coco2017/manifest.json") == "allowed"
    assert decided(granted, "ListBucket", DATA) == "allowed"
    assert decided(granted, "GetObject", f"{DATA}/coco2017/manifest.json", account="999999999999") != "allowed"
    assert decided(granted, "PutObject", f"{DATA}/coco2017/manifest.json") == "explicitly denied"


def test_results_and_other_buckets_are_written_where_they_are_named() -> None:
    granted = policy(write=[f"{BUCKET}/results/run1", "mine/out"])
    for place, outcome in {
        f"{BUCKET}/results/run1/model": "allowed",
        f"{BUCKET}/results/run2/model": "explicitly denied",
        "mine/out/model": "allowed",
        "mine/outside/model": "explicitly denied",
    }.items():
        assert decided(granted, "PutObject", place) == outcome
        assert decided(granted, "DeleteObject", place) == outcome
    assert decided(granted, "GetObject", "mine/out/model") == "allowed"


@pytest.mark.parametrize(
    ("place", "refused"),
    [
        (BUCKET, True),
        (f"{BUCKET}/members", True),
        (f"{BUCKET}/data/results", True),
        (f"{BUCKET}/results-old", True),
        (f"{BUCKET}/results", False),
        (f"{BUCKET}/results/run1", False),
        (f"{BUCKET}-2/members", False),
        (f"{DATA}/coco2017", True),
        ("other", False),
    ],
)
def test_which_places_of_its_own_bucket_are_refused(place: str, refused: bool) -> None:
    assert outside(RESULTS, BUCKET, DATA, [place]) == ([place] if refused else [])


@pytest.mark.parametrize(
    ("logs", "outcomes"),
    [
        # Another's report, a bundle, a data set, and EMR's logs.
        ("", [False, False, False, True]),
        (BUCKET, [False, False, False, False]),
        (f"{BUCKET}/members", [False, False, False, False]),
        (f"{BUCKET}/bundles", [False, False, False, False]),
        (f"{BUCKET}/emr-logs-2", [False, False, False, False]),
        (DATA, [False, False, False, False]),
        (f"{BUCKET}/emr-logs", [False, False, False, True]),
        ("theirs", [False, False, False, False]),
    ],
)
def test_emrs_logs_open_nothing_else(logs: str, outcomes: list[bool]) -> None:
    granted = parse_policy(policy_for("node", MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, logs=logs)))
    places = (
        f"{BUCKET}/members/{OTHER}/report.json",
        f"{BUCKET}/bundles/a.py",
        f"{DATA}/coco/a",
        f"{BUCKET}/emr-logs/a",
    )
    assert [decided(granted, "PutObject", place) == "allowed" for place in places] == outcomes
    assert (decided(granted, "PutObject", "theirs/a") == "allowed") == (logs == "theirs")


def test_the_prefixes_of_a_bucket_open_neither_their_neighbours_nor_another_bucket() -> None:
    granted = policy(read=["datasets/imagenet", "datasets/coco/2017", "public"], write=["results/run1"])
    for bucket, prefix, outcome in (
        ("datasets", "imagenet/", "allowed"),
        ("datasets", "imagenet/train/", "allowed"),
        ("datasets", "coco/2017/", "allowed"),
        ("datasets", "imagenet", "implicitly denied"),
        ("datasets", "imagenet-secret/", "implicitly denied"),
        ("datasets", "run1/", "implicitly denied"),
        ("datasets", "", "implicitly denied"),
        ("public", "", "allowed"),
        ("public", "anything", "allowed"),
        ("results", "run1/", "allowed"),
        ("results", "imagenet/", "implicitly denied"),
        (BUCKET, "members/", "allowed"),
        ("others", "imagenet/", "implicitly denied"),
    ):
        assert decided(granted, "ListBucket", bucket, prefix=prefix) == outcome, (bucket, prefix)
    assert decided(granted, "ListBucket", "datasets") == "implicitly denied"
    assert decided(granted, "GetObject", "datasets/imagenet/a") == "allowed"
    assert decided(granted, "GetObject", "datasets/imagenet-secret/a") == "implicitly denied"
    assert decided(granted, "GetObject", "datasets/run1/a") == "implicitly denied"


def test_a_bucket_includes_its_prefixes() -> None:
    granted = policy(read=["public/a", "public"])
    assert decided(granted, "ListBucket", "public", prefix="b/") == "allowed"


@pytest.mark.parametrize(
    ("write", "service", "action", "outcome"),
    [
        ([], "s3.us-east-1", "Decrypt", "allowed"),
        ([], "s3.us-east-1", "GenerateDataKey", "implicitly denied"),
        (["results"], "s3.us-east-1", "GenerateDataKey", "allowed"),
        (["results"], "ec2.us-east-1", "Decrypt", "implicitly denied"),
        (["results"], "s3.us-east-1", "Encrypt", "implicitly denied"),
    ],
)
def test_a_key_is_used_for_objects_alone(write: list[str], service: str, action: str, outcome: str) -> None:
    access = MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, ["datasets"], write, [KEY])
    granted = parse_policy(policy_for("worker", access))
    context = context_of({"kms:ViaService": f"{service}.amazonaws.com"})
    assert decide([granted], f"kms:{action}", KEY, context).outcome == outcome
    assert decide([granted], f"kms:{action}", KEY[:-1], context).outcome == "implicitly denied"


def test_the_role_renders_it(tmp_path: Path) -> None:
    variables = {
        "iam_cluster": "red",
        "iam_region": "us-east-1",
        "iam_account": "123456789012",
        "iam_partition": "aws-cn",
        "iam_bucket": BUCKET,
        "iam_idle_end": False,
        "iam_workers_associate": False,
        "iam_s3_read": ["datasets/imagenet/"],
        "iam_s3_write": [BUCKET, "results"],
        "iam_s3_kms_keys": [KEY],
        "iam_tags": {},
        "iam_emr": False,
        "iam_emr_logs": "",
        "iam_emr_subnet_ids": [],
        "iam_emr_security_group_ids": [],
        "ansible_python_interpreter": sys.executable,
    }
    content = "{{ __iam_policy | to_json }}"
    copied = {
        "ansible.builtin.copy": {"content": content, "dest": f"{tmp_path}/{{{{ item['key'] }}}}.json", "mode": "0600"},
        "loop": "{{ __iam_names | dict2items }}",
    }
    play: dict[str, Any] = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": variables,
        "vars_files": [str(ROOT / "roles/iam/vars/main.yml")],
        "tasks": [copied],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    access = MemberAccess(
        "red", "us-east-1", ACCOUNT, BUCKET, ["datasets/imagenet"], [BUCKET, "results"], [KEY], partition="aws-cn"
    )
    for role in ("master", "worker"):
        rendered = json.loads((tmp_path / f"{role}.json").read_text(encoding="utf-8"))
        assert rendered == policy_for(role, access)


def test_the_master_alone_lists_members_and_assigns_ranks_in_its_cluster() -> None:
    access = MemberAccess("red", "us-east-1", ACCOUNT, BUCKET)
    worker, master = (policy_for(role, access)["Statement"] for role in ("worker", "master"))
    # The last one names the group of its role.
    assert master[: len(worker) - 1] == worker[:-1]
    assert [statement["Sid"] for statement in master[len(worker) :]] == [
        "ListMembers",
        "AssignRanksAndMarkUse",
        "TakeTheAddress",
    ]
    policies = [parse_policy(policy_for("master", access))]
    instance = f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/i-01"
    for cluster, keys, outcome in (
        ("red", ["deeplearning:rank"], "allowed"),
        ("red", ["deeplearning:run"], "allowed"),
        ("blue", ["deeplearning:rank"], "implicitly denied"),
        ("red", ["deeplearning:cluster"], "implicitly denied"),
        ("red", ["deeplearning:rank", "Name"], "implicitly denied"),
        ("red", [], "implicitly denied"),
    ):
        context = context_of(
            {}, {"ec2:ResourceTag/deeplearning:cluster": cluster, **({"aws:TagKeys": keys} if keys else {})}
        )
        assert decide(policies, "ec2:CreateTags", instance, context).outcome == outcome, (cluster, keys)


SIZES = {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}


@pytest.mark.parametrize(
    ("role", "group", "cluster", "sizes", "allowed"),
    [
        ("master", "red-master", "red", SIZES, True),
        ("master", "red-workers", "red", SIZES, True),
        ("master", "red-workers", "blue", SIZES, False),
        ("master", "red-2-workers", "red", SIZES, False),
        ("master", "red-workers", "red", SIZES | {"autoscaling:MaxSize": "1"}, False),
        ("master", "red-workers", "red", SIZES | {"autoscaling:MinSize": "1"}, False),
        # A size that the call leaves out.
        ("master", "red-workers", "red", {"autoscaling:MinSize": "0"}, False),
        ("master", "red-workers", "red", {"autoscaling:MaxSize": "0"}, False),
        ("master", "red-workers", "red", {}, False),
        ("worker", "red-workers", "red", SIZES, False),
    ],
)
def test_the_master_alone_schedules_the_end_and_no_other_size(
    role: str, group: str, cluster: str, sizes: dict[str, str], allowed: bool
) -> None:
    name = f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:id:autoScalingGroupName/{group}"
    context = context_of({}, {"aws:ResourceTag/deeplearning:cluster": cluster, **sizes})
    for idle_end in (True, False):
        granted = parse_policy(policy_for(role, MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, idle_end=idle_end)))
        outcome = decide([granted], "autoscaling:PutScheduledUpdateGroupAction", name, context).outcome
        assert (outcome == "allowed") == (allowed and idle_end)
        # It has no condition keys of sizes.
        for action in ("BatchPutScheduledUpdateGroupAction", "DeleteScheduledAction", "SetInstanceProtection"):
            assert decide([granted], f"autoscaling:{action}", name, context).outcome != "allowed"


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_member_answers_the_hook_of_its_own_group_alone(role: str) -> None:
    policies = [parse_policy(policy_for(role, MemberAccess("red", "us-east-1", ACCOUNT, BUCKET)))]
    own = {"master": "red-master", "worker": "red-workers"}[role]
    for group in ("red-master", "red-workers", "red-2-workers", "blue-master", "blue-workers"):
        name = f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:id:autoScalingGroupName/{group}"
        for action in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"):
            allowed = decide(policies, f"autoscaling:{action}", name, context_of({}, {})).outcome == "allowed"
            assert allowed == (group == own), (action, group)


@pytest.mark.parametrize("kind", ["elastic-ip/eipalloc-01", "network-interface/eni-01"])
def test_the_master_alone_takes_addresses_and_only_its_clusters(kind: str) -> None:
    access = MemberAccess("red", "us-east-1", ACCOUNT, BUCKET)
    resource = f"arn:aws:ec2:us-east-1:{ACCOUNT}:{kind}"
    for role, cluster, outcome in (
        ("master", "red", "allowed"),
        ("master", "blue", "implicitly denied"),
        ("worker", "red", "implicitly denied"),
    ):
        context = context_of({}, {"ec2:ResourceTag/deeplearning:cluster": cluster})
        assert decide([parse_policy(policy_for(role, access))], "ec2:AssociateAddress", resource, context).outcome == (
            outcome
        )
    untagged = decide(
        [parse_policy(policy_for("master", access))], "ec2:AssociateAddress", resource, context_of({}, {})
    )
    assert untagged.outcome == "implicitly denied"


@pytest.mark.parametrize("workers_associate", [False, True])
def test_workers_associate_the_address_only_where_a_new_master_has_none(workers_associate: bool) -> None:
    access = MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, workers_associate=workers_associate)
    granted = parse_policy(policy_for("worker", access))
    ec2 = f"arn:aws:ec2:us-east-1:{ACCOUNT}"
    for cluster, outcome in (
        ("red", "allowed" if workers_associate else "implicitly denied"),
        ("blue", "implicitly denied"),
    ):
        context = context_of({"aws:userid": ME}, {"ec2:ResourceTag/deeplearning:cluster": cluster})
        for resource in ("elastic-ip/eipalloc-1", "network-interface/eni-1"):
            assert decide([granted], "ec2:AssociateAddress", f"{ec2}:{resource}", context).outcome == outcome
