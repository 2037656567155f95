"""The member list that this node uses. Other parts of the program read it through this module."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning.contract import member_list, paths, problems
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import FAULTY, HELD
from deeplearning.contract.tables import join_names
from deeplearning.machine import instance_id


@dataclass(frozen=True)
class Member:
    rank: int
    aliases: tuple[str, ...]
    instance_id: str
    private_ip: str
    private_dns: str
    instance_type: str
    gpus: int
    slots: int
    """How many processes a run starts on it; 0 if it does not train."""
    host_keys: tuple[str, ...]
    state: str
    """ready, faulty or held"""

    @property
    def alias(self) -> str:
        return self.aliases[0]


@dataclass(frozen=True)
class Members:
    cluster: str
    cluster_id: str
    generation: int
    desired: int
    """The desired capacity of both Auto Scaling groups, the master's included."""
    published_by: str
    published_at: str
    members: tuple[Member, ...]
    """In the order of their ranks."""

    @property
    def training(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.slots)


def read_applied() -> Members:
    try:
        with open(paths.APPLIED, encoding="utf-8") as file:
            return members_of(json.load(file))
    except FileNotFoundError:
        raise UserError(
            "this node has no member list yet: `deeplearning members wait --count 3` waits for a list of three."
        ) from None


def this_member(members: Members) -> Member:
    own_id = instance_id()
    for member in members.members:
        if member.instance_id == own_id:
            return member
    raise UserError(f"this machine ({own_id}) is not in the member list (generation {members.generation}).")


def members_of(record: Any) -> Members:
    """Return a validated list."""
    fields = member_list.validate(record)
    del fields["signature"]
    members = [Member(**item) for item in fields.pop("members")]
    return Members(**fields, members=tuple(sorted(members, key=lambda member: member.rank)))


def unsettled(members: Members) -> Sequence[str]:
    """Return the reasons why no run should start on these members now.

    Members that are held are none: they stay so until an operator does something.
    """
    reasons = []
    if len(members.members) != members.desired:
        reasons.append(problems.MEMBERS_MISSING.sentence(desired=members.desired, count=len(members.members)))
    faulty = [member.alias for member in members.members if member.state == FAULTY]
    if faulty:
        reasons.append(problems.MEMBER_FAULTY.sentence(subject=join_names(faulty)))
    return [*reasons, *differing_gpus(members)]


def differing_gpus(members: Members) -> list[str]:
    """Return the sentence about members that train with different numbers of GPUs, if there are any."""
    usable = [member for member in members.training if member.state != HELD]
    if len({member.gpus for member in usable}) < 2:
        return []
    counts = join_names([f"{member.alias} has {member.gpus}" for member in usable])
    return [problems.GPUS_DIFFER.sentence(counts=counts)]
