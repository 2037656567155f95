"""The module launch_template against the local cloud's EC2: what it creates, adds, makes the default and repairs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.conftest import Account
from tests.unit.modules import run_module

Run = Callable[..., dict[str, Any]]
TAGS = {"Name": "c-workers", "deeplearning:cluster": "c"}


@pytest.fixture
def run(aws: Account, capsys: pytest.CaptureFixture[str]) -> Run:
    (image, *_others) = aws.client("ec2").describe_images()["Images"]

    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        # AWS knows what the run before has made.
        aws.cloud.settle()
        least = {
            "name": "c-workers",
            "image_id": image["ImageId"],
            "instance_type": "g5.xlarge",
            "key_name": "c",
            "instance_profile": "arn:aws:iam::123456789012:instance-profile/c",
            "tags": TAGS,
        }
        return run_module(capsys, "launch_template", check, **{**least, **options})

    return call


class Templates:
    """What plain boto3 reads."""

    def __init__(self, aws: Account) -> None:
        self.ec2 = aws.client("ec2")

    def only(self) -> dict[str, Any]:
        (template,) = self.ec2.describe_launch_templates()["LaunchTemplates"]
        return dict(template)

    def tags(self) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self.only().get("Tags", ())}

    def versions(self) -> list[dict[str, Any]]:
        answer = self.ec2.describe_launch_template_versions(LaunchTemplateId=self.only()["LaunchTemplateId"])
        return sorted(answer["LaunchTemplateVersions"], key=lambda version: int(version["VersionNumber"]))

    def data(self, number: int = -1) -> dict[str, Any]:
        return dict(self.versions()[number]["LaunchTemplateData"])


@pytest.fixture
def templates(aws: Account) -> Templates:
    return Templates(aws)


def test_check_mode_creates_nothing_and_shows_what_it_would(aws: Account, run: Run, templates: Templates) -> None:
    planned = run(check=True)
    assert planned["changed"] and (planned["template_id"], planned["version"]) == ("", 1)
    assert planned["diff"]["before"] == {} and planned["diff"]["after"]["tags"] == TAGS
    assert planned["diff"]["after"]["data"]["InstanceType"] == "g5.xlarge"
    assert templates.ec2.describe_launch_templates()["LaunchTemplates"] == []


def test_all_options_reach_the_template(run: Run, templates: Templates) -> None:
    options = {
        "security_groups": ["sg-0123456789abcdef0"],
        "root_device": "/dev/xvda",
        "root_volume_gib": 200,
        "root_volume_type": "gp2",
        "placement_group": "c",
        "user_data": "#!/bin/sh\n",
        "spot": True,
        "instance_tags": {"Name": "c-worker", "deeplearning:rank": 7},
    }
    created = run(tags={**TAGS, "size": 2}, **options)
    template = templates.only()
    assert created["changed"] and (created["template_id"], created["version"]) == (template["LaunchTemplateId"], 1)
    assert template["LaunchTemplateName"] == "c-workers" and templates.tags() == {**TAGS, "size": "2"}

    data = templates.data()
    (disk,) = data["BlockDeviceMappings"]
    assert (disk["DeviceName"], disk["Ebs"]["VolumeSize"], disk["Ebs"]["VolumeType"]) == ("/dev/xvda", 200, "gp2")
    assert disk["Ebs"]["Encrypted"] is True and disk["Ebs"]["DeleteOnTermination"] is True
    assert data["SecurityGroupIds"] == ["sg-0123456789abcdef0"] and data["Placement"]["GroupName"] == "c"
    assert base64.b64decode(data["UserData"]) == b"#!/bin/sh\n"
    assert data["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time"},
    }
    assert (data["InstanceType"], data["KeyName"]) == ("g5.xlarge", "c")
    assert data["IamInstanceProfile"] == {"Arn": "arn:aws:iam::123456789012:instance-profile/c"}
    metadata = {key: data["MetadataOptions"][key] for key in ("HttpTokens", "HttpPutResponseHopLimit", "HttpEndpoint")}
    assert metadata == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"}
    assert data["MetadataOptions"]["InstanceMetadataTags"] == "disabled"
    for tagged in data["TagSpecifications"]:
        assert {tag["Key"]: tag["Value"] for tag in tagged["Tags"]} == {"Name": "c-worker", "deeplearning:rank": "7"}


def test_the_least_that_can_be_given(run: Run, templates: Templates) -> None:
    run(tags={})
    data = templates.data()
    assert templates.tags() == {} and not data.get("TagSpecifications")
    (disk,) = data["BlockDeviceMappings"]
    assert (disk["DeviceName"], disk["Ebs"]["VolumeSize"], disk["Ebs"]["VolumeType"]) == ("/dev/sda1", 100, "gp3")
    assert not disk["Ebs"].get("Throughput")
    assert not {"UserData", "InstanceMarketOptions", "Placement", "NetworkInterfaces"} & {
        key for key, value in data.items() if value
    }
    assert not run(tags={})["changed"]


def test_efa_cards_and_throughput(run: Run, templates: Templates) -> None:
    options = {"efa_cards": [0, 1], "security_groups": ["sg-0123456789abcdef0"], "root_volume_throughput": 500}
    run(**options)
    data = templates.data()
    layout = [
        (interface["NetworkCardIndex"], interface["DeviceIndex"], interface["InterfaceType"])
        for interface in data["NetworkInterfaces"]
    ]
    assert layout == [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]
    assert data["BlockDeviceMappings"][0]["Ebs"]["Throughput"] == 500
    assert not run(**options)["changed"]


def test_a_second_run_writes_nothing(aws: Account, run: Run) -> None:
    first = run(instance_tags={"Name": "c-worker"}, security_groups=["sg-0123456789abcdef0"])
    for check in (False, True):
        again = run(check, instance_tags={"Name": "c-worker"}, security_groups=["sg-0123456789abcdef0"])
        assert not again["changed"] and again["diff"]["before"] == again["diff"]["after"]
        assert (again["template_id"], again["version"]) == (first["template_id"], first["version"])
    # Its tags are in the call that creates it, so that no template is without them.
    assert [record["operation"] for record in aws.cloud.calls.since() if record["writes"]] == ["CreateLaunchTemplate"]


def test_a_difference_is_another_version_and_that_is_the_default(run: Run, templates: Templates) -> None:
    first = run()
    planned = run(check=True, instance_type="g5.2xlarge")
    assert planned["changed"] and (planned["template_id"], planned["version"]) == (first["template_id"], 2)
    assert planned["diff"]["before"]["data"]["InstanceType"] == "g5.xlarge"
    assert planned["diff"]["after"]["data"]["InstanceType"] == "g5.2xlarge"
    assert len(templates.versions()) == 1

    changed = run(instance_type="g5.2xlarge")
    assert changed["changed"] and (changed["template_id"], changed["version"]) == (first["template_id"], 2)
    assert templates.only()["DefaultVersionNumber"] == 2 and templates.data()["InstanceType"] == "g5.2xlarge"
    # Back again: the newest version is compared, so this is a third one.
    assert run()["version"] == 3 and templates.only()["DefaultVersionNumber"] == 3
    assert [version["LaunchTemplateData"]["InstanceType"] for version in templates.versions()] == [
        "g5.xlarge",
        "g5.2xlarge",
        "g5.xlarge",
    ]


def test_a_default_that_is_not_the_newest_is_repaired_without_another_version(run: Run, templates: Templates) -> None:
    run()
    template_id = run(instance_type="g5.2xlarge")["template_id"]
    templates.ec2.modify_launch_template(LaunchTemplateId=template_id, DefaultVersion="1")
    assert run(check=True, instance_type="g5.2xlarge")["changed"]
    assert templates.only()["DefaultVersionNumber"] == 1
    repaired = run(instance_type="g5.2xlarge")
    assert repaired["changed"] and repaired["version"] == 2
    assert templates.only()["DefaultVersionNumber"] == 2 and len(templates.versions()) == 2


def test_a_lost_tag_comes_back_and_foreign_tags_stay(run: Run, templates: Templates) -> None:
    template_id = run()["template_id"]
    templates.ec2.create_tags(Resources=[template_id], Tags=[{"Key": "theirs", "Value": "1"}])
    templates.ec2.delete_tags(Resources=[template_id], Tags=[{"Key": "Name"}])
    templates.ec2.create_tags(Resources=[template_id], Tags=[{"Key": "deeplearning:cluster", "Value": "d"}])
    planned = run(check=True)
    assert planned["changed"] and planned["diff"]["before"]["tags"] == {"theirs": "1", "deeplearning:cluster": "d"}
    assert planned["diff"]["after"]["tags"] == {"theirs": "1", **TAGS}
    assert templates.tags() == {"theirs": "1", "deeplearning:cluster": "d"}
    assert run()["changed"] and templates.tags() == {"theirs": "1", **TAGS}
    assert not run()["changed"] and len(templates.versions()) == 1


def test_another_template_is_left_alone(run: Run, templates: Templates) -> None:
    run(name="c-master")
    assert run()["changed"]
    listed = templates.ec2.describe_launch_templates()["LaunchTemplates"]
    assert sorted(template["LaunchTemplateName"] for template in listed) == ["c-master", "c-workers"]


def test_a_refusal_is_one_sentence(aws: Account, run: Run) -> None:
    words = {"code": "UnauthorizedOperation", "message": "You are not authorized.", "status": 403}
    aws.cloud.faults.add("error", {"action": "ec2:CreateLaunchTemplate"}, words)
    refused = run()
    assert refused["failed"] and "AWS does not allow ec2:CreateLaunchTemplate" in refused["msg"]
