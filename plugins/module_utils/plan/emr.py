# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check what is particular to a cluster of EMR's machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..contract.frameworks import FRAMEWORKS
from ..contract.names import EMR_LOGS, Names
from ..contract.tables import join_names
from . import images
from .facts import SERIES, AccountFacts, Cluster, EmrFacts, release_number, type_names
from .findings import Finding, note, setting_problem

FIRST_WITH_IMAGES = (5, 7, 0)
FIRST_WITH_PYTHON = (7, 0, 0)
"""Amazon Linux 2, which EMR had before, has no package of Python 3.11."""
ROOT_GIB = 15
"""EMR takes no smaller root volume."""
MOST_ROOT_GIB = 100
"""EMR takes no larger root volume:
https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-custom-ami-root-volume-size.html"""
FRAMEWORK_GIB = 9
"""About what the environment of a framework takes, with CUDA."""
_AMAZON_LINUX_2023 = r"amazon ?linux\D?2023|\bal2023"


def logs_of(facts: AccountFacts, cluster: Cluster) -> str:
    """Return where EMR stores its logs, as bucket/prefix."""
    own = f"{Names(cluster['name'], facts.account, facts.region).bucket}/{EMR_LOGS}"
    return str(cluster["emr_log_uri"] or own)


def of_plan(facts: AccountFacts, cluster: Cluster) -> dict[str, Any]:
    """Return the part of the plan that is EMR's; empty without EMR."""
    if facts.emr is None:
        return {}
    cluster_id = str(facts.emr_clusters[0]["Id"]) if facts.emr_clusters else ""
    return {"release": facts.emr.release, "logs": logs_of(facts, cluster), "cluster_id": cluster_id}


def check(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """Refuse to mix the two sources of machines in one cluster, and check what is particular to EMR's."""
    name, emr = cluster["name"], facts.emr
    if emr is None:
        if facts.emr_clusters:
            yield Finding(
                f"cluster_name is {name}: an EMR cluster of this name lives ({facts.emr_clusters[0]['Id']}), which "
                "emr.yml changes. Choose another name, or remove it first. Example: -e cluster_name=another"
            )
        return
    if facts.groups:
        yield Finding(
            f"cluster_name is {name}: a cluster of Auto Scaling groups has this name, which site.yml changes. Choose "
            "another name, or remove it first. Example: -e cluster_name=another"
        )
    yield from _check_release(facts, emr, cluster)
    yield from _check_types(facts, emr, cluster)
    yield from _check_image(facts, emr, cluster)
    yield from _check_root_volume(cluster)
    yield from _check_subnets(facts, cluster)
    if emr.log_bucket_problem:
        yield setting_problem("emr_log_uri", cluster["emr_log_uri"], emr.log_bucket_problem)


def _check_release(facts: AccountFacts, emr: EmrFacts, cluster: Cluster) -> Iterator[Finding]:
    release = emr.release
    if not release:
        if not facts.failures:
            problem = f"{facts.region} lists no release of EMR of the series {SERIES}x: name another"
            yield setting_problem("emr_release", "empty", problem, "emr-7.14.0")
        return
    if cluster["image"] and release_number(release) < FIRST_WITH_IMAGES:
        problem = "EMR takes images of your own (cluster_image) from release 5.7.0 on"
        yield setting_problem("emr_release", release, problem, "emr-7.14.0")
    elif release_number(release) < FIRST_WITH_PYTHON:
        problem = (
            "its system has no Python 3.11, by which machines configure themselves: take a release from 7.0.0 on, "
            "which has Amazon Linux 2023"
        )
        yield setting_problem("emr_release", release, problem, "emr-7.14.0")
    elif emr.applications == []:
        yield setting_problem("emr_release", release, f"{facts.region} has no such release of EMR", "emr-7.14.0")
    elif emr.applications:
        known = {name.lower() for name in emr.applications}
        unknown = [name for name in cluster["emr_applications"] if name.lower() not in known]
        if unknown:
            problem = f"{release} has {join_names(sorted(emr.applications), 30)}"
            yield setting_problem("emr_applications", unknown, problem, ["Hadoop"])


def _check_types(facts: AccountFacts, emr: EmrFacts, cluster: Cluster) -> Iterator[Finding]:
    for name, setting in type_names(cluster).items():
        if emr.types and name in (facts.types or {}) and name not in emr.types:
            family = sorted(other for other in emr.types if other.partition(".")[0] == name.partition(".")[0])
            hint = f"take {join_names(family, 3)}" if family else "take another type"
            example = family[0] if family else "m5.xlarge"
            yield setting_problem(setting, name, f"{emr.release} does not offer this type, {hint}", example)


def _check_image(facts: AccountFacts, emr: EmrFacts, cluster: Cluster) -> Iterator[Finding]:
    if not facts.image.described or release_number(emr.release) < FIRST_WITH_PYTHON:
        return
    image = facts.image.described[0]
    name = images.name_of(image)
    if not images.matches(image, _AMAZON_LINUX_2023):
        problem = (
            f"EMR's release {emr.release} takes images of Amazon Linux 2023 alone, and {name} does not look "
            "like one: leave the image out for EMR's own, or take one of Amazon Linux 2023"
        )
        yield setting_problem("image", cluster["image"], problem, "base-oss-nvidia-driver-gpu-amazon-linux-2023")
    if image.get("RootDeviceType", "ebs") != "ebs":
        yield setting_problem("image", cluster["image"], f"the root device of {name} is not an EBS volume")


def _check_root_volume(cluster: Cluster) -> Iterator[Finding]:
    size, need = cluster["root_volume_gib"], ROOT_GIB + FRAMEWORK_GIB * len(FRAMEWORKS)
    if size < ROOT_GIB:
        yield setting_problem("root_volume_gib", size, f"EMR needs {ROOT_GIB} or more", need)
    elif size > MOST_ROOT_GIB:
        yield setting_problem("root_volume_gib", size, f"EMR allows {MOST_ROOT_GIB} GiB at most", MOST_ROOT_GIB)
    elif size < need:
        yield note(
            f"cluster_root_volume_gib is {size}: EMR's software and {len(FRAMEWORKS)} frameworks take about {need}; "
            "fewer frameworks take less."
        )


def _check_subnets(facts: AccountFacts, cluster: Cluster) -> Iterator[Finding]:
    """In a public subnet each machine needs a public address, as there is no other way out."""
    if not cluster["public"]:
        return
    for subnet in facts.subnets or ():
        if subnet["SubnetId"] in cluster["public_subnet_ids"] and not subnet.get("MapPublicIpOnLaunch"):
            problem = (
                "all machines of EMR are in it, and it gives them no public addresses: turn that on (aws ec2 "
                f"modify-subnet-attribute --map-public-ip-on-launch --subnet-id {subnet['SubnetId']}), or take private "
                "subnets (-e cluster_public=false)"
            )
            yield setting_problem("public_subnet_ids", subnet["SubnetId"], problem)
