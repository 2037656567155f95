# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A cluster's description, as data and as text: pure functions."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.contract import problems, schema
from ...module_utils.contract.hosts import MASTER_ALIAS
from ...module_utils.contract.names import CLUSTER_TAG, PRIMARY
from ...module_utils.contract.run_cost import CURRENCY
from ...module_utils.contract.scheduled_end import IDLE, SETUP, TTL
from ...module_utils.contract.tables import join_names, text_table
from ...module_utils.plan.prices import PriceList
from ..options.command_line import repeat_in
from ..resources.kinds import kind_of
from ..resources.resource_reader import TaggedResource
from ..resources.resources import LIVE, ClusterResources, Health, Resource, count_by_kind, is_of_emr, leftovers
from ..resources.untagged import NOTHING, Surroundings, with_untagged
from ..untrusted import one_line
from . import untagged_lines
from .costs import Costs, billed, cost_so_far, phrase, sum_phrase

SCHEMA = 1
ALL = "all"
"""Instead of a cluster's name: every cluster in the account and region."""


@dataclass(frozen=True)
class Context:
    """What a summary needs in addition to what AWS knows."""

    costs: Costs
    user: str = ""
    private_key_file: str = ""
    hourly: Mapping[str, Any] = field(default_factory=dict)
    idle_minutes: int = 0
    next: str = ""
    failure: str = ""
    again: str = ""
    """the options of this command line that every other command needs too"""
    lock: str = ""
    """who holds the cluster's lock, as text; empty if nobody does"""
    ssh_config: str = ""
    """the path of ssh's configuration, which every playbook that logs in writes first"""
    surroundings: Surroundings = NOTHING
    """what is in the cluster's network without its tag: it costs as well"""


TRAIN = "ansible-playbook deeplearning.aws.train -e framework=pytorch"
"""What to do with a cluster that is ready."""


def destroy_command(cluster: str, again: str = "") -> str:
    return f"ansible-playbook deeplearning.aws.destroy -e destroy={cluster}{again}"


def describe(owned: ClusterResources, health: Health, context: Context) -> dict[str, Any]:
    """Return the summary of a cluster, fit for JSON."""
    groups = {group.name.removeprefix(f"{owned.cluster}-"): group for group in owned.groups}
    ssh_group, file_system = owned.find_by_name("security_group", "ssh"), _file_system(owned)
    targets = [target for target in owned.of_kind("mount_target") if target.facts["file_system"] == file_system]
    master = _master(owned, groups)
    counted = with_untagged(owned, context.surroundings)
    state = "failed" if context.failure else health.state
    return {
        "schema": SCHEMA,
        "cluster": owned.cluster,
        "region": owned.region,
        "account": owned.account,
        "state": state,
        "reasons": [context.failure] if context.failure else list(health.why),
        "clean": not leftovers(owned, keep=True),
        "machines": {"desired": health.most, "in_service": health.in_service},
        "active_runs": active_runs(owned, master),
        "groups": {
            role: {"name": group.name, "desired": group.facts["most"], "in_service": len(group.facts["in_service"])}
            for role, group in sorted(groups.items())
        },
        "ssh_security_group_id": ssh_group.id if ssh_group else "",
        "efs": {"file_system_id": file_system, "mount_target_ids": sorted(target.id for target in targets)},
        "master": master,
        "user": context.user or _tagged_user(owned),
        "private_key_file": context.private_key_file,
        "ssh": ssh_command(master, context),
        "hourly": dict(context.hourly),
        "billed": billed(counted.current, context.costs.prices),
        "cost_so_far": cost_so_far(counted, context.costs),
        "ends": scheduled_end(owned, context.idle_minutes),
        "lock": context.lock,
        "again": context.again,
        "next": next_command(state, context, emr=is_of_emr(owned)),
        "destroy": destroy_command(owned.cluster, context.again),
        "resources": [resource.as_dict() for resource in owned.current],
        "untagged": untagged_lines.as_dicts(context.surroundings),
    }


def active_runs(owned: ClusterResources, master: Mapping[str, str]) -> int | None:
    """Return how many runs use machines, by the tag that the master keeps up to date; None without such a master.

    The tag is a node's: it is counted, and never shown.
    """
    machines = [machine for machine in owned.of_kind("instance") if machine.ours and machine.phase == LIVE]
    if machines and (not master or is_of_emr(owned)):
        return None
    return len({machine.facts.get("run", "") for machine in machines} - {""})


def _file_system(owned: ClusterResources) -> str:
    """Return the id of the cluster's own file system, or of the one that it uses."""
    systems = [resource.id for resource in owned.of_kind("file_system") if resource.ours]
    targets = [*owned.of_kind("mount_target"), *owned.of_kind("mount_target_access")]
    systems += [str(target.facts["file_system"]) for target in targets if target.ours]
    return systems[0] if systems else ""


def _ends(owned: ClusterResources) -> dict[str, float]:
    """Return the earliest scheduled end of each kind."""
    ends = [(kind, at) for group in owned.groups for kind, at in group.facts.get("ends", {}).items()]
    return dict(sorted(ends, key=lambda end: end[1], reverse=True))


def scheduled_end(owned: ClusterResources, idle_minutes: int) -> dict[str, Any]:
    """Return when AWS ends the machines next, and why."""
    ends = _ends(owned)
    times = {kind: schema.format_time(at) for kind, at in ends.items()}
    first = min(ends, key=lambda kind: ends[kind], default="")
    return {
        "at": times.get(first, ""),
        "reason": _REASONS.get(first, ""),
        "idle_minutes": idle_minutes,
        "ttl_at": times.get(TTL, ""),
        "setup_at": times.get(SETUP, ""),
    }


_REASONS = {TTL: "cluster_ttl_hours", IDLE: "idle", SETUP: "setup"}
_PROBLEMS = {SETUP: problems.END_SETUP, TTL: problems.END_TTL, IDLE: problems.END_IDLE}
END_PROBLEMS = {reason: _PROBLEMS[kind] for kind, reason in _REASONS.items()}
"""By the reason of the next end."""


def setup_groups(owned: ClusterResources) -> str:
    """Return the names of the groups that no playbook has met in service yet."""
    return join_names([group.name for group in owned.groups if SETUP in group.facts.get("ends", {})])


NEVER = "never: ansible-playbook deeplearning.aws.site -e cluster_ttl_hours=8"


def end_phrase(owned: ClusterResources) -> str:
    """Return the scheduled ends as text; empty if there is none."""
    ends = _ends(owned)
    return "; ".join(
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends[kind]))
        + (f" for {setup_groups(owned)}" if kind == SETUP else "")
        + f" ({end.advice})"
        for kind, end in _PROBLEMS.items()
        if kind in ends
    )


def foreign_action_rows(owned: ClusterResources) -> list[tuple[str, str]]:
    """Return the scheduled actions that are not ours, each with the command that deletes it."""
    return [
        (
            "scheduled by others",
            f"{text}. To delete it: ansible-playbook deeplearning.aws.site -e delete_actions={name}",
        )
        for group in owned.groups
        for name, text in group.facts.get("foreign_actions", {}).items()
    ]


def _tagged_user(owned: ClusterResources) -> str:
    """Return the login user that the cluster's machines are tagged with."""
    users = [str(instance.facts.get("user", "")) for instance in owned.of_kind("instance") if instance.ours]
    return next(filter(None, users), "")


def _master(owned: ClusterResources, groups: Mapping[str, Resource]) -> dict[str, str]:
    in_service = list(groups["master"].facts["in_service"]) if "master" in groups else []
    for cluster in owned.of_kind("emr_cluster"):
        primaries = {instance.id for instance in owned.of_kind("instance") if instance.facts["group_role"] == PRIMARY}
        in_service += [instance for instance in cluster.facts["in_service"] if instance in primaries]
    for instance in owned.of_kind("instance"):
        if instance.id in in_service:
            address = owned.find_by_name("address", "master")
            bound = address is not None and address.facts.get("instance") == instance.id
            public_ip = str(address.facts["public_ip"]) if address and bound else str(instance.facts["public_address"])
            return {
                "instance_id": instance.id,
                "public_ip": public_ip,
                "public_name": str(instance.facts["public_name"]),
                "private_ip": str(instance.facts["private_address"]),
            }
    return {}


def ssh_command(master: Mapping[str, str], context: Context) -> str:
    """Return the command to log in with, which pins the host keys. Before the first contact its file may be missing."""
    return f"ssh -F {shlex.quote(context.ssh_config)} {MASTER_ALIAS}" if master and context.ssh_config else ""


def next_command(state: str, context: Context, emr: bool = False) -> str:
    if state in ("ready", "degraded") and not context.failure:
        return f"{context.next or TRAIN}{context.again}"
    source = "emr" if emr else "site"
    return f"ansible-playbook deeplearning.aws.{source}{context.again}"


_STATES: Mapping[str, str] = {
    "absent": "does not exist",
    "creating": "is not complete yet",
    "ready": "is ready",
    "degraded": "has fewer machines than requested",
    # Or as before: a playbook may fail before it has changed anything.
    "failed": "is not as requested",
}


def summary_lines(
    summary: Mapping[str, Any], owned: ClusterResources, file: str, details: Sequence[str] | None = None
) -> list[str]:
    """Return a summary as text, with details only if `details` are given: lines for its middle.

    `file`: where it is saved as JSON, if it is.
    """
    machines, state = summary["machines"], summary["state"]
    count = f": {machines['in_service']} of {machines['desired']} machines in service" if machines["desired"] else ""
    region = f"{summary['region']}, account {summary['account']}"
    lines = [f"Cluster {summary['cluster']} ({region}) {_STATES[state]}{count}."]
    lines += [f"  {reason}" for reason in summary["reasons"]]
    is_whole = details is not None
    rows = _failure_rows(summary, owned) if state in ("failed", "absent") else _rows(summary, owned, is_whole)
    rows.insert(0, ("lock", summary["lock"]))
    if file and is_whole:
        rows.append(("as JSON", file))
    return [*lines, *(details or ()), *text_table([row for row in rows if row[1]], "  ")]


def _rows(summary: Mapping[str, Any], owned: ClusterResources, detailed: bool) -> list[tuple[str, str]]:
    master, efs = summary["master"], summary["efs"]
    names = [master.get("instance_id", ""), master.get("public_ip") or master.get("private_ip", "")]
    groups = [f"{group['name']} ({group['in_service']} of {group['desired']})" for group in summary["groups"].values()]
    size = "" if efs.get("bytes") is None else f", {efs['bytes'] / 2**30:.1f} GiB in use"
    ends = [("machines end", end_phrase(owned) or (NEVER if owned.groups else "")), *foreign_action_rows(owned)]
    details = [
        ("master", ", ".join(name for name in names if name)),
        ("groups", ", ".join(groups)),
        ("file system", efs["file_system_id"] + size),
    ]
    return [
        ("log in", summary["ssh"]),
        *(details if detailed else []),
        _cost_row(summary),
        _untagged_row(summary),
        *([("cost so far", so_far_phrase(summary["cost_so_far"]))] if detailed else []),
        *((label, repeat_in(text, summary["again"])) for label, text in ends),
        ("next", summary["next"]),
        *_removal_rows(summary, owned),
    ]


def _untagged_row(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is in the cluster's network without its tag. The costs include it."""
    return "without tag", repeat_in(untagged_lines.brief(summary["untagged"]), summary["again"])


def _cost_row(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Return what it costs now. Without machines, what is billed all the same."""
    items = summary["billed"]
    if any(item["kind"] == "instance" for item in items):
        return "costs", hourly_phrase(summary["hourly"]) if summary["hourly"] else phrase(items)
    return "still costs", phrase(items) or "nothing"


def _removal_rows(summary: Mapping[str, Any], owned: ClusterResources) -> list[tuple[str, str]]:
    """Return how to end the costs."""
    rows: list[tuple[str, str]] = []
    if any(resource.ours for resource in leftovers(owned, keep=True)):
        rows.append(("to remove it", summary["destroy"]))
    has_machines = any(item["kind"] == "instance" for item in summary["billed"])
    if not has_machines and any(resource.ours for resource in owned.of_kind("file_system")):
        label = "with its file system" if rows else "to remove it"
        rows.append((label, f"{summary['destroy']} -e cluster_keep_efs=false"))
    return rows


def so_far_phrase(cost: Mapping[str, Any]) -> str:
    """Return what a cluster has cost as text; empty if nothing was counted."""
    since = f"{cost['since'][:16].replace('T', ' ')} UTC"
    return f"{cost['amount']:.2f} {cost['currency']} since {since} ({cost['note']})" if cost["since"] else ""


def _failure_rows(summary: Mapping[str, Any], owned: ClusterResources) -> list[tuple[str, str]]:
    own = [resource for resource in leftovers(owned, keep=True) if resource.ours]
    return [
        ("existing", ", ".join(count_by_kind(owned.current)) or "nothing"),
        ("still costs", phrase(summary["billed"]) or "nothing"),
        _untagged_row(summary),
        ("cost so far", so_far_phrase(summary["cost_so_far"])),
        ("to continue" if own else "to create it", summary["next"]),
        *_removal_rows(summary, owned),
    ]


def failure_lines(
    summary: Mapping[str, Any], owned: ClusterResources, file: str, unread: Sequence[str] = ()
) -> list[str]:
    """Return what a failure's sentence does not say: the costs, how to continue, how to end it; at most four lines,
    and one more for `unread`, what could not be read.

    `file`: where the summary is saved, with all lines of the failure.
    """
    _existing, (_label, now), _untagged, (_label, so_far), following, *removal = _failure_rows(summary, owned)
    label = "still costs, as far as known" if unread else "still costs"
    rows = [(label, f"{now}; so far {so_far}" if so_far else now), following, *removal[:1]]
    if len(removal) > 1:
        rows[-1] = (removal[0][0], f"{removal[0][1]} (with its file system: -e cluster_keep_efs=false)")
    if file and any("\n" in reason for reason in summary["reasons"]):
        rows.append(("details", file))
    if unread:
        rows.append(("could not be read", " ".join(unread)))
    return text_table(rows, "  ")


def unread_failure_lines(cluster: str, why: str, again: str) -> list[str]:
    """Return how to continue after a failure if nothing of the cluster could be read."""
    rows = [
        ("what exists, and its cost", f"could not be read: {why}"),
        ("to look again", f"ansible-playbook deeplearning.aws.status{again}"),
        ("to continue", "run the same command again"),
        ("to remove it", destroy_command(cluster, again)),
    ]
    return text_table(rows, "  ")


def cluster_lines(
    region: str, place: str, summaries: Sequence[Mapping[str, Any]], failures: Mapping[str, str] | None = None
) -> list[str]:
    """Return a table of all clusters that have resources, as far as AWS knows them.

    `place`: region and account. `failures`: why clusters could not be read, by their names.
    """
    failures = failures or {}
    rows = [_cluster_row(summary) for summary in summaries if summary["resources"]]
    rows += [(name, region, "unknown", "?", "?", "not known", "?") for name in failures]
    if not rows:
        return [f"No cluster has resources in {place}."]
    return [
        *text_table([("cluster", "region", "state", "machines", "runs", f"{CURRENCY} an hour", "ends"), *rows]),
        *(f"The cluster {name} cannot be read: {sentence}" for name, sentence in failures.items()),
        "What one of them has, and the command that removes it: ansible-playbook deeplearning.aws.audit -e audit=NAME",
    ]


MOST_STRAYS = 20
"""Lines about tags that name no cluster."""
MOST_NAMED = 10
"""Resources that such a line names."""


def stray_lines(strays: Sequence[TaggedResource]) -> list[str]:
    """Return a line for each tag that names no cluster. Keys, values and names are escaped: anybody can set them."""
    by_tag: dict[tuple[str, str], list[str]] = {}
    for stray in strays:
        resource = one_line(f"{kind_of(stray.kind).one} {stray.id}")
        by_tag.setdefault((stray.key, stray.value), []).append(resource)
    lines = [_stray_line(key, value, resources) for (key, value), resources in sorted(by_tag.items())]
    left_out = len(lines) - MOST_STRAYS
    return [*lines[:MOST_STRAYS], *([f"{left_out} more tags do not name a cluster."] if left_out > 0 else [])]


def _stray_line(key: str, value: str, resources: Sequence[str]) -> str:
    if key == CLUSTER_TAG:
        problem = f"The tag {CLUSTER_TAG} is {json.dumps(value)}, which is not a cluster name"
    else:
        problem = f"The tag {json.dumps(key)} differs from {CLUSTER_TAG} in case, and is {json.dumps(value)}"
    named = ", ".join(resources[:MOST_NAMED])
    more = f" and {len(resources) - MOST_NAMED} more" if len(resources) > MOST_NAMED else ""
    return one_line(f"{problem}: {named}{more}. No playbook manages or deletes these resources.")


def _cluster_row(summary: Mapping[str, Any]) -> tuple[str, ...]:
    machines = summary["machines"]
    return (
        summary["cluster"],
        summary["region"],
        # A file system that was kept is there without a cluster.
        "removed" if summary["state"] == "absent" else summary["state"],
        f"{machines['in_service']} of {machines['desired']}",
        "?" if summary["active_runs"] is None else str(summary["active_runs"]),
        sum_phrase(summary["billed"]),
        _next_end(summary),
    )


def _next_end(summary: Mapping[str, Any]) -> str:
    ends = summary["ends"]
    if ends["at"]:
        return f"{ends['at'][:16].replace('T', ' ')} UTC"
    if all(item["kind"] != "instance" for item in summary["billed"]):
        return "-"
    if summary["groups"]:
        return "never"
    # EMR's machines. While runs are active, the master has removed the end, too.
    return f"idle {ends['idle_minutes']} min" if ends["idle_minutes"] else "none now"


def resource_lines(owned: ClusterResources, prices: PriceList, counted: ClusterResources | None = None) -> list[str]:
    """Return what a cluster has in AWS as text. `counted`: with what costs besides, in its network."""
    if not owned.current:
        return [f"The cluster {owned.cluster} has no resources in {owned.place}."]
    lines = [f"The cluster {owned.cluster} ({owned.region}, account {owned.account}) has:"]
    for resource in owned.current:
        state = f", {resource.state}" if resource.state else ""
        foreign = "" if resource.ours else ", not created by the cluster"
        lines.append(f"  {resource.describe()}{state}{foreign}")
    costs = phrase(billed((counted or owned).current, prices))
    lines.append(f"It costs {costs}." if costs else "It costs nothing.")
    if leftovers(owned, keep=True):
        lines.append(f"To remove it: {destroy_command(owned.cluster, f' -e cluster_name={owned.cluster}')}")
    return lines


def hourly_phrase(hourly: Mapping[str, Any]) -> str:
    amount = hourly.get("amount")
    if not isinstance(amount, (int, float)) or not amount:
        return "AWS's price for the machines is not known here"
    least = "" if hourly.get("known", True) else "at least "
    currency = hourly.get("currency", "USD")
    day = f"{amount * 24:.2f} a day"
    return f"{least}{amount:.2f} {currency} an hour, {day} with all machines, plus storage and traffic"
