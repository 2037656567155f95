"""The action `cluster_lock`, and the lock that `teardown` takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown.teardown import Deleting, Teardown

from tests.unit.actions import run_action
from tests.unit.cluster_kit import ACCOUNT, REGION, MadeCluster, let_time_pass
from tests.unit.conftest import Account
from tests.unit.plugins.lock.lock_kit import ENDED, record

Lock = Callable[..., dict[str, Any]]
BUCKET = f"red-{ACCOUNT}-{REGION}"


@pytest.fixture
def red(aws: Account, monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    let_time_pass(aws, monkeypatch)
    return MadeCluster(aws)


@pytest.fixture
def lock(capsys: pytest.CaptureFixture[str]) -> Lock:
    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        arguments = {"cluster": "red", "region": REGION, "playbook": "site", "wait_seconds": 0, **options}
        result = run_action("cluster_lock", check, {}, **arguments)
        output = capsys.readouterr()
        return {**result, "printed": output.out, "warned": output.err}

    return call


def content(red: MadeCluster) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(red.s3.get_object(Bucket=BUCKET, Key="lock.json")["Body"].read())
    return body


def test_it_is_taken_once_verified_and_released(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    taken = lock()
    assert (content(red)["state"], content(red)["playbook"]) == ("held", "site")
    assert content(red)["id"] == taken["version"] and not taken["others_wrote"]
    # A later task of the same playbook has it already.
    assert lock(lock=taken["lock"])["lock"] == taken["lock"]
    # This process is alive, so it is not replaced.
    refused = lock()
    assert refused["failed"] and f"-e break_lock={taken['version']}" in refused["msg"]
    released = lock(state="free", lock=taken["lock"], version=taken["version"])
    assert (released["lock"], released["version"]) == ({}, taken["version"])
    assert content(red)["state"] == "free"
    again = lock(version=taken["version"])
    assert not again["others_wrote"]
    lock(state="free", lock=again["lock"])
    assert lock(version=taken["version"], must_be_unchanged=True)["msg"].endswith("so it stops here. Run it again.")
    assert content(red)["state"] == "free"


def test_check_mode_takes_nothing(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    assert lock(check=True)["lock"] == {}
    assert "Contents" not in red.s3.list_objects_v2(Bucket=BUCKET)


def test_without_a_bucket_the_caller_decides(red: MadeCluster, lock: Lock) -> None:
    missing = lock(bucket_may_vanish=True)
    assert (missing["bucket_exists"], missing["lock"]) == (False, {})
    assert "ansible-playbook deeplearning.aws.site" in lock()["msg"]
    assert "was removed while this playbook waited" in lock(state="unchanged", version="a")["msg"]


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [("NotImplemented", 501, "NotImplemented"), ("AccessDenied", 403, "does not allow s3:PutObject")],
)
def test_where_conditional_writes_are_refused_nothing_is_locked(
    red: MadeCluster, lock: Lock, code: str, status: int, words: str
) -> None:
    red.bucket()
    red.fail("s3:PutObject", code, status=status)
    refused = lock()
    assert refused["failed"] and f"The cluster red cannot be locked by s3://{BUCKET}/lock.json: " in refused["msg"]
    assert words in refused["msg"]


def test_a_release_that_fails_is_a_warning(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    taken = lock()
    red.fail("s3:PutObject", "AccessDenied", status=403)
    released = lock(state="free", lock=taken["lock"])
    assert "failed" not in released and "expires by itself" in " ".join(released["warned"].split())
    assert content(red)["state"] == "held"


def test_a_lock_that_was_deleted_with_its_bucket_is_released_without_a_warning(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    taken = lock()
    red.s3.delete_object(Bucket=BUCKET, Key="lock.json")
    red.s3.delete_bucket(Bucket=BUCKET)
    released = lock(state="free", lock=taken["lock"])
    assert "failed" not in released and "expires by itself" not in released["warned"]


def test_the_image_machine_has_a_lock_of_its_own(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    images = lock(kind="image_machine", playbook="image")
    cluster = lock()
    refused = lock(kind="image_machine", playbook="image")
    assert refused["failed"] and refused["msg"].startswith("The image machine of the cluster red is locked by ")
    lock(state="free", kind="image_machine", lock=images["lock"])
    again = lock(kind="image_machine", playbook="image")
    assert again["lock"] and content(red)["id"] == cluster["version"] and content(red)["state"] == "held"


def test_a_foreign_object_is_replaced_by_its_etag_alone(red: MadeCluster, lock: Lock) -> None:
    red.bucket()
    red.put("lock.json", b"mine")
    refused = lock()
    etag = red.s3.head_object(Bucket=BUCKET, Key="lock.json")["ETag"].strip('"')
    assert "is not a lock of this version" in refused["msg"] and f"-e break_lock={etag}" in refused["msg"]
    assert lock(break_lock=etag)["lock"] and content(red)["state"] == "held"


@pytest.mark.parametrize(("playbook", "is_blocked"), [("destroy", True), ("provision", True), ("image", False)])
def test_no_run_goes_on_beside_a_playbook_that_terminates_nodes(
    red: MadeCluster, lock: Lock, playbook: str, is_blocked: bool
) -> None:
    red.bucket()
    red.put("lock.json", record(playbook=playbook).to_json())
    result = lock(state="idle")
    assert "failed" not in result and bool(result["blocked"]) is is_blocked


@pytest.fixture(autouse=True)
def notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time that a former holder needs to notice pass at once."""
    monkeypatch.setattr(holding, "NOTICE_SECONDS", 0.0)


def teardown(**options: Any) -> dict[str, Any]:
    arguments = {"region": REGION, "cluster": "red", "consent": "red", "scan_seconds": 120, "lock_wait": 0, **options}
    return run_action("teardown", False, {}, **arguments)


def test_destroy_takes_over_from_a_live_holder_at_the_end_of_its_wait(red: MadeCluster) -> None:
    """That it asks the holder to stop before is in tests/unit/plugins/lock/test_holding.py."""
    red.whole()
    red.put("lock.json", record().to_json())
    removed = teardown(keep_file_system=False)
    assert "failed" not in removed and not red.s3.list_buckets()["Buckets"]


def test_destroy_waits_for_nobody_who_has_ended(red: MadeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    red.whole()
    red.put("lock.json", record(process=ENDED).to_json())
    assert "failed" not in teardown(lock_wait=600)
    assert "has ended without releasing the lock of the cluster red: it is taken over." in capsys.readouterr().out


@pytest.mark.parametrize("code", ["NotImplemented", "AccessDenied"])
def test_destroy_works_where_nothing_can_be_locked(
    red: MadeCluster, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    red.whole()
    red.fail("s3:PutObject", code, status=403)
    assert "failed" not in teardown(keep_file_system=False)
    assert "Nothing prevents another playbook from changing the cluster" in " ".join(capsys.readouterr().err.split())
    assert not red.s3.list_buckets()["Buckets"]


def test_destroy_stops_when_another_playbook_has_taken_the_lock_over(
    red: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    red.whole()
    taken = holding.take

    def lose(store: Any, request: Any, display: Any) -> holding.Taken:
        result = taken(store, request, display)
        red.put("lock.json", record(user="eve@pc").to_json())
        return result

    monkeypatch.setattr(holding, "take", lose)
    # As if the machine had slept: the state is old, so S3 is asked.
    monkeypatch.setattr(holding, "VERIFY_SECONDS", -1.0)
    stopped = teardown()
    assert stopped["failed"] and "eve@pc (site.yml, since" in stopped["msg"]
    assert red.instances("workers") and content(red)["user"] == "eve@pc"


def test_a_bucket_that_another_playbook_locks_meanwhile_stays(
    red: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another playbook takes the lock between the end of ours and the deletion of the bucket."""
    red.bucket()
    delete = Deleting._delete_versions
    other = record(user="eve@pc")

    def delete_and_lose(self: Deleting, bucket: Any, versions: Any) -> None:
        delete(self, bucket, versions)
        red.put("lock.json", other.to_json())

    monkeypatch.setattr(Deleting, "_delete_versions", delete_and_lose)
    result = teardown()
    assert result["failed"] and "Another playbook works on the cluster red now" in result["msg"]
    assert content(red)["user"] == "eve@pc"


@pytest.mark.parametrize("exists", [False, True])
def test_what_another_playbook_creates_while_destroy_runs_is_removed_too(
    red: MadeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exists: bool
) -> None:
    """The other playbook begins after the resources were read, or after the bucket with the lock was deleted."""
    if exists:
        red.whole()
    delete_all = Teardown.run
    rounds = []

    def delete_all_and_create(self: Teardown, resources: Any) -> Any:
        left = delete_all(self, resources)
        rounds.append(left)
        if len(rounds) == 1:
            MadeCluster(red.aws).bucket()
        return left

    monkeypatch.setattr(Teardown, "run", delete_all_and_create)
    result = teardown(keep_file_system=False)
    assert "failed" not in result and not red.s3.list_buckets()["Buckets"]
    assert "Created meanwhile, so removed too: 1 bucket." in capsys.readouterr().out
    assert len(rounds) == 2


def test_a_cluster_that_is_created_again_and_again_is_a_failure(
    red: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_all = Teardown.run

    def delete_all_and_create(self: Teardown, resources: Any) -> Any:
        left = delete_all(self, resources)
        red.bucket()
        return left

    monkeypatch.setattr(Teardown, "run", delete_all_and_create)
    result = teardown()
    assert result["failed"] and f"still has: bucket {BUCKET}" in result["msg"]


def test_a_deletion_of_the_bucket_that_fails_once_does_not_make_the_lock_foreign(red: MadeCluster) -> None:
    red.bucket()
    red.put("settings.json", b"{}")
    red.fail("s3:DeleteBucket", "OperationAborted", count=1, status=409)
    assert "failed" not in teardown() and not red.s3.list_buckets()["Buckets"]
