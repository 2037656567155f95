# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
short_description: The machines of a cluster
version_added: 1.0.0
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
description:
  - It reads files whose names end in C(.deeplearning.yml), such as C(inventory/team.deeplearning.yml), and no others.
  - Finds the machines of a cluster by their tag C(deeplearning:cluster). A machine counts only if one of the cluster's
    Auto Scaling groups has launched it, according to a tag that only AWS can set.
  - The groups are C(master), C(workers) (all other nodes), C(cluster) (both) and C(joining) (machines that have no rank
    yet), and C(zone_...) and C(type_...) for each zone and instance type. With several clusters each has a group
    C(cluster_...).
  - Hosts are named after their rank, C(deeplearning-master), C(deeplearning-worker2) and so on, and after their
    instance id while they are joining. With several clusters the names are C(red-master), C(red-worker2).
  - Each host has C(deeplearning_cluster), C(deeplearning_rank) (the master's is 1; 0 means none yet),
    C(deeplearning_role) (C(master) or C(worker)), C(deeplearning_instance_id), C(deeplearning_private_address),
    C(deeplearning_private_name), C(deeplearning_public_address), C(deeplearning_type), C(deeplearning_zone),
    C(deeplearning_gpus) (from the tag C(deeplearning:gpus)), C(deeplearning_state) (that of EC2, such as C(running);
    C(InService) of Auto Scaling is not queried), C(deeplearning_image) and C(deeplearning_spot). Data from AWS is never
    run as a template.
  - C(ansible_python_interpreter) is C(/usr/bin/python3). C(group_vars), C(host_vars) and O(compose) override it.
  - It sets C(cluster_name), C(cluster_region), C(cluster_profile) and C(cluster_role_arn) for C(all), which select the
    cluster in playbooks. Extra vars of these names win over environment variables, and these over the file.
    C(deeplearning_folder) and C(deeplearning_connection) are O(folder) and O(connection), and C(deeplearning_region)
    is the region that was read.
  - It refuses C(--limit), C(--tags), C(--skip-tags) and C(--start-at-task) for playbooks of this collection if they
    would leave out a part of the playbook, because Ansible would return 0 without doing that part. The playbook
    C(configure) works on the machines that C(--limit) selects. Ansible fails because of the refusal if
    C(any_unparsed_is_failed) is set in C([inventory]) of C(ansible.cfg), as in this collection's own. The plugin cannot
    refuse anything if only inventories of other plugins are read, such as C(-i host,).
  - One command reads one selection. A second file that selects another cluster, region, profile or role is refused,
    because hosts of both would have the same names.
  - If no cluster has the name, the groups are empty. If AWS cannot be queried, they are empty too and a warning says
    why; the variable C(deeplearning_problem) of C(all) holds the same sentence. The playbooks of this collection print
    it themselves.
extends_documentation_fragment:
  - inventory_cache
  - constructed
requirements:
  - boto3 >= 1.35.0
notes:
  - It needs the permission C(ec2:DescribeInstances), and C(sts:AssumeRole) with O(role_arn). It makes one call for each
    1,000 machines, and retries throttled calls.
  - Credentials come from the default provider chain of the AWS SDK.
  - An inventory plugin cannot read C(group_vars), so the cluster is selected in the plugin's file.
  - Machines in the configuration that M(deeplearning.aws.discover_members) has written (C(cluster.ssh_config) in
    O(folder)) are reached with it, with pinned host keys.
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
      - The AWS profile to take credentials from.
      - The extra var C(cluster_profile) wins over it.
    type: str
    default: ""
    env:
      - name: AWS_PROFILE
  role_arn:
    description:
      - An IAM role to assume.
      - The extra var C(cluster_role_arn) wins over it.
    type: str
    default: ""
    env:
      - name: DEEPLEARNING_ROLE_ARN
  endpoint:
    description:
      - The address of EC2's API, if it is not that of AWS.
      - By default the SDK decides, for example by C(AWS_ENDPOINT_URL).
    type: str
    default: ""
  states:
    description: Include instances in these states of EC2.
    type: list
    elements: str
    choices: [pending, running, shutting-down, stopping, stopped, terminated]
    default: [pending, running]
  filters:
    description: More filters of C(ec2:DescribeInstances), by name.
    type: dict
    default: {}
  connection:
    description:
      - How machines are reached.
      - With V(jump), the master at its public address, or its private one if it has no other, and workers through it.
      - With V(direct), all at their private addresses, from within the VPC.
      - With V(ssm), by AWS Systems Manager, without an open port. It takes effect once
        M(deeplearning.aws.discover_members) has written ssh's configuration. It needs the C(aws) command with its
        C(session-manager-plugin) on this machine, the permission C(ssm:StartSession), and on the nodes the SSM agent
        and AWS's policy C(AmazonSSMManagedInstanceCore) in their roles. O(compose) can select Ansible's own connection
        by SSM, which uses no ssh; see the examples.
    type: str
    choices: [jump, direct, ssm]
    default: jump
  folder:
    description:
      - The folder for files about clusters, such as ssh's configuration by M(deeplearning.aws.discover_members).
        Relative to the current folder.
      - The names of the files have the cluster's and not the region's, so two clusters of one name need two folders.
    type: str
    default: .deeplearning
"""

EXAMPLES = r"""
# inventory/aws.deeplearning.yml
plugin: deeplearning.aws.cluster
cluster: deeplearning
region: us-east-1
---
# Two clusters, and user-defined groups
plugin: deeplearning.aws.cluster
cluster: [red, blue]
region: eu-west-1
keyed_groups:
  - key: deeplearning_state
    prefix: state
compose:
  ansible_user: "'ubuntu'"
---
# Cache the machines in a folder for a minute; --flush-cache bypasses it
plugin: deeplearning.aws.cluster
cluster: deeplearning
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: .cache/inventory
cache_timeout: 60
---
# Without ssh: Ansible's connection by SSM transfers files through a bucket
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

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import hosts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.host_keys import ssh_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import command_line, play_selection
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import clusters_from, read_records


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    NAME = "deeplearning.aws.cluster"

    def verify_file(self, path: str) -> bool:
        named = path.endswith((".deeplearning.yml", ".deeplearning.yaml"))
        return named and bool(super().verify_file(path))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path)
        self._read_config_data(path)
        self._refuse(self._left_out())
        options = {name: self.get_option(name) for name in hosts.OVERRIDES}
        target = hosts.resolve_options(options, self._vars, os.environ)
        self._folder = Path(self.get_option("folder")).expanduser().absolute()
        if not target["clusters"]:
            raise AnsibleParserError("cluster is empty: give the cluster's name. Example: -e cluster_name=red")
        selected = hosts.selection(target)
        self._refuse(hosts.second_selection(path, selected, self.inventory.groups["all"].vars))
        self._set_variables({**selected, hosts.READ_REGION: target["region"]})
        try:
            records = self._records(target, path, cache)
        except AwsError as problem:
            self._report(str(problem))
        else:
            self._populate(records, target["clusters"])
            self._refuse(self._left_out_machines())

    def _refuse(self, problem: str) -> None:
        if problem:
            # Where Ansible only warns of it (any_unparsed_is_failed), playbooks fail.
            self.inventory.set_variable("all", hosts.REFUSED, problem)
            raise AnsibleParserError(problem)

    def _left_out(self) -> str:
        """Return why an option such as --limit or --tags is refused, and take a --limit that the playbook applies."""
        playbooks, options = command_line.own_playbooks(), command_line.play_options()
        refusals = play_selection.refusals(playbooks, options, self._has_localhost())
        if not refusals and options.limit and play_selection.takes_limit(playbooks):
            command_line.take_limit(options.limit)
        return " ".join(refusals)

    def _has_localhost(self) -> bool:
        """Return whether a source of this command line makes localhost a host of the inventory, which `all` has."""
        lists = [source for source in command_line.inventories() if "," in source]
        names = {name.strip() for source in lists for name in source.split(",")}
        return "localhost" in names or "localhost" in self.inventory.hosts

    def _left_out_machines(self) -> str:
        """Return why a --limit is refused that leaves out machines on which the playbook works."""
        groups = self.inventory.get_groups_dict()
        members = {*groups["cluster"], *groups["joining"]}
        machines = [
            play_selection.PlayTarget(host.name, frozenset(group.name for group in host.get_groups()))
            for host in self.inventory.hosts.values()
            if host.name in members
        ]
        limit = command_line.play_options().limit
        return " ".join(play_selection.machine_refusals(command_line.own_playbooks(), limit, machines))

    def _set_variables(self, variables: dict[str, Any]) -> None:
        """Set these for all hosts, and the variables of groups; create the groups that always exist."""
        for variable, value in variables.items():
            self.inventory.set_variable("all", variable, value)
        self.inventory.set_variable("all", "deeplearning_folder", str(self._folder))
        self.inventory.set_variable("all", "deeplearning_connection", self.get_option("connection"))
        if command_line.taken_limit():
            self.inventory.set_variable("all", "deeplearning_limit", command_line.taken_limit())
        for group in hosts.GROUPS:
            self.inventory.add_group(group)
        self.inventory.add_child("cluster", "master")
        self.inventory.add_child("cluster", "workers")
        # Discovering Python costs a login to each machine, and all supported images have it there.
        for group in ("cluster", "joining"):
            self.inventory.set_variable(group, "ansible_python_interpreter", "/usr/bin/python3")

    def _records(self, target: dict[str, Any], path: str, cache: bool) -> list[dict[str, Any]]:
        """Return the instances from the cache if it is enabled and has them, otherwise from AWS."""
        if not self.get_option("cache"):
            return self._query(target)
        # With extra vars, one file describes several clusters.
        parts = [self.get_cache_key(path), target["region"], target["profile"], target["role_arn"], *target["clusters"]]
        key = "_".join(hosts.sanitize(part) for part in parts)
        if cache and key in self._cache:
            return list(self._cache[key])
        records = self._query(target)
        self._cache[key] = records
        return records

    def _query(self, target: dict[str, Any]) -> list[dict[str, Any]]:
        aws = Aws(target["region"], target["profile"], target["role_arn"], self.get_option("endpoint"))
        filters = hosts.query_filters(target["clusters"], self.get_option("states"), self.get_option("filters"))
        return read_records(aws, filters)

    def _populate(self, records: list[dict[str, Any]], clusters: list[str]) -> None:
        connection = self.get_option("connection")
        accesses = {name: hosts.ssh_access(connection, ssh_files(self._folder, name)[1]) for name in clusters}
        for host in hosts.hosts(clusters_from(records, clusters), accesses):
            self.inventory.add_host(host.name)
            for group in host.groups:
                self.inventory.add_group(group)
                self.inventory.add_child(group, host.name)
            # These are data from AWS. ansible-core runs only strings that are marked as trusted as templates.
            for name, value in host.variables.items():
                self.inventory.set_variable(host.name, name, value)
            self._construct(host)

    def _construct(self, host: hosts.Host) -> None:
        """Apply the user's own compose, groups and keyed_groups."""
        values = (host.variables, host.name, self.get_option("strict"))
        self._set_composite_vars(self.get_option("compose"), *values)
        self._add_host_to_composed_groups(self.get_option("groups"), *values)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), *values)

    def _report(self, problem: str) -> None:
        """Warn, unless only playbooks of this collection run: these ask AWS first, and fail with the same sentence."""
        self.inventory.set_variable("all", "deeplearning_problem", problem)
        if not command_line.is_of_this_collection():
            self.display.warning(f"The cluster's machines are unknown. {problem}")
