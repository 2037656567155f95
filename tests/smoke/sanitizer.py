"""What of a call of AWS may be recorded. It needs no package, as playbooks load it before anything else.

Members of KEPT keep their values: states, codes, types and times, in AWS's own words. Of AWS's messages (TEXTS), words
of the service's own documentation stay. Any other string becomes its class, such as `<id vpc>`. What belongs to no
cluster of the command is dropped: resources without its name in their tags, and parts of lists that do not name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

KEPT = frozenset(
    (
        # States
        "State", "Status", "LifeCycleState", "LifecycleState", "HealthStatus", "StatusCode", "AttachmentStatus",
        "InstanceState.Name", "StateReason.Code", "ClusterStateChangeReason.Code", "InstanceStateChangeReason.Code",
        "InstanceGroupStateChangeReason.Code", "Progress", "EvalDecision", "findingType", "issueCode", "FailureCode",
        # Types
        "InstanceType", "VolumeType", "ResourceType", "InstanceRole", "InstanceGroupType", "Market", "Architecture",
        "Tenancy", "PerformanceMode", "ThroughputMode", "VpcEndpointType", "ReleaseLabel", "IpProtocol", "Domain",
        "Strategy", "LifecycleTransition", "DefaultResult", "ConnectivityType", "HttpTokens", "Recurrence",
        "EvalActionName", "ServiceCode", "QuotaCode", "AvailabilityZone", "ProcessName", "ActionNames",
        # Times
        "StartTime", "EndTime", "Time", "LaunchTime", "CreateTime", "CreateDate", "CreationDate", "CreationTime",
        "CreationDateTime", "CreatedTime", "ReadyDateTime", "EndDateTime", "DeleteTime", "AttachTime", "AttachmentTime",
        "Timestamp", "Expiration",
    )
)  # fmt: skip
"""A member of any structure, or Structure.Member by the names of AWS's models."""
TEXTS = frozenset(
    ("StatusMessage", "Message", "Cause", "Activity.Description", "FailureMessage", "StateMessage", "findingDetails")
)
"""Members of answers that AWS writes sentences into."""
LONGEST_LIST = 20
LARGEST_NUMBER = 10**9
TAG_MEMBERS = ("Tags", "TagSet", "tags", "TagList")

_KEPT_VALUE = re.compile(r"[A-Za-z0-9 .:_*,+/()-]{0,64}")
NOT_OURS = "<not ours>"
_WORD = re.compile(r"[A-Za-z]+")
_PLAIN = re.compile(r"[A-Za-z]+(?:[:.][A-Za-z]+)?[.,:;]*")
_ID = re.compile(r"([a-z]{1,10}(?:-attach)?)-[0-9a-f]{8,17}|(j)-[A-Z0-9]{10,}")
_IDS = frozenset(
    (
        "acl", "ami", "dopt", "eipalloc", "eipassoc", "eni", "eni-attach", "fs", "fsmt", "i", "igw", "j", "key", "lt",
        "nat", "pg", "r", "rtb", "rtbassoc", "sg", "sgr", "snap", "subnet", "vol", "vpc", "vpce",
    )
)  # fmt: skip
"""What the ids of AWS's resources begin with."""
_CLASSES = (
    ("arn", re.compile(r"arn:\S+")),
    ("cidr", re.compile(r"\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}|[0-9a-f:]*::[0-9a-f:]*/\d{1,3}")),
    ("address", re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")),
    ("account", re.compile(r"\d{12}")),
    ("number", re.compile(r"\d+")),
    ("host", re.compile(r"[\w-]+(?:\.[\w-]+)*\.(?:com|internal|net|org)(?:\.cn)?")),
    ("url", re.compile(r"\w+://\S+")),
)


class Sanitizer:
    """`names`: what the clusters of the command are named after. `ids`: those of their resources, as far as seen.
    `vocabulary` returns the words of the service's documentation."""

    def __init__(self, names: Collection[str], ids: Collection[str], vocabulary: Callable[[], Collection[str]]) -> None:
        self._names = tuple(names)
        self.ids = set(ids)
        self._vocabulary = vocabulary
        self._private: list[str] = []
        """What the current request says."""

    def request(self, params: Any, shape: Any) -> Any:
        self._private = strings_in(params)
        return self._value(params, shape, whole=True)

    def answer(self, answer: Any, shape: Any) -> Any:
        """Return the answer to the current request, without what is not ours if the request names nothing of ours."""
        whole = self._is_mentioned(self._private)
        if whole:
            self._learn(answer)
        return self._value(answer, shape, whole)

    def message(self, text: str) -> str:
        """Return a message of AWS with those of its words that the documentation has and the request does not."""
        names = [text for text in self._private if not _id_kind(text)]
        hidden = {word.lower() for text in names for word in _WORD.findall(text)}
        return " ".join(self._token(token, hidden) for token in text.split())

    def _token(self, token: str, hidden: Collection[str]) -> str:
        if _PLAIN.fullmatch(token):
            words = {word.lower() for word in _WORD.findall(token)}
            if words <= set(self._vocabulary()) and not words & set(hidden):
                return token
        return class_of(token.strip("()\"'[].,:;")) or "<text>"

    def _value(self, value: Any, shape: Any, whole: bool, name: str = "", structure: str = "") -> Any:
        kind = getattr(shape, "type_name", "string")
        if value is None or isinstance(value, bool):
            return value
        if kind == "structure" and isinstance(value, Mapping):
            return self._structure(value, shape, whole)
        if kind == "list" and isinstance(value, list | tuple):
            return self._list(value, shape, whole, name)
        if kind == "map" and isinstance(value, Mapping):
            return {"<map>": [self._value(each, shape.value, whole) for each in list(value.values())[:LONGEST_LIST]]}
        if isinstance(value, int | float):
            return value if abs(value) < LARGEST_NUMBER else "<number>"
        is_kept = name in KEPT or f"{structure}.{name}" in KEPT
        if kind == "timestamp":
            return str(value) if is_kept else "<time>"
        if not isinstance(value, str):
            return f"<{kind}>"
        if name in TEXTS or f"{structure}.{name}" in TEXTS:
            return self.message(value)
        return value if is_kept and _KEPT_VALUE.fullmatch(value) and not self._is_mentioned(value) else class_of(value)

    def _structure(self, value: Mapping[str, Any], shape: Any, whole: bool) -> Any:
        tags = None if whole else _tags_of(value)
        if tags is not None:
            if not self._is_mentioned(tags):
                return NOT_OURS
            self._learn(value)
            whole = True
        return {
            name: self._value(content, shape.members[name], whole, name, shape.name)
            for name, content in value.items()
            if name in shape.members
        }

    def _list(self, value: Collection[Any], shape: Any, whole: bool, name: str) -> Any:
        ours = [each for each in value if whole or self._is_mentioned(each)]
        items = [self._value(each, shape.member, whole, name) for each in ours]
        shown = [each for each in items if each != NOT_OURS][:LONGEST_LIST]
        dropped = len(value) - len(shown)
        return [*shown, *([f"<{dropped} more>"] if dropped else [])]

    def _is_mentioned(self, value: Any) -> bool:
        return any(text in self.ids or any(name in text for name in self._names) for text in strings_in(value))

    def _learn(self, value: Any) -> None:
        """Remember the ids in what is ours."""
        self.ids |= {text for text in strings_in(value) if _id_kind(text)}


def _tags_of(value: Mapping[str, Any]) -> Any:
    return next((value[name] for name in TAG_MEMBERS if name in value), None)


def _id_kind(text: str) -> str:
    match = _ID.fullmatch(text)
    kind = (match[1] or match[2]) if match else ""
    return kind if kind in _IDS else ""


def strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in strings_in(each)]
    return [text for each in value for text in strings_in(each)] if isinstance(value, list | tuple) else []


def class_of(text: str) -> str:
    """Return what a string is, without what it says."""
    if not text:
        return ""
    if kind := _id_kind(text):
        return f"<id {kind}>"
    return next((f"<{name}>" for name, pattern in _CLASSES if pattern.fullmatch(text)), "<text>")
