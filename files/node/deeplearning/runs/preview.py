"""Launch plans of runs and requests without starting them."""

from __future__ import annotations

from typing import Any

from deeplearning.config import Config
from deeplearning.contract import run_request
from deeplearning.members.member_list import Members, read_applied
from deeplearning.runs import plan as plans
from deeplearning.runs import record, script
from deeplearning.runs.folder import find_run
from deeplearning.runs.node_selection import select


def preview(run: dict[str, Any], members: Members) -> plans.Plan:
    """Return what would be started now, by the member list alone."""
    selected = select(run["nodes"], members, {}).members
    nodes = [plans.Node(member.alias, member.private_ip, member.gpus) for member in selected]
    plan = plans.make(run, nodes)
    script.check_processes(run.get("script") or "", len(plan.of(plans.WORKER)))
    return plan


def plan_of_run(run_id: str, config: Config) -> plans.Plan:
    """Return the plan of a run's last attempt, or a preview if it has none."""
    folder = find_run(config, run_id)
    attempts = folder.attempts()
    if not attempts:
        return preview(folder.run(), read_applied())
    start = folder.read(f"attempts/{attempts - 1}/plan.json")
    return plans.from_json((start or {})["plan"])


def plan_of_request(request: Any, config: Config) -> plans.Plan:
    request, members = run_request.validate(request), read_applied()
    if "resume" in request:
        return preview({**find_run(config, request["resume"]).run(), **request}, members)
    return preview(record.with_defaults(request, members), members)
