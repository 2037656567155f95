# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What AWS says of types, images, keys and quotas, held against what was asked for.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils import _plan_images as images
from ansible_collections.deeplearning.aws.plugins.module_utils import _plan_quotas as quotas
from ansible_collections.deeplearning.aws.plugins.module_utils._names import (
    CLUSTER_TAG,
    IMAGE_TAG,
    Names,
    tag_filter,
    tags_of,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._plan_ask import Ask
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import listed

Facts = dict[str, Any]
Cluster = Mapping[str, Any]


def type_facts(described: Mapping[str, Any]) -> Facts:
    """What matters of a type, of what DescribeInstanceTypes tells."""
    gpus = described.get("GpuInfo", {}).get("Gpus") or []
    network = described.get("NetworkInfo", {})
    efa = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1) if network.get("EfaSupported") else 0
    return {
        "name": described["InstanceType"],
        "vcpus": int(described["VCpuInfo"]["DefaultVCpus"]),
        "memory_mib": int(described["MemoryInfo"]["SizeInMiB"]),
        "gpus": sum(int(gpu.get("Count", 0)) for gpu in gpus),
        "gpu_name": gpus[0].get("Name", "") if gpus else "",
        "gpu_maker": gpus[0].get("Manufacturer", "") if gpus else "",
        "gpu_memory": int(gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0)) if gpus else 0,
        "efa_interfaces": int(efa),
        "network_cards": int(network.get("MaximumNetworkCards", 1)),
        "placement": "cluster" in described.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
        "spot": "spot" in described.get("SupportedUsageClasses", []),
        "architectures": list(described.get("ProcessorInfo", {}).get("SupportedArchitectures", [])),
    }


def types(ask: Ask, cluster: Cluster) -> dict[str, Facts]:
    """The facts of the types that are wanted, by name. What the region does not have is absent."""
    settings = {cluster["instance_type"]: "instance_type"}
    settings.setdefault(cluster["master_instance_type"], "master_instance_type")
    filters = [{"Name": "instance-type", "Values": list(settings)}]
    found = ask.pages("ec2", "describe_instance_types", "InstanceTypes", Filters=filters)
    if found is None:
        return {}
    facts = {described["InstanceType"]: type_facts(described) for described in found}
    for name, setting in settings.items():
        if name not in facts:
            _no_such_type(ask, setting, name)
    return facts


def _no_such_type(ask: Ask, setting: str, name: str) -> None:
    offers = ask.pages("ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="region") or []
    there = sorted(offer["InstanceType"] for offer in offers)
    family = [other for other in there if other.partition(".")[0] == name.partition(".")[0]]
    near = family or difflib.get_close_matches(name, there, 3, 0.6)
    hint = f"take {' or '.join(near[:3])}" if near else "take another type or another region"
    example = next((other for other in near if other.endswith(".xlarge")), near[0] if near else "g5.xlarge")
    ask.wrong(setting, name, f"{ask.region} has no such type, {hint}", example)


def fit_together(ask: Ask, cluster: Cluster, master: Facts, worker: Facts) -> None:
    """Rules between the types and other settings."""
    if cluster["master_trains"] and master["gpus"] != worker["gpus"]:
        ask.wrong(
            "master_instance_type",
            master["name"],
            f"it has {_gpus(master)} and {worker['name']} has {_gpus(worker)}, but the master trains with the workers: "
            "give types with as many, or leave the master out with -e cluster_master_trains=false",
            worker["name"],
        )
    if cluster["spot"] and not worker["spot"]:
        ask.wrong("spot", "true", f"{worker['name']} cannot be had as a spot instance", False)
    for name, key, words in (
        ("placement_group", "placement", "stand in a placement group"),
        ("efa", "efa_interfaces", "have EFA"),
    ):
        lacking = sorted({kind["name"] for kind in (master, worker) if not kind[key]})
        if cluster[name] == "true" and lacking:
            ask.wrong(name, "true", f"{' and '.join(lacking)} cannot {words}", "auto")


def _gpus(kind: Facts) -> str:
    return f"{kind['gpus'] or 'no'} GPU{'' if kind['gpus'] == 1 else 's'}"


def image(ask: Ask, cluster: Cluster, kinds: Sequence[Facts]) -> Facts | None:
    """The image to boot: the one that the cluster was pinned to, unless another was asked for since."""
    asked = cluster["image"]
    pinned = _pinned(ask, cluster["name"], asked)
    found = _described(ask, pinned) if pinned else None
    kept = found is not None
    if found is None:
        image_id = asked if asked.startswith("ami-") else _newest(ask, asked, kinds)
        if not image_id:
            return None
        found = _described(ask, image_id)
        if found is None:
            if not ask.refused:
                ask.wrong(
                    "image", asked, f"{ask.region} has no image {image_id} that this account may use", _usual_family()
                )
            return None
    _judge(ask, cluster, found, kinds)
    return {
        "id": found["ImageId"],
        "name": found.get("Name", ""),
        "family": "" if asked.startswith("ami-") else asked,
        "root_device": found.get("RootDeviceName", ""),
        "root_gib": images.root_gib(found),
        "architecture": found.get("Architecture", ""),
        "kept": kept,
        "user": images.user_of(found),
    }


def _usual_family() -> str:
    return "base-oss-nvidia-driver-gpu-ubuntu-22.04"


def _judge(ask: Ask, cluster: Cluster, found: Mapping[str, Any], kinds: Sequence[Facts]) -> None:
    asked = cluster["image"]
    if found.get("State") not in (None, "available"):
        ask.wrong("image", asked, f"{found['ImageId']} is {found['State']}", _usual_family())
    if found.get("Platform") == "windows":
        ask.wrong("image", asked, f"{found['ImageId']} is a Windows image", _usual_family())
    for kind in kinds:
        why = images.misfit(found, kind)
        if why:
            setting = "instance_type" if kind["name"] == cluster["instance_type"] else "master_instance_type"
            ask.wrong(setting, kind["name"], f"it cannot run the image {asked}: {why}", "g5.xlarge")
    if cluster["efs_tls"] and not images.can_install_efs_utils(found):
        _judge_efs_utils(ask, asked, found)
    least = images.root_gib(found)
    if cluster["root_volume_gib"] < least:
        ask.wrong("root_volume_gib", cluster["root_volume_gib"], f"the image needs {least} or more", least)
    if not cluster["user"] and not images.user_of(found):
        ask.wrong("user", '""', f"it does not follow from the image {found.get('Name') or found['ImageId']}", "ubuntu")


def _judge_efs_utils(ask: Ask, asked: str, found: Mapping[str, Any]) -> None:
    """Refuse families of AWS's images that have no package of it; an image of somebody's own may contain it."""
    image = found.get("Name") or found["ImageId"]
    if asked.startswith("ami-"):
        ask.notes.append(
            f"cluster_efs_tls is true, so {image} must contain amazon-efs-utils, as only Amazon Linux has a package of "
            "it. If configure.yml cannot mount the file system, run site.yml with -e cluster_efs_tls=false."
        )
    else:
        ask.wrong(
            "efs_tls",
            True,
            f"the image {image} is not Amazon Linux, the only system with a package of amazon-efs-utils: take an image "
            "of it (-e cluster_image=base-oss-nvidia-driver-gpu-amazon-linux-2023), give the id of an image of your "
            "own that contains amazon-efs-utils, or mount without TLS",
            False,
        )


def _pinned(ask: Ask, cluster: str, asked: str) -> str:
    """The AMI in the workers' launch template, if it came of what is asked for now."""
    filters = [
        {"Name": "launch-template-name", "Values": [Names(cluster).workers_group]},
        tag_filter(CLUSTER_TAG, cluster),
    ]
    for template in ask.pages("ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters) or ():
        if tags_of(template.get("Tags")).get(IMAGE_TAG) == asked:
            versions = ask.pages(
                "ec2",
                "describe_launch_template_versions",
                "LaunchTemplateVersions",
                LaunchTemplateId=template["LaunchTemplateId"],
                Versions=["$Latest"],
            )
            return str(versions[0]["LaunchTemplateData"].get("ImageId", "")) if versions else ""
    return ""


def _described(ask: Ask, image_id: str) -> Mapping[str, Any] | None:
    filters = [{"Name": "image-id", "Values": [image_id]}]
    found = ask.pages("ec2", "describe_images", "Images", Filters=filters)
    return found[0] if found else None


def _newest(ask: Ask, family: str, kinds: Sequence[Facts]) -> str:
    """The newest image of a family."""
    architectures = kinds[0]["architectures"] if kinds else ["x86_64"]
    architecture = "x86_64" if "x86_64" in architectures else "arm64"
    answer = ask.one("ssm", "get_parameters", Names=[images.parameter(family, architecture)])
    if answer is None:
        return ""
    if answer["Parameters"]:
        return str(answer["Parameters"][0]["Value"])
    path = f"{images.PATH}/{architecture}"
    known = ask.pages("ssm", "get_parameters_by_path", "Parameters", Path=path, Recursive=True)
    if known is not None:
        there = images.families([entry["Name"] for entry in known])
        near = difflib.get_close_matches(family, there, 3, 0.5)
        names = (
            f"take one of {listed([*near, *(name for name in there if name not in near)])}" if there else "give an AMI"
        )
        ask.wrong(
            "image", family, f"{ask.region} has no such family for {architecture}, {names}", next(iter(near), None)
        )
    return ""


def key_pair(ask: Ask, cluster: Cluster) -> str:
    """The name of the EC2 key pair to use."""
    name = cluster["key_name"]
    if not name:
        return str(cluster["name"])
    # Not by a filter: a name with an asterisk would then be found.
    found = ask.pages("ec2", "describe_key_pairs", "KeyPairs")
    if found is not None:
        there = sorted(pair["KeyName"] for pair in found)
        if name not in there:
            names = f"there are {listed(there)}" if there else "there are none at all"
            ask.wrong("key_name", name, f"{ask.region} has no such key pair, {names}", next(iter(there), None))
    return str(name)


def quota(ask: Ask, cluster: Cluster, master: Facts, worker: Facts) -> list[Facts]:
    """What of the account's quotas is needed, and what is left of them."""
    wanted = [
        quotas.Machines(master["name"], master["vcpus"], False, 1, 1),
        quotas.Machines(
            worker["name"], worker["vcpus"], cluster["spot"], cluster["worker_min"], cluster["worker_count"]
        ),
    ]
    told = []
    for code, need in quotas.needs(wanted).items():
        limit = _limit(ask, code)
        if limit is None or need[1] == 0:
            continue
        # What runs besides is asked for only where it could matter.
        used = _used(ask, cluster["name"], code) if limit["Value"] < 100_000 else 0
        if used is None:
            continue
        verdict = quotas.judge(ask.region, limit, need, used)
        ask.problems += [verdict.problem] if verdict.problem else []
        ask.notes += [verdict.note] if verdict.note else []
        told.append(
            {"code": code, "name": limit["QuotaName"], "limit": int(limit["Value"]), "used": used, "need": need[1]}
        )
    return told


def _limit(ask: Ask, code: str) -> Mapping[str, Any] | None:
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        answer = ask.one(
            "service-quotas", operation, missing=("NoSuchResourceException",), ServiceCode="ec2", QuotaCode=code
        )
        if answer is None:
            return None
        if answer:
            limit: Mapping[str, Any] = answer["Quota"]
            return limit
    return None


def _used(ask: Ask, cluster: str, code: str) -> int | None:
    """vCPUs of other instances that count towards a quota."""
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    found = ask.pages("ec2", "describe_instances", "Reservations", Filters=filters, MaxResults=1000)
    if found is None:
        return None
    instances = [instance for reservation in found for instance in reservation["Instances"]]
    others = [instance for instance in instances if tags_of(instance.get("Tags")).get(CLUSTER_TAG) != cluster]
    return quotas.used_by(others, code)
