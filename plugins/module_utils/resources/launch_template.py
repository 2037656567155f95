# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The data of a launch template, and whether a template needs another version."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from ..aws.client import Aws
from ..contract.names import tag_list


def newest_version(aws: Aws, template_id: str) -> dict[str, Any]:
    """Return the newest version of a launch template, with its `LaunchTemplateData`; nothing if it has none."""
    answer = aws.call("ec2", "describe_launch_template_versions", LaunchTemplateId=template_id, Versions=["$Latest"])
    return dict(next(iter(answer["LaunchTemplateVersions"]), {}))


def launch_data(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return EC2's RequestLaunchTemplateData, by the options of the module `launch_template`."""
    data: dict[str, Any] = {
        "ImageId": options["image_id"],
        "InstanceType": options["instance_type"],
        "KeyName": options["key_name"],
        "IamInstanceProfile": {"Arn": options["instance_profile"]},
        # Version 2 of the metadata service, and one hop: a container on the machine cannot get its credentials.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": options["root_device"],
                "Ebs": {
                    "VolumeSize": options["root_volume_gib"],
                    "VolumeType": options["root_volume_type"],
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                    **({"Throughput": options["root_volume_throughput"]} if options["root_volume_throughput"] else {}),
                },
            }
        ],
    }
    if options["instance_tags"]:
        # EC2 refuses a specification without tags.
        data["TagSpecifications"] = [
            {"ResourceType": kind, "Tags": tag_list(options["instance_tags"])}
            for kind in ("instance", "volume", "network-interface", *(["spot-instances-request"] * options["spot"]))
        ]
    if options["efa_cards"]:
        data["NetworkInterfaces"] = _interfaces(options["efa_cards"], options["security_groups"])
    else:
        data["SecurityGroupIds"] = list(options["security_groups"])
    if options["placement_group"]:
        data["Placement"] = {"GroupName": options["placement_group"]}
    if options["user_data"]:
        data["UserData"] = base64.b64encode(options["user_data"].encode()).decode()
    if options["spot"]:
        data["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    return data


def _interfaces(efa_cards: Sequence[int], groups: Sequence[str]) -> list[dict[str, Any]]:
    """Return an ordinary interface, the only one with an address, and one for EFA alone on each of the cards.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    efa = [(card, 0 if card else 1, "efa-only") for card in efa_cards]
    return [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": list(groups),
            "DeleteOnTermination": True,
        }
        for card, device, kind in [(0, 0, "interface"), *efa]
    ]


def matches(desired: Any, existing: Any) -> bool:
    """Return whether an existing value has all that is desired. Keys that AWS adds, such as defaults, are ignored."""
    if isinstance(desired, Mapping):
        return isinstance(existing, Mapping) and all(matches(desired[key], existing.get(key)) for key in desired)
    if isinstance(desired, (list, tuple)):
        # AWS returns no empty lists.
        existing = () if existing is None else existing
        if not isinstance(existing, (list, tuple)) or len(desired) != len(existing):
            return False
        return all(matches(item, other) for item, other in zip(_sorted(desired), _sorted(existing)))
    return str(desired) == str(existing) and existing is not None


def _sorted(items: Sequence[Any]) -> list[Any]:
    """Sort lists whose order has no meaning: AWS returns tags in any order."""
    keys = ("Key", "ResourceType")
    key = next((key for key in keys if items and isinstance(items[0], Mapping) and key in items[0]), None)
    return sorted(items, key=lambda item: str(item[key])) if key else list(items)


def needs_version(desired: Mapping[str, Any], newest: Mapping[str, Any]) -> bool:
    """Return whether the newest version differs. Unexpected keys of it count as a difference, too."""
    extra = [key for key, value in newest.items() if value not in (None, [], {}, "") and key not in desired]
    return bool(extra) or not matches(desired, newest)
