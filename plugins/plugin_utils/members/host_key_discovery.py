# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Discover the members of a cluster and their host keys from AWS, before the first connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...module_utils.aws.client import AwsError
from ...module_utils.aws.polling import ProgressPrinter, until
from ...module_utils.contract.names import CLUSTER_TAG, EMR_NODE, MASTER, Names, domain, tag_filter
from ...module_utils.contract.report import MAX_BYTES, key_of
from ...module_utils.contract.tables import join_names
from ...module_utils.plan.network import cidrs_in_use
from ..resources import membership
from ..resources.membership import Cluster, ClusterNode
from ..resources.resource_reader import clusters_in, file_systems_behind
from ..runs.run_events import clock
from . import host_keys
from .console import console_output
from .host_keys import NodeReport

if TYPE_CHECKING:
    from ...module_utils.aws.client import Aws

AT_ONCE = 16

_NO_REPORT = ("NoSuchKey", "NoSuchBucket", "404")


class HostKeyDiscovery:
    def __init__(self, aws: Aws, cluster: str) -> None:
        self._aws = aws
        self._cluster = cluster
        self._reports: dict[str, NodeReport] = {}
        self._role_ids: dict[str, str] = {}
        self.invalid_reports: list[str] = []
        """the instances whose report is not in the expected form"""
        self.names = Names(cluster, aws.account, aws.region)

    # Members and their host keys

    def run(
        self, seconds: float, display: Callable[[str], None], with_ranks: bool = False
    ) -> tuple[Cluster, Mapping[str, NodeReport]]:
        """Return the members, and what each reports, at least its host keys, by instance id.

        Wait up to `seconds` for a master, for machines that boot, and with `with_ranks` until the master has assigned
        a rank to each. Machines without known keys have no report.
        """
        cluster = Cluster(self._cluster)
        progress, began = ProgressPrinter(display, now=time.monotonic), time.monotonic()

        def poll() -> bool | None:
            cluster.nodes = self._find_nodes()
            self._read_reports(self.without_keys(cluster))
            names = [node.name for node in self.without_keys(cluster)]
            missing = [f"the host keys of {join_names(names)}"] if names else []
            missing += [] if cluster.master else ["a master"]
            joining = [node.name for node in cluster.nodes if not node.rank] if with_ranks else []
            missing += [f"the ranks of {join_names(joining)}"] if joining else []
            if missing and seconds:
                # Which machines are meant changes with each that comes.
                kinds = f"{bool(names)} {bool(cluster.master)} {bool(joining)}"
                waited = f" ({clock(time.monotonic() - began)} so far)" if progress.has_reported else ""
                progress.report(f"Waiting for {' and '.join(missing)}{waited}.", key=kinds)
            return None if missing else True

        until(poll, seconds)
        return cluster, self._reports

    def without_keys(self, cluster: Cluster) -> list[ClusterNode]:
        return [node for node in cluster.nodes if node.id not in self._reports]

    def _find_nodes(self) -> list[ClusterNode]:
        records = membership.read_records(self._aws, membership.instance_filters([self._cluster]))
        (cluster,) = membership.clusters_from(records, [self._cluster])
        if not cluster.nodes:
            raise AwsError(no_machines(self._aws, self._cluster))
        return cluster.nodes

    def _read_reports(self, nodes: Sequence[ClusterNode]) -> None:
        # Threads share clients, but must not create them.
        for service in ("ec2", "s3"):
            self._aws.client(service)
        for identity in {node.identity for node in nodes}:
            self.role_id(identity)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for node, report in zip(nodes, pool.map(self._report, nodes), strict=True):
                if report:
                    self._reports[node.id] = report

    def _report(self, node: ClusterNode) -> NodeReport | None:
        """Return the machine's report, which only it can write, or until it exists what its console shows."""
        key = key_of(f"{self.role_id(node.identity)}:{node.id}")
        text = self._read(key)
        report = host_keys.parse_report(text, key, self.names.bucket) if text else None
        if text and not report and node.id not in self.invalid_reports:
            self.invalid_reports.append(node.id)
        if report or node.record["state"] != "running":
            return report
        keys = host_keys.parse_console(self._console(node.id))
        return NodeReport(keys) if keys else None

    def _read(self, key: str) -> str:
        """Return the text of an object in the cluster's bucket, empty if it does not exist."""
        try:
            content = self._aws.content(self.names.bucket, key, self.names.account, MAX_BYTES)
            return content.decode(errors="replace")
        except AwsError as problem:
            if problem.code in _NO_REPORT:
                return ""
            raise

    def _console(self, instance: str) -> str:
        try:
            return console_output(self._aws, instance)
        except AwsError as problem:
            if problem.code == "InvalidInstanceID.NotFound":
                return ""
            raise

    def role_id(self, identity: str) -> str:
        """Return the beginning of the user id of every session of an IAM role."""
        if identity not in self._role_ids:
            answer = self._aws.call("iam", "get_role", RoleName=self.names.identity(identity))
            self._role_ids[identity] = str(answer["Role"]["RoleId"])
        return self._role_ids[identity]

    # What members need to know about their cluster

    def facts(self, cluster: Cluster) -> dict[str, Any]:
        filters = [tag_filter(CLUSTER_TAG, self._cluster)]
        listed = self._aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)
        groups = {str(group["GroupName"]): group for group in listed}
        missing = [name for name in (self.names.of("members"), self.names.of("efs")) if name not in groups]
        if missing:
            raise AwsError(
                f"The cluster {self._cluster} has no security group {' and no '.join(missing)}: run ansible-playbook "
                "deeplearning.aws.site, which creates it again."
            )
        members = groups[self.names.of("members")]
        (vpc,) = self._aws.pages("ec2", "describe_vpcs", "Vpcs", VpcIds=[members["VpcId"]])
        return {
            "cluster_id": str(members["GroupId"]),
            "bucket": self.names.bucket,
            "vpc_cidrs": cidrs_in_use(vpc),
            "master_role_id": self.role_id(EMR_NODE if cluster.job_flow else MASTER),
            "job_flow": cluster.job_flow,
            "file_system_id": self._file_system(str(groups[self.names.of("efs")]["GroupId"])),
            "domain": domain(self._aws.partition),
        }

    def _file_system(self, group: str) -> str:
        """Return the id of the file system whose mount target has the cluster's security group."""
        systems = file_systems_behind(self._aws, [group])
        if len(systems) != 1:
            targets = f"mount targets of {join_names(systems)}" if systems else "no mount target"
            raise AwsError(
                f"The cluster {self._cluster} has {targets}, and should have that of one file system: run "
                "ansible-playbook deeplearning.aws.site; if that does not help, check which network interfaces have "
                f"the security group {self.names.of('efs')}."
            )
        return systems[0]


def no_machines(aws: Aws, cluster: str) -> str:
    """Return the message for a cluster without machines."""
    try:
        clusters = clusters_in(aws)
    except AwsError:
        clusters = []
    if cluster in clusters:
        return (
            f"The cluster {cluster} has no machines in {aws.place}: ansible-playbook deeplearning.aws.status shows "
            "what it has, ansible-playbook deeplearning.aws.site starts machines."
        )
    others = (
        f"there are {join_names(clusters)}" if len(clusters) > 1 else f"there is {clusters[0] if clusters else 'none'}"
    )
    example = f"-e cluster_name={clusters[0]}" if clusters else "ansible-playbook deeplearning.aws.site"
    return (
        f"There is no cluster {cluster} in {aws.place}, {others}: give the name of one, or create it. "
        f"Example: {example}"
    )
