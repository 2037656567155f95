"""What the AWS API says of a cluster's machines, for its master."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from deeplearning import Refusal
from deeplearning.aws import Aws, Missing, Unanswered
from deeplearning.members import report
from deeplearning.members.ranks import Machine

GROUP_TAG = "aws:autoscaling:groupName"
RANK_TAG = "deeplearning:rank"
AT_ONCE = 16
MOST_OBJECTS = 20_000
"""Below members/. Each machine has one, also those that were replaced; but a machine may write any number."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Groups:
    """What the two Auto Scaling groups want, and which of their machines are in service."""

    wanted: int
    masters: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a machine's report lies; the mark changes with it."""

    key: str
    mark: str
    written: str


class Cloud:
    def __init__(self, aws: Aws, cluster: str, bucket: str) -> None:
        self._aws = aws
        self._master = f"{cluster}-master"
        self._workers = f"{cluster}-workers"
        self._bucket = bucket

    def groups(self) -> Groups:
        found = self._aws.pages(
            "autoscaling",
            "describe_auto_scaling_groups",
            "AutoScalingGroups",
            AutoScalingGroupNames=[self._master, self._workers],
        )
        named = {group["AutoScalingGroupName"]: group for group in found}
        return Groups(
            sum(group["DesiredCapacity"] for group in found),
            _in_service(named.get(self._master, {})),
            _in_service(named.get(self._workers, {})),
        )

    def machines(self, groups: Groups) -> list[Machine]:
        """Those in service that really run. Who is in which group is said by Auto Scaling, not by tags."""
        reservations = self._aws.pages(
            "ec2",
            "describe_instances",
            "Reservations",
            Filters=[
                {"Name": f"tag:{GROUP_TAG}", "Values": [self._master, self._workers]},
                {"Name": "instance-state-name", "Values": ["running"]},
            ],
        )
        found = {item["InstanceId"]: item for reservation in reservations for item in reservation["Instances"]}
        return [
            _machine(found[instance_id], master)
            for ids, master in ((groups.masters, True), (groups.workers, False))
            for instance_id in ids
            if instance_id in found
        ]

    def set_ranks(self, ranks: Mapping[str, int]) -> None:
        def give(instance_id: str) -> None:
            tags = [{"Key": RANK_TAG, "Value": str(ranks[instance_id])}]
            self._aws.call("ec2", "create_tags", Resources=[instance_id], Tags=tags)

        self._all("ec2", give, ranks)

    def places(self) -> list[Place]:
        """Where reports lie."""
        found = self._aws.pages(
            "s3",
            "list_objects_v2",
            "Contents",
            Bucket=self._bucket,
            Prefix="members/",
            PaginationConfig={"MaxItems": MOST_OBJECTS + 1},
        )
        if len(found) > MOST_OBJECTS:
            ((folder, count),) = Counter(item["Key"].split("/")[1] for item in found).most_common(1)
            raise Refusal(
                f"s3://{self._bucket}/members/ has more than {MOST_OBJECTS} objects, {count} of the first ones below "
                f"{folder}/: remove what is no report.json."
            )
        return [
            Place(item["Key"], item["ETag"], str(item["LastModified"]))
            for item in found
            if item["Key"].endswith("/report.json")
        ]

    def reports(self, keys: Iterable[str]) -> dict[str, dict[str, Any] | Refusal]:
        def read(key: str) -> dict[str, Any] | Refusal:
            try:
                return report.read(self._aws, self._bucket, key)
            except Missing:
                return Refusal(f"s3://{self._bucket}/{key} has just gone.")
            except Unanswered:
                # Not its machine's fault, which is to stay in the list.
                raise
            except Refusal as refusal:
                return refusal

        asked = list(keys)
        return dict(zip(asked, self._all("s3", read, asked)))

    def _all(self, service: str, ask: Callable[[str], Answer], about: Iterable[str]) -> list[Answer]:
        """Many calls at a time. Clients may be used by several threads, and not be made by several."""
        self._aws.client(service)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, about))


def _in_service(group: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(item["InstanceId"] for item in group.get("Instances", []) if item["LifecycleState"] == "InService")


def _machine(found: Mapping[str, Any], master: bool) -> Machine:
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
    return Machine(
        instance_id=found["InstanceId"],
        master=master,
        private_ip=found["PrivateIpAddress"],
        private_dns=found["PrivateDnsName"],
        instance_type=found["InstanceType"],
        launched=str(found["LaunchTime"]),
        rank_tag=tags.get(RANK_TAG, ""),
    )
