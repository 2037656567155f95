"""AWS's public parameters that name the newest Deep Learning AMIs. Everything else in SSM is moto's.

Of the parameters that moto has for other AMIs none is kept: the images that they name do not exist here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from localcloud.api.ec2.images import CREATED, images_of
from localcloud.api.paging import page
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

ROOT = "/aws/service/deeplearning/ami/x86_64/"
_IMAGES = (
    "/aws/service/deeplearning",
    "/aws/service/ami-",
    "/aws/service/ecs",
    "/aws/service/eks",
    "/aws/service/canonical",
)
_CHANGED = datetime.fromisoformat(CREATED).astimezone(UTC)


def parameters(cloud: Cloud) -> dict[str, str]:
    """Return the id of the newest image of each family, by the name of its parameter."""
    return {f"{ROOT}{image.family}/latest/ami-id": image.id for image in images_of(cloud).values() if image.family}


def _is_ours(name: str) -> bool:
    return name.startswith(_IMAGES)


def _shown(region: str, name: str, value: str) -> dict[str, Any]:
    return {
        "ARN": f"arn:aws:ssm:{region}::parameter{name}",
        "DataType": "text",
        "LastModifiedDate": _CHANGED,
        "Name": name,
        "Type": "String",
        "Value": value,
        "Version": 1,
    }


@answers("ssm", "GetParameter")
def get_parameter(call: Call) -> dict[str, Any]:
    name = _plain(str(call.params.get("Name", "")))
    if not _is_ours(name):
        return call.moto()
    value = parameters(call.cloud).get(name)
    if value is None:
        # AWS gives no message with this error either.
        raise aws_error("ssm:GetParameter", "ParameterNotFound")
    return {"Parameter": _shown(call.region, name, value)}


@answers("ssm", "GetParameters")
def get_parameters(call: Call) -> dict[str, Any]:
    requested = [str(name) for name in call.params.get("Names") or ()]
    theirs = [name for name in requested if not _is_ours(_plain(name))]
    answer: dict[str, Any] = {"Parameters": [], "InvalidParameters": []}
    if theirs:
        answer = call.moto(**{**call.params, "Names": theirs})
    existing = parameters(call.cloud)
    for name in requested:
        plain = _plain(name)
        if plain in existing:
            answer["Parameters"].append(_shown(call.region, plain, existing[plain]))
        elif _is_ours(plain):
            answer["InvalidParameters"].append(name)
    return answer


@answers("ssm", "GetParametersByPath")
def get_parameters_by_path(call: Call) -> dict[str, Any]:
    path = str(call.params.get("Path", "")).rstrip("/") + "/"
    if not path.startswith("/aws/service/") or not ("/aws/service/deeplearning/".startswith(path) or _is_ours(path)):
        return call.moto()
    result = {name: value for name, value in parameters(call.cloud).items() if name.startswith(path)}
    if not call.params.get("Recursive"):
        result = {name: value for name, value in result.items() if "/" not in name.removeprefix(path)}
    size = int(call.params.get("MaxResults") or 10)
    refusal = AwsError("InvalidNextToken", "The specified token is not valid.")
    listed, token = page(sorted(result), call.params.get("NextToken"), size, refusal)
    answer: dict[str, Any] = {"Parameters": [_shown(call.region, name, result[name]) for name in listed]}
    return answer | ({"NextToken": token} if token else {})


def _plain(name: str) -> str:
    """Return the name of a parameter from its name or its ARN."""
    return name.partition(":parameter")[2] if name.startswith("arn:") else name
