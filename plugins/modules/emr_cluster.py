#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: emr_cluster
short_description: Create or change an EMR cluster with uniform instance groups
version_added: 1.0.0
description:
  - Finds the living EMR cluster that has the name and the tag C(deeplearning:cluster) with the same value, or creates
    it. It does not wait; M(deeplearning.aws.wait_for_capacity) does. A creation that EMR refuses because it does not
    know a new role or instance profile yet is retried for 180 seconds.
  - Changes the number of core nodes, the auto-termination policy, termination protection, the replacement of unhealthy
    nodes, and tags. EMR cannot change the rest on a living cluster, so other differences are an error.
  - An auto-termination policy that is missing is left to the cluster, whose master removes it while runs are active.
    Until it is back, core nodes are not removed.
  - There is no module for EMR in amazon.aws and community.aws. M(deeplearning.aws.teardown) removes the cluster.
options:
  name:
    description: The cluster's name.
    type: str
    required: true
  release:
    description: The release label, such as V(emr-7.14.0).
    type: str
    required: true
  applications:
    description: The applications to install.
    type: list
    elements: str
    default: [Hadoop]
  primary_type:
    description: The primary node's instance type.
    type: str
    required: true
  core_type:
    description: The core nodes' instance type.
    type: str
    required: true
  worker_count:
    description: The number of core nodes. Those with the highest values of the tag C(deeplearning:rank) are removed.
    type: int
    required: true
  image_id:
    description: An AMI of Amazon Linux. If empty, EMR's own.
    type: str
    default: ""
  root_volume_gib:
    description: The size of the root volumes.
    type: int
    required: true
  root_volume_throughput:
    description: The throughput of the root volumes in MiB/s; 0 for AWS's default.
    type: int
    default: 0
  subnet_id:
    description: The subnet of all nodes.
    type: str
    required: true
  key_name:
    description: The EC2 key pair that may log in as C(hadoop).
    type: str
    required: true
  service_role:
    description: The name of the IAM role by which EMR works in the account.
    type: str
    required: true
  instance_profile:
    description: The name of the instance profile of all nodes.
    type: str
    required: true
  primary_security_group:
    description: The security group of the primary node that EMR adds its rules to.
    type: str
    required: true
  core_security_group:
    description: The same for core nodes.
    type: str
    required: true
  service_security_group:
    description: The security group of EMR's own interface, in a private subnet.
    type: str
    default: ""
  primary_security_groups:
    description: Further security groups of the primary node.
    type: list
    elements: str
    default: []
  core_security_groups:
    description: Further security groups of core nodes.
    type: list
    elements: str
    default: []
  log_uri:
    description: Where EMR stores logs, as C(s3://bucket/prefix/).
    type: str
    required: true
  bootstrap_path:
    description: The bootstrap action, as C(s3://bucket/key).
    type: str
    required: true
  bootstrap_sha256:
    description: Its SHA-256, which it gets as its only argument. A living cluster keeps the one it was created with.
    type: str
    required: true
  memory_mib:
    description: The memory of a core node.
    type: int
    required: true
  vcpus:
    description: The virtual processors of a core node.
    type: int
    required: true
  yarn_percent:
    description: The share of both that YARN may give to its applications.
    type: int
    default: 25
  idle_minutes:
    description: After how many idle minutes EMR terminates the cluster; 0 for never.
    type: int
    default: 60
  termination_protection:
    description: Whether EMR refuses to terminate it.
    type: bool
    default: false
  replace_unhealthy:
    description: Whether EMR replaces core nodes that do not answer.
    type: bool
    default: true
  tags:
    description: Tags of the cluster, which EMR puts on its machines as well. Further ones stay.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Create the EMR cluster
  deeplearning.aws.emr_cluster:
    region: us-east-1
    name: red
    release: emr-7.14.0
    primary_type: m5.xlarge
    core_type: g5.xlarge
    worker_count: 2
    memory_mib: 16384
    vcpus: 4
    root_volume_gib: 100
    subnet_id: subnet-0123456789abcdef0
    key_name: red
    service_role: red-us-east-1-emr
    instance_profile: red-us-east-1-node
    primary_security_group: sg-0123456789abcdef0
    core_security_group: sg-0123456789abcdef1
    log_uri: s3://red-123456789012-us-east-1/emr-logs/
    bootstrap_path: s3://red-123456789012-us-east-1/bundles/0123.py
    bootstrap_sha256: "0123"
    tags: {"deeplearning:cluster": red}
"""

RETURN = r"""
id:
  description: Its id; empty in check mode if it does not exist yet.
  returned: success
  type: str
  sample: j-2AXXXXXXGAPLF
created:
  description: Whether this call has created it.
  returned: success
  type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import (
    CORE,
    missing_tags,
    tag_list,
    tags_of,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.emr_cluster import (
    Options,
    create,
    find_cluster,
    fixed_differences,
    groups_of,
    idle_seconds_of,
    ranks_of,
    surplus,
)


class EmrCluster:
    def __init__(self, aws: Aws, options: Options, check: bool) -> None:
        self._aws = aws
        self._options = options
        self._check = check
        self.changed = False
        self.created = False

    def converge(self) -> str:
        """Return the cluster's id; empty in check mode if it does not exist."""
        cluster = find_cluster(self._aws, self._options["name"])
        if not cluster:
            self.changed = self.created = True
            return "" if self._check else create(self._aws, self._options)
        cluster_id, groups = str(cluster["Id"]), groups_of(self._aws, str(cluster["Id"]))
        differences = fixed_differences(self._options, cluster, groups)
        if differences:
            raise AwsError(
                f"The EMR cluster {self._options['name']} ({cluster_id}) differs from its settings in what EMR cannot "
                f"change on a living cluster: {'; '.join(differences)}. Keep it as it is, or remove it first "
                "(destroy.yml keeps the file system)."
            )
        runs_are_active = self._set_idle_timeout(cluster_id)
        self._set_switches(cluster_id, cluster)
        self._set_tags(cluster_id, tags_of(cluster.get("Tags")))
        self._resize(cluster_id, groups[CORE], runs_are_active)
        return cluster_id

    def _change(self, operation: str, **params: Any) -> None:
        self.changed = True
        if not self._check:
            self._aws.call("emr", operation, **params)

    def _set_idle_timeout(self, cluster_id: str) -> bool:
        """Set the auto-termination policy. Return whether it is missing although it should be there: the master has
        removed it while runs are active, and puts it back itself."""
        seconds = idle_seconds_of(self._aws, cluster_id)
        desired = self._options["idle_minutes"] * 60
        if seconds and not desired:
            self._change("remove_auto_termination_policy", ClusterId=cluster_id)
        elif seconds and seconds != desired:
            policy = {"IdleTimeout": desired}
            self._change("put_auto_termination_policy", ClusterId=cluster_id, AutoTerminationPolicy=policy)
        return not seconds and bool(desired)

    def _set_switches(self, cluster_id: str, cluster: dict[str, Any]) -> None:
        for key, value, operation in (
            ("TerminationProtected", self._options["termination_protection"], "set_termination_protection"),
            ("UnhealthyNodeReplacement", self._options["replace_unhealthy"], "set_unhealthy_node_replacement"),
        ):
            if bool(cluster.get(key)) != value:
                self._change(operation, JobFlowIds=[cluster_id], **{key: value})

    def _set_tags(self, cluster_id: str, actual: dict[str, str]) -> None:
        if missing := missing_tags(self._options["tags"], actual):
            self._change("add_tags", ResourceId=cluster_id, Tags=tag_list(missing))

    def _resize(self, cluster_id: str, group: Any, runs_are_active: bool) -> None:
        count, requested = self._options["worker_count"], int(group["RequestedInstanceCount"])
        if count == requested:
            return
        change: dict[str, Any] = {"InstanceGroupId": group["Id"], "InstanceCount": count}
        if count < requested:
            if runs_are_active:
                raise AwsError(
                    f"{requested - count} of the {requested} core nodes would be removed while runs are active: the "
                    "cluster has suspended its auto-termination, which it does as long as a run uses it. Wait for the "
                    "runs, or stop them (ansible-playbook deeplearning.aws.stop -e run_id=all), and try again a minute "
                    "later."
                )
            leaving = surplus(self._ranks(cluster_id), count)
            if len(leaving) == requested - count:
                # With their ids EMR lowers the number itself.
                del change["InstanceCount"]
                change["EC2InstanceIdsToTerminate"] = leaving
        self._change("modify_instance_groups", ClusterId=cluster_id, InstanceGroups=[change])

    def _ranks(self, cluster_id: str) -> dict[str, int]:
        """Return the ranks of the core nodes that run, 0 for one without."""
        running = {"InstanceGroupTypes": [CORE], "InstanceStates": ["RUNNING"]}
        listed = self._aws.pages("emr", "list_instances", "Instances", ClusterId=cluster_id, **running)
        ids = [str(item["Ec2InstanceId"]) for item in listed]
        return ranks_of(self._aws.instances(InstanceIds=ids)) if ids else {}


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    cluster = EmrCluster(aws, module.params, module.check_mode)
    cluster_id = cluster.converge()
    return {"changed": cluster.changed, "id": cluster_id, "created": cluster.created}


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
