# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Delete resources that do not have the cluster's tag together with the cluster, if the operator names them.

They get the tag first. So an interrupted teardown finds them again, and they are deleted in the order of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.aws.resource_ids import existing_ids
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.names import CLUSTER_TAG, tag_list
from ...module_utils.contract.tables import join_names
from ..resources.resources import ClusterResources
from ..resources.untagged import Surroundings

OPTION = "destroy_also"


def select(aws: Aws, named: Sequence[str], owned: ClusterResources, surroundings: Surroundings) -> list[str]:
    """Return the named ids to delete. Raise UserError for an id that is not in the list of what may be deleted.

    The cluster's own resources need no name, and what no longer exists needs nothing.
    """
    own = {resource.id for resource in owned.resources if resource.ours}
    allowed = [item.id for item in surroundings.removable]
    others = [name for name in named if name not in own and name not in allowed]
    if others:
        existing = existing_ids(aws, others)
        refused = [name for name in others if name in existing]
        if refused:
            raise UserError(
                f"{OPTION} names {join_names(refused)}, so nothing of the cluster was removed. Only resources without "
                "the cluster's tag in the VPC that the cluster created can be removed with it: "
                f"{join_names(allowed) or 'there are none'}. ansible-playbook deeplearning.aws.audit lists them."
            )
    return [name for name in named if name in allowed]


def tag(aws: Aws, cluster: str, ids: Sequence[str]) -> None:
    """Give resources the cluster's tag."""
    try:
        aws.call("ec2", "create_tags", Resources=list(ids), Tags=tag_list({CLUSTER_TAG: cluster}))
    except AwsError as error:
        if not error.denied:
            raise
        raise UserError(
            f"{error} Nothing of the cluster was removed. {OPTION} first gives {join_names(ids)} the cluster's tag, "
            "which the policies of docs/iam.md do not allow for existing resources: run destroy.yml with an "
            "administrator's credentials, or delete them by hand with the commands that deeplearning.aws.audit prints."
        ) from error
