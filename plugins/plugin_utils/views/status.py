# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What status.yml shows in addition to a cluster's summary: members, runs and problems. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ...module_utils.contract import problems, report
from ...module_utils.contract.hosts import host_name
from ...module_utils.contract.names import MASTER
from ...module_utils.contract.run_request import ACTIVE_STATES
from ...module_utils.contract.run_stall import STALLED
from ...module_utils.contract.tables import join_names, text_table
from ...module_utils.plan.prices import PriceList
from ..options.command_line import repeat_in
from ..resources import membership
from ..resources.membership import ClusterNode
from ..resources.resources import ClusterResources
from ..runs import run_events
from ..untrusted import one_line
from ..watch.capacity import NodeSetup
from .costs import hourly_of_machines
from .summary import END_PROBLEMS, setup_groups

SHOWN_MEMBERS = 32
"""The most members in a full table. With more, only those are in it that are not ready."""
Item = Mapping[str, Any]
"""A summary, or one of its members or runs."""
INTERRUPTED_STATES = ("lost", "stopped")
"""The states of runs that ended before they had finished, and not by an error of their own."""
READY = ("ready", "in service")
"""The health of a member without a problem. The second word is AWS's, where the master does not answer."""


@dataclass(frozen=True)
class TemplateVersion:
    """A version of a launch template."""

    number: int
    data: Mapping[str, Any]
    """Without the user data."""
    bundle: str = ""
    """The bundle by which its machines configure themselves."""

    @property
    def image(self) -> str:
        return str(self.data.get("ImageId") or "")


@dataclass(frozen=True)
class Observations:
    """What is known about the machines of a cluster in addition to its resources."""

    templates: Mapping[str, Mapping[int, TemplateVersion]] = field(default_factory=dict)
    """All versions of each group's launch template, by their numbers."""
    image_dates: Mapping[str, str] = field(default_factory=dict)
    """When the images of new machines were made. One that is not available any more is missing."""
    reports: Mapping[str, NodeSetup] = field(default_factory=dict)
    """By instance id."""
    replacements: Sequence[Mapping[str, str]] = ()
    """Machines that Auto Scaling has replaced: which, when and why, as in `problems.MEMBER_REPLACED`."""
    efs_bytes: int | None = None
    answer: Item | None = None
    """The master's, if it answers."""
    silence: str = ""
    """Why it does not answer."""


def extend(
    summary: Item, owned: ClusterResources, seen: Observations, now: datetime, prices: PriceList
) -> dict[str, Any]:
    """Return a cluster's summary with its members, runs and problems."""
    members = _members(owned, seen, now)
    answer = seen.answer or {}
    is_emr = bool(owned.of_kind("emr_cluster"))
    stalled = [run for run in answer.get("runs", ()) if run["state"] == STALLED]
    silence = [problems.MASTER_SILENT.sentence(reason=seen.silence)] if summary["master"] and seen.silence else []
    return {
        **summary,
        "efs": {**summary["efs"], "bytes": seen.efs_bytes},
        "master_problem": seen.silence,
        "members": members,
        "runs": list(answer.get("runs", ())),
        "next": next_command(summary, answer.get("runs", ())),
        "problems": [
            *silence,
            *answer.get("problems", ()),
            *(_stall_problem(run, members, is_emr, prices) for run in stalled),
            *_end_problem(summary, owned, now),
            *problems.of_members(members, is_emr),
            *(problems.MEMBER_REPLACED.sentence(**item) for item in seen.replacements),
            *_template_problems(owned, members, seen),
            *_bundle_problems(members, seen, is_emr),
            *_image_problems(seen, now),
        ],
    }


def next_command(summary: Item, runs: Sequence[Item]) -> str:
    """Return what helps next: following a run, resuming the newest one if it is not finished, or the summary's command.

    `runs`: the newest one first.
    """
    if summary["state"] not in ("ready", "degraded"):
        return str(summary["next"])
    for run in runs:
        if run["state"] in ACTIVE_STATES:
            return f"ansible-playbook deeplearning.aws.follow -e run_id={run['run_id']}{summary['again']}"
    if runs and runs[0]["state"] in INTERRUPTED_STATES:
        return f"ansible-playbook deeplearning.aws.train -e resume={runs[0]['run_id']}{summary['again']}"
    return str(summary["next"])


# Members


def _members(owned: ClusterResources, seen: Observations, now: datetime) -> list[dict[str, Any]]:
    records = [instance.facts for instance in owned.of_kind("instance") if instance.ours]
    (cluster,) = membership.clusters_from(records, [owned.cluster])
    # What Auto Scaling, or EMR, knows about each machine.
    machines = {name: machine for group in owned.groups for name, machine in group.facts["machines"].items()}
    in_service = {"lifecycle": "InService", "is_healthy": True, "template_version": ""}
    machines |= {name: in_service for emr in owned.of_kind("emr_cluster") for name in emr.facts["in_service"]}
    loads = {load["instance_id"]: load for load in (seen.answer or {}).get("loads", ())}
    return [_member(node, machines.get(node.id), seen, loads.get(node.id), now) for node in cluster.nodes]


def _member(
    node: ClusterNode, machine: Item | None, seen: Observations, load: Item | None, now: datetime
) -> dict[str, Any]:
    record, setup = node.record, seen.reports.get(node.id, NodeSetup())
    return {
        "name": node.name,
        "rank": node.rank,
        "role": node.role,
        "instance_id": node.id,
        "address": record["private_address"],
        "public_address": record["public_address"],
        "type": record["type"],
        "zone": record["zone"],
        "image": record["image"],
        "group": record["group"],
        "spot": record["spot"],
        "launched": record["launched"],
        "template_version": machine["template_version"] if machine else "",
        "bundle": setup.bundle,
        "health": _health(node, machine, seen, load, now),
        "step": setup.step if setup.state in (report.CONFIGURING, report.FAILED) else "",
        "held": "".join(setup.log[-1:]) if setup.state == report.HELD else "",
        "load": dict(load) if load else None,
    }


def _health(node: ClusterNode, machine: Item | None, seen: Observations, load: Item | None, now: datetime) -> str:
    setup, answer = seen.reports.get(node.id, NodeSetup()), seen.answer
    if node.record["state"] not in membership.LIVING:
        return str(node.record["state"])
    if machine is None:
        return "starting" if node.record["job_flow"] else "detached"
    if machine["lifecycle"] != "InService":
        return setup.state if setup.state in (report.CONFIGURING, report.FAILED) else str(machine["lifecycle"]).lower()
    if not machine["is_healthy"]:
        return "unhealthy"
    if answer is None:
        return setup.state if setup.state in (report.FAULTY, report.HELD) else "in service"
    states = {member["instance_id"]: member["state"] for member in answer["members"]}
    if node.id not in states:
        return "joining"
    if states[node.id] in (report.FAULTY, report.HELD):
        return str(states[node.id])
    up = (now - _time(node.record["launched"], now)).total_seconds()
    return "ready" if load or up < problems.MEMBER_SILENT.threshold else problems.SILENT


def _time(text: str, otherwise: datetime) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return time if time.tzinfo else time.replace(tzinfo=UTC)


# Problems


def _stall_problem(run: Item, members: Sequence[Item], is_emr: bool, prices: PriceList) -> str:
    """Report a stalled run with what its machines cost. Their types are AWS's, and not the master's word."""
    types = {host_name(member["rank"]): str(member["type"]) for member in members if member["rank"]}
    cost = hourly_of_machines([types.get(name, "") for name in run["nodes"]], is_emr, prices)
    return problems.of_stalled_run(run["run_id"], run["reason"] or "", cost)


def _template_problems(owned: ClusterResources, members: Sequence[Item], seen: Observations) -> list[str]:
    sentences = []
    for group in owned.groups:
        versions = seen.templates.get(group.name)
        if not versions:
            continue
        newest, used = versions[max(versions)], group.facts.get("template_version", "")
        if used.isdecimal() and int(used) != newest.number:
            sentences.append(problems.TEMPLATE_UNUSED.sentence(subject=group.name, used=used, newest=newest.number))
        differing: dict[str, list[str]] = {}
        for member in members:
            version = versions.get(int(member["template_version"])) if member["template_version"].isdecimal() else None
            if member["group"] == group.name and version:
                differing.setdefault(_difference(version, newest), []).append(member["name"])
        sentences += [
            problems.TEMPLATE_CHANGED.sentence(subject=join_names(names), difference=difference, group=group.name)
            for difference, names in differing.items()
            if difference
        ]
    return sentences


def _difference(version: TemplateVersion, newest: TemplateVersion) -> str:
    """Return how two versions of a launch template differ."""
    keys = sorted(key for key in {*version.data, *newest.data} if version.data.get(key) != newest.data.get(key))
    values = [
        f"{key} ({version.data.get(key)}, now {newest.data.get(key)})"
        if isinstance(version.data.get(key), str) and isinstance(newest.data.get(key), str)
        else key
        for key in keys
    ]
    return " and ".join(values)


def _bundle_problems(members: Sequence[Item], seen: Observations, is_emr: bool) -> list[str]:
    """EMR configures nodes that join later by the bundle of the cluster's creation; emr.yml configures all by the
    newest, the master too."""
    newest = {group: versions[max(versions)].bundle for group, versions in seen.templates.items()}
    if is_emr:
        newest = {member["group"]: member["bundle"] for member in members if member["role"] == MASTER}
    names = [
        member["name"]
        for member in members
        if member["bundle"] and newest.get(member["group"]) and member["bundle"] != newest[member["group"]]
    ]
    problem = problems.EMR_BUNDLE_OLD if is_emr else problems.BUNDLE_OLD
    return [problem.sentence(subject=join_names(names))] if names else []


def _image_problems(seen: Observations, now: datetime) -> list[str]:
    sentences = []
    for image in sorted({versions[max(versions)].image for versions in seen.templates.values()} - {""}):
        made = seen.image_dates.get(image)
        if made is None:
            sentences.append(problems.IMAGE_GONE.sentence(subject=image))
        elif now - _time(made, now) > timedelta(days=problems.IMAGE_OLD.threshold):
            sentences.append(problems.IMAGE_OLD.sentence(subject=image, day=made[:10]))
    return sentences


def _end_problem(summary: Item, owned: ClusterResources, now: datetime) -> list[str]:
    """Report an end that is near."""
    ends = summary.get("ends") or {}
    if not ends.get("at"):
        return []
    end = END_PROBLEMS[ends["reason"]]
    left = (_time(ends["at"], now) - now).total_seconds()
    if left > end.threshold:
        return []
    at = f"{ends['at']}, in {max(0, round(left / 60))} minutes"
    return [end.sentence(subject=setup_groups(owned), at=at)]


# Text


def lines(status: Item) -> list[str]:
    """Return problems, members and runs as text."""
    members = status["members"]
    if not members and not status["problems"]:
        return []
    shown = [member for member in members if len(members) <= SHOWN_MEMBERS or member["health"] not in READY]
    hidden = len(members) - len(shown)
    return [
        *(f"  Problem: {repeat_in(one_line(problem), status['again']).rstrip('.')}." for problem in status["problems"]),
        "",
        *text_table(_member_rows(shown), "  "),
        *([f"  and {hidden} that are ready"] if hidden else []),
        "",
        *(
            text_table(_run_rows(status["runs"]), "  ")
            or ["  No runs." if not status["master_problem"] else "  Runs: unknown."]
        ),
        "",
    ]


def _member_rows(members: Sequence[Item]) -> list[list[str]]:
    rows = [
        [
            member["name"],
            member["instance_id"] if member["rank"] else "",
            member["address"],
            member["type"],
            member["health"] + (f": {member['step']}" if member["step"] else ""),
            *_load_cells(member["load"]),
        ]
        for member in members
    ]
    header = ["member", "instance", "address", "type", "health", "load", "memory", "disk", "GPUs"]
    return [header, *rows] if rows else []


def _load_cells(load: Item | None) -> list[str]:
    if not load:
        return ["-"] * 4
    gpus = load["gpus"]
    busy, memory = (
        round(sum(gpu[key] for gpu in gpus) / len(gpus)) if gpus else 0 for key in ("busy_percent", "memory_percent")
    )
    return [
        f"{load['load']:.1f} of {load['processors']}",
        f"{load['memory_percent']} %",
        f"{load['disk_percent']} %",
        f"{len(gpus)}: {busy} % busy, {memory} % memory" if gpus else "-",
    ]


def _run_rows(runs: Sequence[Item]) -> list[list[str]]:
    rows = [
        [
            run["run_id"],
            run["state"],
            f"{run['framework']} {run['distribution']}",
            str(len(run["nodes"])),
            run_events.progress({**(run["progress"] or {}), "cost": run["cost"]}, 0) or "-",
            f"{run['requested_at']} by {run['requested_by']}" if run["requested_at"] else "-",
        ]
        for run in runs
    ]
    return [["run", "state", "framework", "nodes", "progress", "requested at"], *rows] if rows else []
