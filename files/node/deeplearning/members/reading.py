"""The member list that this node goes by. Stable: other parts of the program read it through here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning import Refusal, paths, records
from deeplearning.machine import instance_id

MOST_MACHINES = 99_999
READY, FAULTY = STATES = ("ready", "faulty")


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
    """ready, or faulty: its report says why"""

    @property
    def alias(self) -> str:
        return self.aliases[0]


@dataclass(frozen=True)
class Members:
    cluster: str
    cluster_id: str
    generation: int
    wanted: int
    """How many machines the Auto Scaling groups want, the master among them."""
    published_by: str
    published_at: str
    members: tuple[Member, ...]
    """By rank."""

    @property
    def training(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.slots)


LIST = {
    "cluster": records.name,
    "cluster_id": records.word,
    "generation": records.number,
    "wanted": records.between(0, MOST_MACHINES),
    "published_by": records.instance,
    "published_at": records.moment,
    "members": records.a_list(lambda value: None),
    "signature": records.signature,
}
MEMBER = {
    "rank": records.between(0, MOST_MACHINES),
    "aliases": records.a_list(records.host_name),
    "instance_id": records.instance,
    "private_ip": records.an_address,
    "private_dns": records.host_name,
    "instance_type": records.instance_type,
    "gpus": records.gpus,
    "slots": records.gpus,
    "host_keys": records.a_list(records.host_key, least=1),
    "state": records.one_of(*STATES),
}


def read_applied() -> Members:
    try:
        with open(paths.APPLIED, encoding="utf-8") as file:
            return members_of(json.load(file))
    except FileNotFoundError:
        raise Refusal("this node has no member list yet: `deeplearning members wait --count 1` waits for it.") from None


def this_member(members: Members) -> Member:
    own = instance_id()
    for member in members.members:
        if member.instance_id == own:
            return member
    raise Refusal(f"this machine ({own}) is not in the member list (generation {members.generation}).")


def members_of(record: Any) -> Members:
    fields = records.checked(record, LIST, "the member list")
    del fields["signature"]
    listed = [_member(item) for item in fields.pop("members")]
    return Members(**fields, members=tuple(sorted(listed, key=lambda member: member.rank)))


def _member(record: Any) -> Member:
    item = records.checked_part(record, MEMBER, "a member in the list")
    return Member(**{**item, "aliases": tuple(item["aliases"]), "host_keys": tuple(item["host_keys"])})


def aliases(rank: int) -> tuple[str, ...]:
    return (f"deeplearning-worker{rank}", *(["deeplearning-master"] if rank == 1 else []))


def unsettled(members: Members) -> Sequence[str]:
    """Why no run should start on them now; empty if one may."""
    reasons = []
    if len(members.members) != members.wanted:
        reasons.append(f"{members.wanted} machines are wanted and {len(members.members)} are members")
    faulty = [member.alias for member in members.members if member.state != READY]
    if faulty:
        reasons.append(f"{', '.join(faulty)} reported a fault (`deeplearning members report` there says which)")
    counts = {member.gpus for member in members.training}
    if len(counts) > 1:
        each = ", ".join(f"{member.alias} has {member.gpus}" for member in members.training)
        reasons.append(f"the numbers of GPUs differ: {each}")
    return reasons
