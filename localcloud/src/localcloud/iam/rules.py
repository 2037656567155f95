"""The language of the table: the permissions that a call needs, as data.

A row is an operation and its rules, in the file of its service in services/. Most rules are one string of targets:

    CreateSubnet = "subnet=new vpc=VpcId"

| target | the action is checked on |
| --- | --- |
| `vpc=VpcId` | the VPC that the parameter VpcId names; `vpc/*` without the parameter |
| `instance=InstanceIds` | each of them; a path enters lists and structures: `Filters.Values` |
| `snapshot?=SnapshotId` | the snapshot if the call names one that exists; otherwise no check |
| `subnet=new` | `subnet/*`: the resource that the call creates, with the tags of the request |
| `key-pair=new:KeyName` | the same, with a name from the request |
| `vpc=any` | `vpc/*`: AWS determines the resource later |
| `file-system=FileSystemId\\|MountTargetId<mount-target` | the first with a value; `<` looks it up in the World |
| `*` | `*`: the action has no resource types |

These condition keys are set for every target: aws:RequestedRegion, aws:ResourceAccount, aws:RequestTag/… and
aws:TagKeys (if the call has tags for it), aws:ResourceTag/… and the service's own …:ResourceTag/… (if it exists), and
the World's facts about it. A word with a colon, such as `autoscaling:MaxSize=MaxSize`, adds a key whose value is a
parameter of the call.

The action is that with the call's name, or the first word if it has no `=`: `GetEncryptionConfiguration bucket=Bucket`.
Rules with more to say are tables, see `Service.on`. A rule may also be a name: of rules in the same file under `named`,
or of a function of the call in the service's module (iam:PassRole …).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .patterns import Value
from .world import Lookup, World

_FILES = Path(__file__).parent / "services"


@dataclass(frozen=True)
class Need:
    """A permission that a call needs: an action on one resource, with its condition keys.
    `reason` says why, unless it is the action with the call's name."""

    action: str
    resource: str
    context: Mapping[str, Value] = field(default_factory=dict, hash=False)
    reason: str = ""


@dataclass(frozen=True)
class Call:
    """A parsed request: the operation and the parameters in boto3's form."""

    service: str
    operation: str
    params: Mapping[str, Any]
    world: World
    region: str

    def values(self, path: str) -> list[str]:
        """Return all values at a dotted path through structures and lists, in the form that IAM compares."""
        values: list[Any] = [self.params]
        for name in path.split("."):
            values = [value[name] for value in values if isinstance(value, Mapping) and value.get(name) is not None]
            values = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
        return [text_of(value) for value in values if isinstance(value, str | bool | int | float)]

    def value(self, path: str) -> str:
        return next(iter(self.values(path)), "")

    def first(self, alternatives: str) -> list[str]:
        """Return the values of the first path in `A|B<lookup` that has any; values without a result are `*`."""
        for alternative in alternatives.split("|"):
            path, _, lookup = alternative.partition("<")
            if values := self.values(path):
                return [self.lookup(lookup, value) or "*" for value in values] if lookup else values
        return []

    def lookup(self, kind: str, key: str) -> str | None:
        return self.world.lookup(cast(Lookup, kind), key, self.region)

    def arn(self, service: str, rest: str, *, account: str | None = None, region: str | None = None) -> str:
        account = self.world.account if account is None else account
        region = self.region if region is None else region
        return f"arn:{self.world.partition}:{service}:{region}:{account}:{rest}"


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tags_of(pairs: object) -> dict[str, str]:
    """Return [{"Key": …, "Value": …}] as a mapping, and an empty one for any other value."""
    pairs = pairs if isinstance(pairs, list | tuple) else []
    return {
        str(pair["Key"]): str(pair.get("Value") or "") for pair in pairs if isinstance(pair, Mapping) and "Key" in pair
    }


def request_tags(tags: Mapping[str, str], keys: Iterable[str] = ()) -> dict[str, Value]:
    """Return aws:RequestTag/… and aws:TagKeys. Without tags AWS omits these keys, so the result is empty."""
    names = list(dict.fromkeys([*tags, *keys]))
    return ({f"aws:RequestTag/{key}": value for key, value in tags.items()} | {"aws:TagKeys": names}) if names else {}


Rule = Callable[[Call], Iterable[Need]]
Row = tuple[Rule, ...]


@dataclass(frozen=True)
class Target:
    kind: str
    names: str  # alternatives of paths, "new", "new:Path" or "any"
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> Target:
        kind, equals, names = text.partition("=")
        if not equals:
            raise ValueError(f"{text} is neither a target nor the name of a rule")
        return cls(kind.removesuffix("?"), names, kind.endswith("?"))

    @property
    def new(self) -> bool:
        return self.names == "new" or self.names.startswith("new:")

    def ids(self, call: Call) -> list[str]:
        if self.names in ("new", "any"):
            return ["*"]
        ids = list(dict.fromkeys(call.first(self.names.removeprefix("new:"))))
        if self.optional:
            return [name for name in ids if name != "*"]
        return ids or ["*"]


def requested_tags(call: Call, kind: str) -> Mapping[str, str]:
    """Return the tags of a request that has one list of them for all kinds of resources."""
    return tags_of(call.params.get("Tags"))


@dataclass(frozen=True)
class Service:
    """The ARNs and tags of a service."""

    name: str  # botocore's
    prefix: str  # IAM's
    arn: Callable[[Call, str, str], str]  # call, kind, id
    resource_tags: tuple[str, ...] = ("aws:ResourceTag/",)
    tags: Callable[[Call, str], Mapping[str, str]] = requested_tags  # the request's tags for a kind of resource

    def on(self, text: str, *, tagging: bool = False, when: str = "", reason: str = "") -> Rule:
        """Return the rule that needs the action on each target.

        `tagging`: the request's tags are for existing targets. `when`: only if that parameter is set, and not False."""
        first, *rest = text.split()
        action, words = ("", [first, *rest]) if "=" in first or first == "*" else (first, rest)
        keys = [word for word in words if ":" in word.partition("=")[0]]
        parsed = [Target.parse(word) for word in words if word not in (*keys, "*")]

        def needs(call: Call) -> Iterator[Need]:
            if when and set(call.first(when)) <= {"false"}:
                return
            permission = f"{self.prefix}:{action or call.operation}"
            extra = self._keys(call, keys)
            if not parsed:
                own = self.requested(call, "*") if tagging else {}
                yield Need(permission, "*", self.region(call) | own | extra, reason)
            for target in parsed:
                for name in target.ids(call):
                    arn = self.arn(call, target.kind, name)
                    own = self.requested(call, target.kind) if target.new or tagging else {}
                    yield Need(permission, arn, self.describe(call, arn) | own | extra, reason)

        return needs

    def region(self, call: Call) -> dict[str, Value]:
        return {"aws:RequestedRegion": call.region}

    def describe(self, call: Call, arn: str) -> dict[str, Value]:
        """Return the condition keys of a resource."""
        account = "".join(arn.split(":")[4:5]) or call.world.account
        known = self.region(call) | {"aws:ResourceAccount": account}
        if arn.endswith(("/*", ":*")):
            return known
        tags = call.world.tags(arn)
        return (
            known | dict(call.world.facts(arn)) | {f"{at}{key}": tags[key] for at in self.resource_tags for key in tags}
        )

    def requested(self, call: Call, kind: str) -> dict[str, Value]:
        return request_tags(self.tags(call, kind), call.values("TagKeys"))

    def _keys(self, call: Call, keys: Iterable[str]) -> dict[str, Value]:
        context: dict[str, Value] = {}
        for pair in keys:
            name, _, path = pair.partition("=")
            if values := call.first(path):
                context[name] = values[0] if len(values) == 1 else values
        return context

    def rows(self, *always: Rule, **functions: Rule) -> dict[tuple[str, str], Row]:
        """Return the rows of the service's file, which names these functions; `always` are rules of each row."""
        file = tomllib.loads((_FILES / f"{self.name}.toml").read_text(encoding="utf-8"))
        named: dict[str, Row] = {name: (rule,) for name, rule in functions.items()}

        def read(entry: Any) -> Row:
            if isinstance(entry, list):
                return tuple(rule for part in entry for rule in read(part))
            if isinstance(entry, dict):
                return (self.on(entry.pop("on"), **entry),)
            return named.get(entry) or (self.on(entry),)

        for name, entry in file.get("named", {}).items():
            named[name] = read(entry)
        return {(self.name, operation): read(entry) + always for operation, entry in file["operations"].items()}


def pass_role(call: Call, role_arn: str, service: str, *, to: str = "", reason: str = "") -> Need:
    """Need iam:PassRole. Passing a role to a service is not a call: AWS checks it in the call that names the role.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html
    """
    context: dict[str, Value] = {"aws:RequestedRegion": call.region, "iam:PassedToService": service}
    if to:
        context["iam:AssociatedResourceArn"] = to
    tags = call.world.tags(role_arn)
    context |= {f"{at}{key}": tags[key] for at in ("aws:ResourceTag/", "iam:ResourceTag/") for key in tags}
    return Need("iam:PassRole", role_arn, context, reason or f"the role is passed to {service}")


def passed(path: str, service: str) -> Rule:
    """Need iam:PassRole for a role whose ARN is a parameter."""

    def needs(call: Call) -> Iterator[Need]:
        for arn in call.values(path):
            yield pass_role(call, arn, service)

    return needs


LINKED_ROLES = {
    "autoscaling.amazonaws.com": "AWSServiceRoleForAutoScaling",
    "ec2fleet.amazonaws.com": "AWSServiceRoleForEC2Fleet",
    "elasticfilesystem.amazonaws.com": "AWSServiceRoleForAmazonElasticFileSystem",
    "elasticmapreduce.amazonaws.com": "AWSServiceRoleForEMRCleanup",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
}
"""The roles that services create in an account; AWS has one for nearly every service."""


def service_linked_role(call: Call, service: str) -> Iterator[Need]:
    """Need iam:CreateServiceLinkedRole if the account lacks the role: the service creates it on the caller's behalf.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_create-service-linked-role.html
    """
    if not call.world.has_service_linked_role(service):
        arn = call.arn("iam", f"role/aws-service-role/{service}/{LINKED_ROLES[service]}", region="")
        context = {"aws:RequestedRegion": call.region, "iam:AWSServiceName": service}
        yield Need("iam:CreateServiceLinkedRole", arn, context, f"the first use of {service} creates its role")
