# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Turn EC2 instances into hosts of the inventory, with groups and variables: pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ...module_utils.contract.hosts import MASTER_ALIAS
from ...module_utils.contract.names import MASTER
from ...module_utils.contract.tables import join_names
from ..resources import membership
from ..resources.membership import Cluster, ClusterNode, InstanceRecord
from .host_keys import JUMP, jump_command

PREFIX = "deeplearning_"
GROUPS = (MASTER, "workers", "cluster", "joining")
"""These groups always exist, even if empty."""

OVERRIDES: Mapping[str, Sequence[str]] = {
    "cluster": ("cluster_name", "DEEPLEARNING_CLUSTER"),
    "region": ("cluster_region", "AWS_REGION", "AWS_DEFAULT_REGION"),
    "profile": ("cluster_profile", "AWS_PROFILE"),
    "role_arn": ("cluster_role_arn", "DEEPLEARNING_ROLE_ARN"),
}
"""What overrides an option of the inventory file: an extra var, which the inventory also sets for the playbooks, and
after it environment variables."""

READ_REGION = "deeplearning_region"
"""The variable with the region that the machines were read from. Files of variables override `cluster_region`."""

REFUSED = "deeplearning_refused"
"""The variable with the sentence by which a second inventory file was refused."""

_INSTANCE = re.compile(r"\bi-[0-9a-f]+\b")
_STRICT = "-o StrictHostKeyChecking=yes"
_NO_AGENT = "-o ForwardAgent=no"
"""A root user of a node can use an agent that is forwarded to it. ssh's configuration forwards the agent for people who
log in; the command line overrides that."""
_FACTS = ["private_address", "private_name", "public_address", "type", "zone", "gpus", "state", "image", "spot"]
"""Fields of an instance that are variables of its host."""
_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9_]")


@dataclass
class Host:
    name: str
    groups: list[str]
    variables: dict[str, Any]


def resolve_options(
    options: Mapping[str, Any], extra_vars: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the options that select the cluster. Extra vars win over the environment, and that over the file."""
    resolved = {}
    for option, (variable, *names) in OVERRIDES.items():
        values = [extra_vars.get(variable), *(environment.get(name) for name in names), options.get(option)]
        resolved[option] = next((value for value in values if value not in (None, "", [])), "")
    resolved["clusters"] = cluster_names(resolved["cluster"])
    return resolved


def cluster_names(value: Any) -> list[str]:
    """Return the names in a list, or in a text with commas."""
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    return list(dict.fromkeys(str(name).strip() for name in names if str(name).strip()))


def selection(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that select the cluster in playbooks."""
    values = {**target, "cluster": target["clusters"][0]}
    return {variable: values[option] for option, (variable, *_environment) in OVERRIDES.items()}


def second_selection(path: str, selected: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Return a sentence if a file selects something else than the inventory file before it. `before`: its variables."""
    differences = [
        f"{variable} is {value or 'empty'} and was {before.get(variable) or 'empty'}"
        for variable, value in selected.items()
        if READ_REGION in before and value != before.get(variable)
    ]
    if not differences:
        return ""
    return (
        f"{path} is another inventory file of this command and selects something else: {join_names(differences)}. "
        f"Hosts of both would have the same names: give one of them. Example: -i {path}"
    )


def query_filters(clusters: Sequence[str], states: Sequence[str], more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return filters of DescribeInstances, including the user's own."""
    extra = [
        {"Name": name, "Values": [str(item) for item in (value if isinstance(value, list) else [value])]}
        for name, value in more.items()
    ]
    return [*membership.instance_filters(clusters, states), *extra]


@dataclass(frozen=True)
class SshAccess:
    """How ssh reaches the machines of a cluster."""

    connection: str
    config: str = ""
    """ssh's configuration that `discover_members` has written"""
    known: frozenset[str] = frozenset()
    """the ids of the instances in it"""


def ssh_access(connection: str, file: Path) -> SshAccess:
    """Return the access that ssh's configuration in `file` gives. The file may be missing."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return SshAccess(connection)
    return SshAccess(connection, str(file), frozenset(_INSTANCE.findall(text)))


def hosts(clusters: Sequence[Cluster], accesses: Mapping[str, SshAccess]) -> Iterator[Host]:
    """Yield hosts with their groups and variables. With several clusters, a host's name contains its cluster's."""
    for cluster in clusters:
        access = accesses[cluster.name]
        jump = _jump(cluster.master, access) if cluster.master and access.connection == JUMP else ""
        for node in cluster.nodes:
            through = str(cluster.master["id"]) if jump and cluster.master and node.role != MASTER else ""
            public = str(node.record["public_address"]) if node.role == MASTER and access.connection == JUMP else ""
            variables = {
                "ansible_host": public or node.record["private_address"],
                "ansible_control_path": _control_path(node.id, through),
                "ansible_ssh_common_args": _ssh_arguments(node, access, jump if through else ""),
                **({"ansible_user": node.record["user"]} if node.record["user"] else {}),
                **_facts(cluster.name, node),
            }
            several = len(clusters) > 1
            yield Host(_name(cluster.name, node, several), _groups(cluster.name, node, several), variables)


def _name(cluster: str, node: ClusterNode, several: bool) -> str:
    return f"{cluster}-{node.name.removeprefix('deeplearning-')}" if several and node.rank else node.name


def _groups(cluster: str, node: ClusterNode, several: bool) -> list[str]:
    group = "joining" if not node.rank else MASTER if node.role == MASTER else "workers"
    groups = [group, f"zone_{sanitize(node.record['zone'])}", f"type_{sanitize(node.record['type'])}"]
    return [*groups, f"cluster_{sanitize(cluster)}"] if several else groups


def _control_path(instance: str, through: str) -> str:
    """Return the path of the control socket, which names the instance and the master that leads to it.

    Two clusters may use the same addresses, and a new machine may have an old one's: they must not share a connection.
    A connection through a master that was replaced is dead. The master's id is cut, because paths of sockets are short.
    """
    return "-".join(filter(None, [f"%(directory)s/{instance}", through[-8:], "%%r"]))


def _ssh_arguments(node: ClusterNode, access: SshAccess, jump: str) -> str:
    if node.id in access.known:
        return f"{_NO_AGENT} -F {shlex.quote(access.config)}"
    # Its host key is unknown: ssh must refuse it without a question.
    return " ".join(filter(None, [_NO_AGENT, _STRICT, jump]))


def _facts(cluster: str, node: ClusterNode) -> dict[str, Any]:
    record = node.record
    return {
        f"{PREFIX}cluster": cluster,
        f"{PREFIX}rank": node.rank,
        f"{PREFIX}role": node.role,
        f"{PREFIX}instance_id": node.id,
        **{f"{PREFIX}{field}": record[field] for field in _FACTS},
    }


def _jump(master: InstanceRecord, access: SshAccess) -> str:
    """Return ssh's arguments for the way through the master, made from an address and a user only: AWS returns data,
    and this becomes a command."""
    if master["id"] in access.known:
        return f"-F {shlex.quote(access.config)} {_proxy(jump_command(MASTER_ALIAS, access.config))}"
    try:
        address = str(ip_address(master["public_address"] or master["private_address"]))
    except ValueError:
        return ""
    user = f"{master['user']}@" if master["user"] else ""
    return _proxy(jump_command(f"{user}{address}"))


def _proxy(command: str) -> str:
    return f"-o {shlex.quote(f'ProxyCommand={command}')}"


def sanitize(text: str) -> str:
    return _NOT_IN_GROUPS.sub("_", text)
