"""A person who has the documented policies and nothing else, and what this person's calls needed."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.account.kit import is_of_lock
from tests.account.operators import BOUNDARY, DOCUMENTS, MINE, PERSON, REFUSALS, ROOT, TYPE, ZONE, operator


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def actions_of(document: Path) -> set[str]:
    """Return the actions that a document allows."""
    allowed: set[str] = set()
    for statement in json.loads(document.read_text(encoding="utf-8"))["Statement"]:
        if statement["Effect"] == "Allow":
            allowed.update(listed(statement["Action"]))
    return allowed


OF_EMR = {action for document in DOCUMENTS if document.stem == "operator-emr" for action in actions_of(document)}
DOCUMENTED = {action for document in DOCUMENTS if document.stem != "operator-emr" for action in actions_of(document)}


class Log:
    """What the person's calls needed."""

    def __init__(self, account: Any) -> None:
        self._account = account

    def calls(self) -> Iterator[Mapping[str, Any]]:
        return (call for call in self._account.cloud.calls.since() if call["caller"].endswith(f"user/{PERSON}"))

    def needed(self) -> dict[str, str]:
        """Actions, each with a call that needed it."""
        result: dict[str, str] = {}
        for call in self.calls():
            for need in call["required"]:
                result.setdefault(need["action"], f"{call['operation']} on {need['resource']}, {call['result']}")
        return result

    def refused(self) -> list[str]:
        return [
            f"{call['service']}:{call['operation']}: {call['result']}"
            for call in self.calls()
            if call["result"] in REFUSALS
        ]


class Roles:
    """Which role needed what: a call is by the task that was the last to begin."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.needed: dict[str, set[str]] = {}

    def add(self, ran: Any) -> None:
        for call in self._log.calls():
            # The lock is renewed beside all roles.
            if call["time"] < ran.started[0] or is_of_lock(call):
                continue
            task = ran.tasks[bisect(ran.started, call["time"]) - 1]
            role = re.match(r"deeplearning\.aws\.(\w+) : ", task)
            if role:
                actions = {need["action"] for need in call["required"]}
                self.needed.setdefault(role[1], set()).update(actions)


def listed_in_readme(role: str) -> set[str]:
    """The actions that a role's README lists, as `prefix:` and names after it."""
    text = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    section = text.split("## IAM actions")[1].split("\nFor `absent`")[0]
    result: set[str] = set()
    for prefix, names in re.findall(r"`([a-z0-9]+):`\s+((?:[A-Z]\w+(?:,\s+)?)+)", section):
        result |= {f"{prefix}:{name}" for name in re.findall(r"\w+", names)}
    return result


def person_of(account: Any) -> Any:
    """Return a person with the documented policies and nothing else, and with settings for a small cluster."""
    account.key("another")
    account.wants(
        MINE,
        cluster_instance_type=TYPE,
        cluster_worker_count=3,
        cluster_worker_min=1,
        cluster_availability_zones=[ZONE],
        cluster_spot=True,
        cluster_efs_tls=True,
        # Amazon Linux has a package of what mounts with TLS.
        cluster_image="base-oss-nvidia-driver-gpu-amazon-linux-2023",
        cluster_ttl_hours=8,
        cluster_permissions_boundary=BOUNDARY,
        provision_settle_seconds=1,
        destroy_stuck_seconds=5,
    )
    person = operator(account)
    # Else a task is named only when it has ended, and its calls would be taken for those of the task before.
    person.environment["ANSIBLE_DISPLAY_SKIPPED_HOSTS"] = "true"
    return person


def play(person: Any, playbooks: Any, *, code: int = 0, **extra: Any) -> Any:
    ran = person.play(playbooks, **extra)
    assert ran.code == code, "\n".join([*Log(person).refused(), ran.output[-6000:]])
    return ran
