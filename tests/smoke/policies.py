"""Stage 0: the plan, and what AWS itself says of the documented policies. It creates nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG

from tests.smoke import recording
from tests.smoke.session import ROOT, Session
from tests.steps import Failed, require

DOCUMENTS = ("operator-machines", "operator-identity", "operator-images", "operator-emr", "members-boundary")
FAMILIES = {
    "ubuntu2204": "base-oss-nvidia-driver-gpu-ubuntu-22.04",
    "ubuntu2404": "base-oss-nvidia-driver-gpu-ubuntu-24.04",
    "al2023": "base-oss-nvidia-driver-gpu-amazon-linux-2023",
}
"""The images of the three systems, by what a cluster of them is called."""
SMALL, EMR = "t3.medium", "m5.xlarge"
"""The cheapest types with enough memory, of EC2 and of EMR."""
MINE, OTHERS = "red", "blue"
_OF_VPC = {"resource": "arn:aws:ec2:<region>:<account>:vpc/vpc-0123456789abcdef0"}
_OF_FILES = {"resource": "arn:aws:elasticfilesystem:<region>:<account>:file-system/fs-0123456789abcdef0"}
EXPECTED: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("operator-machines", "ec2:DeleteVpc", _OF_VPC),
    ("operator-machines", "elasticfilesystem:DeleteFileSystem", _OF_FILES),
    ("operator-emr", "elasticmapreduce:TerminateJobFlows", {
        "resource": "arn:aws:elasticmapreduce:<region>:<account>:cluster/j-0123456789ABC",
    }),
)  # fmt: skip
"""Policy, action, resource: allowed with the cluster's tag, and denied with another cluster's."""


def check_for_nothing(session: Session) -> str:
    for what, image in FAMILIES.items():
        plan(session, what, cluster_image=image, cluster_instance_type=SMALL)
    plan(session, "emr", cluster_instance_type=EMR, emr=True)
    documents = {name: _document(session, name) for name in DOCUMENTS}
    problems = [*_findings(session, documents), *_decisions(session, documents), *_dry_runs(session)]
    if problems:
        raise Failed("; ".join(problems))
    _look_for_linked_role(session)
    releases = session.aws.call("emr", "list_release_labels", Filters={"Prefix": "emr-7"}).get("ReleaseLabels", [])
    require(releases, "EMR lists no release 7 in this region")
    decisions = f"{2 * len(EXPECTED)} decisions as expected"
    return f"{len(FAMILIES)} images and EMR planned, {len(documents)} policies valid, {decisions}"


def plan(session: Session, what: str, **settings: Any) -> None:
    session.play("plan.yml", {**session.settings, "cluster_name": f"{session.prefix}-{what}", **settings})


def _document(session: Session, name: str) -> str:
    """Return a documented policy, filled in for the cluster MINE."""
    text = (ROOT / f"docs/iam/{name}.json").read_text(encoding="utf-8")
    return _filled(session, text).replace("<cluster>", MINE)


def _filled(session: Session, text: str) -> str:
    return text.replace("<account>", session.aws.account).replace("<region>", session.aws.region)


def _findings(session: Session, documents: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors and warnings of Access Analyzer. Its suggestions and general warnings are recorded alone."""
    for name, document in documents.items():
        asked = {"policyDocument": document, "policyType": "IDENTITY_POLICY"}
        for finding in session.aws.pages("accessanalyzer", "validate_policy", "findings", **asked):
            if finding["findingType"] in ("ERROR", "SECURITY_WARNING"):
                yield f"docs/iam/{name}.json: {finding['findingType']} {finding['issueCode']}"


def _decisions(session: Session, documents: Mapping[str, str]) -> Iterator[str]:
    for name, action, place in EXPECTED:
        for cluster, expected in ((MINE, "allowed"), (OTHERS, "implicitDeny")):
            values = {f"aws:ResourceTag/{CLUSTER_TAG}": cluster, "aws:RequestedRegion": session.aws.region}
            entries = [
                {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
                for key, value in values.items()
            ]
            answer = session.aws.call(
                "iam",
                "simulate_custom_policy",
                PolicyInputList=[documents[name]],
                ActionNames=[action],
                ResourceArns=[_filled(session, place["resource"])],
                ContextEntries=entries,
            )
            (result,) = answer["EvaluationResults"]
            if result["EvalDecision"] != expected:
                yield f"docs/iam/{name}.json: {action} of {cluster} is {result['EvalDecision']}, not {expected}"


def _dry_runs(session: Session) -> Iterator[str]:
    """Yield what the caller may not do: EC2 answers without doing it."""
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": CLUSTER_TAG, "Value": f"{session.prefix}-dry"}]}]
    asked: dict[str, Any] = {"CidrBlock": "10.0.0.0/16", "TagSpecifications": tags, "DryRun": True}
    try:
        session.aws.call("ec2", "create_vpc", **asked)
    except AwsError as error:
        if error.code != "DryRunOperation":
            yield f"ec2:CreateVpc, tried without doing it: {error}"
    else:
        yield "ec2:CreateVpc was carried out in spite of DryRun"


def _look_for_linked_role(session: Session) -> None:
    """Record whether Auto Scaling has worked in this account before, if the caller may see that."""
    try:
        role = session.aws.find("iam", "get_role", ("NoSuchEntity",), RoleName="AWSServiceRoleForAutoScaling")
    except AwsError as error:
        if error.is_fatal:
            raise
        return
    recording.add(session.record, {"linked_role_existed": bool(role)})
