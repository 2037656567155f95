"""What stands in a launch template, as tables."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import facts
from ansible_collections.deeplearning.aws.plugins.module_utils.resources import launch_template

from localcloud.testing.catalog import check_network_cards, instance_types
from tests.unit.modules import defaults_of

MACHINE: dict[str, Any] = {
    **defaults_of("launch_template"),
    "image_id": "ami-1",
    "instance_type": "g5.xlarge",
    "key_name": "c",
    "instance_profile": "arn:aws:iam::1:instance-profile/c",
    "security_groups": ["sg-1", "sg-2"],
    "root_device": "/dev/sda1",
    "root_volume_gib": 100,
    "instance_tags": {"Name": "c-worker"},
}


def data(**more: Any) -> dict[str, Any]:
    return launch_template.launch_data({**MACHINE, **more})


def test_an_ordinary_machine_has_its_security_groups_and_no_interfaces_of_its_own() -> None:
    assert data()["SecurityGroupIds"] == ["sg-1", "sg-2"]
    assert not {"NetworkInterfaces", "Placement", "InstanceMarketOptions", "UserData"} & data().keys()
    assert {specification["ResourceType"] for specification in data()["TagSpecifications"]} == {
        "instance",
        "volume",
        "network-interface",
    }


def test_user_data_is_encoded() -> None:
    assert base64.b64decode(data(user_data="#!/bin/sh\n")["UserData"]) == b"#!/bin/sh\n"


def test_the_root_volume_has_a_throughput_only_if_it_is_set() -> None:
    (volume,) = data()["BlockDeviceMappings"]
    assert volume["Ebs"]["VolumeType"] == "gp3" and "Throughput" not in volume["Ebs"]
    (volume,) = data(root_volume_throughput=500)["BlockDeviceMappings"]
    assert (volume["Ebs"]["Throughput"], volume["Ebs"]["VolumeSize"]) == (500, 100)
    (volume,) = data(root_volume_type="gp2")["BlockDeviceMappings"]
    assert volume["Ebs"]["VolumeType"] == "gp2"


@pytest.mark.parametrize(
    ("kind", "cards"),
    [
        ("p4d.24xlarge", range(4)),
        ("p4de.24xlarge", range(4)),
        ("p5.48xlarge", range(32)),
        ("p5e.48xlarge", range(32)),
        ("p5en.48xlarge", range(16)),
        ("p6-b200.48xlarge", range(8)),
        ("p6-b300.48xlarge", range(1, 17)),
        ("g6e.8xlarge", range(1)),
        ("g6e.24xlarge", range(2)),
        ("g6e.48xlarge", range(4)),
        ("g7e.12xlarge", range(1)),
        ("g7e.48xlarge", range(4)),
    ],
)
def test_each_type_has_an_ordinary_interface_and_one_for_efa_on_each_card_that_has_it(kind: str, cards: range) -> None:
    """The facts are AWS's own, from DescribeInstanceTypes."""
    efa_cards = facts.instance_type(instance_types()[kind])["efa_cards"]
    result = data(instance_type=kind, efa_cards=efa_cards)
    interfaces = result["NetworkInterfaces"]
    layout = [
        (interface["NetworkCardIndex"], interface["DeviceIndex"], interface["InterfaceType"])
        for interface in interfaces
    ]
    assert layout == [(0, 0, "interface"), *((card, 0 if card else 1, "efa-only") for card in cards)]
    check_network_cards(interfaces, kind)
    assert all(interface["Groups"] == ["sg-1", "sg-2"] and interface["DeleteOnTermination"] for interface in interfaces)
    assert "SecurityGroupIds" not in result
    assert not any("AssociatePublicIpAddress" in interface for interface in interfaces)


def test_a_type_without_efa_has_no_cards_for_it() -> None:
    assert facts.instance_type(instance_types()["g5.xlarge"])["efa_cards"] == []


def test_spot_and_placement_are_asked_for_and_tagged() -> None:
    result = data(spot=True, placement_group="c")
    assert result["InstanceMarketOptions"]["MarketType"] == "spot" and result["Placement"] == {"GroupName": "c"}
    assert "spot-instances-request" in {specification["ResourceType"] for specification in result["TagSpecifications"]}


@pytest.mark.parametrize(
    ("have", "new"),
    [
        (data(), False),
        (data(instance_tags={"a": "1", "b": "2"}), True),
        (data(image_id="ami-2"), True),
        (data(spot=True), True),
        (data(security_groups=["sg-2", "sg-1"]), True),
        ({**data(), "MetadataOptions": {**data()["MetadataOptions"], "HttpProtocolIpv6": "disabled"}}, False),
        ({**data(), "UserData": ""}, False),
        ({**data(), "UserData": "IyE="}, True),
    ],
)
def test_a_new_version_is_made_only_if_something_differs(have: dict[str, Any], new: bool) -> None:
    assert launch_template.needs_version(data(), have) is new


def test_tags_in_another_order_are_no_difference() -> None:
    one, other = data(instance_tags={"a": "1", "b": "2"}), data(instance_tags={"b": "2", "a": "1"})
    assert not launch_template.needs_version(one, {**other, "TagSpecifications": other["TagSpecifications"][::-1]})
