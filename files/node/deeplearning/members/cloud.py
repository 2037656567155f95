"""A cluster's machines and their reports, as the AWS API describes them to the master."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from deeplearning.aws import AwsClient, NotFound, Unavailable
from deeplearning.config import Config
from deeplearning.contract import names
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import PREFIX
from deeplearning.members import report
from deeplearning.members.ranks import Instance

PARALLEL_CALLS = 16
MAX_OBJECTS = 20_000
"""Below members/. Each machine has one, also those that were replaced; but a machine may write any number."""

MAX_IDS = 500
"""Instances in a call of CreateTags."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Groups:
    """The groups of the master and of the workers: their desired capacity, and their machines in service."""

    desired: int
    masters: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True)
class StoredReport:
    """A report in the bucket. Its ETag changes with its content."""

    key: str
    etag: str
    written: str


class Cloud:
    """A cluster of Auto Scaling groups."""

    def __init__(self, aws: AwsClient, config: Config) -> None:
        self._aws, self._config, self._bucket = aws, config, config.bucket
        own = names.Names(config.cluster)
        self._master, self._workers = own.master_group, own.workers_group

    def groups(self) -> Groups:
        groups = describe_groups(self._aws, self._master, self._workers)
        by_name = {group["AutoScalingGroupName"]: group for group in groups}
        return Groups(
            sum(group["DesiredCapacity"] for group in groups),
            _in_service(by_name.get(self._master, {})),
            _in_service(by_name.get(self._workers, {})),
        )

    def _tag_filter(self) -> dict[str, object]:
        """Return a filter by a tag that only AWS can set."""
        return names.tag_filter(names.GROUP_TAG, self._master, self._workers)

    def has_ended(self, groups: Groups) -> bool:
        """Return whether a machine in service has ended, which AWS's service notices later. The answer is short."""
        states = ["shutting-down", "terminated", "stopping", "stopped"]
        return not {*groups.masters, *groups.workers}.isdisjoint(self._instances(states))

    def machines(self, groups: Groups) -> list[Instance]:
        """Return the running machines in service. AWS's service, not a tag, decides which group a machine is in."""
        running = self._instances(["running"])
        return [
            _machine(running[instance_id], is_master)
            for ids, is_master in ((groups.masters, True), (groups.workers, False))
            for instance_id in ids
            if instance_id in running
        ]

    def _instances(self, states: list[str]) -> dict[str, Mapping[str, Any]]:
        """Return the instances of both groups in these states by their ids."""
        filters = [self._tag_filter(), {"Name": "instance-state-name", "Values": states}]
        reservations = self._aws.pages("ec2", "describe_instances", "Reservations", Filters=filters)
        return {item["InstanceId"]: item for reservation in reservations for item in reservation["Instances"]}

    def set_ranks(self, ranks: Mapping[str, int]) -> None:
        def set_rank(instance_id: str) -> None:
            tags = names.tag_list({names.RANK_TAG: str(ranks[instance_id])})
            self._aws.call("ec2", "create_tags", Resources=[instance_id], Tags=tags)

        self._in_parallel("ec2", set_rank, ranks)

    def mark_used(self, machines: Iterable[Instance], runs: Mapping[str, str], busy: bool) -> None:
        """Tag each machine with the run that uses it. `runs`: by instance id. `busy`: whether any run is active."""
        outdated: dict[str, list[str]] = {}
        for machine in machines:
            run = runs.get(machine.instance_id, "")
            if machine.run_tag != run:
                outdated.setdefault(run, []).append(machine.instance_id)
        for run, ids in outdated.items():
            for chunk in (ids[start : start + MAX_IDS] for start in range(0, len(ids), MAX_IDS)):
                self._aws.call("ec2", "create_tags", Resources=chunk, Tags=names.tag_list({names.RUN_TAG: run}))

    def stored_reports(self) -> list[StoredReport]:
        objects = self._aws.pages(
            "s3",
            "list_objects_v2",
            "Contents",
            Bucket=self._bucket,
            Prefix=PREFIX,
            PaginationConfig={"MaxItems": MAX_OBJECTS + 1},
        )
        if len(objects) > MAX_OBJECTS:
            ((folder, count),) = Counter(item["Key"].split("/")[1] for item in objects).most_common(1)
            raise UserError(
                f"s3://{self._bucket}/{PREFIX} has more than {MAX_OBJECTS} objects, {count} of the first ones below "
                f"{folder}/: remove what is no report.json."
            )
        return [
            StoredReport(item["Key"], item["ETag"], str(item["LastModified"]))
            for item in objects
            if item["Key"].endswith("/report.json")
        ]

    def reports(self, keys: Iterable[str]) -> dict[str, dict[str, Any] | UserError]:
        """Return reports by their keys, with the error in place of one that cannot be used."""

        def read(key: str) -> dict[str, Any] | UserError:
            try:
                return report.read(self._aws, self._bucket, key)
            except NotFound:
                return UserError(f"s3://{self._bucket}/{key} was removed just now.")
            except Unavailable:
                # The machine is not to blame, and stays in the list.
                raise
            except UserError as error:
                return error

        keys = list(keys)
        return dict(zip(keys, self._in_parallel("s3", read, keys)))

    def _in_parallel(self, service: str, call: Callable[[str], Result], items: Iterable[str]) -> list[Result]:
        # Threads may share a client, and must not create one at the same time.
        self._aws.client(service)
        with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
            return list(pool.map(call, items))


class EmrCloud(Cloud):
    """A cluster of EMR."""

    def groups(self) -> Groups:
        kinds = (names.PRIMARY, names.CORE)
        masters, workers = (instances_of(self._aws, self._config.job_flow, kind) for kind in kinds)
        return Groups(len(masters) + len(workers), _running(masters), _running(workers))

    def _tag_filter(self) -> dict[str, object]:
        return names.tag_filter(names.JOB_FLOW_TAG, self._config.job_flow)

    def mark_used(self, machines: Iterable[Instance], runs: Mapping[str, str], busy: bool) -> None:
        """Remove the auto-termination policy while a run is active: EMR counts the work of YARN only."""
        idle_seconds = self._config.emr_idle_seconds
        if not idle_seconds:
            return
        cluster = {"ClusterId": self._config.job_flow}
        answer = self._aws.call("emr", "get_auto_termination_policy", **cluster)
        current = (answer.get("AutoTerminationPolicy") or {}).get("IdleTimeout", 0)
        if busy and current:
            self._aws.call("emr", "remove_auto_termination_policy", **cluster)
        elif not busy and current != idle_seconds:
            policy = {"IdleTimeout": idle_seconds}
            self._aws.call("emr", "put_auto_termination_policy", **cluster, AutoTerminationPolicy=policy)


def describe_groups(aws: AwsClient, *groups: str) -> list[dict[str, Any]]:
    return aws.pages(
        "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=[*groups]
    )


def instances_of(aws: AwsClient, job_flow: str, kind: str) -> list[dict[str, Any]]:
    """Return the instances of an EMR cluster's group that run or are being started."""
    states = ["AWAITING_FULFILLMENT", "PROVISIONING", "BOOTSTRAPPING", "RUNNING"]
    return aws.pages(
        "emr",
        "list_instances",
        "Instances",
        ClusterId=job_flow,
        InstanceGroupTypes=[kind],
        InstanceStates=states,
    )


def _running(instances: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(item["Ec2InstanceId"] for item in instances if item["Status"]["State"] == "RUNNING")


def connect(aws: AwsClient, config: Config) -> Cloud:
    return EmrCloud(aws, config) if config.job_flow else Cloud(aws, config)


def _in_service(group: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(item["InstanceId"] for item in group.get("Instances", []) if item["LifecycleState"] == "InService")


def _machine(instance: Mapping[str, Any], is_master: bool) -> Instance:
    tags = names.tags_of(instance.get("Tags"))
    return Instance(
        instance_id=instance["InstanceId"],
        master=is_master,
        private_ip=instance["PrivateIpAddress"],
        private_dns=instance["PrivateDnsName"],
        instance_type=instance["InstanceType"],
        launched=str(instance["LaunchTime"]),
        rank_tag=tags.get(names.RANK_TAG, ""),
        run_tag=tags.get(names.RUN_TAG, ""),
    )
