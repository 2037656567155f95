# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Every name and tag that this collection gives in AWS, and by which it finds its things again.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CLUSTER_TAG = "deeplearning:cluster"
"""On everything that can bear a tag: the cluster that made it."""
ROLE_TAG = "deeplearning:role"
"""On instances and their volumes: master or worker."""
RANK_TAG = "deeplearning:rank"
"""On instances that have been given a place: 1 is the master."""
IMAGE_TAG = "deeplearning:image"
"""On launch templates: the image that was asked for (a family or an id), of which the pinned AMI came."""
USER_TAG = "deeplearning:user"
"""On instances: the user to log in as, which follows from the image."""
GPUS_TAG = "deeplearning:gpus"
"""On instances: how many GPUs AWS says their type has."""
GROUP_TAG = "aws:autoscaling:groupName"
"""AWS's own; nobody else can set it. A member counts only if this names one of the cluster's groups."""
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""AWS's own as well: what a machine was launched by. Unlike the group's name it stays when a machine is detached."""

MASTER = "master"
WORKER = "worker"
MASTER_HOST = "deeplearning-master"
MASTER_ALIAS = "deeplearning-worker1"
"""What it is called beside that on the members themselves, as it trains too."""


def host_name(rank: int) -> str:
    """What the member of a rank is called in the inventory."""
    return MASTER_HOST if rank == 1 else f"deeplearning-worker{rank}"


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
        """Buckets are the whole world's."""
        return f"{self.cluster}-{self.account}-{self.region}"

    @property
    def file_system_token(self) -> str:
        """The creation token: it makes a repeated creation find what the first one made."""
        return self.cluster

    def as_dict(self) -> dict[str, str]:
        """All of them, for playbooks."""
        whats = {
            "vpc": "vpc",
            "internet_gateway": "igw",
            "public": "public",
            "private": "private",
            "nat": "nat",
            "s3_endpoint": "s3",
            "master_address": "master",
            "ssh_security_group": "ssh",
            "members_security_group": "members",
            "efs_security_group": "efs",
            "file_system": "efs",
            "master_template": "master",
            "worker_template": "workers",
            "master_group": "master",
            "workers_group": "workers",
        }
        return {key: self.of(what) for key, what in whats.items()} | {
            "file_system_token": self.file_system_token,
            "placement_group": self.cluster,
            "key_pair": self.cluster,
            "bucket": self.bucket,
            "master_identity": self.identity(MASTER),
            "worker_identity": self.identity(WORKER),
        }


def tags(cluster: str, what: str = "", extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags of a thing of the cluster; the person's own come first, so that they cannot replace ours."""
    named = {"Name": f"{cluster}-{what}"} if what else {}
    return {**(extra or {}), **named, CLUSTER_TAG: cluster}


def tag_list(wanted: Mapping[str, str]) -> list[dict[str, str]]:
    """As the API takes them."""
    return [{"Key": key, "Value": str(value)} for key, value in wanted.items()]


def tags_of(listed: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """From what the API answers."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in listed or ()}


def tag_filter(name: str, *values: str) -> dict[str, object]:
    """For the Filters of EC2 and Auto Scaling."""
    return {"Name": f"tag:{name}", "Values": list(values)}
