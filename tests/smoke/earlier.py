"""Clusters that earlier starts of the command have left, by the tag that it alone sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG, Names, tags_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import IDENTITIES, clusters_in

from tests.smoke.session import TAG

OUTLIVED = ("instance", "natgateway")
"""AWS shows these with their tags for an hour after their end. While they live, groups or networks have them too."""


@dataclass(frozen=True)
class Earlier:
    name: str
    end: str
    """When its time to live ends, as in the tag."""

    def has_ended(self, now: float) -> bool:
        """Return whether its time to live has passed. A tag that cannot be read says nothing."""
        try:
            return datetime.fromisoformat(self.end).timestamp() < now
        except ValueError:
            return False

    def line(self, now: float) -> str:
        if self.has_ended(now):
            return f"{self.name}, whose time to live ended at {self.end}: it is destroyed"
        return f"{self.name}, whose time to live ends at {self.end}. To destroy it now: SMOKE_DESTROY={self.name}"


def earlier_clusters(aws: Aws) -> list[Earlier]:
    """Return the clusters with the tag. Which cluster a resource belongs to is the tag of all clusters."""
    ends = dict(_by_tags(aws))
    for name in clusters_in(aws):
        if name not in ends:
            ends.update((name, end) for end in _of_name(aws, name))
    return [Earlier(name, end) for name, end in sorted(ends.items())]


def _by_tags(aws: Aws) -> Iterator[tuple[str, str]]:
    filters = [{"Name": "key", "Values": [CLUSTER_TAG, TAG]}]
    resources: dict[str, dict[str, str]] = {}
    for service in ("ec2", "autoscaling"):
        for tag in aws.pages(service, "describe_tags", "Tags", Filters=filters):
            if tag["ResourceType"] not in OUTLIVED:
                resources.setdefault(str(tag["ResourceId"]), {})[str(tag["Key"])] = str(tag["Value"])
    systems = aws.pages("efs", "describe_file_systems", "FileSystems")
    for tags in (*resources.values(), *(tags_of(system.get("Tags")) for system in systems)):
        if CLUSTER_TAG in tags and TAG in tags:
            yield tags[CLUSTER_TAG], tags[TAG]


def _of_name(aws: Aws, name: str) -> Iterator[str]:
    """Yield the tags of the roles and the bucket of a cluster that has nothing else."""
    names = Names(name, aws.account, aws.region)
    for identity in IDENTITIES:
        yield from _tag(aws, "iam", "get_role", "Role", RoleName=names.identity(identity))
    yield from _tag(aws, "s3", "get_bucket_tagging", "", Bucket=names.bucket)


def _tag(aws: Aws, service: str, operation: str, key: str, **params: str) -> Iterator[str]:
    try:
        answer = aws.call(service, operation, **params)
    except AwsError as error:
        if error.is_fatal:
            raise
        return
    tags = tags_of(answer[key].get("Tags") if key else answer.get("TagSet"))
    if TAG in tags:
        yield tags[TAG]
