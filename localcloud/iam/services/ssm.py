"""Systems Manager: parameters, and sessions with the documents that they run."""

from __future__ import annotations

from collections.abc import Mapping

from ..rules import Call, Service, tags_of
from . import ec2


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    if kind == "parameter":
        return ec2.parameter_arn(call, name)
    if kind == "instance" and not name.startswith("mi-"):
        return ec2.arn(call, "instance", name)
    if kind == "document" and name.startswith("AWS-"):
        return call.arn("ssm", f"document/{name}", account="")
    return call.arn("ssm", f"{'managed-instance' if kind == 'instance' else kind}/{name}")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


ssm = Service("ssm", "ssm", arn, ("aws:ResourceTag/", "ssm:resourceTag/"), tags)
ROWS = ssm.rows()
