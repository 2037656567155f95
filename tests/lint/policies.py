"""Scan all IAM policies with cloudsplaining and checks of our own on AWS's reference: python -m tests.lint.policies

A finding that is not in accepted_findings.yml fails. An accepted one that no longer occurs is printed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from cloudsplaining.command.scan_policy_file import scan_policy

from tests.lint import grammar, permissions, reference
from tests.lint.reference import Found

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = Path(__file__).with_name("accepted_findings.yml")

Policy = dict[str, Any]

CLUSTER = {"cluster": "red", "account": "123456789012", "region": "us-east-1"}
ROLES = ("master", "worker", "node")
EMR_SERVICE = "emr"
"""The role of EMR's service, which uses no buckets."""
BUCKETS = {
    "": {},
    "-with-buckets": {
        "iam_s3_read": ["datasets/imagenet", "public"],
        "iam_s3_write": ["results/red"],
    },
}
"""Which further buckets a cluster names, by what is added to the names of its policies."""


@dataclass(frozen=True, order=True)
class Finding:
    tool: str
    policy: str
    statement: str
    """its Sid, or nothing when the tool judges the policy as a whole"""
    finding: str
    detail: str
    """an action, or what else the tool says"""

    def __str__(self) -> str:
        place = f"{self.policy}, {self.statement}" if self.statement else self.policy
        return f"{self.tool}: {place}: {self.finding}: {self.detail}"


# The policies


def operator_policies() -> dict[str, Policy]:
    """Return the documented policies of operators, filled in for a cluster."""
    return _documents("operator-*.json")


def boundary() -> dict[str, Policy]:
    """Return the permissions boundary of members, filled in for an account. It allows nothing by itself."""
    return _documents("members-boundary.json")


def _documents(pattern: str) -> dict[str, Policy]:
    documents = sorted((ROOT / "docs/iam").glob(pattern))
    texts = {document.stem: document.read_text(encoding="utf-8") for document in documents}
    return {name: json.loads(re.sub(r"<(\w+)>", lambda word: CLUSTER[word[1]], text)) for name, text in texts.items()}


def member_policies() -> dict[str, Policy]:
    """Return the policies of members as Ansible renders them from the role, with and without further buckets.

    The plugin loader must know the collection.
    """
    settings = {f"iam_{name}": value for name, value in CLUSTER.items()} | {"iam_bucket": "red-bucket"}
    return {
        f"{role}{suffix}": _rendered("iam", "__iam_policy", **settings, **BUCKETS[suffix], item={"key": role})
        for role, suffix in (*product(ROLES, BUCKETS), (EMR_SERVICE, ""))
    }


def resource_policies() -> dict[str, Policy]:
    """Return the policies on roles, the bucket and the file system. The plugin loader must know the collection."""
    from ansible_collections.deeplearning.aws.plugins.module_utils.resources.file_system import tls_policy

    settings = {f"iam_{name}": value for name, value in CLUSTER.items()}
    trusts = {f"trust-{role}": {"key": role} for role in (*ROLES, EMR_SERVICE)}
    return {
        **{name: _rendered("iam", "__iam_trust", **settings, item=item) for name, item in trusts.items()},
        "bucket": _rendered("bucket", "__bucket_policy", bucket_name="red-bucket", __bucket_existing={"policy": {}}),
        "file-system": tls_policy("arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-1"),
    }


def _rendered(role: str, variable: str, **settings: Any) -> Policy:
    """Return a variable of a role as Ansible renders it."""
    loader = DataLoader()
    files = [f"{ROOT}/roles/{role}/{part}/main.yml" for part in ("defaults", "vars")]
    defaults, variables = (loader.load_from_file(path, trusted_as_template=True) for path in files)
    policy: Policy = Templar(loader, {**defaults, **variables, **settings}).template(
        trust_as_template(f"{{{{ {variable} }}}}")
    )
    return policy


# The tools

Tool = Callable[[Policy], Iterator[Found]]

FOR_ALL: Mapping[str, Tool] = {"grammar": grammar.findings, "reference": reference.findings}


def scan(policies: Mapping[str, Policy]) -> set[Finding]:
    """Scan policies that give users and roles permissions."""
    return _scan(policies, {**FOR_ALL, "permissions": permissions.findings, "cloudsplaining": _cloudsplaining})


def scan_resource_policies(policies: Mapping[str, Policy]) -> set[Finding]:
    """Scan policies on roles and resources, and the boundary: none of them gives its holder permissions."""
    return _scan(policies, FOR_ALL)


def _scan(policies: Mapping[str, Policy], tools: Mapping[str, Tool]) -> set[Finding]:
    return {
        Finding(tool, name, *finding)
        for (tool, findings), (name, policy) in product(tools.items(), policies.items())
        for finding in findings(policy)
    }


def _cloudsplaining(policy: Policy) -> Iterator[Found]:
    for name, risk in scan_policy(policy).items():
        for detail in risk["findings"] if isinstance(risk, dict) else ():
            yield "", name, detail if isinstance(detail, str) else f"{detail['type']} {' '.join(detail['actions'])}"


# What is accepted


def read_accepted(text: str) -> set[Finding]:
    """Return the accepted findings. Each entry needs a reason."""
    findings: set[Finding] = set()
    for entry in yaml.safe_load(text) or ():
        keys = {"tool", "policy", "finding", "details", "reason"}
        if not keys <= set(entry) <= keys | {"statement"} or not entry["reason"] or not entry["details"]:
            raise ValueError(f"{entry}: an accepted finding has {', '.join(sorted(keys))}, and may have a statement")
        place = entry["tool"], entry["policy"], entry.get("statement", ""), entry["finding"]
        findings |= {Finding(*place, detail) for detail in entry["details"]}
    return findings


def new_findings(actual: set[Finding], accepted: set[Finding]) -> list[str]:
    """Return a line for each finding that is not accepted."""
    return [
        f"{finding}: new. Correct the policy, or accept it with its reason" for finding in sorted(actual - accepted)
    ]


def main() -> int:
    init_plugin_loader([str(ROOT / "collections")])
    policies = operator_policies() | member_policies()
    accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"))
    only_by_reference = resource_policies() | boundary()
    actual = scan(policies) | scan_resource_policies(only_by_reference)
    for finding in sorted(accepted - actual):
        print(f"{finding}: accepted, and no longer occurs. You can remove it from {ACCEPTED.relative_to(ROOT)}.")
    if lines := new_findings(actual, accepted):
        print("\n".join(lines), f"See {ACCEPTED.relative_to(ROOT)}.", sep="\n")
        return 1
    print(f"{len(policies) + len(only_by_reference)} policies scanned: {len(actual)} findings, all accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
