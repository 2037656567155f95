# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Remove a cluster, or its resources in its zone. The order is in plugin_utils/teardown/teardown.py."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import LockStore
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.recorded_place import project_folder
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import PLACE, REGION, repeat_options
from ansible_collections.deeplearning.aws.plugins.plugin_utils.requester import requester
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources import untagged
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.kinds import (
    EVERYTHING,
    IMAGES,
    IN_ZONE,
    KINDS,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import ResourceReader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    ClusterResources,
    Resource,
    count_by_kind,
    leftovers,
    retained,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.untagged import (
    Surroundings,
    UntaggedResource,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown import also, data_bucket, place_check
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown.destroy_lock import DestroyLock
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown.teardown import (
    Deleting,
    Teardown,
    foreign_targets,
    to_delete,
    why_left,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import untagged_lines
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.summary import destroy_command

_NOT_OURS = "the cluster did not make it, so it is left alone."
MOST_ROUNDS = 3
"""How often a cluster is removed that another playbook creates at the same time."""


@dataclass(frozen=True)
class Observed:
    """What exists before anything is deleted."""

    reader: ResourceReader
    resources: ClusterResources
    surroundings: Surroundings
    also: Sequence[str]
    """ids of resources without the cluster's tag that are to be deleted too"""

    @property
    def others(self) -> list[UntaggedResource]:
        """Return the resources without the cluster's tag that stay."""
        return [item for item in self.surroundings.untagged if item.id not in self.also]


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        aws = Aws.from_options(options)
        cluster, keep = options["cluster"], options["keep_file_system"]
        consent = place_check.read_consent(options["consent"])
        if consent.cluster == cluster:
            place_check.refuse_other_region(aws, options["consent"], repeat_options(without=REGION))
        if options["data_bucket"]:
            data_bucket.check_name(aws, options["data_bucket"])
            removed = self._remove_data(aws)
            if not options["consent"]:
                return {"changed": bool(removed), "removed": removed}
        observed = _observe(aws, options)
        deletions = to_delete(observed.resources, keep, _kinds(options))
        is_plan = consent.cluster != cluster or self.check_mode
        if is_plan:
            plan = describe_plan(observed.resources, deletions, keep)
            self.show([*plan, *_untagged_lines(aws, observed.resources, observed.others)])
        notes: list[str] = []
        if options["scope"] == "all" and not deletions and consent.cluster in ("", cluster):
            search = _search(options, task_vars)
            notes = place_check.check_place(aws, observed.resources, consent, search)
        if is_plan and notes:
            self.show(notes)
        if consent.cluster != cluster:
            return _without_consent(cluster, consent, deletions)
        if self.check_mode:
            return {"changed": bool(deletions), "removed": [resource.as_dict() for resource in deletions]}
        return self._remove(aws, observed, options, notes)

    def _remove(self, aws: Aws, observed: Observed, options: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        """Delete what is in scope, and return the result."""
        if options["scope"] == "all":
            return self._remove_cluster(aws, observed, options, notes)
        teardown = self._teardown(aws, observed, options, DestroyLock.of_fact(options["lock"]), {})
        left = teardown.run(observed.resources)
        return _result(aws, teardown, left, options["cluster"])

    def _remove_cluster(self, aws: Aws, before: Observed, options: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        """Delete everything, and return the result.

        Resources may appear after they were read, if another playbook creates the cluster at the same time.
        """
        removed: dict[tuple[str, str], Resource] = {}
        for _round in range(MOST_ROUNDS):
            teardown, left = self._remove_under_lock(aws, before, options, removed)
            # Read everything again: only what AWS now lists counts.
            now = ResourceReader(aws, options["cluster"], frozenset(options["also"])).read()
            appeared = _appeared(now, left, options["keep_file_system"])
            if not appeared:
                break
            self._display.display(f"Created meanwhile, so removed too: {', '.join(count_by_kind(appeared))}.")
            before = _observe(aws, options)
        return self._settle(aws, teardown, now, options, before.surroundings, notes)

    def _remove_under_lock(
        self, aws: Aws, observed: Observed, options: dict[str, Any], removed: dict[tuple[str, str], Resource]
    ) -> tuple[Teardown, list[Resource]]:
        """Delete what was observed, and return the teardown with what could not be deleted."""
        # An empty account needs no lock, which would need a bucket.
        takes_lock = bool(observed.resources.current)
        lock = self._lock(aws, options) if takes_lock else DestroyLock.of_fact(options["lock"])
        try:
            if takes_lock:
                # Another playbook may have changed the cluster while this one waited.
                observed = _observe(aws, options)
            if observed.also:
                also.tag(aws, options["cluster"], observed.also)
            teardown = self._teardown(aws, observed, options, lock, removed)
            return teardown, teardown.run(observed.resources)
        finally:
            if takes_lock:
                lock.release(self._display.warning)

    def _teardown(
        self,
        aws: Aws,
        observed: Observed,
        options: Mapping[str, Any],
        lock: DestroyLock,
        removed: dict[tuple[str, str], Resource],
    ) -> Teardown:
        return Teardown(
            aws,
            observed.reader,
            options["keep_file_system"],
            self._display.display,
            stuck_seconds=options["stuck_seconds"],
            kinds=_kinds(options),
            lock=lock,
            removed=removed,
        )

    def _lock(self, aws: Aws, options: Mapping[str, Any]) -> DestroyLock:
        request = holding.LockRequest(
            user=requester(),
            playbook=holding.DESTROY,
            playbook_pid=holding.parent_playbook(),
            wait_seconds=options["lock_wait"],
            break_lock=options["break_lock"],
            asks_to_stop=True,
        )
        store = LockStore(aws, options["cluster"])
        return DestroyLock.take(store, aws, options, request, self._display.display, self._display.warning)

    def _remove_data(self, aws: Aws) -> list[dict[str, Any]]:
        bucket = data_bucket.find(aws)
        if bucket and not self.check_mode:
            Deleting(aws).delete(bucket)
        would = "would be removed" if self.check_mode else "is removed"
        missing = f"There is no bucket of data sets in {aws.place}."
        self._display.display(f"The {bucket.describe()} {would}." if bucket else missing)
        return [bucket.as_dict()] if bucket else []

    def _settle(
        self,
        aws: Aws,
        teardown: Teardown,
        now: ClusterResources,
        options: Mapping[str, Any],
        before: Surroundings,
        notes: list[str],
    ) -> dict[str, Any]:
        """Print what is gone and what is left, and return the result.

        `before`: resources without the cluster's tag before the teardown; `notes`: lines to print if the cluster is
        gone.
        """
        others = _untagged_lines(aws, now, _remaining(aws, now, before))
        left = leftovers(now, options["keep_file_system"])
        if not left:
            self.show([*describe_result(now, teardown), *others, *notes, *data_bucket.describe(aws)])
        elif others:
            # A failure's message is cut after a few lines.
            self.show(others)
        kept_resources = retained(now, options["keep_file_system"])
        result = _result(aws, teardown, left, options["cluster"])
        return result | {"retained": [resource.as_dict() for resource in kept_resources]}


def _appeared(now: ClusterResources, left: Sequence[Resource], keep: bool) -> list[Resource]:
    """Return the resources to delete that the teardown has not seen, or has deleted before."""
    known = {resource.key for resource in left}
    return [resource for resource in to_delete(now, keep) if resource.key not in known]


def _result(aws: Aws, teardown: Teardown, left: Sequence[Resource], cluster: str) -> dict[str, Any]:
    """Return the result, which is a failure if anything is left."""
    result: dict[str, Any] = {
        "changed": bool(teardown.removed),
        "removed": [resource.as_dict() for resource in teardown.removed.values()],
    }
    if not left:
        return result
    foreign = {resource.key: _NOT_OURS for resource in left if not resource.ours}
    problems = foreign | teardown.problems
    reasons = [why_left(aws, resource, problems.get(resource.key, "")) for resource in left]
    return result | {
        "failed": True,
        "leftovers": [resource.as_dict() for resource in left],
        "msg": f"The cluster {cluster} in {aws.place} still has: " + "\n".join(reasons),
    }


def _kinds(options: Mapping[str, Any]) -> frozenset[str]:
    return {"all": EVERYTHING, "zone": IN_ZONE, "images": IMAGES}[options["scope"]]


def _observe(aws: Aws, options: Mapping[str, Any]) -> Observed:
    """Read what exists. Raise UserError if `also` names a resource that must not be deleted."""
    cluster = options["cluster"]
    reader = ResourceReader(aws, cluster)
    resources = reader.read()
    surroundings = untagged.NOTHING
    if options["scope"] == "all":
        surroundings = untagged.read(aws, resources)
    named = also.select(aws, options["also"], resources, surroundings)
    if named:
        reader = ResourceReader(aws, cluster, frozenset(named))
        resources = reader.read()
    return Observed(reader, resources, surroundings, named)


def _remaining(aws: Aws, resources: ClusterResources, before: Surroundings) -> list[UntaggedResource]:
    """Return the resources without the cluster's tag that are left. `before`: those before the teardown."""
    now = untagged.read(aws, resources).untagged
    listed = {item.id for item in now} | {resource.id for resource in resources.resources}
    return [*now, *(item for item in untagged.without_interface(aws, before) if item.id not in listed)]


def _untagged_lines(aws: Aws, resources: ClusterResources, items: Sequence[UntaggedResource]) -> list[str]:
    prices = untagged_lines.prices_for(aws, resources, Surroundings(items))
    return untagged_lines.lines(items, prices, destroy_command(resources.cluster, repeat_options()))


def _search(options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> place_check.Search:
    return place_check.Search(
        cluster=options["cluster"],
        folder=project_folder(task_vars),
        summary_file=options["summary_file"],
        keep=options["keep_file_system"],
        again=repeat_options(without=REGION),
        again_elsewhere=repeat_options(without=PLACE),
        scan_seconds=options["scan_seconds"],
    )


def _without_consent(cluster: str, consent: place_check.Consent, deletions: list[Resource]) -> dict[str, Any]:
    """Return the result if there is nothing to remove either. Raise UserError otherwise."""
    problem = f"destroy is {consent.cluster} and the cluster is {cluster}"
    if deletions:
        missing = "Nothing was removed, since that takes consent by name"
        reason = f"{problem}, so nothing was removed" if consent.cluster else missing
        raise UserError(f"{reason}. To remove what is listed, type: {destroy_command(cluster, repeat_options())}")
    if consent.cluster:
        raise UserError(f"{problem}. Example: -e cluster_name={shlex.quote(consent.cluster)}")
    return {"changed": False, "removed": []}


def describe_plan(resources: ClusterResources, deletions: list[Resource], keep: bool) -> list[str]:
    """Return lines about what would be removed and what would stay."""
    where = f"{resources.cluster} ({resources.region}, account {resources.account})"
    lines = [f"Of the cluster {where} these would be removed:"] if deletions else [f"There is no cluster {where}."]
    in_order = sorted(deletions, key=lambda resource: list(KINDS).index(resource.kind))
    lines += [f"  {resource.describe()}" for resource in in_order]
    kept_resources = [resource for resource in retained(resources, keep) if resource not in deletions]
    foreign = [resource for resource in resources.current if not resource.ours]
    systems = [] if keep else resources.of_kind("file_system")
    held = [system for system in systems if foreign_targets(resources, system)]
    lines += [f"The {resource.describe()} is kept{_undo(resource)}" for resource in kept_resources]
    lines += [f"The {resource.describe()} stays, as others have mount targets on it." for resource in held]
    lines += [f"The {resource.describe()} stays, as the cluster did not make it." for resource in foreign]
    return lines


def describe_result(resources: ClusterResources, teardown: Teardown) -> list[str]:
    """Return lines about what was removed and what is retained."""
    counts = count_by_kind(teardown.removed.values())
    deleted = ", ".join(counts) or "there was nothing left to remove"
    lines = [f"The cluster {resources.cluster} is gone from {resources.place}: {deleted}."]
    for resource in retained(resources, teardown.keep):
        stored = resource.facts.get("bytes", 0)
        size = f", {stored / 2**30:.1f} GiB," if stored >= 2**28 else ""
        costs = " and goes on costing" if resource.costs else ""
        lines.append(f"The {resource.describe()}{size} is kept{costs}{_undo(resource)}")
    return lines


def _undo(resource: Resource) -> str:
    if resource.kind in IMAGES:
        return ". To delete it: ansible-playbook deeplearning.aws.image -e image_state=absent"
    return ": the next site.yml finds it. To remove it too: -e cluster_keep_efs=false"
