# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a person is told of a cluster, and the same as data.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._estate import (
    Estate,
    Health,
    Thing,
    counted,
    remains,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._names import MASTER_HOST
from ansible_collections.deeplearning.aws.plugins.plugin_utils._inventory import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils._settings import settings_in
from ansible_collections.deeplearning.aws.plugins.plugin_utils._trust import JUMP
from ansible_collections.deeplearning.aws.plugins.plugin_utils._writing import replaced

SCHEMA = 1


@dataclass(frozen=True)
class Given:
    """What AWS does not know."""

    user: str = ""
    private_key_file: str = ""
    hourly: Mapping[str, Any] = field(default_factory=dict)
    next: str = ""
    failure: str = ""
    again: str = ""
    """options of this command line that every other one needs as well"""
    way: Way = field(default_factory=lambda: Way(JUMP))
    """ssh's configuration, if there is one"""


def default_file(cluster: str) -> str:
    return f".deeplearning/{cluster}.json"


def repeated(options: Iterable[str]) -> str:
    """Return the -e options of a command line as another command for the same cluster needs them.

    Consent (destroy, audit) is no setting, so it is left out: a person types it each time.
    """
    kept = [option if option.startswith("@") else settings_in(option) for option in options]
    return "".join(f" -e {shlex.quote(option)}" for option in kept if option)


def destroy_command(cluster: str, again: str = "") -> str:
    return f"ansible-playbook destroy.yml -e destroy={cluster}{again}"


def summary_of(estate: Estate, health: Health, given: Given) -> dict[str, Any]:
    """All of it, as it is written to the file."""
    groups = {thing.name.removeprefix(f"{estate.cluster}-"): thing for thing in estate.of("auto_scaling_group")}
    ssh_group, system = estate.named("security_group", "ssh"), _file_system(estate)
    targets = [thing for thing in estate.of("mount_target") if system and thing.facts["file_system"] == system]
    master = _master(estate, groups)
    state = "failed" if given.failure else health.state
    return {
        "schema": SCHEMA,
        "cluster": estate.cluster,
        "region": estate.region,
        "account": estate.account,
        "state": state,
        "why": [given.failure] if given.failure else list(health.why),
        "machines": {"asked": health.asked, "got": health.got},
        "groups": {
            what: {"name": thing.name, "asked": thing.facts["most"], "got": len(thing.facts["in_service"])}
            for what, thing in sorted(groups.items())
        },
        "ssh_security_group_id": ssh_group.id if ssh_group else "",
        "efs": {"file_system_id": system, "mount_target_ids": sorted(target.id for target in targets)},
        "master": master,
        "user": given.user,
        "private_key_file": given.private_key_file,
        "ssh": ssh_line(master, given),
        "hourly": dict(given.hourly),
        "next": next_command(state, given),
        "destroy": destroy_command(estate.cluster, given.again),
        "exists": [thing.as_dict() for thing in estate.living],
    }


def _file_system(estate: Estate) -> str:
    """Ours, or the one of others that we have a mount target on or are let in to."""
    systems = [thing.id for thing in estate.of("file_system") if thing.ours]
    targets = [*estate.of("mount_target"), *estate.of("mount_target_access")]
    systems += [str(target.facts["file_system"]) for target in targets if target.ours]
    return systems[0] if systems else ""


def _master(estate: Estate, groups: Mapping[str, Thing]) -> dict[str, str]:
    serving = groups["master"].facts["in_service"] if "master" in groups else ()
    for thing in estate.of("instance"):
        if thing.id in serving:
            address = estate.named("address", "master")
            bound = address is not None and address.facts.get("instance") == thing.id
            public_ip = str(address.facts["public_ip"]) if address and bound else str(thing.facts["public_ip"])
            return {
                "instance_id": thing.id,
                "public_ip": public_ip,
                "public_name": str(thing.facts["public_name"]),
                "private_ip": str(thing.facts["private_ip"]),
            }
    return {}


def ssh_line(master: Mapping[str, str], given: Given) -> str:
    """With pinned host keys, where the master has been met."""
    if master.get("instance_id") in given.way.known:
        return f"ssh -F {shlex.quote(given.way.config)} {MASTER_HOST}"
    address = master.get("public_ip", "")
    if not address:
        return ""
    key = f" -i {shlex.quote(given.private_key_file)}" if given.private_key_file else ""
    user = f"{given.user}@" if given.user else ""
    return f"ssh -A{key} {user}{address}"


def next_command(state: str, given: Given) -> str:
    if state in ("ready", "degraded") and given.next:
        return f"{given.next}{given.again}"
    playbook = "status.yml" if state in ("ready", "degraded", "creating") and not given.failure else "site.yml"
    return f"ansible-playbook {playbook}{given.again}"


_STATES: Mapping[str, str] = {
    "absent": "does not exist",
    "creating": "is not complete yet",
    "ready": "is ready",
    "degraded": "stands with fewer machines than asked for",
    "failed": "has failed",
}


def text_of(summary: Mapping[str, Any], estate: Estate, file: str) -> list[str]:
    """The same for a person."""
    machines, state = summary["machines"], summary["state"]
    of = f": {machines['got']} of {machines['asked']} machines in service" if machines["asked"] else ""
    where = f"{summary['region']}, account {summary['account']}"
    lines = [f"Cluster {summary['cluster']} ({where}) {_STATES[state]}{of}."]
    lines += [f"  {reason}" for reason in summary["why"]]
    rows = _rows_of_failure(summary, estate) if state in ("failed", "absent") else _rows(summary)
    if file:
        rows.append(("as JSON", file))
    width = max((len(label) for label, value in rows if value), default=0)
    return lines + [f"  {label:<{width}}  {value}" for label, value in rows if value]


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    master, efs = summary["master"], summary["efs"]
    parts = [master.get("instance_id", ""), master.get("public_ip", ""), master.get("public_name", "")]
    groups = [f"{one['name']} ({one['got']} of {one['asked']})" for one in summary["groups"].values()]
    targets = f", mount target {', '.join(efs['mount_target_ids'])}" if efs["mount_target_ids"] else ""
    return [
        ("log in", summary["ssh"]),
        ("master", ", ".join(part for part in parts if part)),
        ("groups", ", ".join(groups)),
        ("ssh security group", summary["ssh_security_group_id"]),
        ("file system", efs["file_system_id"] + targets),
        ("costs", hourly_in_words(summary["hourly"])),
        ("next", summary["next"]),
        ("to end it", summary["destroy"]),
    ]


def _rows_of_failure(summary: Mapping[str, Any], estate: Estate) -> list[tuple[str, str]]:
    exists = estate.living
    own = [thing for thing in remains(estate, keep=True) if thing.ours]
    rows = [
        ("what exists", ", ".join(counted(exists)) or "nothing"),
        ("goes on costing", ", ".join(costs_in_words(exists)) or "nothing"),
        ("to go on" if own else "to make it", summary["next"]),
    ]
    return [*rows, ("to remove it", summary["destroy"])] if own else rows


def costs_in_words(things: Sequence[Thing]) -> list[str]:
    """What is to be paid for, such as `1 NAT gateway (by the hour)`."""
    costly = [thing for thing in things if thing.costs]
    how = dict.fromkeys(thing.kind for thing in costly)
    found = []
    for kind in how:
        same = [thing for thing in costly if thing.kind == kind]
        found.append(f"{counted(same)[0]} ({same[0].costs})")
    return found


def hourly_in_words(hourly: Mapping[str, Any]) -> str:
    amount = hourly.get("amount")
    if not isinstance(amount, (int, float)) or not amount:
        return "AWS's price for the machines is not known here"
    least = "" if hourly.get("known", True) else "at least "
    return (
        f"{least}{amount:.2f} {hourly.get('currency', 'USD')} an hour with all machines, storage and traffic beside it"
    )


def write(path: Path, data: Mapping[str, Any]) -> bool:
    return replaced(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What an earlier run has written; nothing if that is of no use."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}
