# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Host keys as machines tell them, and the two files that ssh trusts and finds machines by. Pure functions.

What machines and AWS say ends in files that can name commands to run: only keys, addresses and names get in.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import Malformed, from_json

JUMP, DIRECT, SSM = "jump", "direct", "ssm"
CONNECTIONS = (JUMP, DIRECT, SSM)
"""How workers are reached: through the master, at their private addresses, or through AWS Systems Manager."""

_BEGIN, _END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]{64,2048}={0,2})(?![^\s])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")
MOST_GPUS = 64
"""No machine of AWS has more. The nodes' program has the same bound (files/node/deeplearning/records.py)."""


@dataclass(frozen=True)
class Report:
    """What a machine says of itself."""

    host_keys: Sequence[str]
    gpus: int | None = None


@dataclass(frozen=True)
class Known:
    """A member as ssh is told of it."""

    id: str
    names: Sequence[str]
    """its aliases, the most telling one first"""
    public_address: str
    private_address: str
    private_name: str
    host_keys: Sequence[str]

    @property
    def patterns(self) -> list[str]:
        """All that it may be called by, as far as it is a name or an address."""
        addresses = [one for one in (self.public_address, self.private_address) if _is_address(one)]
        names = [one for one in (*self.names, self.id, self.private_name) if _NAME.match(one)]
        return list(dict.fromkeys([*names, *addresses]))


@dataclass(frozen=True)
class Login:
    """Who logs in, and which way."""

    user: str = ""
    private_key_file: str = ""
    connection: str = JUMP
    region: str = ""
    profile: str = ""


# --- Host keys ------------------------------------------------------------------------------------------------------


def keys_in(text: str) -> list[str]:
    """The host keys in a text, without the remarks that follow them."""
    found = (f"{match[1]} {match[2]}" for match in _KEY.finditer(text) if _is_key(match[1], match[2]))
    return list(dict.fromkeys(found))


def keys_in_console(text: str) -> list[str]:
    """Those that cloud-init has shown last; none where its list has not ended yet, or has scrolled away."""
    before, end, _after = text.rpartition(_END)
    begin = before.rfind(_BEGIN)
    return keys_in(before[begin:]) if end and begin >= 0 else []


def report_of(text: str, instance_id: str) -> Report | None:
    """A machine's own report, if it is one: what is in it is the word of whoever is root there."""
    try:
        told = from_json(text)
    except Malformed:
        return None
    if not isinstance(told, Mapping) or told.get("schema") != 1 or told.get("instance_id") != instance_id:
        return None
    listed = told.get("host_keys")
    keys = [key for one in listed for key in keys_in(str(one))] if isinstance(listed, list) else []
    gpus = told.get("gpus")
    # To Python, true is a number as well.
    counted = gpus if isinstance(gpus, int) and not isinstance(gpus, bool) and 0 <= gpus <= MOST_GPUS else None
    return Report(keys, counted) if keys else None


def _is_key(kind: str, blob: str) -> bool:
    """A key begins with its own kind."""
    try:
        decoded = base64.b64decode(blob, validate=True)
    except binascii.Error:
        return False
    return decoded[4 : 4 + int.from_bytes(decoded[:4], "big")] == kind.encode()


# --- The files ------------------------------------------------------------------------------------------------------


def files(folder: str | Path, cluster: str) -> tuple[Path, Path]:
    """Where they are: the host keys, and ssh's configuration."""
    return Path(folder, f"{cluster}.known_hosts"), Path(folder, f"{cluster}.ssh_config")


def known_hosts(machines: Sequence[Known]) -> str:
    """Every name of every machine with its keys."""
    lines = [f"{','.join(machine.patterns)} {key}" for machine in machines for key in machine.host_keys]
    return "".join(f"{line}\n" for line in lines)


def ssh_config(cluster: str, machines: Sequence[Known], login: Login, hosts_file: str, own_file: str) -> str:
    """How each machine is reached, and what is common to all. With it ssh reads no other configuration."""
    lines = [
        f"# The members of the cluster {cluster}, as AWS told of them. Made anew by deeplearning.aws.members.",
        f"# ssh -F {own_file} {machines[0].names[0] if machines else 'deeplearning-master'}",
    ]
    open_to_us = (machine for machine in machines if _is_address(machine.public_address))
    jump = next(open_to_us, None) if login.connection == JUMP else None
    for machine in machines:
        way = _way(machine, jump, login, own_file)
        lines += ["", f"Host {' '.join(machine.patterns)}", *(f"    {line}" for line in way)]
    common = [f"User {login.user}"] if login.user else []
    if login.private_key_file:
        common += [f"IdentityFile {_quoted(login.private_key_file)}", "IdentitiesOnly yes"]
    common += [
        # To members and to nobody else: whoever is root where an agent is forwarded to can use it.
        "ForwardAgent yes",
        f"UserKnownHostsFile {_quoted(hosts_file)}",
        "GlobalKnownHostsFile none",
        "StrictHostKeyChecking yes",
        "UpdateHostKeys no",
        "ServerAliveInterval 30",
    ]
    everybody = " ".join(pattern for machine in machines for pattern in machine.patterns)
    if everybody:
        lines += ["", f"Host {everybody}", *(f"    {line}" for line in common)]
    return "\n".join(lines) + "\n"


def _way(machine: Known, jump: Known | None, login: Login, own_file: str) -> list[str]:
    if login.connection == SSM:
        profile = f" --profile {login.profile}" if login.profile else ""
        return [
            f"HostName {machine.id}",
            f"ProxyCommand aws ssm start-session --region {login.region}{profile} --target %h"
            " --document-name AWS-StartSSHSession --parameters portNumber=%p",
        ]
    if machine is jump:
        return [f"HostName {machine.public_address}"]
    address = [f"HostName {machine.private_address}"] if _is_address(machine.private_address) else []
    return [*address, f"ProxyCommand {jump_command(jump.names[0], own_file)}"] if jump else address


def jump_command(master: str, config: str = "") -> str:
    """Return the command with which ssh reaches a machine through the master.

    Not ProxyJump: that starts an ssh which follows the configuration alone. Where this says `ForwardAgent yes`, the
    master's server may open a channel to the agent, on a connection that is meant to pass on another one.
    """
    ours = ["-F", shlex.quote(config).replace("%", "%%")] if config else ["-o", "StrictHostKeyChecking=yes"]
    return " ".join(["ssh", *ours, "-o", "ForwardAgent=no", "-W", "%h:%p", master])


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _quoted(path: str) -> str:
    """As ssh reads it: percent signs begin its own words."""
    return '"' + path.replace("%", "%%") + '"'
