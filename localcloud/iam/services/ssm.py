"""Systems Manager: parameters, commands and sessions, and the documents that those run.

AWS's page was read for the parameters; the rest is written from knowledge of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rules import Call, Service, tags_of
from . import ec2

PAGE = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awssystemsmanager.html"

_TAGGED = {"Parameter": "parameter", "Document": "document", "ManagedInstance": "managed-instance"}


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    if kind == "tagged":
        kind = _TAGGED.get(call.value("ResourceType"), "*")
    if kind == "parameter":
        return ec2.parameter_arn(call, name)
    if kind == "instance" and not name.startswith("mi-"):
        return ec2.arn(call, "instance", name)
    if kind == "document" and name.startswith("AWS-"):
        return call.arn("ssm", f"document/{name}", account="")
    return call.arn("ssm", f"{'managed-instance' if kind == 'instance' else kind}/{name}")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


def tag_keys(call: Call) -> list[str]:
    return call.values("TagKeys")


ssm = Service("ssm", "ssm", PAGE, arn, ("aws:ResourceTag/", "ssm:resourceTag/"), tags, tag_keys)
rest = Service("ssm", "ssm", PAGE, arn, ("aws:ResourceTag/", "ssm:resourceTag/"), tags, tag_keys, consulted=False)
on = ssm.on

ANY = rest.on("*")
PARAMETER = on("parameter=Name")
DOCUMENT = rest.on("document=Name")

# fmt: off
ROWS = ssm.rows({
    # Parameters
    "GetParameter": PARAMETER,
    "GetParameters": on("parameter=Names"),
    "GetParametersByPath": on("parameter=Path", keys="ssm:Recursive=Recursive"),
    "GetParameterHistory": PARAMETER,
    "PutParameter": (
        on("parameter=new:Name", keys="ssm:Overwrite=Overwrite"),
        on("parameter=new:Name", action="AddTagsToResource", given="Tags.Key", reason="the parameter is tagged")),
    "DeleteParameter": PARAMETER,
    "DeleteParameters": on("parameter=Names"),
    "LabelParameterVersion": PARAMETER,
    "UnlabelParameterVersion": PARAMETER,
    "DescribeParameters": on("*"),
    "AddTagsToResource": on("tagged=ResourceId", tagging=True),
    "RemoveTagsFromResource": on("tagged=ResourceId", tagging=True),
    "ListTagsForResource": on("tagged=ResourceId"),

    # Commands and sessions
    "SendCommand": rest.on("document=DocumentName instance?=InstanceIds"),
    "CancelCommand": ANY,
    "GetCommandInvocation": ANY,
    "ListCommands": ANY,
    "ListCommandInvocations": ANY,
    "StartSession": rest.on("instance=Target document?=DocumentName"),
    "ResumeSession": rest.on("session=SessionId"),
    "TerminateSession": rest.on("session=SessionId"),
    "DescribeSessions": ANY,
    "GetConnectionStatus": rest.on("instance=Target"),
    "DescribeInstanceInformation": ANY,
    "DescribeInstanceProperties": ANY,

    # Documents
    "GetDocument": DOCUMENT,
    "DescribeDocument": DOCUMENT,
    "CreateDocument": DOCUMENT,
    "UpdateDocument": DOCUMENT,
    "DeleteDocument": DOCUMENT,
    "ListDocuments": ANY,
    "ListDocumentVersions": DOCUMENT,
})
# fmt: on
