"""What a published member list must be before anybody goes by it."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import stat
from collections import Counter
from typing import Any

from deeplearning import Refusal, files
from deeplearning.config import Config
from deeplearning.members.reading import Members, aliases, members_of

LONGEST = 8 * 1024 * 1024
OWNER = 0


class OfAnotherCluster(Refusal):
    """An older cluster's, on the same file system."""


def content_of(path: str) -> bytes:
    try:
        return files.settled(lambda: _content_of(path))
    except FileNotFoundError:
        raise Refusal(f"there is no member list at {path}: run `deeplearning members publish` on the master.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refusal(f"{path} is a link, and a member list is a file: remove it.") from None
        raise Refusal(f"{path} cannot be read ({error.strerror}): is the shared file system well?") from None


def _content_of(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != OWNER or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refusal(f"{path} is no file that only root can write: remove it, and the master publishes another.")
        if seen.st_size > LONGEST:
            raise Refusal(f"{path} has {seen.st_size} bytes, and no member list has: remove it.")
        return file.read(LONGEST)


def record_of(content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the member list is no JSON ({error}).") from None
    if not isinstance(record, dict):
        raise Refusal("the member list is no JSON object.")
    return record


def check(record: dict[str, Any], config: Config) -> Members:
    """All but the signature and the generation."""
    members = members_of(record)
    if members.cluster_id != config.cluster_id or members.cluster != config.cluster:
        raise OfAnotherCluster(
            f"the member list is of cluster {members.cluster} ({members.cluster_id}), and this node belongs to "
            f"{config.cluster} ({config.cluster_id})."
        )
    ranges = [ipaddress.IPv4Network(cidr) for cidr in config.vpc_cidrs]
    for member in members.members:
        if not member.rank or member.aliases != aliases(member.rank):
            raise Refusal(f"the member list calls rank {member.rank} {', '.join(member.aliases) or 'nothing'}.")
        if not any(ipaddress.IPv4Address(member.private_ip) in cidr for cidr in ranges):
            raise Refusal(
                f"the member list has {member.private_ip} for {member.alias}, outside of the VPC's "
                f"{', '.join(config.vpc_cidrs)}."
            )
    for what in ("rank", "instance_id", "private_ip", "private_dns"):
        for value, times in Counter(getattr(member, what) for member in members.members).items():
            if times > 1:
                raise Refusal(f"the member list has {what} {value} {times} times.")
    return members
