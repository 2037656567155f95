# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The names and tags of a cluster's resources in AWS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

CLUSTER_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""A cluster's name as a regular expression."""
RESERVED_NAMES = ("xn--", "sthree-", "amzn-s3-demo-", "sg-")
"""Names that begin with one of these are AWS's own."""
CLUSTER_TAG = "deeplearning:cluster"
"""On everything that can bear a tag: the cluster that made it."""
ROLE_TAG = "deeplearning:role"
"""On instances, for people and bills: master or worker. Programs go by the Auto Scaling group."""
RANK_TAG = "deeplearning:rank"
"""On instances that have a rank: 1 is the master."""
RUN_TAG = "deeplearning:run"
"""On instances: the run that uses the node, as the master sets it; empty after its end."""
DATA_TAG = "deeplearning:data"
"""On the bucket of data sets, which belongs to no cluster: true."""
IMAGE_TAG = "deeplearning:image"
"""On launch templates: the image that was asked for (a family or an id), of which the pinned AMI came."""
USER_TAG = "deeplearning:user"
"""On instances: the user to log in as, which follows from the image. On images that image.yml makes: theirs."""
BASE_TAG = "deeplearning:base"
"""On such images: the AMI that they were made from."""
PINS_TAG = "deeplearning:pins"
"""On such images: which versions of which frameworks they have, as `pytorch=<checksum> …`."""
GPUS_TAG = "deeplearning:gpus"
"""On instances: how many GPUs AWS says their type has."""
GROUP_TAG = "aws:autoscaling:groupName"
"""Only AWS can set it. A member counts only if this names one of the cluster's groups."""
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""AWS's own as well: what a machine was launched by. Unlike the group's name it stays when a machine is detached."""
JOB_FLOW_TAG = "aws:elasticmapreduce:job-flow-id"
"""On EMR's machines, and only AWS can set it: the job flow (the EMR cluster) that they belong to."""
GROUP_ROLE_TAG = "aws:elasticmapreduce:instance-group-role"
"""AWS's own as well, on the same machines: MASTER or CORE."""

MASTER = "master"
WORKER = "worker"

PRIMARY, CORE = "MASTER", "CORE"
"""How EMR calls the instance groups of the primary node and of the core nodes."""
EMR_USER = "hadoop"
"""The user whom EMR makes on its machines, and the one to log in as there."""
EMR_SERVICE = "emr"
EMR_NODE = "node"
"""What the IAM roles of EMR's service and of all its machines are called, as `identity` takes it."""
EMR_LOGS = "emr-logs"
"""The prefix of the cluster's bucket for EMR's logs. Machines write there, so what is read there is data of nodes."""


@dataclass(frozen=True)
class Names:
    """What a cluster's things are called. Things of one account or region need these in their names, others do not."""

    cluster: str
    account: str = ""
    region: str = ""

    def of(self, what: str) -> str:
        return f"{self.cluster}-{what}"

    @property
    def master_group(self) -> str:
        return self.of("master")

    @property
    def workers_group(self) -> str:
        return self.of("workers")

    @property
    def groups(self) -> dict[str, str]:
        """The Auto Scaling groups (their launch templates are called the same), by the role of their members."""
        return {MASTER: self.master_group, WORKER: self.workers_group}

    def identity(self, role: str) -> str:
        """IAM role and instance profile: both are the account's, not a region's."""
        return f"{self.cluster}-{self.region}-{role}"

    @property
    def bucket(self) -> str:
        """Names of buckets are global."""
        return f"{self.cluster}-{self.account}-{self.region}"

    @property
    def data_bucket(self) -> str:
        """The data sets of all clusters of an account and region: it outlives each of them."""
        return f"{self.account}-{self.region}-deeplearning-data"


def longest_cluster_name(region: str) -> int:
    """Return how many characters a cluster's name may have in a region."""
    account_digits = 12
    of_bucket = 63 - len(f"--{region}") - account_digits
    of_role = 64 - len(f"-{region}-master")
    return min(of_bucket, of_role)


def is_cluster_name(value: str, region: str) -> bool:
    """Return whether a cluster can have this name in a region."""
    is_reserved = value.startswith(RESERVED_NAMES)
    return bool(re.fullmatch(CLUSTER_NAME, value)) and not is_reserved and len(value) <= longest_cluster_name(region)


def domain(partition: str) -> str:
    """Return the domain of AWS's services in a part of AWS."""
    return "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"


def tag_list(tags: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return tags as the API takes them."""
    return [{"Key": key, "Value": str(value)} for key, value in tags.items()]


def tags_of(listed: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return tags from the API's answer."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in listed or ()}


def missing_tags(desired: Mapping[str, Any], existing: Mapping[str, str]) -> dict[str, str]:
    """Return the desired tags that a resource lacks, or has with other values."""
    return {key: str(value) for key, value in desired.items() if existing.get(key) != str(value)}


def tag_filter(name: str, *values: str) -> dict[str, object]:
    """Return a filter for EC2 and Auto Scaling."""
    return {"Name": f"tag:{name}", "Values": list(values)}
