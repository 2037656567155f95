"""The master assigns ranks, as tags, and publishes the member list, as one signed file on the shared file system.

Only the master in service may do so. One that was frozen, replaced and thawed may continue between any two lines, so a
check before writing is not enough. The master

1. removes what others have begun to write next to the list,
2. reads the current list, whose generation the new one follows,
3. writes the new one under a name of its own,
4. verifies by the API that it is the master in service,
5. renames.

A former master that is suspended before 4 is found out there. One that is suspended after it finds nothing to rename:
its successor's step 1 has removed it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeplearning import lock, machine, safe_files, safe_paths
from deeplearning.aws import AwsClient
from deeplearning.config import Config
from deeplearning.contract import atomic_file, hosts, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import MEMBER_STATES, instance_of, key_of
from deeplearning.members import check_times, cloud, published_list, ranks, signing
from deeplearning.members.cloud import Groups, StoredReport
from deeplearning.members.member_list import read_applied
from deeplearning.members.ranks import Instance
from deeplearning.members.unchanged import is_unchanged

Reports = Mapping[str, Mapping[str, Any]]
"""By instance id."""


@dataclass(frozen=True)
class PublishOutcome:
    generation: int
    changed: bool
    left_out: Sequence[str]
    """A message for each machine whose report cannot be used."""


@dataclass(frozen=True)
class Usage:
    """What runs use now."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """The runs, by the nodes that they use."""
    busy: bool = False
    """Whether any run is active: it may be waiting for nodes."""


def publish(config: Config, aws: AwsClient, usage: Callable[[], Usage]) -> PublishOutcome:
    """Publish the member list if it has changed, and mark the nodes that runs use."""
    if config.role != "master":
        raise UserError(f"only the master publishes, and this node is a worker: run this on {hosts.MASTER_ALIAS}.")
    if not machine.is_mounted(config.efs_mount):
        raise UserError(f"nothing is mounted at {config.efs_mount}, where the member list is published: mount it.")
    with lock.exclusive_lock("publish"):
        check_times.take_requests(config.efs_mount, config.cluster)
        publisher = Publisher(config, aws, machine.instance_id())
        try:
            return publisher.publish(usage)
        except OSError as error:
            raise UserError(
                f"the member list cannot be published ({error}): is anything in its place, or is a disk full?"
            ) from None
        finally:
            check_times.record_full_check(config.efs_mount, config.cluster, publisher.seen, publisher.settled)


def is_quiet(config: Config, aws: AwsClient, usage: Callable[[], Usage]) -> bool:
    """Return whether a quick check finds that nothing is to be published. It does not notice changed reports."""
    requested = check_times.take_requests(config.efs_mount, config.cluster)
    if requested or check_times.is_due("full") or not is_unchanged():
        return False
    connected = cloud.connect(aws, config)
    groups = connected.groups()
    if not check_times.has_seen(_seen(groups, usage())) or connected.has_ended(groups):
        return False
    check_times.record_quick_check()
    return True


def _seen(groups: Groups, usage: Usage) -> str:
    return json.dumps([groups.desired, groups.masters, sorted(groups.workers), sorted(usage.nodes.items()), usage.busy])


class Publisher:
    def __init__(self, config: Config, aws: AwsClient, own_id: str) -> None:
        self._config = config
        self._aws = aws
        self._cloud = cloud.connect(aws, config)
        self._own_id = own_id
        self._path = paths.published(config.efs_mount, config.cluster)
        self.seen = ""
        self.settled = False
        """Whether all machines in service are members."""

    def publish(self, usage: Callable[[], Usage]) -> PublishOutcome:
        groups = self._fence()
        machines = self._cloud.machines(groups)
        current = self._current_list()
        current_ranks = {member["instance_id"]: member["rank"] for member in current["members"]} if current else {}
        assigned = ranks.assign(machines, current_ranks)
        self._cloud.set_ranks(ranks.to_tag(machines, assigned))
        stored = self._stored_reports(machines)
        reports, left_out = self._reports(machines, stored)
        if self._own_id not in reports:
            raise UserError("this master has not reported itself: run `deeplearning members report` first.")
        self.settled = {*groups.masters, *groups.workers} <= set(reports)
        content = self._content(groups, machines, assigned, reports)
        # An old list that was put back over a newer one is signed as well.
        if current and current["generation"] >= self._applied_generation() and content.items() <= current.items():
            outcome = PublishOutcome(current["generation"], False, left_out)
        else:
            generation = self._write(content, stored, reports[self._own_id]["host_keys"])
            outcome = PublishOutcome(generation, True, left_out)
        now = usage()
        runs = {id_: now.nodes.get(hosts.host_name(rank), "") for id_, rank in assigned.items()}
        self._cloud.mark_used(machines, runs, now.busy)
        self.seen = _seen(groups, now)
        return outcome

    def _content(
        self, groups: Groups, machines: Sequence[Instance], assigned: Mapping[str, int], reports: Reports
    ) -> dict[str, Any]:
        members = [
            member_record(item, assigned[item.instance_id], reports[item.instance_id], self._config.master_trains)
            for item in machines
            if item.instance_id in reports
        ]
        return {
            "schema": schema.VERSION,
            "cluster": self._config.cluster,
            "cluster_id": self._config.cluster_id,
            "desired": groups.desired,
            "members": sorted(members, key=lambda record: int(record["rank"])),
        }

    def _fence(self) -> Groups:
        groups = self._cloud.groups()
        if groups.masters != (self._own_id,):
            raise UserError(
                f"this machine ({self._own_id}) is not the master in service of {self._config.cluster} "
                f"({', '.join(groups.masters) or 'it has none'}): it publishes nothing."
            )
        return groups

    def _current_list(self) -> dict[str, Any] | None:
        """Return the published list if nodes accept it. Any other is replaced."""
        with contextlib.suppress(UserError):
            record = published_list.record_of(published_list.content_of(self._path))
            published_list.check(record, self._config)
            signing.check_signature(record, self._config, lambda: self._aws)
            return record
        return None

    def _applied_generation(self) -> int:
        """Return the generation that this node uses."""
        with contextlib.suppress(UserError):
            applied = read_applied()
            if applied.cluster_id == self._config.cluster_id:
                return applied.generation
        return 0

    def _stored_reports(self, machines: Sequence[Instance]) -> dict[str, StoredReport]:
        """Return each machine's newest report by instance id. A master's counts only under the master's role."""
        masters = {item.instance_id for item in machines if item.master}
        newest: dict[str, StoredReport] = {}
        for stored in sorted(self._cloud.stored_reports(), key=lambda stored: stored.written):
            instance_id = instance_of(stored.key)
            if instance_id not in masters or self._is_of_master_role(instance_id, stored):
                newest[instance_id] = stored
        return newest

    def _is_of_master_role(self, instance_id: str, stored: StoredReport) -> bool:
        return stored.key == key_of(f"{self._config.master_role_id}:{instance_id}")

    def _reports(self, machines: Sequence[Instance], stored: Mapping[str, StoredReport]) -> tuple[Reports, list[str]]:
        """Return the reports of configured machines, and a message for each report that cannot be used.

        Read only those that changed.
        """
        current = {item.instance_id: stored[item.instance_id] for item in machines if item.instance_id in stored}
        cache = _read_cache()
        known = {item.key: cache[item.key][1] for item in current.values() if cache.get(item.key, [""])[0] == item.etag}
        read = self._cloud.reports(item.key for item in current.values() if item.key not in known)
        left_out = [
            f"{error} That machine is left out until it reports again."
            for error in read.values()
            if isinstance(error, UserError)
        ]
        known.update({key: record for key, record in read.items() if not isinstance(record, UserError)})
        if read:
            cache = {item.key: [item.etag, known[item.key]] for item in current.values() if item.key in known}
            atomic_file.write_if_changed(paths.REPORTS, json.dumps(cache))
        configured = {key: record for key, record in known.items() if record["state"] in MEMBER_STATES}
        return {id_: configured[item.key] for id_, item in current.items() if item.key in configured}, left_out

    def _write(self, content: Mapping[str, Any], stored: Mapping[str, StoredReport], keys: Sequence[str]) -> int:
        folder = os.path.dirname(self._path)
        requests = paths.check_requests(self._config.efs_mount, self._config.cluster)
        for path in (os.path.dirname(folder), folder, requests):
            safe_paths.own_folder(path, safe_files.OWNER)
        own = f"{self._path}.{self._own_id}"
        for name in os.listdir(folder):
            other = os.path.join(folder, name)
            if other.startswith(f"{self._path}.") and other != own:
                atomic_file.remove(other)

        generation = self._next_generation(stored)
        record = signing.signed(
            {**content, "generation": generation, "published_by": self._own_id, "published_at": schema.format_time()}
        )
        published_list.check(record, self._config)
        if not signing.verify(record, keys):
            raise UserError("this master has not reported its new host key: run `deeplearning members report` first.")
        atomic_file.create(own, json.dumps(record, sort_keys=True, indent=1).encode("ascii"))
        self._fence()
        try:
            os.rename(own, self._path)
        except FileNotFoundError:
            raise UserError("another master took over while this one was publishing: nothing was published.") from None
        return generation

    def _next_generation(self, stored: Mapping[str, StoredReport]) -> int:
        current = self._current_list()
        newest = max(current["generation"] if current else 0, self._applied_generation())
        masters = {instance_id for instance_id, item in stored.items() if self._is_of_master_role(instance_id, item)}
        # All nodes of EMR have one role, and its only master is never replaced.
        if masters == {self._own_id} or self._config.job_flow:
            return newest + 1
        # A former master's list may be lost, or replaced by an older one of its own. Then its last generation is
        # unknown, and nodes refuse a lower one: the time is above any count.
        return max(newest + 1, int(time.time()))


def member_record(item: Instance, rank: int, reported: Mapping[str, Any], master_trains: bool) -> dict[str, Any]:
    """Return a member's entry. Addresses and type are the API's; host keys, GPUs and state are the machine's report."""
    trains = master_trains or not item.master
    return {
        "rank": rank,
        "aliases": list(hosts.aliases(rank)),
        "instance_id": item.instance_id,
        "private_ip": item.private_ip,
        "private_dns": item.private_dns,
        "instance_type": item.instance_type,
        "gpus": reported["gpus"],
        "slots": max(1, reported["gpus"]) if trains else 0,
        "host_keys": reported["host_keys"],
        "state": reported["state"],
    }


def _read_cache() -> dict[str, list[Any]]:
    return schema.json_object(atomic_file.read_or_none(paths.REPORTS) or "")
