"""The language that the table is written in: what a call needs, as data.

A row is an operation and its rules; most rules are one string of targets:

    "CreateSubnet": ec2.on("subnet=new vpc=VpcId"),

| target | the action is checked on |
| --- | --- |
| `vpc=VpcId` | the VPC that the parameter VpcId names; on `vpc/*` if it is not given |
| `instance=InstanceIds` | each of them; a path goes into lists and structures: `Filters.Values` |
| `snapshot?=SnapshotId` | the snapshot if the call names one, and it exists; otherwise not at all |
| `subnet=new` | `subnet/*`: the thing that the call makes; it bears the tags of the request |
| `key-pair=new:KeyName` | the same, where the name is known beforehand |
| `vpc=any` | `vpc/*`: which one, AWS finds out later |
| `elastic-ip=AllocationId\\|PublicIp<public-ip` | the first that is given; `<` asks the World what it means |
| `*` | `*`: the action knows no resources |

Condition keys come by themselves: aws:RequestedRegion, aws:ResourceAccount, aws:RequestTag/… and aws:TagKeys (where
the call brings tags for that target), aws:ResourceTag/… and the service's own …:ResourceTag/… (of existing
targets), and the World's facts about the target. `keys="autoscaling:MaxSize=MaxSize"` adds those that are parameters
of the call.

A permission that comes from something else than the action of the call's own name (iam:PassRole …) is a rule too,
made from a function of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from .patterns import Value
from .world import Lookup, World


@dataclass(frozen=True)
class Need:
    """One thing that must be allowed: an action, on one resource, with the condition keys that hold for it.
    `reason` says why, where it is not simply the action of the call's name."""

    action: str
    resource: str
    context: Mapping[str, Value] = field(default_factory=dict, hash=False)
    reason: str = ""

@dataclass(frozen=True)
class Call:
    """One request, parsed: the operation and the parameters as boto3 takes them."""

    service: str
    operation: str
    params: Mapping[str, Any]
    world: World
    region: str

    def values(self, path: str) -> list[str]:
        """All values at a dotted path, lists on the way opened; numbers and booleans as IAM writes them."""
        found: list[Any] = [self.params]
        for name in path.split("."):
            found = [one[name] for one in found if isinstance(one, Mapping) and one.get(name) is not None]
            found = [item for one in found for item in (one if isinstance(one, list | tuple) else [one])]
        return [text_of(one) for one in found if isinstance(one, str | bool | int | float)]

    def value(self, path: str) -> str:
        return next(iter(self.values(path)), "")

    def first(self, alternatives: str) -> list[str]:
        """`A|B<lookup`: the values of the first path that has any, looked up if asked; unknown ones are `*`."""
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
    """[{"Key": …, "Value": …}] as a mapping; anything else is no tags."""
    pairs = pairs if isinstance(pairs, list | tuple) else []
    return {
        str(pair["Key"]): str(pair.get("Value") or "") for pair in pairs if isinstance(pair, Mapping) and "Key" in pair
    }


def request_tags(tags: Mapping[str, str], keys: Iterable[str] = ()) -> dict[str, Value]:
    """aws:RequestTag/… and aws:TagKeys; nothing without tags, as AWS leaves the keys out then."""
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
        kind, _, names = text.partition("=")
        return cls(kind.removesuffix("?"), names, kind.endswith("?"))

    @property
    def new(self) -> bool:
        return self.names == "new" or self.names.startswith("new:")

    def ids(self, call: Call) -> list[str]:
        if self.names in ("new", "any"):
            return ["*"]
        ids = list(dict.fromkeys(call.first(self.names.removeprefix("new:"))))
        if self.optional:
            return [one for one in ids if one != "*"]
        return ids or ["*"]


def _no_tags(call: Call, kind: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Service:
    """How one service writes ARNs and tags."""

    name: str  # botocore's
    prefix: str  # IAM's
    arn: Callable[[Call, str, str], str]  # call, kind, id
    resource_tags: tuple[str, ...] = ("aws:ResourceTag/",)
    tags: Callable[[Call, str], Mapping[str, str]] = _no_tags  # those that the request brings for that kind
    tag_keys: Callable[[Call], list[str]] = lambda call: []  # keys alone (UntagResource)

    def on(self, targets: str, *, action: str = "", keys: str = "", tagging: bool = False,
           given: str = "", reason: str = "") -> Rule:  # fmt: skip
        """The action (the operation's own name if none is said) on each target. `tagging`: the request's tags are for
        existing targets. `given`: only if that parameter is there, and is not False."""
        parsed = [Target.parse(text) for text in targets.split() if text != "*"]

        def needs(call: Call) -> Iterator[Need]:
            if given and set(call.first(given)) <= {"false"}:
                return
            name = f"{self.prefix}:{action or call.operation}" if ":" not in action else action
            extra = self._keys(call, keys)
            if not parsed:
                own = self.requested(call, "*") if tagging else {}
                yield Need(name, "*", self.region(call) | own | extra, reason)
            for target in parsed:
                for one in target.ids(call):
                    arn = self.arn(call, target.kind, one)
                    own = self.requested(call, target.kind) if target.new or tagging else {}
                    yield Need(name, arn, self.describe(call, arn) | own | extra, reason)

        return needs

    def region(self, call: Call) -> dict[str, Value]:
        return {"aws:RequestedRegion": call.region}

    def describe(self, call: Call, arn: str) -> dict[str, Value]:
        """What is known of a resource."""
        account = "".join(arn.split(":")[4:5]) or call.world.account
        known = self.region(call) | {"aws:ResourceAccount": account}
        if arn.endswith(("/*", ":*")):
            return known
        tags = call.world.tags(arn)
        return (
            known | dict(call.world.facts(arn)) | {f"{at}{key}": tags[key] for at in self.resource_tags for key in tags}
        )

    def requested(self, call: Call, kind: str) -> dict[str, Value]:
        return request_tags(self.tags(call, kind), self.tag_keys(call))

    def _keys(self, call: Call, keys: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for pair in keys.split():
            name, _, path = pair.partition("=")
            if values := call.first(path):
                found[name] = values[0] if len(values) == 1 else values
        return found

    def rows(self, table: Mapping[str, Rule | tuple[Rule, ...]], *always: Rule) -> dict[tuple[str, str], Row]:
        """The rows of the service; `always` are rules that hold for each of them."""
        return {
            (self.name, operation): (rules if isinstance(rules, tuple) else (rules,)) + always
            for operation, rules in table.items()
        }


def nothing(call: Call) -> Iterable[Need]:
    """Need no permission at all."""
    return ()


def pass_role(call: Call, role_arn: str, service: str, *, to: str = "", reason: str = "") -> Need:
    """iam:PassRole: giving a role to a service is no call of its own, it is checked in the call that does it.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html
    """
    context: dict[str, Value] = {"aws:RequestedRegion": call.region, "iam:PassedToService": service}
    if to:
        context["iam:AssociatedResourceArn"] = to
    tags = call.world.tags(role_arn)
    context |= {f"{at}{key}": tags[key] for at in ("aws:ResourceTag/", "iam:ResourceTag/") for key in tags}
    return Need("iam:PassRole", role_arn, context, reason or f"the role is passed to {service}")


def passed(path: str, service: str) -> Rule:
    """iam:PassRole for a role whose ARN is a parameter."""

    def needs(call: Call) -> Iterator[Need]:
        for arn in call.values(path):
            yield pass_role(call, arn, service)

    return needs


def service_linked_role(call: Call, service: str, name: str) -> Iterator[Need]:
    """iam:CreateServiceLinkedRole, if the account lacks the role: the service makes it in the caller's name.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_create-service-linked-role.html
    """
    if not call.world.has_service_linked_role(service):
        arn = call.arn("iam", f"role/aws-service-role/{service}/{name}", region="")
        context = {"aws:RequestedRegion": call.region, "iam:AWSServiceName": service}
        yield Need("iam:CreateServiceLinkedRole", arn, context, f"the first use of {service} makes its role")
