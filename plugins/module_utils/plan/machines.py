# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check instance types, image, key pair and quotas."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..contract.names import CLUSTER_TAG, tags_of
from ..contract.tables import join_names
from . import images, quotas
from .facts import UNLIMITED_VCPUS, AccountFacts, Cluster, InstanceType, Item, type_names
from .findings import Finding, note, setting_problem
from .gpus import GpuTable
from .type_suggestions import suggest

_SCARCE = re.compile(r"p[56]")
_SCALING_ROLE = "AWSServiceRoleForAutoScaling"
_OPERATIONS = (
    "Encrypt Decrypt ReEncryptFrom ReEncryptTo GenerateDataKey GenerateDataKeyWithoutPlaintext DescribeKey CreateGrant"
)
"""What a grant allows for encrypted disks."""
USUAL_FAMILY = "base-oss-nvidia-driver-gpu-ubuntu-22.04"


def check_types(
    facts: AccountFacts, cluster: Cluster, gpu_tables: Mapping[str, GpuTable] | None = None
) -> Iterator[Finding]:
    """Check the types against the region, against each other and against the other settings."""
    if facts.types is None:
        return
    for name, setting in type_names(cluster).items():
        if name not in facts.types:
            near = suggest(facts, cluster, setting, name, gpu_tables or {})
            yield _unknown_type(facts, setting, name, near)
    master, worker = facts.types.get(cluster["master_instance_type"]), facts.types.get(cluster["instance_type"])
    if not master or not worker:
        return
    if cluster["master_trains"] and master["gpus"] != worker["gpus"]:
        yield setting_problem(
            "master_instance_type",
            master["name"],
            f"it has {_gpus(master)} and {worker['name']} has {_gpus(worker)}, but the master trains with the workers: "
            "choose types with the same number, or leave the master out with -e cluster_master_trains=false",
            worker["name"],
        )
    scarce = sorted({kind["name"] for kind in (master, worker) if _SCARCE.match(kind["name"])})
    if scarce:
        yield note(
            f"{join_names(scarce)} can rarely be had without a Capacity Block, which this collection cannot use: "
            "expect that AWS has no capacity."
        )
    if cluster["spot"] and not worker["spot"]:
        yield setting_problem("spot", "true", f"{worker['name']} is not available as a spot instance", False)
    for setting, key, words in (
        ("placement_group", "placement", "be in a placement group"),
        ("efa", "efa_cards", "use EFA"),
    ):
        lacking = sorted({kind["name"] for kind in (master, worker) if not kind[key]})
        if cluster[setting] == "true" and lacking:
            yield setting_problem(setting, "true", f"{' and '.join(lacking)} cannot {words}", "auto")


def _unknown_type(facts: AccountFacts, setting: str, name: str, near: Sequence[str]) -> Finding:
    hint = f"take {' or '.join(near[:3])}" if near else "take another type or another region"
    example = next((other for other in near if other.endswith(".xlarge")), near[0] if near else "g5.xlarge")
    return setting_problem(setting, name, f"{facts.region} has no such type, {hint}", example)


def _gpus(kind: InstanceType) -> str:
    return f"{kind['gpus'] or 'no'} GPU{'' if kind['gpus'] == 1 else 's'}"


def image_of_plan(facts: AccountFacts) -> dict[str, Any]:
    """Return the image to boot; empty if there is none."""
    if not facts.image.described:
        return {}
    image = facts.image.described[0]
    return {
        "id": image["ImageId"],
        "name": image.get("Name", ""),
        "root_device": image.get("RootDeviceName", ""),
        "kept": facts.image.is_pinned,
    }


def login_user(facts: AccountFacts, cluster: Cluster) -> str:
    described = facts.image.described
    return str(cluster["login_user"] or (images.user_of(described[0]) if described else ""))


def check_image(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    value, image = cluster["image"], facts.image
    if image.described:
        yield from _check_described_image(facts, cluster, image.described[0])
    elif image.described is not None:
        problem = f"{facts.region} has no image {image.id} that this account may use"
        yield setting_problem("image", value, problem, USUAL_FAMILY)
    elif image.families is not None:
        yield _unknown_family(facts.region, value, image.architecture, list(image.families))


def _unknown_family(region: str, family: str, architecture: str, families: list[str]) -> Finding:
    near = difflib.get_close_matches(family, families, 3, 0.5)
    names = [*near, *(name for name in families if name not in near)]
    hint = f"take one of {join_names(names)}" if names else "give an AMI"
    problem = f"{region} has no such family for {architecture}, {hint}"
    return setting_problem("image", family, problem, next(iter(near), None))


def _check_described_image(facts: AccountFacts, cluster: Cluster, image: Item) -> Iterator[Finding]:
    value, name = cluster["image"], images.name_of(image)
    if image.get("State") not in (None, "available"):
        yield setting_problem("image", value, f"{image['ImageId']} is {image['State']}", USUAL_FAMILY)
    if image.get("Platform") == "windows":
        yield setting_problem("image", value, f"{image['ImageId']} is a Windows image", USUAL_FAMILY)
    if images.matches(image, images.TOO_NEW):
        problem = "its Python 3.14 is newer than Ansible and the frameworks support"
        yield setting_problem("image", value, problem, USUAL_FAMILY)
    for kind in (facts.types or {}).values():
        why = images.misfit(image, kind)
        if why:
            setting = type_names(cluster)[kind["name"]]
            problem = f"it cannot run the image {value}: {why}{_other_driver(facts, why)}"
            yield setting_problem(setting, kind["name"], problem, "g5.xlarge")
    if cluster["efs_tls"] and not images.is_amazon_linux(image):
        yield _without_efs_utils(value, image)
    if cluster["monitoring"] and images.is_amazon_linux(image):
        problem = f"the image {name} is Amazon Linux, which has no package of Prometheus"
        yield setting_problem("monitoring", True, f"{problem}: take an image of Ubuntu, or do without", False)
    if not images.matches(image, images.NEW_PYTHON) and not images.matches(image, images.TOO_NEW):
        problem = f"the image {name} shows no system with Python 3.11 or newer, by which machines configure themselves"
        own = note(f"{problem}. Unless it has Python 3.11, 3.12 or 3.13, or a package of it, no machine starts work.")
        yield own if value.startswith("ami-") else setting_problem("image", value, problem, USUAL_FAMILY)
    yield from _check_baked_image(facts, cluster, image)
    minimum = images.root_gib(image)
    if cluster["root_volume_gib"] < minimum:
        problem = f"the image needs {minimum} or more"
        yield setting_problem("root_volume_gib", cluster["root_volume_gib"], problem, minimum)
    if not cluster["login_user"] and not images.user_of(image):
        problem = f"the image {name} does not show its user"
        yield setting_problem("login_user", '""', problem, "ubuntu")


def _check_baked_image(facts: AccountFacts, cluster: Cluster, image: Item) -> Iterator[Finding]:
    outdated = images.outdated(image, facts.pins)
    if outdated:
        yield note(
            f"The image {image['ImageId']} has other versions of {join_names(outdated)} than this collection installs "
            "now: each machine installs them when it boots. Make a new one: ansible-playbook deeplearning.aws.image"
        )
    default = cluster["default_framework"]
    if images.baked_pins(image) and default and default not in images.baked_pins(image):
        yield note(
            f"The image {image['ImageId']} has no environment of {default}, which is cluster_default_framework: each "
            "machine installs it when it boots."
        )


def _other_driver(facts: AccountFacts, why: str) -> str:
    """Return which images have the driver that an old GPU needs."""
    if "open driver" not in why:
        return ""
    families = [name for name in facts.image.families or () if "proprietary-nvidia-driver" in name]
    if families:
        return f"; take one with the proprietary driver, such as -e cluster_image={families[-1]}, or a newer type"
    return (
        f". {facts.region} has no family with the proprietary driver: give the id of an image of your own that has it, "
        "or choose a newer type"
    )


def _without_efs_utils(value: str, image: Item) -> Finding:
    """Refuse a family of AWS's images without a package of amazon-efs-utils. The user's own image may contain it."""
    name = images.name_of(image)
    if value.startswith("ami-"):
        return note(
            f"cluster_efs_tls is true, so {name} must contain amazon-efs-utils, as only Amazon Linux has a package of "
            "it. If ansible-playbook deeplearning.aws.configure cannot mount the file system, run "
            "deeplearning.aws.site with -e cluster_efs_tls=false."
        )
    return setting_problem(
        "efs_tls",
        True,
        f"the image {name} is not Amazon Linux, the only system with a package of amazon-efs-utils: take an image "
        "of it (-e cluster_image=base-oss-nvidia-driver-gpu-amazon-linux-2023), give the id of an image of your "
        "own that contains amazon-efs-utils, or mount without TLS",
        False,
    )


def check_key_pair(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    if facts.key_pairs is None:
        return
    existing = sorted(pair["KeyName"] for pair in facts.key_pairs)
    if cluster["key_name"] not in existing:
        hint = f"choose one of {join_names(existing)}" if existing else "and no others"
        problem = f"{facts.region} has no such key pair, {hint}"
        yield setting_problem("key_name", cluster["key_name"], problem, next(iter(existing), None))


def check_disk_key(facts: AccountFacts) -> Iterator[Finding]:
    """Print how Auto Scaling gets the use of the account's own key: without it, no machine starts.

    https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html
    """
    if facts.disk_key:
        path = f"role/aws-service-role/autoscaling.amazonaws.com/{_SCALING_ROLE}"
        yield note(
            f"all new disks in {facts.region} are encrypted with the account's own KMS key {facts.disk_key}. Unless "
            f"its policy allows {_SCALING_ROLE} to use it, no machine starts before this grant exists: aws kms "
            f"create-grant --region {facts.region} --key-id {facts.disk_key} --grantee-principal "
            f"arn:{facts.partition}:iam::{facts.account}:{path} --operations {_OPERATIONS}"
        )


def quotas_of_plan(facts: AccountFacts, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the quotas that the machines count towards, as far as they are known."""
    return [
        {
            "code": code,
            "name": facts.quotas[code]["QuotaName"],
            "limit": int(facts.quotas[code]["Value"]),
            "used": in_use,
            "need": need[1],
        }
        for code, need, in_use in _known_needs(facts, cluster)
    ]


def check_quotas(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    for code, need, in_use in _known_needs(facts, cluster):
        yield from quotas.check(facts.region, facts.quotas[code], need, in_use)
    for kind in quotas.machine_counts(cluster, facts.types or {}):
        if kind.desired and not quotas.code_of(kind.type, kind.spot):
            yield note(
                f"the quota of Spot instances of {kind.type} is not known to this collection: compare {kind.desired} x "
                f"{kind.vcpus} vCPUs with Service Quotas, https://{facts.region}.console.aws.amazon.com/servicequotas"
            )


def check_account_quotas(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """Refuse a cluster that lacks more than a quota of the account leaves to it."""
    needs = quotas.account_needs(cluster, facts.emr is not None)
    # In an existing VPC only the public master needs an address.
    less = "set cluster_public=false" if cluster["vpc_id"] else "use an existing VPC (cluster_vpc_id)"
    for kind, (limit, existing) in facts.account_usage.items():
        # A VPC that another account shares counts towards the quota of that account.
        counted = [item for item in existing if item.get("OwnerId", facts.account) == facts.account]
        own = sum(tags_of(item.get("Tags")).get(CLUSTER_TAG) == cluster["name"] for item in counted)
        need, others = needs[kind], len(counted) - own
        if need > own and need + others > math.floor(limit["Value"]):
            yield Finding(
                f"{quotas.description(facts.region, limit, kind.unit, others)}: the cluster needs {need}. "
                f"{quotas.request_hint(facts.region, kind.service, limit, need + others)}. Or {less}."
            )


def _known_needs(facts: AccountFacts, cluster: Cluster) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Return the code of each known quota, the vCPUs that the cluster needs, and those that others use."""
    for code, need in quotas.needs(quotas.machine_counts(cluster, facts.types or {})).items():
        if code not in facts.quotas:
            continue
        if facts.quotas[code]["Value"] >= UNLIMITED_VCPUS:
            yield code, need, 0
        elif facts.other_instances is not None:
            yield code, need, quotas.vcpus_of(facts.other_instances, code)
