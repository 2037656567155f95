"""On which members a run starts: those that were asked for, that no other run has, that answer."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deeplearning import Refusal, paths
from deeplearning.aws import Aws, Unanswered
from deeplearning.config import Config
from deeplearning.machine import instance_id
from deeplearning.members import applying, checking
from deeplearning.members.reading import Member, Members, read_applied, this_member, unsettled
from deeplearning.run import units
from deeplearning.run.folder import Folder, existing, runs_root, seconds
from deeplearning.run.plan import Node
from deeplearning.run.survey import Found, Wanted, surveyed

LEAST_PATIENCE, MOST_PATIENCE = 90.0, 300.0
"""Seconds after which a membership that does not change any more is taken as it is. The machine in a lost one's place
has to boot and to be configured; a run of days waits longer for it than one of minutes."""


REFUSED_FOR = 120.0
"""Seconds for which a refused list is not checked again. Not for ever: AWS may refuse a call that it allows later."""


@dataclass
class SignatureChecks:
    """Checks lists that another machine has published, with one connection to AWS for the life of this process.

    A run compares the list every few seconds. Without a memory, a forged list would cost a call to AWS each time.
    """

    aws: Aws | None = None
    refused: bytes = b""
    """The SHA-256 of the list that was refused last."""
    refused_until: float = 0.0

    def check(self, content: bytes, config: Config) -> None:
        """Raise Refusal if this node may not go by the list, Unanswered if AWS cannot be asked about it."""
        digest = hashlib.sha256(content).digest()
        if digest == self.refused and time.monotonic() < self.refused_until:
            raise Refusal("the published member list was refused before.")
        try:
            applying.checked(content, config, lambda: self._connect(config.region))
        except Unanswered:
            raise
        except Refusal:
            self.refused, self.refused_until = digest, time.monotonic() + REFUSED_FOR
            raise

    def _connect(self, region: str) -> Aws:
        self.aws = self.aws or Aws(region)
        return self.aws


signatures = SignatureChecks()
"""Of this process."""


class Superseded(Exception):
    """This machine is the master no more: what it would do is another's now."""


def superseded(config: Config) -> bool:
    """Whether another machine publishes the members now. One that has stood still finds out by what all can see, since
    its own copy may be an old one.

    Any member's root can write a list, so one by another machine counts only if it is signed by a master and not older
    than this node's own.
    """
    try:
        content = checking.content_of(paths.published(config.efs_mount, config.cluster))
        if checking.record_of(content).get("published_by") == instance_id():
            return False
        signatures.check(content, config)
    except Unanswered:
        # A replaced master has lost its public address, and with it the way to AWS.
        return True
    except Refusal:
        return False
    return True


class Busy(Refusal):
    """Nodes that are needed are another run's."""


def candidates(nodes: Any, members: Members) -> list[Member]:
    """Members that could take part: all that train and are sound, or those that were named."""
    sound = [member for member in members.training if member.state == "ready"]
    if not isinstance(nodes, list):
        return sound
    known = {alias: member for member in members.training for alias in member.aliases}
    unknown = [name for name in nodes if name not in known]
    if unknown:
        names = ", ".join(member.alias for member in members.training)
        raise Refusal(f"nodes has {', '.join(unknown)}, which no training member has: there are {names}.")
    wanted = {known[name].alias for name in nodes}
    return [member for member in sound if member.alias in wanted]


def chosen(
    nodes: Any, there: Sequence[Member], used: set[str] | dict[str, str], first: bool, refuse: bool = False
) -> list[Member]:
    """By rank. A number takes free ones first. After a lost member a run goes on with whoever is left."""
    count = nodes if isinstance(nodes, int) else len(nodes) if isinstance(nodes, list) else max(1, len(there))
    if len(there) < count and first or not there:
        raise Refusal(
            f"nodes is {count if nodes is None else nodes}, and {len(there)} members are there to train: give fewer."
        )
    count = min(count, len(there))
    free = [member for member in there if member.alias not in used]
    if len(free) < count:
        raise Busy(busy_sentence(there, used, refuse))
    return free[:count]


def busy_sentence(there: Sequence[Member], used: set[str] | dict[str, str], refuse: bool) -> str:
    by = dict(used) if isinstance(used, dict) else {}
    taken = [f"{member.alias} (run {by.get(member.alias, '?')})" for member in there if member.alias in used]
    advice = ": stop that run, or let this one wait. Example: -e busy=wait" if refuse else ""
    return f"Needed nodes are in use: {', '.join(taken)}{advice}."


def in_use(config: Config, but: str) -> dict[str, str]:
    """Node to run, of those that other runs have now."""
    taken = {}
    for run_id in units.active_runs():
        if run_id != but:
            try:
                state = existing(config, run_id).state()
            except Refusal:
                continue  # its folder was removed under it
            taken.update(dict.fromkeys(state.get("nodes", []), run_id))
    return taken


@contextmanager
def alone(config: Config) -> Iterator[None]:
    """One run at a time chooses its nodes."""
    with open(os.open(f"{runs_root(config)}/.choosing", os.O_RDWR | os.O_CREAT, 0o644), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def age(members: Members) -> float:
    """Seconds for which the list has been as it is."""
    return time.time() - seconds(members.published_at)


@dataclass
class Place:
    nodes: list[Node]
    generation: int
    boot_ids: dict[str, str]
    here: str
    """This machine's own name."""


@dataclass
class Placing:
    config: Config
    folder: Folder
    run: dict[str, Any]
    first: bool
    """False after a lost member."""
    reserve: Callable[[list[str]], None]
    """Tells other runs which nodes are ours; called while no other run chooses."""
    said: Callable[[str], None]
    """Is told why it waits."""
    told: Callable[[], bool]
    """Is the run to end?"""
    trained: float
    """For how many seconds it has."""
    published: bool = False
    """Has this machine? Then another's list says that it is replaced."""
    since: float = field(default_factory=time.monotonic)

    def wait(self) -> Place | None:
        """None if the run was told to end while it waited."""
        while not self.told():
            self.look_whose_it_is()
            try:
                members = read_applied()
                this_member(members)
            except Refusal as refusal:
                self.wait_for_members(str(refusal))
                continue
            if members.published_by != instance_id() or superseded(self.config):
                raise Superseded
            place = self.tried(members)
            if place:
                return place
            time.sleep(0.5)
        return None

    def look_whose_it_is(self) -> None:
        """A new master has yet to publish; one that had, and finds another's list, is replaced."""
        if not superseded(self.config):
            self.published = True
        elif self.published:
            raise Superseded

    def wait_for_members(self, sentence: str) -> None:
        """A master that has just booted has no list yet."""
        if not self.patient:
            if superseded(self.config):
                raise Superseded
            raise Refusal(sentence)
        self.said(sentence)
        time.sleep(1)

    @property
    def patience(self) -> float:
        return min(max(self.trained, LEAST_PATIENCE), MOST_PATIENCE)

    @property
    def patient(self) -> bool:
        return time.monotonic() - self.since < self.patience

    def tried(self, members: Members) -> Place | None:
        """None: not yet."""
        reasons = unsettled(members)
        if reasons and not self.enough(members) and age(members) < self.patience:
            self.said("; ".join(reasons))
            return None
        try:
            with alone(self.config):
                used = in_use(self.config, self.folder.id)
                nodes = self.run["nodes"]
                there = self.still(members)
                picked = chosen(nodes, there, used, self.first, self.run["busy"] == "refuse")
                self.reserve([member.alias for member in picked])
        except Busy as busy:
            if self.first and self.run["busy"] == "refuse":
                raise
            self.since = time.monotonic()
            self.said(str(busy))
            return None
        return self.answered(members, picked)

    def still(self, members: Members) -> list[Member]:
        """After a loss, names that are gone count no more."""
        nodes = self.run["nodes"]
        if not self.first and isinstance(nodes, list):
            names = {alias for member in members.training for alias in member.aliases}
            nodes = [name for name in nodes if name in names]
            if not nodes:
                raise Refusal(f"None of {', '.join(self.run['nodes'])} is in the cluster any more.")
        return candidates(nodes, members)

    def enough(self, members: Members) -> bool:
        """At first, so many as were asked for are enough, whatever else the cluster waits for."""
        nodes = self.run["nodes"]
        wanted = len(nodes) if isinstance(nodes, list) else nodes
        try:
            return self.first and wanted is not None and len(candidates(nodes, members)) >= wanted
        except Refusal:
            return False

    def answered(self, members: Members, picked: list[Member]) -> Place | None:
        own = instance_id()
        ports = 8 + 2 * max(self.run["processes_per_node"] or 0, *(member.gpus for member in picked))
        ports += self.run["servers"] or len(picked)
        wanted = Wanted(self.folder.id, self.folder.path, self.run["python"], ports)
        found = surveyed(picked, wanted, own)
        # It may have stood still while it asked.
        if superseded(self.config):
            raise Superseded
        unfit = [each for each in found if each.problem]
        silent = [each for each in unfit if each.node is None]
        if unfit and (self.patient and silent or self.first or len(unfit) == len(found)):
            self.not_yet(unfit, silent)
            return None
        here = this_member(members).alias
        sound = [each for each in found if not each.problem]
        self.reserve([each.member.alias for each in sound])
        nodes = [each.node for each in sound if each.node]
        return Place(nodes, members.generation, {each.member.alias: each.boot_id for each in sound}, here)

    def not_yet(self, unfit: list[Found], silent: list[Found]) -> None:
        """Who does not answer may be about to leave the list. Anything else will not mend itself."""
        sentence = " ".join(each.problem for each in unfit)
        if not silent or not self.patient:
            raise Refusal(sentence)
        self.said(sentence)
