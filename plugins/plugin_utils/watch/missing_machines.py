# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find out why a cluster has fewer machines than it may have: AWS's reasons, and what the machines report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...module_utils.aws.client import Aws
from ...module_utils.contract.boot import FAILURE_SECONDS
from ...module_utils.contract.names import EMR_NODE, Names
from ..resources.resources import ClusterResources, Shortage
from . import capacity
from .capacity_watcher import AutoScaling, attempts_of
from .group_history import GroupHistory
from .setup_reports import SetupReports


def shortages_of(aws: Aws, resources: ClusterResources, history: GroupHistory) -> dict[str, Shortage]:
    """Return the shortages of a cluster's groups, by name."""
    desired = {group.name: int(group.facts["most"]) for group in resources.groups}
    short = [group.name for group in resources.groups if len(group.facts["in_service"]) < desired[group.name]]
    if not short:
        return {}
    api = AutoScaling(aws)
    observed = {
        name: replace(group, attempts=_recent(attempts_of(history.activities(name), 0.0), api.now()))
        for name, group in api.describe(short, 0.0, frozenset()).items()
    }
    reports = reports_of(aws, resources)
    if reports:
        observed = reports.add_to(observed)
    return {name: _shortage(group, capacity.GroupTarget(name, desired[name]), api) for name, group in observed.items()}


def _recent(attempts: Sequence[capacity.LaunchAttempt], now: float) -> list[capacity.LaunchAttempt]:
    """Leave out the machines that failed to configure themselves long ago: later ones may succeed."""
    return [
        attempt
        for attempt in attempts
        if attempt.why is not capacity.FailureKind.SETUP or attempt.started >= now - FAILURE_SECONDS
    ]


def reports_of(aws: Aws, resources: ClusterResources) -> SetupReports | None:
    """Return the reports of a cluster's machines, unless their bucket or their roles are missing. Those of EMR are
    under the id of its cluster."""
    names = Names(resources.cluster, resources.account, resources.region)
    ids = {role.name: str(role.facts["id"]) for role in resources.of_kind("role")}
    roles = {cluster.id: EMR_NODE for cluster in resources.of_kind("emr_cluster")}
    roles = roles or {group: role for role, group in names.groups.items()}
    role_ids = {group: ids.get(names.identity(role), "") for group, role in roles.items()}
    if not resources.of_kind("bucket") or not all(role_ids.values()):
        return None
    return SetupReports(aws, names.bucket, resources.account, role_ids)


def _shortage(group: capacity.ScalingGroup, target: capacity.GroupTarget, api: AutoScaling) -> Shortage:
    failed = len(group.failed_setups)
    missing = capacity.missing_of(group, target) if group.failures or failed else []
    setups = [item for item in missing if item.why is capacity.FailureKind.SETUP]
    progress = [f"{group.name} {capacity.progress_of(group, target, api.now())}"] if group.setups else []
    return Shortage(_lines(missing), failed, progress + _lines(setups))


def _lines(missing: list[capacity.MissingMachines]) -> list[str]:
    return [line for item in missing for line in (capacity.explain(item), *item.details)]
