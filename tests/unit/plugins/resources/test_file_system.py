"""The module file_system against the local cloud's file systems: what it creates, finds, uses and leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.plugins.resources.file_system_kit import TAGS, Place, Run, writes


def test_check_do_and_again(aws: Any, run: Run, place: Place) -> None:
    planned = run(**place.options(), check=True)
    assert planned["changed"] and not place.systems()
    assert planned["diff"]["after"]["throughput_mode"] == "elastic"

    created = run(**place.options())
    (system,) = place.systems()
    (target,) = place.targets(system["FileSystemId"])
    assert created["changed"] and created["created"]
    assert system["Encrypted"] and system["ThroughputMode"] == "elastic"
    assert system["PerformanceMode"] == "generalPurpose" and system["CreationToken"] == "c"
    assert {tag["Key"]: tag["Value"] for tag in system["Tags"]} == {"Name": "c-efs", **TAGS}
    assert place.groups_of(target["MountTargetId"]) == {place.ours}
    assert created["mount_target"]["ip"] == target["IpAddress"] and created["mount_target"]["zone"] == "us-east-1a"

    for check in (False, True):
        before = len(aws.cloud.calls.since())
        again = run(**place.options(), check=check)
        assert not again["changed"] and not again["created"]
        assert again["file_system"]["id"] == created["file_system"]["id"]
        assert not [record for record in aws.cloud.calls.since()[before:] if record["writes"]]


def test_a_kept_file_system_is_found_again(run: Run, place: Place) -> None:
    first = run(**place.options())
    (target,) = place.targets(first["file_system"]["id"])
    place.efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    again = run(**place.options(subnet_id=place.subnets[1]))
    assert again["file_system"]["id"] == first["file_system"]["id"]
    assert not again["created"] and again["mount_target"]["zone"] == "us-east-1b"


def test_what_has_our_token_but_not_our_tag_is_refused(run: Run, place: Place) -> None:
    place.efs.create_file_system(CreationToken="c")
    place.clock.advance(1)
    refused = run(**place.options())
    assert refused["failed"] and "not this cluster's" in refused["msg"]


def test_settings_that_aws_can_change_are_changed(run: Run, place: Place) -> None:
    place.efs.create_file_system(
        CreationToken="c", Encrypted=False, Tags=[{"Key": "deeplearning:cluster", "Value": "c"}]
    )
    changed = run(**place.options(tags={**TAGS, "team": "research"}, throughput_mode="elastic"))
    (system,) = place.systems()
    assert changed["changed"] and system["ThroughputMode"] == "elastic"
    assert {"Key": "team", "Value": "research"} in system["Tags"]
    assert "AWS cannot change that" in changed["notes"][0]


@pytest.mark.parametrize("mode", ["elastic", "bursting"])
def test_a_new_file_system_has_the_mode_that_was_chosen_and_keeps_it(run: Run, place: Place, mode: str) -> None:
    run(**place.options(throughput_mode=mode))
    assert place.systems()[0]["ThroughputMode"] == mode
    for chosen in ("", mode):
        assert not run(**place.options(throughput_mode=chosen))["changed"]
    assert place.systems()[0]["ThroughputMode"] == mode


def test_a_mode_that_somebody_set_is_kept_until_another_is_chosen(run: Run, place: Place) -> None:
    system = run(**place.options())["file_system"]["id"]
    place.efs.update_file_system(FileSystemId=system, ThroughputMode="bursting")
    place.clock.advance(100)
    assert not run(**place.options())["changed"]
    assert place.systems()[0]["ThroughputMode"] == "bursting"
    refused = run(**place.options(throughput_mode="elastic"))
    assert refused["failed"] and refused["msg"] == (
        f"AWS does not change the throughput mode of file system {system} from bursting to elastic yet, because its "
        "throughput was changed in the last 24 hours: run the same command again later, or keep the present mode for "
        "now. Example: -e cluster_efs_throughput="
    )
    assert place.systems()[0]["ThroughputMode"] == "bursting"


def test_the_mode_of_the_users_own_file_system_is_never_changed(run: Run, place: Place) -> None:
    system, _ = place.foreign()
    run(**place.options(file_system_id=system, throughput_mode="elastic"))
    assert place.systems()[0]["ThroughputMode"] == "bursting"


def test_a_mount_target_that_lets_us_in_is_used_as_it_is(run: Run, place: Place) -> None:
    open_to_us = place.group("nfs")
    place.ec2.authorize_security_group_ingress(
        GroupId=open_to_us,
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}],
    )
    system, target = place.foreign(groups=[open_to_us])
    used = run(**place.options(file_system_id=system))
    assert not used["changed"] and used["mount_target"]["id"] == target
    assert place.groups_of(target) == {open_to_us}


def test_our_group_is_added_where_we_are_not_let_in(run: Run, place: Place) -> None:
    theirs = place.group("nfs")
    system, target = place.foreign(groups=[theirs])
    assert run(**place.options(file_system_id=system))["changed"]
    assert place.groups_of(target) == {theirs, place.ours}
    assert not run(**place.options(file_system_id=system))["changed"]


def test_in_another_zone_it_gets_a_mount_target_of_ours(run: Run, place: Place) -> None:
    system, theirs = place.foreign(subnet=1)
    created = run(**place.options(file_system_id=system))
    assert created["changed"] and not created["created"] and created["mount_target"]["zone"] == "us-east-1a"
    targets = {target["MountTargetId"] for target in place.targets(system)}
    assert targets == {created["mount_target"]["id"], theirs}


def test_a_file_system_of_another_vpc_is_refused(aws: Any, run: Run, place: Place) -> None:
    system, _ = place.foreign()
    other = Place(aws, "10.1.0.0/16")
    refused = run(**other.options(file_system_id=system))
    assert refused["failed"] and place.vpc in refused["msg"] and other.vpc in refused["msg"]


def test_an_id_that_does_not_exist_is_one_sentence(run: Run, place: Place) -> None:
    refused = run(**place.options(file_system_id="fs-0123456789abcdef0"))
    assert refused["failed"] and refused["msg"].startswith("There is no file system fs-0123456789abcdef0")


def test_in_check_mode_the_subnet_may_be_yet_to_come(run: Run, place: Place) -> None:
    place.efs.create_file_system(
        CreationToken="c",
        Encrypted=True,
        ThroughputMode="elastic",
        Tags=[{"Key": "deeplearning:cluster", "Value": "c"}, {"Key": "Name", "Value": "c-efs"}],
    )
    planned = run(**place.options(subnet_id="subnet-00000000000000000"), check=True)
    assert planned["changed"] and planned["diff"]["after"]["mount_target"]


CLIENTS = [f"elasticfilesystem:Client{what}" for what in ("Mount", "RootAccess", "Write")]
THEIRS = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "elasticfilesystem:*", "Resource": "*"}],
}


def test_tls_is_required_from_before_it_can_be_mounted(aws: Any, run: Run, place: Place) -> None:
    planned = run(**place.options(require_tls=True), check=True)
    assert planned["diff"]["after"]["requires_tls"] and not place.systems()
    system = run(**place.options(require_tls=True))["file_system"]["id"]
    assert writes(aws)[-3:] == ["CreateFileSystem", "PutFileSystemPolicy", "CreateMountTarget"]
    policy = place.policy(system)
    assert policy
    allow, deny = policy["Statement"]
    arn = place.systems()[0]["FileSystemArn"]
    for statement in (allow, deny):
        assert (statement["Principal"], statement["Action"], statement["Resource"]) == ({"AWS": "*"}, CLIENTS, arn)
    # Any client of a mount target may do what NFS clients may without a policy; no condition names an identity.
    assert (allow["Effect"], allow["Condition"]) == (
        "Allow",
        {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
    )
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_tls_is_required_exactly_as_long_as_that_is_set(aws: Any, run: Run, place: Place) -> None:
    system = run(**place.options())["file_system"]["id"]
    for required in (True, False):
        before = writes(aws)
        planned = run(**place.options(require_tls=required), check=True)
        assert planned["changed"] and writes(aws) == before
        assert (planned["diff"]["before"]["requires_tls"], planned["diff"]["after"]["requires_tls"]) == (
            not required,
            required,
        )
        assert run(**place.options(require_tls=required))["changed"]
        assert bool(place.policy(system)) == required
        before = writes(aws)
        for check in (False, True):
            assert not run(**place.options(require_tls=required), check=check)["changed"]
        assert writes(aws) == before


def test_a_changed_policy_of_ours_is_repaired_and_removed(run: Run, place: Place) -> None:
    system = run(**place.options(require_tls=True))["file_system"]["id"]
    ours = place.policy(system)
    assert ours
    for required in (True, False):
        weaker = json.dumps({**ours, "Statement": ours["Statement"][:1]})
        place.efs.put_file_system_policy(FileSystemId=system, Policy=weaker)
        assert run(**place.options(require_tls=required))["changed"]
        assert place.policy(system) == (ours if required else None)


def test_a_foreign_policy_is_neither_replaced_nor_removed(run: Run, place: Place) -> None:
    system = run(**place.options())["file_system"]["id"]
    place.efs.put_file_system_policy(FileSystemId=system, Policy=json.dumps(THEIRS))
    refused = run(**place.options(require_tls=True))
    assert refused["failed"] and f"{system} has a policy that this cluster did not make" in refused["msg"]
    assert not run(**place.options())["changed"]
    assert place.policy(system) == THEIRS


@pytest.mark.parametrize("required", [True, False])
def test_the_users_own_file_system_keeps_its_policy(run: Run, place: Place, required: bool) -> None:
    system, _ = place.foreign(subnet=1)
    run(**place.options(file_system_id=system, require_tls=required))
    assert place.policy(system) is None
    # Even one that this cluster made, and required TLS of, before it was given by its id.
    own = run(**place.options(require_tls=True))["file_system"]["id"]
    run(**place.options(file_system_id=own, require_tls=required))
    assert place.policy(own)


def test_a_second_call_waits(run: Run, place: Place) -> None:
    created = run(**place.options(wait=False))
    waited = run(**place.options(file_system_id=created["file_system"]["id"]))
    assert not waited["changed"] and waited["mount_target"]["id"] == created["mount_target"]["id"]
    assert (waited["file_system"]["state"], waited["mount_target"]["state"]) == ("available", "available")
