"""EMR, whose prefix in IAM is elasticmapreduce. RunJobFlow has no resource type, only conditions on its tags.

With tags it needs AddTags as well, on a cluster that has no id and no tags yet: https://github.com/aws/aws-cdk/issues/24842
has AWS's announcement, https://github.com/gchq/sleeper/issues/2584 the ARN, which ends with a plain `*`.

The service role is passed to EMR, the role of the instance profile to EC2. EMR's own roles launch the instances.

https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-iam-role-for-ec2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..rules import Call, Need, Rule, Service, pass_role, requested_tags, service_linked_role
from .iam import arn as iam_arn


def arn(call: Call, kind: str, name: str) -> str:
    return name if name.startswith("arn:") else call.arn("elasticmapreduce", f"{kind}/{name}")


emr = Service("emr", "elasticmapreduce", arn, ("aws:ResourceTag/", "elasticmapreduce:ResourceTag/"))


def tagging(targets: str, **more: str) -> Rule:
    """Need the action with the tags of the request, also as EMR's own condition keys."""
    rule = emr.on(targets, tagging=True, **more)

    def needs(call: Call) -> Iterator[Need]:
        own = {f"elasticmapreduce:RequestTag/{key}": value for key, value in requested_tags(call, "").items()}
        for need in rule(call):
            yield replace(need, context={**need.context, **own})

    return needs


def passes_roles(call: Call) -> Iterator[Need]:
    for name in call.values("ServiceRole"):
        yield pass_role(call, iam_arn(call, "role", name), "elasticmapreduce.amazonaws.com")
    for name in call.values("JobFlowRole"):
        if role := call.lookup("instance-profile-role", name):
            yield pass_role(call, role, "ec2.amazonaws.com", reason=f"the role of the instance profile {name}")


def creates_linked_role(call: Call) -> Iterator[Need]:
    """AWS accepts the call without it, and ends the cluster with an error if the account lacks the role."""
    yield from service_linked_role(call, "elasticmapreduce.amazonaws.com")


ROWS = emr.rows(
    starts_cluster=tagging("*"),
    tags_new_cluster=tagging("AddTags cluster=new", when="Tags.Key", reason="the cluster is tagged"),
    tags_cluster=tagging("cluster=ResourceId"),
    passes_roles=passes_roles,
    creates_linked_role=creates_linked_role,
)
