#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: emr_cluster_info
short_description: Describe a living EMR cluster
version_added: 1.0.0
description:
  - Finds the living EMR cluster that has the name and the tag C(deeplearning:cluster) with the same value. It only
    reads.
options:
  name:
    description: The cluster's name.
    type: str
    required: true
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Describe the EMR cluster
  deeplearning.aws.emr_cluster_info:
    region: us-east-1
    name: red
  register: emr
"""

RETURN = r"""
exists:
  description: Whether there is one.
  returned: success
  type: bool
id:
  description: Its id, or an empty text.
  returned: success
  type: str
  sample: j-2AXXXXXXGAPLF
cluster:
  description: AWS's description, with its own names.
  returned: success
  type: dict
instance_groups:
  description: Its instance groups, with AWS's names.
  returned: success
  type: list
  elements: dict
instances:
  description: Its instances that have not ended, with AWS's names.
  returned: success
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.emr_cluster import find_cluster, groups_of

_STATES = ["AWAITING_FULFILLMENT", "PROVISIONING", "BOOTSTRAPPING", "RUNNING"]


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    cluster = find_cluster(aws, module.params["name"])
    cluster_id = str(cluster.get("Id", ""))
    groups, instances = {}, []
    if cluster:
        groups = groups_of(aws, cluster_id)
        instances = aws.pages("emr", "list_instances", "Instances", ClusterId=cluster_id, InstanceStates=_STATES)
    return {
        "changed": False,
        "exists": bool(cluster),
        "id": cluster_id,
        "cluster": cluster,
        "instance_groups": list(groups.values()),
        "instances": instances,
    }


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
