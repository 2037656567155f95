# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
short_description: The machines of a cluster
version_added: 1.0.0
author:
  - The deeplearning.aws contributors (@deeplearning)
description:
  - Finds the machines of a cluster by their tag C(deeplearning:cluster). A machine counts only if one of the cluster's
    Auto Scaling groups has launched it, which is a tag that nobody can forge.
  - The groups are C(master), C(workers) (the machines beside it), C(cluster) (both) and C(joining) (machines that have
    no place yet), and C(zone_...) and C(type_...) for each zone and instance type. With several clusters there is
    C(cluster_...) for each.
  - Hosts are called by their rank, C(deeplearning-master), C(deeplearning-worker2) and so on, and by their instance
    id while they are joining. With several clusters it is C(red-master), C(red-worker2).
  - Each host has C(deeplearning_cluster), C(deeplearning_rank) (the master's is 1; 0 means none yet),
    C(deeplearning_role) (C(master) or C(worker)), C(deeplearning_instance_id), C(deeplearning_private_address),
    C(deeplearning_private_name), C(deeplearning_public_address), C(deeplearning_type), C(deeplearning_zone),
    C(deeplearning_gpus) (how many AWS says the type has, where the tag C(deeplearning:gpus) tells it),
    C(deeplearning_state) (EC2's word, such as C(running); what Auto Scaling calls C(InService) is not asked for),
    C(deeplearning_image) and C(deeplearning_spot). What comes from AWS is data and is never run as a template.
  - Their Python is C(/usr/bin/python3), unless C(group_vars) or O(compose) say otherwise.
  - It hands on C(cluster_name), C(cluster_region), C(cluster_profile) and C(cluster_role_arn) as variables of C(all),
    so that playbooks know which cluster is meant. Extra vars of these names win over environment variables, and these
    over the file. C(deeplearning_folder) and C(deeplearning_connection) hand on O(folder) and O(connection).
  - Where there is no cluster of that name the groups are empty. Where AWS cannot be asked they are empty as well and a
    warning says why; the variable C(deeplearning_problem) of C(all) holds the sentence, and this collection's own
    playbooks say it themselves.
extends_documentation_fragment:
  - inventory_cache
  - constructed
requirements:
  - boto3 >= 1.35.0
notes:
  - It needs the permission C(ec2:DescribeInstances), and C(sts:AssumeRole) with O(role_arn). It makes one call for each
    1,000 machines; throttled calls are tried again.
  - Credentials come from where the AWS SDK looks.
  - An inventory plugin sees no C(group_vars). What says which cluster is meant stands in the plugin's file.
  - Machines that are in the file that M(deeplearning.aws.members) has made (C(cluster.ssh_config) in O(folder)) are
    reached by it, with pinned host keys.
options:
  plugin:
    description: This plugin's name.
    type: str
    required: true
    choices: [deeplearning.aws.cluster]
  cluster:
    description:
      - The cluster's name, or a list of names.
      - The extra var C(cluster_name) wins over it.
    type: raw
    default: deeplearning
    env:
      - name: DEEPLEARNING_CLUSTER
  region:
    description:
      - The AWS region.
      - The extra var C(cluster_region) wins over it.
    type: str
    default: us-east-1
    env:
      - name: AWS_REGION
      - name: AWS_DEFAULT_REGION
  profile:
    description:
      - The AWS profile to log in with.
      - The extra var C(cluster_profile) wins over it.
    type: str
    default: ""
    env:
      - name: AWS_PROFILE
  role_arn:
    description:
      - An IAM role to assume with it.
      - The extra var C(cluster_role_arn) wins over it.
    type: str
    default: ""
    env:
      - name: DEEPLEARNING_ROLE_ARN
  endpoint:
    description:
      - The address of EC2's API, where it is not AWS's own.
      - Without it the SDK looks where it always does, C(AWS_ENDPOINT_URL) for example.
    type: str
    default: ""
  states:
    description: Machines in these states of EC2 are shown.
    type: list
    elements: str
    choices: [pending, running, shutting-down, stopping, stopped, terminated]
    default: [pending, running]
  filters:
    description: Further filters of C(ec2:DescribeInstances), by their names.
    type: dict
    default: {}
  connection:
    description:
      - How machines are reached.
      - With V(jump) the master at its public address, and workers through it.
      - With V(direct) all at their private addresses, from within the VPC.
      - With V(ssm) through AWS Systems Manager, with no open port at all. It counts as soon as
        M(deeplearning.aws.members) has made ssh's configuration, and needs the C(aws) command with its
        C(session-manager-plugin) here, C(ssm:StartSession) for whoever uses it, and on the machines the SSM agent with
        AWS's policy C(AmazonSSMManagedInstanceCore) on their roles. Ansible's own connection through SSM, which has no
        ssh in it, is set by O(compose); see the examples.
    type: str
    choices: [jump, direct, ssm]
    default: jump
  folder:
    description: Where M(deeplearning.aws.members) puts ssh's configuration; relative to the current folder.
    type: str
    default: .deeplearning
"""

EXAMPLES = r"""
# inventory/aws.deeplearning.yml
plugin: deeplearning.aws.cluster
cluster: deeplearning
region: us-east-1
---
# Two clusters, and groups of one's own
plugin: deeplearning.aws.cluster
cluster: [red, blue]
region: eu-west-1
keyed_groups:
  - key: deeplearning_state
    prefix: state
compose:
  ansible_user: "'ubuntu'"
---
# Answers are kept for a minute, in a folder; --flush-cache asks anew
plugin: deeplearning.aws.cluster
cluster: deeplearning
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: .cache/inventory
cache_timeout: 60
---
# Without ssh: Ansible's connection through SSM passes files through a bucket
plugin: deeplearning.aws.cluster
cluster: deeplearning
compose:
  ansible_connection: "'amazon.aws.aws_ssm'"
  ansible_aws_ssm_instance_id: deeplearning_instance_id
  ansible_aws_ssm_region: "'us-east-1'"
  ansible_aws_ssm_bucket_name: "'a-bucket-of-yours'"
"""

import os
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _inventory
from ansible_collections.deeplearning.aws.plugins.plugin_utils._members import record_of, sort
from ansible_collections.deeplearning.aws.plugins.plugin_utils._trust import files

PAGE = 1000
"""The most that DescribeInstances gives at once."""
HOME = Path(__file__).resolve().parents[2]


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    NAME = "deeplearning.aws.cluster"

    def verify_file(self, path: str) -> bool:
        named = path.endswith((".deeplearning.yml", ".deeplearning.yaml"))
        return named and bool(super().verify_file(path))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path)
        self._read_config_data(path)
        options = {name: self.get_option(name) for name in _inventory.EXTRA_VARS}
        chosen = _inventory.chosen(options, self._vars, os.environ)
        for option, variable in _inventory.EXTRA_VARS.items():
            value = chosen["clusters"][0] if option == "cluster" and chosen["clusters"] else chosen[option]
            self.inventory.set_variable("all", variable, value)
        self._folder = Path(self.get_option("folder")).expanduser().absolute()
        self.inventory.set_variable("all", "deeplearning_folder", str(self._folder))
        self.inventory.set_variable("all", "deeplearning_connection", self.get_option("connection"))
        for group in _inventory.GROUPS:
            self.inventory.add_group(group)
        self.inventory.add_child("cluster", "master")
        self.inventory.add_child("cluster", "workers")
        # To look for it costs each machine a login, and all that we know have it there.
        for group in ("cluster", "joining"):
            self.inventory.set_variable(group, "ansible_python_interpreter", "/usr/bin/python3")
        if not chosen["clusters"]:
            raise AnsibleParserError("cluster is empty: give the cluster's name. Example: -e cluster_name=red")
        try:
            records = self._records(chosen, path, cache)
        except AwsProblem as problem:
            self._tell(str(problem))
        else:
            self._populate(records, chosen["clusters"])

    def _records(self, chosen: dict[str, Any], path: str, cache: bool) -> list[dict[str, Any]]:
        """From the cache, if it is wanted and holds them; what comes from there is not written to it again."""
        if not self.get_option("cache"):
            return self._query(chosen)
        # The same file stands for other clusters when extra vars say so.
        parts = [self.get_cache_key(path), chosen["region"], chosen["profile"], chosen["role_arn"], *chosen["clusters"]]
        key = "_".join(_inventory.sanitized(part) for part in parts)
        if cache and key in self._cache:
            return list(self._cache[key])
        records = self._query(chosen)
        self._cache[key] = records
        return records

    def _query(self, chosen: dict[str, Any]) -> list[dict[str, Any]]:
        aws = Aws(chosen["region"], chosen["profile"], chosen["role_arn"], self.get_option("endpoint"))
        wanted = _inventory.filters(chosen["clusters"], self.get_option("states"), self.get_option("filters"))
        reservations = aws.pages("ec2", "describe_instances", "Reservations", Filters=wanted, MaxResults=PAGE)
        return [record_of(instance) for found in reservations for instance in found["Instances"]]

    def _populate(self, records: list[dict[str, Any]], clusters: list[str]) -> None:
        strict = self.get_option("strict")
        own = [self.get_option(name) for name in ("compose", "groups", "keyed_groups")]
        connection = self.get_option("connection")
        ways = {name: _inventory.way_of(connection, files(self._folder, name)[1]) for name in clusters}
        for host in _inventory.hosts(sort(records, clusters), ways):
            self.inventory.add_host(host.name)
            for group in host.groups:
                self.inventory.add_group(group)
                self.inventory.add_child(group, host.name)
            # What comes from AWS is data: without a mark of trust ansible-core never runs a string as a template.
            for name, value in host.variables.items():
                self.inventory.set_variable(host.name, name, value)
            if any(own):
                compose, groups, keyed_groups = own
                self._set_composite_vars(compose, host.variables, host.name, strict)
                self._add_host_to_composed_groups(groups, host.variables, host.name, strict)
                self._add_host_to_keyed_groups(keyed_groups, host.variables, host.name, strict)

    def _tell(self, problem: str) -> None:
        """Once: our own playbooks ask AWS themselves first of all, and end with this very sentence."""
        self.inventory.set_variable("all", "deeplearning_problem", problem)
        given = context.CLIARGS.get("args")
        playbooks = [str(name) for name in given] if isinstance(given, list | tuple) else []
        if not playbooks or not all(_is_ours(name) for name in playbooks):
            self.display.warning(f"The cluster's machines are unknown. {problem}")


def _is_ours(playbook: str) -> bool:
    if playbook.startswith("deeplearning.aws."):
        return True
    path = Path(playbook).resolve()
    return path.is_file() and path.parent in (HOME, HOME / "playbooks")
