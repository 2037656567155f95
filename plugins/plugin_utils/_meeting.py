# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Meeting the members of a cluster before the first connection: AWS says who they are, and their host keys.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import clusters_in
from ansible_collections.deeplearning.aws.plugins.module_utils._names import CLUSTER_TAG, MASTER, Names, tag_filter
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import listed
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until
from ansible_collections.deeplearning.aws.plugins.plugin_utils._members import Cluster, Place, filters, record_of, sort
from ansible_collections.deeplearning.aws.plugins.plugin_utils._trust import Report, keys_in_console, report_of

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws

SCHEMA = 1
AT_ONCE = 16
LONGEST_REPORT = 65536

_MOUNT_TARGET = re.compile(r"EFS mount target for (fs-[0-9a-f]+)")
_NO_REPORT = ("NoSuchKey", "NoSuchBucket", "404")
_NOT_NITRO = ("UnsupportedOperation", "InvalidParameterCombination")


class Reader:
    def __init__(self, aws: Aws, cluster: str) -> None:
        self._aws = aws
        self._cluster = cluster
        self._met: dict[str, Report] = {}
        self._role_ids: dict[str, str] = {}
        self.strange: list[str] = []
        """machines whose report is none"""
        caller = aws.call("sts", "get_caller_identity")
        self.names = Names(cluster, str(caller["Account"]), aws.region)
        self._suffix = "amazonaws.com.cn" if str(caller["Arn"]).startswith("arn:aws-cn:") else "amazonaws.com"

    # Who is there

    def meet(self, seconds: float, tell: Callable[[str], None]) -> tuple[Cluster, Mapping[str, Report]]:
        """The members, and what each tells of itself, its host keys at least; waits for those that have only just been
        started. Those without keys when the time is up are missing in the answer."""
        found = Cluster(self._cluster)
        told: list[str] = []

        def look() -> bool | None:
            found.places = self._places()
            self._ask(self.silent(found))
            silent = [place.name for place in self.silent(found)]
            waits = [f"the host keys of {listed(silent)}"] if silent else []
            waits += [] if found.master else ["a master"]
            if waits and seconds and waits != told:
                told[:] = waits
                tell(f"Waiting for {' and '.join(waits)}.")
            return None if waits else True

        until(look, seconds)
        return found, self._met

    def silent(self, cluster: Cluster) -> list[Place]:
        """Whose host keys are not known."""
        return [place for place in cluster.places if place.record["id"] not in self._met]

    def _places(self) -> list[Place]:
        reservations = self._aws.pages(
            "ec2", "describe_instances", "Reservations", Filters=filters([self._cluster]), MaxResults=1000
        )
        records = [record_of(instance) for one in reservations for instance in one["Instances"]]
        (cluster,) = sort(records, [self._cluster])
        if not cluster.places:
            raise AwsProblem(no_machines(self._aws, self._cluster))
        return cluster.places

    # What they tell

    def _ask(self, places: Iterable[Place]) -> None:
        asked = list(places)
        # Clients are made by one thread alone.
        for service in ("ec2", "s3"):
            self._aws.client(service)
        for role in {place.role for place in asked}:
            self.role_id(role)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for place, report in zip(asked, pool.map(self._report, asked), strict=True):
                if report:
                    self._met[str(place.record["id"])] = report

    def _report(self, place: Place) -> Report | None:
        """Its own, which nobody else can have written; before there is one, what its console shows."""
        instance = str(place.record["id"])
        text = self._written(f"members/{self.role_id(place.role)}:{instance}/report.json")
        report = report_of(text, instance) if text else None
        if text and not report and instance not in self.strange:
            self.strange.append(instance)
        if report or place.record["state"] != "running":
            return report
        keys = keys_in_console(self._console(instance))
        return Report(keys) if keys else None

    def _written(self, key: str) -> str:
        """The text of a file in the cluster's bucket; nothing where there is none."""
        try:
            return self._aws.text(self.names.bucket, key, self.names.account, LONGEST_REPORT)
        except AwsProblem as problem:
            if problem.code in _NO_REPORT:
                return ""
            raise

    def _console(self, instance: str) -> str:
        """What it has shown by now. Machines of old types show it late, and cannot be asked for the latest."""
        try:
            answer = self._aws.call("ec2", "get_console_output", InstanceId=instance, Latest=True)
        except AwsProblem as problem:
            if problem.code == "InvalidInstanceID.NotFound":
                return ""
            if problem.code not in _NOT_NITRO:
                raise
            answer = self._aws.call("ec2", "get_console_output", InstanceId=instance)
        return str(answer.get("Output") or "")

    def role_id(self, role: str) -> str:
        """With which the user id of all sessions of a role begins."""
        if role not in self._role_ids:
            answer = self._aws.call("iam", "get_role", RoleName=self.names.identity(role))
            self._role_ids[role] = str(answer["Role"]["RoleId"])
        return self._role_ids[role]

    # What they are to know of their cluster

    def facts(self) -> dict[str, Any]:
        groups = {
            str(one["GroupName"]): one
            for one in self._aws.pages(
                "ec2",
                "describe_security_groups",
                "SecurityGroups",
                Filters=[tag_filter(CLUSTER_TAG, self._cluster)],
            )
        }
        missing = [name for name in (self.names.of("members"), self.names.of("efs")) if name not in groups]
        if missing:
            raise AwsProblem(
                f"The cluster {self._cluster} has no security group {' and no '.join(missing)}: run ansible-playbook "
                "site.yml, it makes it again."
            )
        members = groups[self.names.of("members")]
        (vpc,) = self._aws.pages("ec2", "describe_vpcs", "Vpcs", VpcIds=[members["VpcId"]])
        blocks = vpc.get("CidrBlockAssociationSet") or [vpc]
        return {
            "schema": SCHEMA,
            "cluster": self._cluster,
            "cluster_id": str(members["GroupId"]),
            "region": self._aws.region,
            "bucket": self.names.bucket,
            "vpc_cidrs": [str(one["CidrBlock"]) for one in blocks if _is_in_use(one)],
            "master_role_id": self.role_id(MASTER),
            "efs_name": self._file_system(str(groups[self.names.of("efs")]["GroupId"])),
        }

    def _file_system(self, group: str) -> str:
        """By the mount target that the cluster's security group is on, be it its own or that of others."""
        interfaces = self._aws.pages(
            "ec2",
            "describe_network_interfaces",
            "NetworkInterfaces",
            Filters=[{"Name": "group-id", "Values": [group]}],
        )
        described = (_MOUNT_TARGET.search(str(one.get("Description", ""))) for one in interfaces)
        systems = sorted({match[1] for match in described if match})
        if len(systems) != 1:
            what = f"mount targets of {listed(systems)}" if systems else "no mount target"
            raise AwsProblem(
                f"The cluster {self._cluster} has {what}, and should have that of one file system: run "
                "ansible-playbook site.yml; if it stays so, look at what bears the security group "
                f"{self.names.of('efs')}."
            )
        return f"{systems[0]}.efs.{self._aws.region}.{self._suffix}"


def _is_in_use(block: Mapping[str, Any]) -> bool:
    return bool(block.get("CidrBlockState", {}).get("State", "associated") == "associated")


def no_machines(aws: Aws, cluster: str) -> str:
    """The sentence for whoever wants to do something with a cluster that is not there."""
    try:
        there = clusters_in(aws)
    except AwsProblem:
        there = []
    if cluster in there:
        return (
            f"The cluster {cluster} has no machines in {aws.region}: ansible-playbook status.yml tells what it has, "
            "ansible-playbook site.yml starts machines."
        )
    others = f"there are {listed(there)}" if len(there) > 1 else f"there is {there[0]}" if there else "there is none"
    example = f"-e cluster_name={there[0]}" if there else "ansible-playbook site.yml"
    return (
        f"There is no cluster {cluster} in {aws.region}, {others}: give the name of one, or make it. Example: {example}"
    )
