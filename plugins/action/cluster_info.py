# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Describe clusters. plugin_utils/cluster/summary.py builds the descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster import data_bucket, host_keys, hosts, summary
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.missing_machines import shortages_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.resource_reader import (
    ResourceReader,
    clusters_in,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.resources import (
    ClusterResources,
    health_of,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import repeat_options


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        folder = _folder(task_vars)
        aws = Aws.from_options(options)
        names = clusters_in(aws) if options["cluster"] == summary.ALL else [options["cluster"]]
        all_resources = [ResourceReader(aws, name).read() for name in names]
        summaries = {owned.cluster: _summary(aws, owned, options, folder) for owned in all_resources}
        if options["show"] == "none":
            return {"changed": False, "clusters": summaries}
        if options["cluster"] == summary.ALL or options["show"] == "resources":
            lines = summary.resource_lines(options["cluster"], aws.region, all_resources) + data_bucket.describe(aws)
        else:
            file = Path(options["file"] or folder / f"{options['cluster']}.json").expanduser()
            lines = self._save(summaries[options["cluster"]], all_resources[0], file)
        Display().display("\n" + "\n".join(lines) + "\n")
        return {"changed": False, "clusters": summaries}

    def _save(self, described: dict[str, Any], owned: ClusterResources, file: Path) -> list[str]:
        """Write the summary to its file, and return it as text. The file does not count as a change of the cluster."""
        if not self.check_mode:
            try:
                summary.write(file, described)
            except OSError as error:
                Display().warning(f"The summary cannot be written to {file}: {error.strerror}.")
        return summary.summary_lines(described, owned, str(file) if file.exists() else "")


def _summary(aws: Aws, owned: ClusterResources, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    context = summary.Context(
        user=options["user"],
        private_key_file=options["private_key_file"],
        hourly=options["hourly"],
        idle_minutes=options["idle_minutes"],
        next=options["next"],
        failure=options["failure"],
        again=repeat_options(),
        access=hosts.ssh_access(host_keys.JUMP, host_keys.ssh_files(folder, owned.cluster)[1]),
    )
    return summary.describe(owned, health_of(owned, shortages_of(aws, owned)), context)


def _folder(task_vars: Mapping[str, Any]) -> Path:
    """Return the inventory's folder for files about clusters, such as the configuration for ssh."""
    if "deeplearning_folder" not in task_vars:
        raise UserError(
            "deeplearning_folder is not set: give an inventory of the plugin deeplearning.aws.cluster. "
            "Example: -i inventory/aws.deeplearning.yml"
        )
    return Path(str(task_vars["deeplearning_folder"]))
