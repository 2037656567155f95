"""docs/iam.md and its policies: they fit into AWS's limits, and describe each statement and action."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import (
    MemberAccess,
    bucket_statements,
    emr_node_statements,
    lifecycle_statement,
    master_statements,
    policy_for,
)

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    ROOT / "docs/iam" / f"{name}.json"
    for name in ("operator-machines", "operator-images", "operator-identity", "operator-emr")
]
BOUNDARY = ROOT / "docs/iam/members-boundary.json"
TEXT = (ROOT / "docs/iam.md").read_text(encoding="utf-8")
LONGEST = {"cluster": "a-name-that-has-29-characters", "account": "123456789012", "region": "ap-southeast-2"}
MOST_CHARACTERS = 6144
"""that AWS lets a managed policy have, blanks not counted"""


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("document", [*DOCUMENTS, BOUNDARY], ids=lambda path: path.stem)
def test_a_policy_fits_and_names_each_action_in_full(document: Path) -> None:
    text = re.sub(r"<(\w+)>", lambda match: LONGEST[match[1]], document.read_text(encoding="utf-8"))
    assert len(re.sub(r"\s", "", text)) <= MOST_CHARACTERS
    for statement in json.loads(text)["Statement"]:
        actions = listed(statement.get("Action", []))
        assert actions == sorted(set(actions)) and not any("*" in action for action in actions), statement["Sid"]


def test_each_statement_has_its_line() -> None:
    assert sorted((ROOT / "docs/iam").glob("operator-*.json"), reverse=True) == DOCUMENTS
    statements = [
        statement["Sid"]
        for path in DOCUMENTS
        for statement in json.loads(path.read_text(encoding="utf-8"))["Statement"]
    ]
    assert re.findall(r"^\| ([A-Z]\w+) \|", TEXT, re.MULTILINE) == statements


def test_what_members_may_do_is_what_their_roles_hold() -> None:
    access = MemberAccess("red", "us-east-1", "123456789012", "own", ["further"], ["results"], ["key"], idle_end=True)
    kinds = {
        "on master and workers": [*bucket_statements(access), lifecycle_statement("worker", access)],
        "on the master alone": master_statements(access),
        "on all machines of EMR": emr_node_statements(access),
    }
    for title, statements in kinds.items():
        table = TEXT.split(f"| {title} |")[1].split("\n\n")[0]
        held = {action for statement in statements for action in listed(statement["Action"])}
        assert set(re.findall(r"`(\w+:[A-Z]\w+)`", table)) == held


def test_roles_of_emr_fit_into_a_role() -> None:
    """AWS lets the inline policies of a role have 10,240 characters."""
    access = MemberAccess("a-name-that-has-29-characters", "ap-southeast-2", "123456789012", "own", ["a"], ["b"])
    for role in ("node", "emr"):
        assert len(json.dumps(policy_for(role, access), separators=(",", ":"))) <= 10240


def test_only_provision_yml_writes_the_roles_of_members() -> None:
    """The role iam writes the members' policies. A playbook with other variables takes permissions from running
    members."""
    files = {path for pattern in ("*.yml", "playbooks/**/*.yml", "roles/*/*/*.yml") for path in ROOT.glob(pattern)}
    role = re.compile(r"^[^#\n]*deeplearning\.aws\.iam\b(?!\.)", re.MULTILINE)
    uses = [(path, section) for path in files for section in role.findall(path.read_text(encoding="utf-8"))]
    assert [path for path, _found in uses] == [ROOT / "playbooks/provision.yml"]
