"""Systems Manager: parameters, and sessions with the documents that they run."""

from __future__ import annotations

from ..rules import Call, Service
from . import ec2


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    if kind == "parameter":
        public = name.startswith("/aws/service/")  # AWS's own, without an account
        return call.arn("ssm", f"parameter/{name.removeprefix('/')}", account="" if public else None)
    if kind == "instance" and not name.startswith("mi-"):
        return ec2.arn(call, "instance", name)
    if kind == "document" and name.startswith("AWS-"):
        return call.arn("ssm", f"document/{name}", account="")
    return call.arn("ssm", f"{'managed-instance' if kind == 'instance' else kind}/{name}")


ssm = Service("ssm", "ssm", arn, ("aws:ResourceTag/", "ssm:resourceTag/"))
ROWS = ssm.rows()
