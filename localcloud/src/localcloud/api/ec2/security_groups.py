"""Security groups: rules are added all or none, known by what they allow and not by how they are described, and a group
that something uses stays."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from moto.ec2.models.security_groups import SecurityGroupRule

from localcloud.api.ec2.errors import invalid, missing
from localcloud.api.ec2.filters import refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.moto_records import backend_of, groups_in, set_tags, tags_in
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError
from localcloud.core.kinds import KINDS
from localcloud.core.words import aws_error

_PROTOCOLS = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6", "all": "-1"}


def _same(self: Any, other: Any) -> bool:
    """moto takes rules with other descriptions for other rules, and does not find them again to revoke them."""
    return _identity(self) == _identity(other)


def _identity(rule: Any) -> tuple[Any, ...]:
    source = rule.source_group or {}
    return (
        rule.ip_protocol,
        rule.from_port,
        rule.to_port,
        rule.ip_range.get("CidrIp"),
        rule.ip_range.get("CidrIpv6"),
        source.get("GroupId"),
        rule.prefix_list_id,
    )


_mended: Any = SecurityGroupRule
_mended.__eq__ = _same
_mended.__hash__ = lambda self: hash(self.id)


def _group(call: Call) -> Any:
    group_id = call.params.get("GroupId")
    if not group_id:
        raise missing("groupId")
    group = next((group for group in groups_in(backend_of(call.region)) if group.id == group_id), None)
    if group is None:
        raise KINDS["sg"].not_found(group_id)
    return group


def _permissions(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if params.get("IpProtocol") or params.get("CidrIp") or params.get("SecurityGroupRuleIds"):
        raise AwsError("UnsupportedOperation", "The local cloud changes security groups by their IpPermissions only.")
    return list(params.get("IpPermissions") or ())


def _rules(backend: Any, group: Any, permissions: list[Mapping[str, Any]], egress: bool) -> Iterator[Any]:
    for permission in permissions:
        protocol, first, last = _ports(permission)
        for cidr in [*(permission.get("IpRanges") or ()), *(permission.get("Ipv6Ranges") or ())]:
            yield SecurityGroupRule(backend, protocol, group.id, first, last, _range(cidr), is_egress=egress)
        for pair in permission.get("UserIdGroupPairs") or ():
            source = _pair(backend, pair)
            yield SecurityGroupRule(backend, protocol, group.id, first, last, None, source, is_egress=egress)
        for listed in permission.get("PrefixListIds") or ():
            if listed.get("PrefixListId") not in backend.managed_prefix_lists:
                raise AwsError(
                    "InvalidPrefixListID.NotFound", f"The prefix list ID '{listed.get('PrefixListId')}' does not exist"
                )
            yield SecurityGroupRule(backend, protocol, group.id, first, last, None, None, listed, is_egress=egress)


def _ports(permission: Mapping[str, Any]) -> tuple[str, Any, Any]:
    protocol = str(permission.get("IpProtocol") or "").lower()
    protocol = _PROTOCOLS.get(protocol, protocol)
    first, last = permission.get("FromPort"), permission.get("ToPort")
    if not protocol:
        raise invalid("Invalid value 'null' for protocol. VPC security group rules must specify protocols explicitly.")
    if protocol in ("tcp", "udp"):
        if first is None or last is None:
            raise invalid("Invalid value for portRange. Must specify both from and to ports with TCP/UDP.")
        if not -1 <= int(first) <= int(last) <= 65535:
            raise invalid(f"Invalid TCP/UDP port range ({first}:{last})")
    elif protocol not in ("-1", "icmp", "icmpv6") and not (protocol.isdigit() and int(protocol) < 256):
        raise invalid(f"Invalid value '{protocol}' for IP protocol. Unknown protocol.")
    return protocol, -1 if first is None else first, -1 if last is None else last


def _range(request: Mapping[str, Any]) -> dict[str, str]:
    """Return a CIDR block without its host bits, as AWS does."""
    key = "CidrIp" if request.get("CidrIp") else "CidrIpv6"
    text = str(request.get(key) or "")
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        network = None
    if network is None or "/" not in text or network.version != (4 if key == "CidrIp" else 6):
        raise invalid(f"CIDR block {text} is malformed")
    described = {"Description": str(request["Description"])} if request.get("Description") else {}
    return {key: str(network), **described}


def _pair(backend: Any, request: Mapping[str, Any]) -> dict[str, str]:
    existing = {other.id: other for other in groups_in(backend)}
    other = existing.get(request.get("GroupId"))
    if other is None:
        raise KINDS["sg"].not_found(str(request.get("GroupId")))
    described = {"Description": str(request["Description"])} if request.get("Description") else {}
    return {"GroupId": other.id, "UserId": other.owner_id, "OwnerId": other.owner_id, **described}


def _shown(region: str, rule: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "FromPort": -1 if rule.from_port is None else rule.from_port,
        "GroupId": rule.group_id,
        "GroupOwnerId": rule.owner_id,
        "IpProtocol": rule.ip_protocol,
        "IsEgress": rule.is_egress,
        "SecurityGroupRuleId": rule.id,
        "Tags": tag_list(tags_in(region, rule.id)),
        "ToPort": -1 if rule.to_port is None else rule.to_port,
    }
    if rule.ip_range.get("CidrIp"):
        described["CidrIpv4"] = rule.ip_range["CidrIp"]
    if rule.ip_range.get("CidrIpv6"):
        described["CidrIpv6"] = rule.ip_range["CidrIpv6"]
    if rule.source_group:
        source = rule.source_group
        described["ReferencedGroupInfo"] = {"GroupId": source["GroupId"], "UserId": source.get("UserId", rule.owner_id)}
    if rule.prefix_list_id:
        described["PrefixListId"] = rule.prefix_list_id
    text = rule.ip_range.get("Description") or (rule.source_group or {}).get("Description")
    return described | ({"Description": text} if text else {})


def _shown_revoked(region: str, rule: Any) -> dict[str, Any]:
    shown = _shown(region, rule)
    del shown["GroupOwnerId"], shown["Tags"]
    if source := shown.pop("ReferencedGroupInfo", None):
        shown["ReferencedGroupId"] = source["GroupId"]
    return shown


@answers("ec2", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress")
def authorize(call: Call) -> dict[str, Any]:
    egress = call.operation.endswith("Egress")
    backend, group = backend_of(call.region), _group(call)
    permissions = _permissions(call.params)
    rules = list(_rules(backend, group, permissions, egress))
    if not rules:
        raise AwsError("MissingParameter", "Either the security group rules or the IP permissions must be specified.")
    present = group.egress_rules if egress else group.ingress_rules
    existing = {_identity(rule) for rule in present}
    for rule in rules:
        if _identity(rule) in existing:
            peer = next(part for part in _identity(rule)[3:] if part)
            ports = f"from port: {rule.from_port}, to port: {rule.to_port}, " if rule.from_port is not None else ""
            raise AwsError(
                "InvalidPermission.Duplicate",
                f'the specified rule "peer: {peer}, {rule.ip_protocol.upper()}, {ports}ALLOW" already exists',
            )
        existing.add(_identity(rule))
    if len(present) + len(rules) > 60:
        raise AwsError(
            "RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached."
        )
    refuse_dry_run(call.params)
    present.extend(rules)
    tags = tags_of(call.params, "security-group-rule")
    for rule in rules:
        set_tags(call.region, rule.id, tags)
    return {"Return": True, "SecurityGroupRules": [_shown(call.region, rule) for rule in rules]}


@answers("ec2", "RevokeSecurityGroupIngress", "RevokeSecurityGroupEgress")
def revoke(call: Call) -> dict[str, Any]:
    egress = call.operation.endswith("Egress")
    backend, group = backend_of(call.region), _group(call)
    existing = group.egress_rules if egress else group.ingress_rules
    requested = {_identity(rule) for rule in _rules(backend, group, _permissions(call.params), egress)}
    gone = [rule for rule in existing if _identity(rule) in requested]
    if not requested or len(gone) < len(requested):
        raise AwsError("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
    refuse_dry_run(call.params)
    left = [rule for rule in existing if rule.id not in {removed.id for removed in gone}]
    if egress:
        group.egress_rules = left
    else:
        group.ingress_rules = left
    response = [_shown_revoked(call.region, rule) for rule in gone]
    for rule in gone:
        backend.tags.pop(rule.id, None)
    return {"Return": True, "RevokedSecurityGroupRules": response}


@answers("ec2", "UpdateSecurityGroupRuleDescriptionsIngress")
def describe_rules(call: Call) -> dict[str, Any]:
    """Other words for rules that exist."""
    backend, group = backend_of(call.region), _group(call)
    present = {_identity(rule): rule for rule in group.ingress_rules}
    requested = list(_rules(backend, group, _permissions(call.params), egress=False))
    if not requested:
        raise AwsError("MissingParameter", "Either the security group rules or the IP permissions must be specified.")
    if any(_identity(rule) not in present for rule in requested):
        raise AwsError("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
    refuse_dry_run(call.params)
    for rule in requested:
        existing = present[_identity(rule)]
        existing.ip_range, existing.source_group = rule.ip_range, rule.source_group
    return {"Return": True}


@answers("ec2", "DeleteSecurityGroup")
def delete_security_group(call: Call) -> dict[str, Any]:
    backend, group = backend_of(call.region), _group(call)
    if group.is_default:
        raise AwsError(
            "CannotDelete", f'the specified group: "{group.id}" name: "{group.name}" cannot be deleted by a user'
        )
    if _is_used(backend, group):
        raise aws_error("ec2:DeleteSecurityGroup", "DependencyViolation", group=group.id)
    refuse_dry_run(call.params)
    for rule in (*group.ingress_rules, *group.egress_rules):
        backend.tags.pop(rule.id, None)
    backend.groups[group.vpc_id].pop(group.id)
    backend.tags.pop(group.id, None)
    return {"Return": True, "GroupId": group.id}


def _is_used(backend: Any, group: Any) -> bool:
    """By an interface, be it an instance's or a mount target's, or by a rule of another group."""
    if any(group in interface._group_set for interface in backend.enis.values()):
        return True
    rules = (
        rule
        for other in groups_in(backend)
        if other is not group
        for rule in (*other.ingress_rules, *other.egress_rules)
    )
    return any((rule.source_group or {}).get("GroupId") == group.id for rule in rules)
