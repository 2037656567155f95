"""Render the files of a node that depend on the members. Pure functions from the list to the text of each file."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deeplearning.config import Config
from deeplearning.contract import open_mpi, paths, ports
from deeplearning.members.member_list import Member, Members

HOSTS = "/etc/hosts"
PROFILE = "/etc/profile.d/deeplearning.sh"
ENVIRONMENT = "/etc/environment"
MANAGER = "/etc/systemd/system.conf.d/50-deeplearning.conf"
KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
EQUIVALENT = "/etc/ssh/shosts.equiv"
SSH_CONFIG = "/etc/ssh/ssh_config.d/50-deeplearning-members.conf"

WORKER_IP_FILE = "/home/hadoop/worker_ip_file"
"""What scripts for EMR read: the addresses of all members."""

BEGIN = "# BEGIN deeplearning (written by `deeplearning members apply`)\n"
END = "# END deeplearning\n"
"""Around our block in a file that other programs write too."""
NOTE = "# Written by `deeplearning members apply`: what is changed here is lost.\n"


Lines = Callable[[Members, Mapping[str, str]], str]
"""Renders the list and the environment."""


@dataclass(frozen=True)
class Target:
    path: str
    lines: Lines
    shared: bool = False
    """Other programs write the file too: ours is a block in it."""
    emr: bool = False
    """Only nodes of EMR have it. It is the user's, whose scripts may write it."""
    monitoring: bool = False
    """Only the master of a cluster with `cluster_monitoring` has it."""


def environment(config: Config, members: Members, gpus: int) -> dict[str, str]:
    return {
        "DEEPLEARNING_WORKERS_PATH": paths.WORKERS,
        "DEEPLEARNING_WORKERS_COUNT": str(len(members.training)),
        "DEEPLEARNING_WORKER_GPU_COUNT": str(gpus),
        "EFS_MOUNT": config.efs_mount,
        "HWLOC_COMPONENTS": open_mpi.HWLOC_COMPONENTS,
    }


def _each(line: Callable[[Member], str]) -> Lines:
    """Return what renders a line for each member."""
    return lambda members, _variables: "".join(f"{line(member)}\n" for member in members.members)


def _each_training(line: Callable[[Member], str]) -> Lines:
    """Do the same for the members that train."""
    return lambda members, _variables: "".join(f"{line(member)}\n" for member in members.training)


def _worker_ips(members: Members, variables: Mapping[str, str]) -> str:
    addresses = sorted(ipaddress.IPv4Address(member.private_ip) for member in members.members)
    return "".join(f"{address}\n" for address in addresses)


def _profile(members: Members, variables: Mapping[str, str]) -> str:
    return NOTE + "".join(f"export {name}={value}\n" for name, value in variables.items())


def _environment(members: Members, variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _manager(members: Members, variables: Mapping[str, str]) -> str:
    assignments = " ".join(f"{name}={value}" for name, value in variables.items())
    return f"{NOTE}[Manager]\nDefaultEnvironment={assignments}\n"


def _known_hosts(members: Members, variables: Mapping[str, str]) -> str:
    return "".join(f"{','.join(_names(member))} {key}\n" for member in members.members for key in member.host_keys)


def _ssh_config(members: Members, variables: Mapping[str, str]) -> str:
    names = " ".join(name for member in members.members for name in _names(member))
    options = (
        "ForwardAgent yes",
        "HostbasedAuthentication yes",
        # The member list has the keys of all members. A user's own file may hold keys of machines that are gone.
        "StrictHostKeyChecking yes",
        "UserKnownHostsFile /dev/null",
    )
    return f"{NOTE}Host {names}\n" + "".join(f"    {option}\n" for option in options)


def _node_targets(members: Members, variables: Mapping[str, str]) -> str:
    return _scraped(members.members, ports.NODE_EXPORTER)


def _gpu_targets(members: Members, variables: Mapping[str, str]) -> str:
    return _scraped([member for member in members.members if member.gpus], ports.DCGM_EXPORTER)


def _scraped(members: Sequence[Member], port: int) -> str:
    """Return targets for Prometheus. A member's instance is its alias, which a machine that replaces it gets too."""
    groups = [
        {
            "targets": [f"{member.private_ip}:{port}"],
            "labels": {"instance": member.alias, "instance_id": member.instance_id, "type": member.instance_type},
        }
        for member in members
    ]
    return json.dumps(groups, indent=1) + "\n"


def _names(member: Member) -> tuple[str, ...]:
    return (*member.aliases, member.private_ip, member.private_dns)


TARGETS = (
    Target(paths.WORKERS, _each_training(lambda member: member.alias)),
    Target(paths.HOSTFILE, _each_training(lambda member: f"{member.alias} slots={member.slots}")),
    Target(paths.ADDRESSES, _each_training(lambda member: member.private_ip)),
    # A lookup by address returns the first name of a line.
    Target(HOSTS, _each(lambda member: f"{member.private_ip} {' '.join(member.aliases)}"), shared=True),
    Target(PROFILE, _profile),
    Target(ENVIRONMENT, _environment, shared=True),
    Target(MANAGER, _manager),
    Target(KNOWN_HOSTS, _known_hosts, shared=True),
    # sshd compares addresses (UseDNS no): names would never match.
    Target(EQUIVALENT, _each(lambda member: member.private_ip)),
    Target(SSH_CONFIG, _ssh_config),
    Target(WORKER_IP_FILE, _worker_ips, emr=True),
    Target(paths.NODE_TARGETS, _node_targets, monitoring=True),
    Target(paths.GPU_TARGETS, _gpu_targets, monitoring=True),
)


def targets(config: Config) -> tuple[Target, ...]:
    """Return the files of this node."""
    is_monitored = config.monitoring and config.role == "master"
    return tuple(
        target for target in TARGETS if (config.job_flow or not target.emr) and (is_monitored or not target.monitoring)
    )


def with_block(text: str, lines: str) -> str:
    """Return the text with our lines in their block, or at its end. Without lines, remove the block."""
    block = f"{BEGIN}{lines}{END}" if lines else ""
    before, begin, rest = text.partition(BEGIN)
    if begin:
        # Without its end, the block reaches to the end of the file.
        return before + block + rest.partition(END)[2]
    gap = "\n" if block and text and not text.endswith("\n") else ""
    return text + gap + block
