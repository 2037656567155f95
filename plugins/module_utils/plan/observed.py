# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What AWS shows of the settings of a cluster that has no record of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..aws.client import Aws
from ..contract.names import CORE, IMAGE_TAG, MASTER, PRIMARY, WORKER, Names, tags_of
from ..resources.emr_cluster import groups_of, idle_seconds_of
from ..resources.launch_template import newest_version
from .changes import ENDS, Options
from .facts import AccountFacts, Cluster
from .findings import Finding, note, setting_problem

_NO_RECORD = "the cluster's bucket has no record of its settings (settings.json)"
_EXAMPLES = {"ttl_hours": 8, "idle_minutes": 60}


def differences(aws: Aws, facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    """Return what AWS shows of the settings, where it differs from them. Raise AwsError if it cannot be read."""
    observed = _of_groups(aws, facts, cluster) if facts.emr is None else _of_emr(aws, facts, cluster)
    current = {**cluster, "key_name": cluster["key_name"] or cluster["name"]}
    return {setting: value for setting, value in observed.items() if value != current[setting]}


def check(facts: AccountFacts, cluster: Cluster, options: Options) -> Iterator[Finding]:
    """Refuse defaults that would change a cluster without a record. `before` is then what `differences` returns."""
    if options["recorded"] or not (facts.groups or facts.emr_clusters):
        return
    before = options["before"]
    specified = {*options["specified"], *["key_name"] * ("public_key_file" in options["specified"])}
    if before.get("instance_type") == before.get("master_instance_type"):
        # The master's follows the workers'.
        specified.add("master_instance_type")
    for setting, value in before.items():
        if setting not in specified:
            shown = "none" if value in (None, "") else json.dumps(value)
            problem = f"AWS shows {shown}, and {_NO_RECORD}: give the setting, which is then recorded"
            yield setting_problem(setting, cluster[setting], problem, value)
    if facts.file_systems == [] and "efs_id" not in specified:
        problem = f"the cluster has none of its own, and {_NO_RECORD}: give the one that it uses; empty: a new one"
        yield setting_problem("efs_id", "empty", problem, "fs-0123456789abcdef0")
    for kind, setting in ENDS.items():
        if facts.ends.get(kind) and setting not in specified:
            problem = f"the machines are scheduled to end, and {_NO_RECORD}: give the setting, which is then recorded"
            yield setting_problem(setting, cluster[setting], problem, _EXAMPLES[setting])
    yield note(
        f"{_NO_RECORD}, so AWS was asked for types, image, volumes, network and ends. Of the other settings the "
        "defaults count: give those that differ."
    )


def _of_groups(aws: Aws, facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    names = Names(cluster["name"]).groups
    filters = [{"Name": "launch-template-name", "Values": list(names.values())}]
    listed = aws.pages("ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters) if facts.groups else []
    templates = {str(template["LaunchTemplateName"]): template for template in listed}
    if len(templates) < len(names):
        return {}
    ids = [templates[names[role]]["LaunchTemplateId"] for role in (WORKER, MASTER)]
    workers, master = (newest_version(aws, template_id)["LaunchTemplateData"] for template_id in ids)
    disks = [dict(item["Ebs"]) for item in workers.get("BlockDeviceMappings") or () if item.get("Ebs")]
    disk: dict[str, Any] = disks[0] if disks else {}
    group = (facts.groups or [{}])[0]
    return {
        "instance_type": workers["InstanceType"],
        "master_instance_type": master["InstanceType"],
        "image": tags_of(templates[names[WORKER]].get("Tags")).get(IMAGE_TAG, ""),
        "key_name": workers.get("KeyName", ""),
        "root_volume_gib": int(disk.get("VolumeSize") or cluster["root_volume_gib"]),
        "root_volume_type": disk.get("VolumeType") or cluster["root_volume_type"],
        "root_volume_throughput": disk.get("Throughput"),
        "spot": workers.get("InstanceMarketOptions", {}).get("MarketType") == "spot",
        **_vpc(aws, facts, cluster, str(group.get("VPCZoneIdentifier", ""))),
    }


def _of_emr(aws: Aws, facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    if not facts.emr_clusters:
        return {}
    existing = facts.emr_clusters[0]
    groups = groups_of(aws, str(existing["Id"]))
    image, machines = existing.get("CustomAmiId") or "", existing.get("Ec2InstanceAttributes") or {}
    return {
        "instance_type": groups[CORE]["InstanceType"],
        "master_instance_type": groups[PRIMARY]["InstanceType"],
        "image": cluster["image"] if image == facts.image.id else image,
        "key_name": machines.get("Ec2KeyName", ""),
        "root_volume_gib": int(existing.get("EbsRootVolumeSize") or cluster["root_volume_gib"]),
        "emr_idle_minutes": idle_seconds_of(aws, str(existing["Id"])) // 60,
        **_vpc(aws, facts, cluster, str(machines.get("Ec2SubnetId", ""))),
    }


def _vpc(aws: Aws, facts: AccountFacts, cluster: Cluster, subnet: str) -> dict[str, str]:
    """Return the setting of the VPC that a subnet is in, empty for the cluster's own; nothing if it is unknown."""
    filters = [{"Name": "subnet-id", "Values": [subnet]}]
    listed = aws.pages("ec2", "describe_subnets", "Subnets", Filters=filters) if subnet else []
    if not listed:
        return {}
    vpc, own = str(listed[0]["VpcId"]), {str(vpc["VpcId"]) for vpc in facts.vpcs or ()}
    return {"vpc_id": "" if vpc in own and not cluster["vpc_id"] else vpc}
