# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A cluster's network: what to make of what exists, which is found by its tags alone.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import (
    CLUSTER_TAG,
    tag_filter,
    tag_list,
    tags,
    tags_of,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._rules import (
    ALL,
    Rule,
    from_block,
    from_group,
    in_words,
    rules_in,
    ssh_rules,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

Listed = Mapping[str, Any]

ANYWHERE = "0.0.0.0/0"
NFS = 2049
SECURITY_GROUPS: Mapping[str, str] = {
    "members": "Members of the cluster {}",
    "ssh": "ssh to the master of the cluster {}",
    "efs": "Mount targets of the cluster {}",
}
_SEEN_SECONDS = 60
"""What was just made is not known everywhere at once."""
_UNMADE_ADDRESS = "192.0.2.{}"
"""In check mode no address is allocated, and this block is for documentation."""


@dataclass(frozen=True)
class Wanted:
    """With `vpc_id` the VPC is somebody's own, with its subnets, gateways and routes."""

    cluster: str
    zone: str
    cidr: str = ""
    public_cidr: str = ""
    private_cidr: str = ""
    vpc_id: str = ""
    public_subnet_id: str = ""
    private_subnet_id: str = ""
    ssh_locations: Sequence[str] = ()
    ssh_exact: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


class Network:
    """A network and what was done about it. In check mode nothing is, and what is yet to be made has a placeholder for
    its id."""

    def __init__(self, aws: Aws, wanted: Wanted, check: bool = False, seconds: float = 600) -> None:
        self._aws = aws
        self._wanted = wanted
        self._check = check
        self._seconds = seconds
        self._unmade = 0
        self._untagged: dict[tuple[tuple[str, str], ...], list[str]] = {}
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def present(self) -> dict[str, Any]:
        wanted = self._wanted
        addresses = self._addresses(["master"] if wanted.vpc_id else ["nat", "master"])
        if wanted.vpc_id:
            place = {
                "vpc_id": wanted.vpc_id,
                "zone": wanted.zone,
                "public_subnet_id": wanted.public_subnet_id,
                "private_subnet_id": wanted.private_subnet_id,
                "nat_gateway_id": "",
                "nat_address": "",
            }
        else:
            place = self._own(addresses["nat"])
        groups = self._security_groups(place["vpc_id"])
        self._tag()
        return {
            **place,
            **{f"{what}_security_group_id": group_id for what, group_id in groups.items()},
            "master_address": addresses["master"],
        }

    def _own(self, nat_address: Mapping[str, str]) -> dict[str, str]:
        """A VPC of the cluster's own. The NAT gateway takes AWS a minute and a half, so it is only started here."""
        vpc_id = self._vpc()
        igw_id = self._internet_gateway(vpc_id)
        zone, public, private = self._subnets(vpc_id)
        nat_id = self._nat_gateway(public, nat_address["allocation_id"])
        tables = self._list("describe_route_tables", "RouteTables", {"Name": "vpc-id", "Values": [vpc_id]})
        self._route_table(tables, "public", vpc_id, public, {"GatewayId": igw_id})
        private_table = self._route_table(tables, "private", vpc_id, private, {"NatGatewayId": nat_id})
        self._endpoint(vpc_id, private_table)
        return {
            "vpc_id": vpc_id,
            "zone": zone,
            "public_subnet_id": public,
            "private_subnet_id": private,
            "nat_gateway_id": nat_id,
            "nat_address": nat_address["public_ip"],
        }

    # Reading and writing

    def _list(self, operation: str, key: str, *filters: Mapping[str, Any], by: str = "Filters") -> list[Any]:
        return self._aws.pages("ec2", operation, key, **{by: list(filters)})

    @property
    def _ours(self) -> Mapping[str, Any]:
        return tag_filter(CLUSTER_TAG, self._wanted.cluster)

    def _tags(self, what: str) -> dict[str, str]:
        return tags(self._wanted.cluster, what, self._wanted.tags)

    def _change(self, operation: str, **params: Any) -> dict[str, Any]:
        self.changed = True
        return {} if self._check else self._seen(lambda: self._aws.call("ec2", operation, **params))

    def _seen(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What AWS answers as soon as it knows of what the call names."""
        unknown: list[AwsProblem] = []

        def look() -> dict[str, Any] | None:
            try:
                return ask()
            except AwsProblem as problem:
                if not problem.code.endswith("NotFound"):
                    raise
                unknown.append(problem)
                return None

        answer = until(look, _SEEN_SECONDS)
        if answer is None:
            raise unknown[-1]
        return answer

    def _create(self, operation: str, kind: str, what: str, **params: Any) -> dict[str, Any]:
        """It bears its tags from the first moment, so that who comes after an interruption finds it."""
        given = [{"ResourceType": kind, "Tags": tag_list(self._tags(what))}]
        return self._change(operation, TagSpecifications=given, **params)

    def _id(self, made: Listed, key: str, prefix: str) -> str:
        if key in made:
            return str(made[key])
        self._unmade += 1
        return f"{prefix}-{self._unmade:017d}"

    def _named(self, listed: Iterable[Listed], what: str, id_key: str, kinds: str) -> Listed | None:
        name = f"{self._wanted.cluster}-{what}"
        named = [one for one in listed if self._is_ours(one) and tags_of(one["Tags"]).get("Name") == name]
        return self._only(named, id_key, kinds)

    def _only(self, listed: Sequence[Listed], id_key: str, kinds: str) -> Listed | None:
        """Return the one resource that bears the cluster's tag, if any. Refuse to choose: the tag does not say who put
        it there, so the wrong one may be somebody else's network."""
        if len(listed) < 2:
            return listed[0] if listed else None
        ids = ", ".join(sorted(str(one[id_key]) for one in listed))
        raise AwsProblem(
            f"{len(listed)} {kinds} bear the tag {CLUSTER_TAG}={self._wanted.cluster} ({ids}): keep it on the one that "
            f"the cluster uses, and remove it from the others. Example: aws ec2 delete-tags --region "
            f"{self._aws.region} --resources <id> --tags Key={CLUSTER_TAG}"
        )

    def _is_ours(self, listed: Listed) -> bool:
        return tags_of(listed.get("Tags")).get(CLUSTER_TAG) == self._wanted.cluster

    def _keep(self, listed: Listed, id_key: str, what: str) -> str:
        """The id of one that exists; the tags that it lacks are given to all together."""
        have = tags_of(listed.get("Tags"))
        missing = {key: value for key, value in self._tags(what).items() if have.get(key) != value}
        if missing:
            self._untagged.setdefault(tuple(sorted(missing.items())), []).append(str(listed[id_key]))
        return str(listed[id_key])

    def _tag(self) -> None:
        for missing, ids in self._untagged.items():
            self.after.setdefault("tags", {}).update(dict.fromkeys(ids, dict(missing)))
            self._change("create_tags", Resources=ids, Tags=tag_list(dict(missing)))

    def _tell(self, what: str, before: Any, after: Any) -> None:
        if before is not None:
            self.before[what] = before
        self.after[what] = after

    # Addresses

    def _addresses(self, whats: Sequence[str]) -> dict[str, dict[str, str]]:
        listed = self._list("describe_addresses", "Addresses", self._ours)
        return {what: self._address(listed, what) for what in whats}

    def _address(self, listed: Sequence[Listed], what: str) -> dict[str, str]:
        found = self._named(listed, what, "AllocationId", "addresses")
        if found:
            self._keep(found, "AllocationId", what)
        made = found or self._create("allocate_address", "elastic-ip", what, Domain="vpc")
        address = {
            "allocation_id": self._id(made, "AllocationId", "eipalloc"),
            "public_ip": str(made.get("PublicIp") or _UNMADE_ADDRESS.format(self._unmade)),
        }
        self._tell(f"address {what}", found and address["public_ip"], address["public_ip"])
        return address

    # The VPC and what is in it

    def _vpc(self) -> str:
        found = self._only(self._list("describe_vpcs", "Vpcs", self._ours), "VpcId", "VPCs")
        self._tell("vpc", found and found["CidrBlock"], self._wanted.cidr)
        if found:
            vpc_id = self._keep(found, "VpcId", "vpc")
        else:
            made = self._create("create_vpc", "vpc", "vpc", CidrBlock=self._wanted.cidr)
            vpc_id = self._id(made.get("Vpc", {}), "VpcId", "vpc")
        if found or not self._check:
            for attribute in ("enableDnsSupport", "enableDnsHostnames"):
                self._see_to_attribute(vpc_id, attribute)
        return vpc_id

    def _see_to_attribute(self, vpc_id: str, attribute: str) -> None:
        name = attribute[0].upper() + attribute[1:]
        answer = self._seen(lambda: self._aws.call("ec2", "describe_vpc_attribute", VpcId=vpc_id, Attribute=attribute))
        if not answer[name]["Value"]:
            self._tell(attribute, {"value": False}, {"value": True})
            self._change("modify_vpc_attribute", VpcId=vpc_id, **{name: {"Value": True}})

    def _internet_gateway(self, vpc_id: str) -> str:
        listed = self._list("describe_internet_gateways", "InternetGateways", self._ours)
        found = self._only(listed, "InternetGatewayId", "internet gateways")
        attached = [str(one["VpcId"]) for one in (found or {}).get("Attachments") or ()]
        self._tell("internet gateway", found and {"attached": bool(attached)}, {"attached": True})
        if found:
            gateway_id = self._keep(found, "InternetGatewayId", "igw")
        else:
            made = self._create("create_internet_gateway", "internet-gateway", "igw")
            gateway_id = self._id(made.get("InternetGateway", {}), "InternetGatewayId", "igw")
        if vpc_id not in attached:
            self._change("attach_internet_gateway", InternetGatewayId=gateway_id, VpcId=vpc_id)
        return gateway_id

    def _subnets(self, vpc_id: str) -> tuple[str, str, str]:
        """The zone, the public one and the private one. Where one is already, the other one is as well."""
        listed = self._list("describe_subnets", "Subnets", self._ours)
        zones = [str(one["AvailabilityZone"]) for one in listed]
        zone = (zones + [self._wanted.zone])[0]
        public = self._subnet(listed, "public", vpc_id, zone, self._wanted.public_cidr)
        private = self._subnet(listed, "private", vpc_id, zone, self._wanted.private_cidr)
        return zone, public, private

    def _subnet(self, listed: Sequence[Listed], what: str, vpc_id: str, zone: str, cidr: str) -> str:
        found = self._named(listed, what, "SubnetId", "subnets")
        if found:
            there = {"zone": found["AvailabilityZone"], "cidr": found["CidrBlock"]}
            self._tell(f"subnet {what}", there, there)
            return self._keep(found, "SubnetId", what)
        self._tell(f"subnet {what}", None, {"zone": zone, "cidr": cidr})
        made = self._create("create_subnet", "subnet", what, VpcId=vpc_id, AvailabilityZone=zone, CidrBlock=cidr)
        return self._id(made.get("Subnet", {}), "SubnetId", "subnet")

    def _nat_gateway(self, subnet_id: str, allocation_id: str) -> str:
        listed = self._list("describe_nat_gateways", "NatGateways", self._ours, by="Filter")
        living = [one for one in listed if one["State"] in ("pending", "available") and one["SubnetId"] == subnet_id]
        found = self._only(living, "NatGatewayId", "NAT gateways")
        there = {"subnet": "public"}
        self._tell("NAT gateway", there if found else None, there)
        if found:
            return self._keep(found, "NatGatewayId", "nat")
        if not self._check:
            self._until_address_is_free()
        made = self._create("create_nat_gateway", "natgateway", "nat", SubnetId=subnet_id, AllocationId=allocation_id)
        return self._id(made.get("NatGateway", {}), "NatGatewayId", "nat")

    def _until_address_is_free(self) -> None:
        """One that is just being deleted still holds the address."""
        going = {"Name": "state", "Values": ["deleting"]}

        def look() -> bool | None:
            return None if self._list("describe_nat_gateways", "NatGateways", self._ours, going, by="Filter") else True

        if until(look, self._seconds) is None:
            raise AwsProblem(
                f"The NAT gateway of {self._wanted.cluster} has been deleting for {self._seconds:g} s: run it again "
                "later."
            )

    def _route_table(
        self, listed: Sequence[Listed], what: str, vpc_id: str, subnet_id: str, way: Mapping[str, str]
    ) -> str:
        """It leads by this way to anywhere. Other routes stay as they are: the endpoint's, or one that somebody has
        added."""
        found = self._named(listed, what, "RouteTableId", "route tables")
        if found:
            table_id = self._keep(found, "RouteTableId", what)
        else:
            made = self._create("create_route_table", "route-table", what, VpcId=vpc_id)
            table_id = self._id(made.get("RouteTable", {}), "RouteTableId", "rtb")
        routes = (found or {}).get("Routes") or ()
        default = next((one for one in routes if one.get("DestinationCidrBlock") == ANYWHERE), None)
        ((key, gateway_id),) = way.items()
        before = default and default.get(key, "elsewhere")
        self._tell(f"route {what}", before and {ANYWHERE: before}, {ANYWHERE: gateway_id})
        if before != gateway_id:
            operation = "replace_route" if default else "create_route"
            self._change(operation, RouteTableId=table_id, DestinationCidrBlock=ANYWHERE, **way)
        self._associate(listed, table_id, subnet_id)
        return table_id

    def _associate(self, listed: Sequence[Listed], table_id: str, subnet_id: str) -> None:
        there: Listed = next(
            (one for table in listed for one in table.get("Associations") or () if one.get("SubnetId") == subnet_id), {}
        )
        if there.get("RouteTableId") == table_id:
            return
        if there:
            self._change("disassociate_route_table", AssociationId=there["RouteTableAssociationId"])
        self._change("associate_route_table", RouteTableId=table_id, SubnetId=subnet_id)

    def _endpoint(self, vpc_id: str, table_id: str) -> None:
        listed = self._list("describe_vpc_endpoints", "VpcEndpoints", self._ours)
        living = [one for one in listed if str(one.get("State", "available")).lower() in ("pending", "available")]
        found = self._only(living, "VpcEndpointId", "S3 endpoints")
        there = {"routes": "private"}
        if not found:
            self._tell("S3 endpoint", None, there)
            self._create(
                "create_vpc_endpoint",
                "vpc-endpoint",
                "s3",
                VpcId=vpc_id,
                VpcEndpointType="Gateway",
                ServiceName=f"com.amazonaws.{self._aws.region}.s3",
                RouteTableIds=[table_id],
            )
            return
        endpoint_id = self._keep(found, "VpcEndpointId", "s3")
        known = table_id in (found.get("RouteTableIds") or ())
        self._tell("S3 endpoint", there if known else {"routes": "none"}, there)
        if not known:
            self._change("modify_vpc_endpoint", VpcEndpointId=endpoint_id, AddRouteTableIds=[table_id])

    # Security groups

    def _security_groups(self, vpc_id: str) -> dict[str, str]:
        in_vpc = {"Name": "vpc-id", "Values": [vpc_id]}
        listed = self._list("describe_security_groups", "SecurityGroups", self._ours, in_vpc)
        found: dict[str, Listed] = {
            str(one["GroupName"]).removeprefix(f"{self._wanted.cluster}-"): one for one in listed
        }
        ids = {what: self._security_group(found.get(what), what, vpc_id) for what in SECURITY_GROUPS}
        made = [what for what in ids if what not in found]
        if made and not self._check:
            # AWS lets a new one send to anywhere, in one rule or in two.
            group_ids = [ids[what] for what in made]
            answer = self._seen(lambda: self._aws.call("ec2", "describe_security_groups", GroupIds=group_ids))
            by_id = {one["GroupId"]: one for one in answer["SecurityGroups"]}
            found |= {what: by_id[ids[what]] for what in made}
        inward, outward = self._rules(ids, rules_in(found.get("ssh", {}).get("IpPermissions") or ()))
        for what, group_id in ids.items():
            there = found.get(what, {})
            for way, have, wanted in (
                ("ingress", rules_in(there.get("IpPermissions") or ()), inward[what]),
                ("egress", rules_in(there.get("IpPermissionsEgress") or ()), outward[what]),
            ):
                self._tell(f"security group {what} {way}", None if what in made else in_words(have), in_words(wanted))
                self._see_to_rules(group_id, way, have, wanted)
        return ids

    def _security_group(self, found: Listed | None, what: str, vpc_id: str) -> str:
        if found:
            return self._keep(found, "GroupId", what)
        cluster = self._wanted.cluster
        description = SECURITY_GROUPS[what].format(cluster)
        made = self._create(
            "create_security_group",
            "security-group",
            what,
            GroupName=f"{cluster}-{what}",
            Description=description,
            VpcId=vpc_id,
        )
        return self._id(made, "GroupId", "sg")

    def _rules(
        self, ids: Mapping[str, str], ssh: Sequence[Rule]
    ) -> tuple[dict[str, list[Rule]], dict[str, list[Rule]]]:
        members = from_group(ALL, ids["members"])
        inward = {
            "members": [members],
            "ssh": ssh_rules(self._wanted.ssh_locations, ssh, self._wanted.ssh_exact),
            "efs": [from_group("tcp", ids["members"], NFS)],
        }
        # EFA needs a rule that names the group; one that names all addresses does not do.
        return inward, {"members": [members, from_block(ALL, ANYWHERE)], "ssh": [], "efs": []}

    def _see_to_rules(self, group_id: str, way: str, have: Sequence[Rule], wanted: Sequence[Rule]) -> None:
        missing = [rule.permission() for rule in wanted if rule not in have]
        gone = [rule.permission() for rule in have if rule not in wanted]
        # What is let through all the time is not cut off in between.
        if missing:
            self._change(f"authorize_security_group_{way}", GroupId=group_id, IpPermissions=missing)
        if gone:
            self._change(f"revoke_security_group_{way}", GroupId=group_id, IpPermissions=gone)
