# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Parse the host keys that machines report, and write ssh's known hosts and configuration: pure functions.

These files can make ssh run commands, so only keys, addresses and names of machines are accepted into them.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ...module_utils.contract.errors import UserError
from ...module_utils.contract.hosts import aliases
from ...module_utils.contract.names import MASTER
from ...module_utils.contract.report import HELD, parse
from ..resources.membership import ClusterNode

JUMP, DIRECT, SSM = "jump", "direct", "ssm"
"""How workers are reached: through the master, at their private addresses, or by AWS Systems Manager."""

OF_CLUSTER = "# The members of the cluster "
"""How ssh's configuration begins. The cluster's name and its region follow."""

_BEGIN, _END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]{64,2048}={0,2})(?![^\s])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")


@dataclass(frozen=True)
class NodeReport:
    """What a machine reports about itself."""

    host_keys: Sequence[str]
    gpus: int | None = None
    bundle: str = ""
    """the SHA-256 of the bundle that configured it; empty if none did"""
    is_held: bool = False
    """Whether it is kept out of runs."""


@dataclass(frozen=True)
class Login:
    """Who logs in, and how."""

    user: str = ""
    private_key_file: str = ""
    connection: str = JUMP
    region: str = ""
    profile: str = ""
    bastion: str = ""
    """the user's own host that leads to the master"""


# --- Host keys ------------------------------------------------------------------------------------------------------


def parse_keys(text: str) -> list[str]:
    """Return the host keys in a text, without their comments."""
    keys = (f"{match[1]} {match[2]}" for match in _KEY.finditer(text) if is_key(match[1], match[2]))
    return list(dict.fromkeys(keys))


def parse_console(text: str) -> list[str]:
    """Return the keys that cloud-init printed last; none if its list is incomplete or has scrolled away."""
    before, end, _after = text.rpartition(_END)
    begin = before.rfind(_BEGIN)
    return parse_keys(before[begin:]) if end and begin >= 0 else []


def parse_report(text: str, key: str, bucket: str) -> NodeReport | None:
    """Return a machine's own report, or None if it is malformed: root on that machine can write anything."""
    try:
        report = parse(text, key, bucket)
    except UserError:
        return None
    keys = [key for line in report["host_keys"] for key in parse_keys(line)]
    return NodeReport(keys, report["gpus"], report["bundle"], report["state"] == HELD) if keys else None


def is_key(kind: str, blob: str) -> bool:
    """Return whether the key begins with its own kind, as every key does."""
    try:
        decoded = base64.b64decode(blob, validate=True)
    except ValueError:
        return False
    return decoded[4 : 4 + int.from_bytes(decoded[:4], "big")] == kind.encode()


# --- The files ------------------------------------------------------------------------------------------------------


def ssh_files(folder: str | Path, cluster: str) -> tuple[Path, Path]:
    """Return the paths of the known hosts and of ssh's configuration."""
    return Path(folder, f"{cluster}.known_hosts"), Path(folder, f"{cluster}.ssh_config")


def known_hosts(nodes: Sequence[ClusterNode], reports: Mapping[str, NodeReport]) -> str:
    """Return every name of every node with its keys."""
    lines = [f"{','.join(_patterns(node))} {key}" for node in nodes for key in reports[node.id].host_keys]
    return "".join(f"{line}\n" for line in lines)


def ssh_config(cluster: str, nodes: Sequence[ClusterNode], login: Login, hosts_file: str, own_file: str) -> str:
    """Return ssh's configuration for these nodes. With `ssh -F` it reads no other one."""
    lines = [
        f"{OF_CLUSTER}{cluster} in {login.region}, according to AWS. Written by deeplearning.aws.discover_members.",
        f"# ssh -F {own_file} {nodes[0].name if nodes else 'deeplearning-master'}",
    ]
    jump = next((node for node in nodes if node.rank == 1), None) if login.connection == JUMP else None
    for node in nodes:
        route = _route(node, jump, login, own_file)
        lines += ["", f"Host {' '.join(_patterns(node))}", *(f"    {line}" for line in route)]
    common = [f"User {login.user}"] if login.user else []
    if login.private_key_file:
        common += [f"IdentityFile {_quoted(login.private_key_file)}", "IdentitiesOnly yes"]
    common += [
        # Only to members: a root user of the machine that an agent is forwarded to can use it.
        "ForwardAgent yes",
        f"UserKnownHostsFile {_quoted(hosts_file)}",
        "GlobalKnownHostsFile none",
        "StrictHostKeyChecking yes",
        "UpdateHostKeys no",
        "ServerAliveInterval 30",
    ]
    patterns = " ".join(pattern for node in nodes for pattern in _patterns(node))
    if patterns:
        lines += ["", f"Host {patterns}", *(f"    {line}" for line in common)]
    return "\n".join(lines) + "\n"


def _patterns(node: ClusterNode) -> list[str]:
    """Return the valid names and addresses of a node, its inventory name first."""
    names = (node.name, *(aliases(node.rank) if node.rank else ()), node.id, node.record["private_name"])
    names = tuple(name for name in names if _NAME.match(name))
    return list(dict.fromkeys([*names, *_addresses(node, from_outside=True)]))


def _addresses(node: ClusterNode, from_outside: bool) -> list[str]:
    """Return the valid addresses of a node, the public one first.

    Only the master can be reached from outside, even if the users' own subnets give all machines addresses.
    """
    public = [node.record["public_address"]] if from_outside and node.role == MASTER else []
    return [address for address in (*public, node.record["private_address"]) if _is_address(address)]


def _route(node: ClusterNode, jump: ClusterNode | None, login: Login, own_file: str) -> list[str]:
    if login.connection == SSM:
        profile = f" --profile {login.profile}" if login.profile else ""
        return [
            f"HostName {node.id}",
            f"ProxyCommand aws ssm start-session --region {login.region}{profile} --target %h"
            " --document-name AWS-StartSSHSession --parameters portNumber=%p",
        ]
    address = [f"HostName {address}" for address in _addresses(node, from_outside=node is jump)][:1]
    if node is jump:
        # The bastion is in the user's own configuration of ssh.
        return [*address, f"ProxyCommand ssh -o ForwardAgent=no -W %h:%p {login.bastion}"] if login.bastion else address
    return [*address, f"ProxyCommand {jump_command(jump.name, own_file)}"] if jump else address


def jump_command(master: str, config: str = "") -> str:
    """Return the command with which ssh reaches a machine through the master.

    ProxyJump would not do: it starts an ssh with the options of the configuration only. With `ForwardAgent yes` there,
    the master's server could open a channel to the agent on a connection that only carries another one.
    """
    options = ["-F", shlex.quote(config).replace("%", "%%")] if config else ["-o", "StrictHostKeyChecking=yes"]
    return " ".join(["ssh", *options, "-o", "ForwardAgent=no", "-W", "%h:%p", master])


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _quoted(path: str) -> str:
    """Quote a path for ssh's configuration, where percent signs begin tokens."""
    return '"' + path.replace("%", "%%") + '"'
