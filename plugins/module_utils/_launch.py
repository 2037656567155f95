# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What stands in a launch template, and whether another version is needed.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import tag_list


@dataclass(frozen=True)
class Machine:
    """How machines of a group are started."""

    image_id: str
    instance_type: str
    key_name: str
    instance_profile: str
    security_groups: Sequence[str]
    root_device: str
    root_volume_gib: int
    tags: Mapping[str, str] = field(default_factory=dict)
    placement_group: str = ""
    efa_interfaces: int = 0
    spot: bool = False


def launch_data(machine: Machine) -> dict[str, Any]:
    """As EC2 takes it (RequestLaunchTemplateData)."""
    data: dict[str, Any] = {
        "ImageId": machine.image_id,
        "InstanceType": machine.instance_type,
        "KeyName": machine.key_name,
        "IamInstanceProfile": {"Arn": machine.instance_profile},
        # Version 2 only, and not past the machine itself: a container or a proxy on it has no way to its credentials.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": machine.root_device,
                "Ebs": {
                    "VolumeSize": machine.root_volume_gib,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(machine.tags)} for kind in _tagged_kinds(machine.spot)
        ],
    }
    if machine.efa_interfaces:
        data["NetworkInterfaces"] = [_efa(card, machine.security_groups) for card in range(machine.efa_interfaces)]
    else:
        data["SecurityGroupIds"] = list(machine.security_groups)
    if machine.placement_group:
        data["Placement"] = {"GroupName": machine.placement_group}
    if machine.spot:
        data["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    return data


def _tagged_kinds(spot: bool) -> list[str]:
    kinds = ["instance", "volume", "network-interface"]
    return [*kinds, "spot-instances-request"] if spot else kinds


def _efa(card: int, groups: Sequence[str]) -> dict[str, Any]:
    """One interface a network card; only the first is the machine's device 0.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": 1 if card else 0,
        "InterfaceType": "efa",
        "Groups": list(groups),
        "DeleteOnTermination": True,
    }


def same(wanted: Any, have: Any) -> bool:
    """Does what exists say what is wanted? What AWS adds of its own inside (a default) is no difference."""
    if isinstance(wanted, Mapping):
        return isinstance(have, Mapping) and all(same(wanted[key], have.get(key)) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        if not isinstance(have, (list, tuple)) or len(wanted) != len(have):
            return False
        return all(same(one, other) for one, other in zip(_sorted(wanted), _sorted(have)))
    return str(wanted) == str(have) and have is not None


def _sorted(items: Sequence[Any]) -> list[Any]:
    """Lists whose order says nothing: AWS answers tags in any order."""
    keys = ("Key", "ResourceType")
    key = next((key for key in keys if items and isinstance(items[0], Mapping) and key in items[0]), None)
    return sorted(items, key=lambda item: str(item[key])) if key else list(items)


def needs_version(wanted: Mapping[str, Any], have: Mapping[str, Any]) -> bool:
    """Whether the newest version says something else; what it says beyond the wanted counts as else, too."""
    extra = [key for key, value in have.items() if value not in (None, [], {}, "") and key not in wanted]
    return bool(extra) or not same(wanted, have)
