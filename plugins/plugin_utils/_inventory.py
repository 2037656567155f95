# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From what AWS says of instances to hosts, groups and variables: pure functions.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import MASTER, MASTER_HOST
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _members
from ansible_collections.deeplearning.aws.plugins.plugin_utils._members import Cluster, Place, Record
from ansible_collections.deeplearning.aws.plugins.plugin_utils._trust import JUMP, jump_command

PREFIX = "deeplearning_"
GROUPS = (MASTER, "workers", "cluster", "joining")
"""There always, with or without members."""

ENVIRONMENT: Mapping[str, Sequence[str]] = {
    "cluster": ("DEEPLEARNING_CLUSTER",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "profile": ("AWS_PROFILE",),
    "role_arn": ("DEEPLEARNING_ROLE_ARN",),
}
"""Options that the environment can set, over the file."""
EXTRA_VARS: Mapping[str, str] = {
    "cluster": "cluster_name",
    "region": "cluster_region",
    "profile": "cluster_profile",
    "role_arn": "cluster_role_arn",
}
"""Options that extra vars can set, over both; and what they are handed on to the playbooks as."""

_INSTANCE = re.compile(r"\bi-[0-9a-f]+\b")
_STRICT = "-o StrictHostKeyChecking=yes"
_NO_AGENT = "-o ForwardAgent=no"
"""Whoever is root on a node can use an agent that is forwarded to it. The command line wins over ssh's configuration,
which forwards it for people who log in."""
_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9_]")


@dataclass
class Host:
    name: str
    groups: list[str]
    variables: dict[str, Any]


def chosen(options: Mapping[str, Any], extra_vars: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The options that say which cluster: extra vars win over the environment, and that over the file."""
    settled = {}
    for option, variable in EXTRA_VARS.items():
        said = [extra_vars.get(variable), *(environment.get(name) for name in ENVIRONMENT[option]), options.get(option)]
        settled[option] = next((value for value in said if value not in (None, "", [])), "")
    settled["clusters"] = clusters_of(settled["cluster"])
    return settled


def clusters_of(value: Any) -> list[str]:
    """One name, or a list of them, also with commas between."""
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    return list(dict.fromkeys(str(name).strip() for name in names if str(name).strip()))


def filters(clusters: Sequence[str], states: Sequence[str], more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the server itself is to leave out."""
    extra = [
        {"Name": name, "Values": [str(item) for item in (value if isinstance(value, list) else [value])]}
        for name, value in more.items()
    ]
    return [*_members.filters(clusters, states), *extra]


@dataclass(frozen=True)
class Way:
    """How machines are reached."""

    connection: str
    config: str = ""
    """ssh's configuration, which `members` has made"""
    known: frozenset[str] = frozenset()
    """the instances that are in it"""


def way_of(connection: str, file: Path) -> Way:
    """By the file, if there is one."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return Way(connection)
    return Way(connection, str(file), frozenset(_INSTANCE.findall(text)))


def hosts(clusters: Sequence[Cluster], ways: Mapping[str, Way]) -> Iterator[Host]:
    """Hosts with their groups and variables. With several clusters the cluster's name is part of each host's."""
    for cluster in clusters:
        way = ways[cluster.name]
        jump = _jump(cluster.master, way) if cluster.master and way.connection == JUMP else ""
        for place in cluster.places:
            through = str(cluster.master["id"]) if jump and cluster.master and place.role != MASTER else ""
            yield _host(cluster.name, place, len(clusters) > 1, way, jump, through)


def _host(cluster: str, place: Place, several: bool, way: Way, jump: str, through: str) -> Host:
    record = place.record
    name = place.name
    groups = [*_groups(place), f"zone_{sanitized(record['zone'])}", f"type_{sanitized(record['type'])}"]
    if several:
        groups.append(f"cluster_{sanitized(cluster)}")
        name = f"{cluster}-{name.removeprefix('deeplearning-')}" if place.rank else name
    outside = record["public_address"] if place.role == MASTER and way.connection == JUMP else ""
    variables = {
        "ansible_host": outside or record["private_address"],
        # Two clusters may have the same addresses, and a new machine that of an old one: their connections are not
        # each other's. One that leads through a master which was replaced leads nowhere. (Paths of sockets are short.)
        "ansible_control_path": "-".join(filter(None, [f"%(directory)s/{record['id']}", through[-8:], "%%r"])),
        f"{PREFIX}cluster": cluster,
        f"{PREFIX}rank": place.rank,
        f"{PREFIX}role": place.role,
        f"{PREFIX}instance_id": record["id"],
        f"{PREFIX}private_address": record["private_address"],
        f"{PREFIX}private_name": record["private_name"],
        f"{PREFIX}public_address": record["public_address"],
        f"{PREFIX}type": record["type"],
        f"{PREFIX}zone": record["zone"],
        f"{PREFIX}gpus": record["gpus"],
        f"{PREFIX}state": record["state"],
        f"{PREFIX}image": record["image"],
        f"{PREFIX}spot": record["spot"],
    }
    if record["user"]:
        variables["ansible_user"] = record["user"]
    if record["id"] in way.known:
        variables["ansible_ssh_common_args"] = f"{_NO_AGENT} -F {shlex.quote(way.config)}"
    else:
        # Nobody is asked whether it is the right machine: nobody knows.
        way_there = [jump] if jump and not outside else []
        variables["ansible_ssh_common_args"] = " ".join([_NO_AGENT, _STRICT, *way_there])
    return Host(name, groups, variables)


def _groups(place: Place) -> list[str]:
    if not place.rank:
        return ["joining"]
    return [MASTER if place.role == MASTER else "workers"]


def _jump(master: Record, way: Way) -> str:
    """ssh's way through the master, from nothing but an address and a user: what comes from AWS ends in a command."""
    if master["id"] in way.known:
        return f"-F {shlex.quote(way.config)} {_proxy(jump_command(MASTER_HOST, way.config))}"
    try:
        address = str(ip_address(master["public_address"]))
    except ValueError:
        return ""
    user = f"{master['user']}@" if master["user"] else ""
    return _proxy(jump_command(f"{user}{address}"))


def _proxy(command: str) -> str:
    return f"-o {shlex.quote(f'ProxyCommand={command}')}"


def sanitized(text: str) -> str:
    return _NOT_IN_GROUPS.sub("_", text)
