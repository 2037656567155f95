# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Describe clusters. plugin_utils/views/summary.py builds the descriptions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.atomic_file import write_if_changed
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import LockStore
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import host_keys, hosts, namesake
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import (
    HERE,
    PLACE,
    REGION,
    repeat_options,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources import untagged
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import (
    ResourceReader,
    list_clusters,
    read_idle_minutes,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import ClusterResources, health_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import end_with_parent
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown import data_bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import one_line
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import (
    costs,
    logs,
    status,
    status_reader,
    summary,
    untagged_lines,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.group_history import GroupHistory
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.missing_machines import shortages_of

WATCH_SECONDS = 5
"""Between the end of a description and the beginning of the next one."""


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        if options["failure"]:
            return self._describe_failure(options, task_vars)
        folder = _folder(task_vars)
        aws = Aws.from_options(options)
        if options["show"] == "logs":
            connection = str(task_vars.get("deeplearning_connection") or host_keys.JUMP)
            return self._collect_logs(aws, options, folder, connection)
        result, parent = self._describe(aws, options, folder), os.getppid()
        while options["watch"] and not self.check_mode:
            for _second in range(WATCH_SECONDS):
                end_with_parent(parent)
                time.sleep(1)  # the pause between two descriptions
            try:
                result = self._describe(aws, options, folder)
            except UserError as error:
                # The next one may succeed.
                self._display.display(str(error))
        return result

    def _describe(self, aws: Aws, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        if options["cluster"] == summary.ALL:
            return self._describe_all(aws, options, folder)
        owned = ResourceReader(aws, options["cluster"]).read()
        surroundings = untagged.read(aws, owned)
        described = _summary(aws, owned, options, folder, surroundings)
        result = {"changed": False, "clusters": {owned.cluster: described}}
        if options["show"] == "none":
            return result
        if options["show"] == "resources":
            self._refuse_wrong_place(aws, owned, options, folder)
            counted = untagged.with_untagged(owned, surroundings)
            prices = costs.read_prices(aws, costs.present_machines(counted))
            lines = summary.resource_lines(owned, prices, counted)
            destroy = summary.destroy_command(owned.cluster, f" -e cluster_name={owned.cluster}")
            lines += untagged_lines.lines(surroundings.untagged, prices, destroy)
            lines += data_bucket.describe(aws)
        else:
            file = Path(options["file"] or folder / f"{options['cluster']}.json").expanduser()
            lines = self._save(described, owned, file)
            if options["format"] == "json":
                lines = [json.dumps(described, indent=2, sort_keys=True)]
        # Ansible's display passes nothing on that would clear a terminal.
        if options["watch"]:
            lines = [f"{datetime.now(UTC):%H:%M:%S} UTC", *lines]
        self.show(lines)
        return result

    def _describe_all(self, aws: Aws, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Describe all clusters of the region. One that cannot be read does not hide the others."""
        listed = list_clusters(aws)
        summaries: dict[str, Any] = {}
        failures: dict[str, str] = {}
        for name in listed.names:
            try:
                owned = ResourceReader(aws, name).read()
                summaries[name] = _summary(aws, owned, options, folder, untagged.read(aws, owned))
            except UserError as error:
                if isinstance(error, AwsError) and error.is_fatal:
                    raise
                failures[name] = one_line(str(error))
        if options["show"] != "none":
            table = summary.cluster_lines(aws.region, aws.place, list(summaries.values()), failures)
            limit = f"Only {aws.place} was read. Other regions and accounts may have more clusters."
            self.show([*table, *summary.stray_lines(listed.strays), limit, *_data_bucket_lines(aws)])
        return {"changed": False, "clusters": summaries}

    def _refuse_wrong_place(
        self, aws: Aws, resources: ClusterResources, options: Mapping[str, Any], folder: Path
    ) -> None:
        """Raise UserError if nothing exists here, and the project's files are about a cluster that is elsewhere."""
        if resources.current:
            return
        command = f"ansible-playbook deeplearning.aws.audit -e audit={resources.cluster}"
        problem = namesake.absence_problem(
            aws,
            folder,
            resources.cluster,
            namesake.ListCommand(
                f"{command}{repeat_options(without=REGION)}", f"{command}{repeat_options(without=PLACE)}"
            ),
            options["file"],
        )
        if problem:
            raise UserError(problem)

    def _describe_failure(self, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Print what a failed playbook has left, as far as it can be read.

        The task runs in a `rescue`, so an error here would hide the reason of the failure: it is printed instead.
        """
        cluster = options["cluster"]
        try:
            folder = _folder(task_vars)
            file = Path(options["file"] or folder / f"{cluster}.json").expanduser()
            aws = Aws.from_options(options)
            resources, unread = ResourceReader(aws, cluster).read_readable()
            described, unread_facts = _failure_summary(aws, resources, options, folder)
            lines = self._save(described, resources, file, [*unread, *unread_facts])
        except Exception as error:
            sentence = str(error) if isinstance(error, UserError) else repr(error)
            self.show(summary.unread_failure_lines(cluster, sentence, repeat_options()))
            return {"changed": False, "clusters": {}}
        self.show(lines)
        return {"changed": False, "clusters": {cluster: described}}

    def _collect_logs(self, aws: Aws, options: Mapping[str, Any], folder: Path, connection: str) -> dict[str, Any]:
        """Write an archive of logs. The file does not count as a change of the cluster."""
        cluster = options["cluster"]
        resources = ResourceReader(aws, cluster).read()
        name = f"{cluster}-logs-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz"
        file = Path(options["file"] or folder / "logs" / name).expanduser()
        access = hosts.ssh_access(connection, host_keys.ssh_files(folder, cluster)[1].absolute())
        node, run_id, display = options["node"], options["run_id"], self._display.display
        collector = logs.LogCollector(aws, resources, access, options["efs_mount"], node, run_id, display)
        if not resources.current:
            raise UserError(f"There is no cluster {cluster} in {aws.place}, so there are no logs of it.")
        described: dict[str, Any] = {}
        try:
            described = _summary(aws, resources, options, folder, untagged.read(aws, resources))
        except AwsError as error:
            # Logs are most useful where something is wrong.
            collector.problems.append(f"The cluster cannot be described: {error}")
        result: dict[str, Any] = {"changed": False, "clusters": {cluster: described}}
        if self.check_mode:
            return result
        try:
            with logs.new_archive(file) as archive:
                collector.collect(archive, described, folder / f"{cluster}.health.json")
        except OSError as error:
            raise UserError(f"{error.filename or file} cannot be written: {error.strerror}.") from None
        self.show(logs.result_lines(cluster, file, collector))
        return {**result, "archive": str(file), "answered": collector.answered, "problems": collector.problems}

    def _save(
        self, described: dict[str, Any], resources: ClusterResources, file: Path, unread: list[str] | None = None
    ) -> list[str]:
        """Write the summary to its file, and return it as text. The file does not count as a change of the cluster.

        `unread`: what could not be read about a cluster whose playbook has failed; None: none has failed.
        """
        if not self.check_mode:
            try:
                write_if_changed(str(file), json.dumps(described, indent=2, sort_keys=True) + "\n", 0o600)
            except OSError as error:
                self._display.warning(f"The summary cannot be written to {file}: {error.strerror}.")
        if unread is not None:
            return summary.failure_lines(described, resources, str(file) if file.exists() else "", unread)
        details = status.lines(described) if "members" in described else None
        lines = summary.summary_lines(described, resources, str(file) if file.exists() else "", details)
        # Commands are typed in this folder. In the JSON paths stay absolute.
        return [line.replace(f" {HERE}", " ") for line in lines]


def _summary(
    aws: Aws, resources: ClusterResources, options: Mapping[str, Any], folder: Path, surroundings: untagged.Surroundings
) -> dict[str, Any]:
    ssh_config = host_keys.ssh_files(folder, resources.cluster)[1]
    history = GroupHistory(aws)
    idle_minutes = read_idle_minutes(aws, resources) or options["idle_minutes"]
    counted = untagged.with_untagged(resources, surroundings)
    context = _context(options, ssh_config, idle_minutes, costs.read_costs(aws, counted, history))
    context = replace(context, lock=_lock(aws, resources, options["show"]), surroundings=surroundings)
    described = summary.describe(resources, health_of(resources, shortages_of(aws, resources, history)), context)
    if options["show"] != "status":
        return described
    access = hosts.ssh_access(host_keys.JUMP, ssh_config)
    seen = status_reader.observe(aws, resources, history, described, access)
    return status.extend(described, resources, seen, datetime.now(UTC), context.costs.prices)


def _lock(aws: Aws, resources: ClusterResources, show: str) -> str:
    """Return who holds the cluster's lock, where people read it."""
    if show not in ("summary", "status") or not resources.current:
        return ""
    return holding.describe(LockStore(aws, resources.cluster))


def _data_bucket_lines(aws: Aws) -> list[str]:
    try:
        return data_bucket.describe(aws)
    except AwsError as error:
        if error.is_fatal:
            raise
        return [f"The bucket of data sets cannot be read: {one_line(str(error))}"]


def _failure_summary(
    aws: Aws, resources: ClusterResources, options: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Return the summary of a cluster whose playbook has failed, and what could not be read for it."""
    unread = []
    idle_minutes = options["idle_minutes"]
    try:
        idle_minutes = read_idle_minutes(aws, resources) or idle_minutes
    except AwsError as error:
        unread.append(f"idle minutes: {error}")
    ssh_config = host_keys.ssh_files(folder, resources.cluster)[1]
    surroundings = untagged.NOTHING
    try:
        surroundings = untagged.read(aws, resources)
    except AwsError as error:
        unread.append(f"resources without the cluster's tag: {error}")
    counted = untagged.with_untagged(resources, surroundings)
    context = _context(options, ssh_config, idle_minutes, costs.read_costs(aws, counted, GroupHistory(aws)))
    context = replace(context, surroundings=surroundings)
    # Why machines are missing is a part of the failure itself.
    return summary.describe(resources, health_of(resources), context), unread


def _context(
    options: Mapping[str, Any], ssh_config: Path, idle_minutes: int, known_costs: costs.Costs
) -> summary.Context:
    return summary.Context(
        user=options["user"],
        private_key_file=options["private_key_file"],
        hourly=options["hourly"],
        idle_minutes=idle_minutes,
        next=options["next"],
        failure=options["failure"],
        again=repeat_options(),
        ssh_config=str(ssh_config),
        costs=known_costs,
    )


def _folder(task_vars: Mapping[str, Any]) -> Path:
    """Return the inventory's folder for files about clusters, such as the configuration for ssh."""
    if "deeplearning_folder" not in task_vars:
        raise UserError(
            "deeplearning_folder is not set: give an inventory of the plugin deeplearning.aws.cluster. "
            "Example: -i inventory/aws.deeplearning.yml"
        )
    return Path(str(task_vars["deeplearning_folder"]))
