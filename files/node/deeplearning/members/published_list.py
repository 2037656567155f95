"""Read a published member list, and check it before it is used."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from collections import Counter
from typing import Any

from deeplearning import safe_files
from deeplearning.config import Config
from deeplearning.contract import atomic_file
from deeplearning.contract.errors import UserError
from deeplearning.contract.hosts import aliases
from deeplearning.members.member_list import Members, members_of


def content_of(path: str) -> bytes:
    try:
        return atomic_file.retry_while_replaced(lambda: _content_of(path))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: run `deeplearning members publish` on the master.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): does the shared file system answer?") from None


def _content_of(path: str) -> bytes:
    if not _is_listed(path):
        raise FileNotFoundError(path)
    with safe_files.open_file(path) as file:
        status = os.fstat(file.fileno())
        if status.st_uid != safe_files.OWNER or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(f"{path} is no file that only root can write: remove it, and the master publishes another.")
        return safe_files.read_opened(file, path)


def _is_listed(path: str) -> bool:
    """Return whether the file and the two folders above it are in the lists of their folders.

    An NFS client caches a missing name, so a node that looks for its first member list would not see it for some time.
    """
    folder = os.path.dirname(path)
    try:
        return all(
            os.path.basename(part) in os.listdir(os.path.dirname(part))
            for part in (os.path.dirname(folder), folder, path)
        )
    except FileNotFoundError:
        return False


def record_of(content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"the member list is no JSON ({error}).") from None
    if not isinstance(record, dict):
        raise UserError("the member list is no JSON object.")
    return record


def check(record: dict[str, Any], config: Config) -> Members:
    """Return the members. Raise UserError if the list is wrong in anything but its signature and generation."""
    members = members_of(record)
    # An earlier cluster may have left its list on the same file system.
    if members.cluster_id != config.cluster_id or members.cluster != config.cluster:
        raise UserError(
            f"the member list is of cluster {members.cluster} ({members.cluster_id}), and this node belongs to "
            f"{config.cluster} ({config.cluster_id})."
        )
    ranges = [ipaddress.IPv4Network(cidr) for cidr in config.vpc_cidrs]
    for member in members.members:
        if not member.rank or member.aliases != aliases(member.rank):
            raise UserError(f"the member list calls rank {member.rank} {', '.join(member.aliases) or 'nothing'}.")
        if not any(ipaddress.IPv4Address(member.private_ip) in cidr for cidr in ranges):
            raise UserError(
                f"the member list has {member.private_ip} for {member.alias}, outside of the VPC's "
                f"{', '.join(config.vpc_cidrs)}."
            )
    for what in ("rank", "instance_id", "private_ip", "private_dns"):
        for value, count in Counter(getattr(member, what) for member in members.members).items():
            if count > 1:
                raise UserError(f"the member list has {what} {value} {count} times.")
    return members
