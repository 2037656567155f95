"""The master says who the members are: ranks as tags, and one signed file on the shared file system.

Only the master in service may do it. One that was frozen, replaced and thawed may wake up between any two lines, so a
check before writing is not enough. Who publishes

1. removes what others have begun to write beside the list,
2. reads the list in force, whose generation the new one follows,
3. writes the new one under a name of its own,
4. makes sure by the API that it is the master in service,
5. renames.

A former master that falls asleep before 4 is found out there. One that falls asleep after it finds nothing to rename:
its successor's step 1 has taken it away.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning import Refusal, files, machine, paths, records
from deeplearning.aws import Aws
from deeplearning.config import Config
from deeplearning.members import checking, ranks, report, signing
from deeplearning.members.cloud import Cloud, Groups, Place
from deeplearning.members.ranks import Machine
from deeplearning.members.reading import Members, aliases, read_applied
from deeplearning.members.signers import check_signature


@dataclass(frozen=True)
class Outcome:
    generation: int
    changed: bool
    left_out: Sequence[str]
    """A sentence for each machine whose report is no good."""


def publish(config: Config, aws: Aws) -> Outcome:
    if config.role != "master":
        raise Refusal("only the master publishes, and this node is a worker: run this on deeplearning-master.")
    if not machine.is_mounted(config.efs_mount):
        raise Refusal(f"nothing is mounted at {config.efs_mount}, so there is nowhere to publish: mount it.")
    with files.only_one(f"{paths.RUNTIME}/publish.lock", "deeplearning members publish"):
        try:
            return Publisher(config, aws, machine.instance_id()).publish()
        except OSError as error:
            raise Refusal(
                f"the member list cannot be published ({error}): is there anything in its place, or is a disk full?"
            ) from None


class Publisher:
    def __init__(self, config: Config, aws: Aws, own: str) -> None:
        self._config = config
        self._aws = aws
        self._cloud = Cloud(aws, config.cluster, config.bucket)
        self._own = own
        self._path = paths.published(config.efs_mount, config.cluster)

    def publish(self) -> Outcome:
        groups = self._fence()
        machines = self._cloud.machines(groups)
        in_force = self._in_force()
        listed = {member.instance_id: member.rank for member in in_force.members} if in_force else {}
        given = ranks.assign(machines, listed)
        self._cloud.set_ranks(ranks.to_tag(machines, given))

        places = self._places(machines)
        found, left_out = self._reports(machines, places)
        if self._own not in found:
            raise Refusal("this master has not reported itself: run `deeplearning members report` first.")
        members = [
            member_record(item, given[item.instance_id], found[item.instance_id], self._config.master_trains)
            for item in machines
            if item.instance_id in found
        ]
        content = {
            "schema": records.SCHEMA,
            "cluster": self._config.cluster,
            "cluster_id": self._config.cluster_id,
            "wanted": groups.wanted,
            "members": sorted(members, key=lambda record: int(record["rank"])),
        }
        if in_force and not self._is_new(content, in_force):
            return Outcome(in_force.generation, False, left_out)
        return Outcome(self._write(content, places, found[self._own]["host_keys"]), True, left_out)

    def _fence(self) -> Groups:
        groups = self._cloud.groups()
        if groups.masters != (self._own,):
            raise Refusal(
                f"this machine ({self._own}) is not the master in service of {self._config.cluster} "
                f"({', '.join(groups.masters) or 'there is none'}): it publishes nothing."
            )
        return groups

    def _in_force(self) -> Members | None:
        """The published list, if it is one that nodes go by. Any other is replaced."""
        with contextlib.suppress(Refusal):
            record = checking.record_of(checking.content_of(self._path))
            members = checking.check(record, self._config)
            check_signature(record, self._config, lambda: self._aws)
            return members
        return None

    def _is_new(self, content: Mapping[str, Any], in_force: Members) -> bool:
        # An old list put back over a newer one is signed as well.
        return in_force.generation < self._applied() or content_of(in_force) != content

    def _applied(self) -> int:
        """The generation that this node goes by."""
        with contextlib.suppress(Refusal):
            applied = read_applied()
            if applied.cluster_id == self._config.cluster_id:
                return applied.generation
        return 0

    def _places(self, machines: Sequence[Machine]) -> dict[str, Place]:
        """Where each machine's newest report lies, by instance id. A master's counts under the master's role only."""
        masters = {item.instance_id for item in machines if item.master}
        found: dict[str, Place] = {}
        for place in sorted(self._cloud.places(), key=lambda place: place.written):
            instance_id = report.instance_of(place.key)
            if instance_id not in masters or self._is_a_masters(place):
                found[instance_id] = place
        return found

    def _is_a_masters(self, place: Place) -> bool:
        return place.key.startswith(f"members/{self._config.master_role_id}:")

    def _reports(
        self, machines: Sequence[Machine], places: Mapping[str, Place]
    ) -> tuple[dict[str, dict[str, Any]], list[str]]:
        wanted = {item.instance_id: places[item.instance_id] for item in machines if item.instance_id in places}
        kept = _read_cache()
        known = {
            place.key: kept[place.key][1] for place in wanted.values() if kept.get(place.key, [""])[0] == place.mark
        }
        answers = self._cloud.reports(place.key for place in wanted.values() if place.key not in known)
        left_out = [
            f"{answer} That machine is left out until it reports again."
            for answer in answers.values()
            if isinstance(answer, Refusal)
        ]
        known.update({key: answer for key, answer in answers.items() if not isinstance(answer, Refusal)})
        if answers:
            marks = {place.key: [place.mark, known[place.key]] for place in wanted.values() if place.key in known}
            files.put(paths.REPORTS, json.dumps(marks))
        return {instance_id: known[place.key] for instance_id, place in wanted.items() if place.key in known}, left_out

    def _write(self, content: Mapping[str, Any], places: Mapping[str, Place], keys: Sequence[str]) -> int:
        folder = os.path.dirname(self._path)
        for place in (os.path.dirname(folder), folder):
            files.own_folder(place, checking.OWNER)
        own = f"{self._path}.{self._own}"
        for name in os.listdir(folder):
            other = os.path.join(folder, name)
            if other.startswith(f"{self._path}.") and other != own:
                files.remove(other)

        generation = self._next_generation(places)
        record = signing.signed(
            {**content, "generation": generation, "published_by": self._own, "published_at": report.now()}
        )
        checking.check(record, self._config)
        if not signing.verify(record, keys):
            raise Refusal("this master has not reported its new host key: run `deeplearning members report` first.")
        files.write(own, json.dumps(record, sort_keys=True, indent=1).encode("ascii"), 0o644)
        self._fence()
        try:
            os.rename(own, self._path)
        except FileNotFoundError:
            raise Refusal("another master took over while this one was publishing: nothing was published.") from None
        return generation

    def _next_generation(self, places: Mapping[str, Place]) -> int:
        in_force = self._in_force()
        newest = max(in_force.generation if in_force else 0, self._applied())
        masters = {instance_id for instance_id, place in places.items() if self._is_a_masters(place)}
        if masters == {self._own}:
            return newest + 1
        # A former master's list may be lost, or an older one of his may lie in its place. Nobody else knows the last
        # number, and nodes take none below theirs: the time is above any count.
        return max(newest + 1, int(time.time()))


def member_record(item: Machine, rank: int, said: Mapping[str, Any], master_trains: bool) -> dict[str, Any]:
    """Addresses and type are the API's; host keys, GPUs and state are what the machine says of itself."""
    trains = master_trains or not item.master
    return {
        "rank": rank,
        "aliases": list(aliases(rank)),
        "instance_id": item.instance_id,
        "private_ip": item.private_ip,
        "private_dns": item.private_dns,
        "instance_type": item.instance_type,
        "gpus": said["gpus"],
        "slots": max(1, said["gpus"]) if trains else 0,
        "host_keys": said["host_keys"],
        "state": said["state"],
    }


def content_of(members: Members) -> dict[str, Any]:
    """What a list says, without when and by whom."""
    return {
        "schema": records.SCHEMA,
        "cluster": members.cluster,
        "cluster_id": members.cluster_id,
        "wanted": members.wanted,
        "members": [
            {**vars(member), "aliases": list(member.aliases), "host_keys": list(member.host_keys)}
            for member in members.members
        ],
    }


def _read_cache() -> dict[str, list[Any]]:
    with contextlib.suppress(ValueError):
        kept = json.loads(files.text_of(paths.REPORTS) or "{}")
        return kept if isinstance(kept, dict) else {}
    return {}
