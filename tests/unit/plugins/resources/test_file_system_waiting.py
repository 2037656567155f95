"""The module file_system while AWS takes its time, and where a file system is found by something else than its id."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws

from localcloud.testing.latency import Latency
from tests.unit.conftest import Account
from tests.unit.plugins.resources.file_system_kit import TAGS, Place, Run, writes


def takes(aws: Account, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    monkeypatch.setattr(aws.cloud, "latency", Latency("test", seconds))


def own(place: Place, token: str, name: str = "c-efs", **more: Any) -> str:
    tags = [{"Key": "Name", "Value": name}, {"Key": "deeplearning:cluster", "Value": "c"}]
    more = {"Encrypted": True, "ThroughputMode": "elastic", **more}
    system = place.efs.create_file_system(CreationToken=token, Tags=tags, **more)["FileSystemId"]
    place.clock.advance(100)
    return str(system)


def test_without_name_and_id_nothing_is_called(aws: Account, run: Run) -> None:
    refused = run(tags=TAGS)
    assert refused["failed"] and refused["msg"].endswith("neither name nor file_system_id: give one of them.")
    assert aws.calls() == []


def test_a_name_is_enough(run: Run, place: Place) -> None:
    created = run(name="c-efs", tags={"size": 2})
    (system,) = place.systems()
    assert created["changed"] and system["CreationToken"] == "c-efs"
    assert {tag["Key"]: tag["Value"] for tag in system["Tags"]} == {"Name": "c-efs", "size": "2"}
    assert created["mount_target"] == {} and place.targets(system["FileSystemId"]) == []
    assert created["file_system"] == {
        **{"id": system["FileSystemId"], "name": "c-efs", "creation_token": "c-efs", "state": "available"},
        **{"encrypted": True, "performance_mode": "generalPurpose", "throughput_mode": "elastic"},
        "tags": {"Name": "c-efs", "size": "2"},
    }
    assert not run(name="c-efs", tags={"size": 2})["changed"]


def test_a_cluster_may_be_tagged_with_a_number(run: Run) -> None:
    created, again = (run(name="c-efs", tags={"deeplearning:cluster": 7}) for _unused in range(2))
    assert created["changed"] and not again["changed"]


def test_check_mode_answers_what_would_be(run: Run, place: Place) -> None:
    planned = run(**place.options(), check=True)
    assert planned["created"] and planned["mount_target"] == {} and planned["notes"] == []
    system = planned["file_system"]
    assert (system["id"], system["state"], system["name"], system["creation_token"]) == ("", "absent", "c-efs", "c")
    assert planned["diff"]["before"] == {}
    assert planned["diff"]["after"]["mount_target"] == {
        "subnet_id": place.subnets[0],
        "security_groups": [place.ours],
    }
    assert planned["diff"]["after"]["tags"] == {"Name": "c-efs", **TAGS} and planned["diff"]["after"]["encrypted"]


def test_a_file_system_is_found_by_its_name_and_tag_if_its_token_is_another(run: Run, place: Place) -> None:
    own(place, "blue", name="another")
    place.efs.create_file_system(CreationToken="theirs", Tags=[{"Key": "Name", "Value": "c-efs"}])
    place.clock.advance(100)
    system = own(place, "earlier")
    used = run(**place.options())
    assert not used["created"] and used["file_system"]["id"] == system
    # One with the token comes first, although another one has the name.
    exact = own(place, "c")
    assert run(**place.options())["file_system"]["id"] == exact


def test_all_are_read_unless_one_is_named(run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    system = own(place, "c")
    pages, requests = Aws.pages, []

    def recorded(self: Aws, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        requests.append((operation, params))
        return pages(self, service, operation, key, **params)

    monkeypatch.setattr(Aws, "pages", recorded)
    run(**place.options(subnet_id=""))
    run(file_system_id=system)
    assert requests == [("describe_file_systems", {}), ("describe_file_systems", {"FileSystemId": system})]


def test_two_of_one_name_are_not_chosen_between(run: Run, place: Place) -> None:
    ids = sorted([own(place, "one"), own(place, "two")])
    refused = run(**place.options())
    assert refused["failed"] and refused["msg"] == (
        f"The file systems {ids[0]}, {ids[1]} all have the name c-efs: choose one by its id."
    )
    assert run(**place.options(file_system_id=ids[1]))["file_system"]["id"] == ids[1]


def test_what_is_being_deleted_is_waited_for_and_replaced(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = own(place, "c")
    takes(aws, monkeypatch, file_system_deleted=30)
    place.efs.delete_file_system(FileSystemId=old)
    planned = run(**place.options(), check=True)
    assert planned["changed"] and planned["created"] and planned["file_system"]["id"] == ""
    refused = run(**place.options(wait_timeout=0))
    assert refused["failed"] and refused["msg"] == (f"File system {old} has been deleting for 0 s: run it again later.")
    refused = run(**place.options(file_system_id=old))
    assert refused["failed"] and refused["msg"] == f"File system {old} is being deleted: give another one."
    created = run(**place.options())
    assert created["created"] and created["file_system"]["id"] != old


def test_a_mount_target_that_is_being_deleted_is_waited_for_and_replaced(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(**place.options())
    old = first["mount_target"]["id"]
    takes(aws, monkeypatch, mount_target_deleted=30)
    place.efs.delete_mount_target(MountTargetId=old)
    planned = run(**place.options(), check=True)
    assert planned["changed"] and not planned["created"] and planned["mount_target"] == {}
    system = first["file_system"]["id"]
    refused = run(**place.options(wait_timeout=0))
    assert refused["msg"] == f"Mount targets of {system} have been deleting for 0 s: run it again later."
    created = run(**place.options())
    assert created["changed"] and not created["created"] and created["mount_target"]["id"] != old
    assert created["mount_target"]["security_groups"] == [place.ours]


def test_each_change_waits_for_the_one_before(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(aws, monkeypatch, file_system_available=20, mount_target_available=60, file_system_updated=20)
    created = run(**place.options(require_tls=True))
    assert (created["file_system"]["state"], created["mount_target"]["state"]) == ("available", "available")
    assert created["mount_target"]["security_groups"] == [place.ours]
    assert created["mount_target"]["subnet_id"] == place.subnets[0] and created["mount_target"]["vpc_id"] == place.vpc


def test_throughput_tags_and_target_of_an_older_file_system(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = own(place, "c", ThroughputMode="bursting")
    takes(aws, monkeypatch, file_system_updated=20, mount_target_available=20)
    options = place.options(tags={**TAGS, "team": "a"}, throughput_mode="elastic")
    planned = run(**options, check=True)
    assert planned["diff"]["before"]["throughput_mode"] == "bursting"
    assert planned["diff"]["after"]["throughput_mode"] == "elastic"
    assert planned["diff"]["after"]["tags"] == {"Name": "c-efs", **TAGS, "team": "a"}
    changed = run(**options)
    assert changed["file_system"]["id"] == system and changed["file_system"]["throughput_mode"] == "elastic"
    assert changed["file_system"]["state"] == "available"
    assert writes(aws)[-3:] == ["UpdateFileSystem", "TagResource", "CreateMountTarget"]
    assert not run(**options)["changed"]


def test_waiting_has_an_end(aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    takes(aws, monkeypatch, file_system_available=20, mount_target_available=60)
    refused = run(**place.options(wait_timeout=0))
    (system,) = place.systems()
    assert refused["msg"] == (f"File system {system['FileSystemId']} is not available after 0 s: run it again later.")
    place.clock.advance(30)
    refused = run(**place.options(wait_timeout=0))
    (target,) = place.targets(system["FileSystemId"])
    assert refused["msg"] == f"Mount target {target['MountTargetId']} is not available after 0 s: run it again later."
    # Without waiting that is no failure.
    assert run(**place.options(wait=False))["mount_target"]["state"] == "creating"
    place.clock.advance(60)
    assert not run(**place.options())["changed"]


def test_without_waiting_the_result_is_what_there_is(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(aws, monkeypatch, mount_target_available=60)
    created = run(**place.options(wait=False))
    assert created["changed"] and created["mount_target"]["state"] == "creating"
    assert created["mount_target"]["security_groups"] == [place.ours]


def test_a_mount_target_that_vanishes_while_it_is_waited_for(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(aws, monkeypatch, mount_target_available=60)
    call = Aws.call

    def vanishing(self: Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        answer = call(self, service, operation, **params)
        if operation == "create_mount_target":
            place.efs.delete_mount_target(MountTargetId=answer["MountTargetId"])
            place.clock.advance(1)
        return answer

    monkeypatch.setattr(Aws, "call", vanishing)
    refused = run(**place.options())
    assert refused["failed"] and "could not be created: run it again." in refused["msg"]


@pytest.mark.parametrize("state", ["error", "deleting", "deleted"])
def test_a_mount_target_that_fails(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    takes(aws, monkeypatch, mount_target_available=60)
    system = run(**place.options(wait=False))["file_system"]["id"]
    (target,) = place.targets(system)
    pages, seen = Aws.pages, []

    def failing(self: Aws, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        items = pages(self, service, operation, key, **params)
        if operation == "describe_mount_targets":
            seen.append(state)
            # The first time it is read, it is still being created.
            return [{**item, "LifeCycleState": state} for item in items] if len(seen) > 1 else items
        return items

    monkeypatch.setattr(Aws, "pages", failing)
    refused = run(**place.options())
    assert refused["msg"] == f"Mount target {target['MountTargetId']} of {system} could not be created: run it again."


def test_a_creation_whose_answer_was_lost_is_found(
    aws: Account, run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Aws.call

    def made_before(self: Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "create_file_system":
            own(place, params["CreationToken"])
        return call(self, service, operation, **params)

    monkeypatch.setattr(Aws, "call", made_before)
    created = run(**place.options())
    (system,) = place.systems()
    assert created["file_system"]["id"] == system["FileSystemId"] and created["mount_target"]["state"] == "available"


@pytest.mark.parametrize("code", ["FileSystemLimitExceeded", "FileSystemAlreadyExists"])
def test_other_refusals_of_a_creation_are_reported(aws: Account, run: Run, place: Place, code: str) -> None:
    words = {"code": code, "message": "No.", "status": 403}
    aws.cloud.faults.add("error", {"action": "elasticfilesystem:CreateFileSystem"}, words)
    aws.cloud.faults.add("error", {"action": "efs:CreateFileSystem"}, words)
    refused = run(**place.options())
    assert refused["failed"] and f"({code})" in refused["msg"] and place.systems() == []


def test_a_subnet_that_does_not_exist_is_only_accepted_in_check_mode(run: Run, place: Place) -> None:
    missing = "subnet-0123456789abcdef0"
    assert not run(**place.options(subnet_id=missing), check=True).get("failed")
    refused = run(**place.options(subnet_id=missing))
    assert refused["failed"] and "InvalidSubnetID.NotFound" in refused["msg"] and place.systems() == []


def test_other_problems_with_a_subnet_count_in_check_mode_too(aws: Account, run: Run, place: Place) -> None:
    words = {"code": "UnauthorizedOperation", "message": "No.", "status": 403}
    aws.cloud.faults.add("error", {"action": "ec2:DescribeSubnets"}, words)
    assert "does not allow ec2:DescribeSubnets" in run(**place.options(), check=True)["msg"]


def test_file_systems_that_may_not_be_read_are_a_failure(aws: Account, run: Run, place: Place) -> None:
    words = {"code": "AccessDeniedException", "message": "No.", "status": 403}
    for action in ("efs:DescribeFileSystems", "elasticfilesystem:DescribeFileSystems"):
        aws.cloud.faults.add("error", {"action": action}, words)
    assert "does not allow elasticfilesystem:DescribeFileSystems" in run(**place.options())["msg"]


def test_the_users_own_is_not_changed_beyond_its_mount_target(aws: Account, run: Run, place: Place) -> None:
    system, _target = place.foreign(subnet=1)
    used = run(**place.options(file_system_id=system, tags={"team": "a"}))
    assert used["notes"] == [] and not used["created"]
    assert writes(aws)[-1] == "CreateMountTarget" and not {"UpdateFileSystem", "TagResource"} & set(writes(aws))


def test_what_aws_cannot_change_is_a_warning(run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, text: warnings.append(text))
    system = own(place, "c", Encrypted=False)
    used = run(**place.options())
    note = f"File system {system} stays as it is (encrypted: False, generalPurpose): AWS cannot change that."
    assert used["notes"] == warnings == [note]
