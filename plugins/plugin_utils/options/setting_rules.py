# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Rules between settings, and the settings that follow from others. A rule looks only at settings that are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from ...module_utils.contract.names import EMR_USER, longest_cluster_name
from . import readers as r
from .option import Validated, validate
from .readers import InvalidOption
from .settings import PREFIX, TABLE

Cluster = Mapping[str, Any]
"""Settings by their names without the prefix."""
Rule = Callable[[Cluster], Iterable[str]]

MIN_PREFIX_LENGTH = 8
"""A network with a shorter prefix counts as the whole world."""


def check(variables: Mapping[str, Any], provisioning: bool = True, emr: bool = False) -> Validated:
    """Return the settings without their prefix. Playbooks that do not provision need fewer of them."""
    validated = validate(TABLE.values(), variables)
    cluster = {name.removeprefix(PREFIX): value for name, value in validated.values.items()}
    rules = (*_PROVISIONING_RULES, *_RULES, *[_not_on_emr] * emr) if provisioning else _RULES
    return Validated(cluster, validated.problems + [problem for rule in rules for problem in rule(cluster)])


def complete(cluster: Cluster, emr: bool = False) -> dict[str, Any]:
    """Return valid settings together with those that follow from others."""
    result = dict(cluster)
    if emr:
        result |= {"login_user": EMR_USER, "capacity_policy": "all_or_nothing"}
        result |= {"worker_min": None, "placement_group": "false", "efa": "false"}
        if result["image"] == TABLE["cluster_image"].default:
            result["image"] = ""
    if result["worker_min"] is None:
        count = result["worker_count"]
        result["worker_min"] = {"all_or_nothing": count, "best_effort": 0}.get(result["capacity_policy"], min(1, count))
    result["master_instance_type"] = master_type(result)
    if result["ssh_allow_world"] and not result["ssh_allowed_cidrs"]:
        result["ssh_allowed_cidrs"] = ["0.0.0.0/0"]
    if result["vpc_id"]:
        result["vpc_cidr"] = ""
    result["public_key"] = ""
    if result["public_key_file"] and Path(result["public_key_file"]).is_file():
        result["public_key"] = r.public_key(result["public_key_file"])
        private = Path(result["public_key_file"]).with_suffix("")
        if not result["private_key_file"] and result["public_key_file"].endswith(".pub") and private.is_file():
            result["private_key_file"] = str(private)
    return result


def master_type(cluster: Cluster) -> str:
    """Return the master's type, which is the workers' if it has none of its own."""
    return str(cluster.get("master_instance_type") or cluster.get("instance_type", ""))


def _example(name: str, value: Any = None) -> str:
    return TABLE[PREFIX + name].argument(value)


def _name_length(cluster: Cluster) -> Iterable[str]:
    name, region = cluster.get("name"), cluster.get("region")
    if name and region:
        most = longest_cluster_name(region)
        if len(name) > most:
            yield (
                f"cluster_name is {name}: it has {len(name)} characters, and in {region} the cluster's bucket and "
                f"roles leave room for {most}. Example: {_example('name')}"
            )


def _root_volume(cluster: Cluster) -> Iterable[str]:
    kind, throughput = cluster.get("root_volume_type"), cluster.get("root_volume_throughput")
    if throughput and kind and kind != "gp3":
        yield (
            f"cluster_root_volume_throughput is {throughput} and cluster_root_volume_type {kind}: only gp3 has a "
            f"throughput to set. Example: {_example('root_volume_type', 'gp3')}"
        )


def _zones(cluster: Cluster) -> Iterable[str]:
    region = cluster.get("region")
    zones = [zone for zone in cluster.get("availability_zones") or () if region and not zone.startswith(region)]
    if zones:
        yield (
            f"cluster_availability_zones names {', '.join(zones)}: give zones of {region}, the cluster's region. "
            f"Example: {_example('availability_zones', [f'{region}a'])}"
        )


def _workers(cluster: Cluster) -> Iterable[str]:
    count, minimum, policy = (cluster.get(key) for key in ("worker_count", "worker_min", "capacity_policy"))
    if count is None or policy is None or minimum is None:
        return
    if minimum > count:
        yield (
            f"cluster_worker_min is {minimum} and cluster_worker_count {count}: the minimum cannot exceed the count. "
            f"Example: {_example('worker_min', count)}"
        )
    elif policy == "all_or_nothing" and minimum != count:
        yield (
            f"cluster_worker_min is {minimum}, which has no effect with cluster_capacity_policy all_or_nothing: leave "
            f"it out, or use {_example('capacity_policy', 'at_least')}"
        )


def _network(cluster: Cluster) -> Iterable[str]:
    vpc, public = cluster.get("vpc_id"), cluster.get("public")
    if vpc is None or public is None:
        return
    for name in ("public_subnet_ids", "private_subnet_ids"):
        subnets = cluster.get(name)
        if name == "public_subnet_ids" and not public:
            if subnets:
                yield f"{PREFIX}{name} is given, and with cluster_public=false no machine is in one: leave it out"
        elif vpc and subnets == []:
            kinds = "public and private subnets" if public else "private subnets"
            yield (
                f"{PREFIX}{name} is not given: an existing VPC ({vpc}) needs its {kinds} named. "
                f"Example: {_example(name)}"
            )
        elif not vpc and subnets:
            yield f"{PREFIX}{name} is given without the VPC that they belong to. Example: {_example('vpc_id')}"
    cidr = cluster.get("vpc_cidr")
    if vpc and cidr not in (None, TABLE["cluster_vpc_cidr"].default):
        yield f"cluster_vpc_cidr is {cidr} and cluster_vpc_id {vpc}: give a network of its own or an existing one"
    both = set(cluster.get("public_subnet_ids") or ()) & set(cluster.get("private_subnet_ids") or ())
    if both:
        yield f"{', '.join(sorted(both))} is given as a public and as a private subnet: it can be one of them"


def _ssh(cluster: Cluster) -> Iterable[str]:
    cidrs, allow_world = cluster.get("ssh_allowed_cidrs"), cluster.get("ssh_allow_world")
    if cidrs is None or allow_world is None:
        return
    if not cidrs and not allow_world:
        yield (
            "cluster_ssh_allowed_cidrs is not given: name the networks that may reach the cluster by ssh, for example "
            f"your own address. Example: {_example('ssh_allowed_cidrs')}"
        )
    wide = [cidr for cidr in cidrs if ip_network(cidr).prefixlen < MIN_PREFIX_LENGTH]
    if wide and not allow_world:
        yield (
            f"cluster_ssh_allowed_cidrs is {', '.join(wide)}: that lets the whole world try. Give your own networks, "
            f"or consent with {_example('ssh_allow_world')}. Example: {_example('ssh_allowed_cidrs')}"
        )


def _keys(cluster: Cluster) -> Iterable[str]:
    name, file = cluster.get("key_name"), cluster.get("public_key_file")
    if name is None or file is None:
        return
    if not name and not file:
        yield (
            "cluster_key_name and cluster_public_key_file are both not given: one of them is needed to log in. "
            f"Example: {_example('public_key_file')}"
        )
    if name and file:
        yield (
            f"cluster_key_name is {name} and cluster_public_key_file {file}: give one of them. Example: "
            f"{_example('key_name')}"
        )
    elif file:
        yield from _file_problem("public_key_file", file, r.public_key)
    private = cluster.get("private_key_file")
    if private:
        yield from _file_problem("private_key_file", private, r.private_key)


def _file_problem(name: str, file: str, read: Callable[[str], str]) -> Iterable[str]:
    try:
        read(file)
    except InvalidOption as invalid:
        yield TABLE[PREFIX + name].problem(file, str(invalid))


_AUTO_SCALING_ONLY: Mapping[str, tuple[Any, str]] = {
    "spot": (True, "spot instances are not supported on EMR, which ends the cluster with its core nodes"),
    "placement_group": ("true", "EMR puts core nodes into no cluster placement group"),
    "efa": ("true", "EMR attaches no EFA"),
    "root_volume_type": ("gp2", "EMR chooses the type of root volumes"),
    "monitoring": (True, "EMR's machines run Amazon Linux, which has no package of Prometheus"),
    "capacity_policy": ("best_effort", "EMR starts all machines of a new cluster or none"),
}
"""Values that emr.yml cannot grant, and why."""


def _not_on_emr(cluster: Cluster) -> Iterable[str]:
    for name, (value, why) in _AUTO_SCALING_ONLY.items():
        if cluster.get(name) == value:
            yield f"{PREFIX}{name} is {str(value).lower()}: {why}. Leave it out."
    for name in ("ttl_hours", "idle_minutes"):
        if cluster.get(name):
            yield (
                f"{PREFIX}{name} is {cluster[name]:g}: it is for machines of Auto Scaling groups. Leave it out. EMR "
                f"ends an idle cluster by itself. Example: {_example('emr_idle_minutes')}"
            )
    if cluster.get("login_user") not in (None, "", EMR_USER):
        yield f"cluster_login_user is {cluster['login_user']}: on EMR it is {EMR_USER}. Leave it out."
    if cluster.get("worker_count") == 0:
        yield f"cluster_worker_count is 0: EMR needs a core node. Example: {_example('worker_count', 1)}"


_PROVISIONING_RULES: Sequence[Rule] = (_workers, _network, _ssh, _keys, _root_volume)
_RULES: Sequence[Rule] = (_name_length, _zones)
