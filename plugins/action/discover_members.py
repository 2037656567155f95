# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Discover a cluster's members and their host keys, and write the files for ssh. plugin_utils/members decides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import atomic_file
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import EMR_USER
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.tables import join_names
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import host_keys
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.host_key_discovery import HostKeyDiscovery
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import Cluster, ClusterNode
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.costs import read_machine_prices
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import setup_end


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        timeout = 0 if self.check_mode else options["wait_seconds"]
        aws = Aws.from_options(options)
        discovery = HostKeyDiscovery(aws, options["cluster"])
        cluster, reports = discovery.run(timeout, self._display.display, options["wait_for_ranks"])
        facts = discovery.facts(cluster)
        for instance in discovery.invalid_reports:
            bucket = discovery.names.bucket
            self._display.warning(f"The report of {instance} in {bucket} is not in the expected form: it is ignored.")
        try:
            changed = self._write(cluster, reports, options)
        except OSError as error:
            raise UserError(f"{error.filename} cannot be written: {error.strerror}. Give another folder.") from error
        if options["delete_setup_end"] and not self.check_mode and not cluster.job_flow:
            changed = setup_end.delete_if_in_service(aws, options["cluster"], self._display.warning) or changed
        result: dict[str, Any] = {
            "changed": changed,
            "cluster": facts | {"user": _login(cluster, options).user},
            "data_bucket": discovery.names.data_bucket,
            "members": [_member(node, reports) for node in cluster.nodes],
        }
        if options["with_prices"]:
            types = sorted({str(node.record["type"]) for node in cluster.nodes})
            result["prices"] = read_machine_prices(aws, types, bool(cluster.job_flow))
        unknown = [node.name for node in discovery.without_keys(cluster)]
        if not cluster.master:
            result |= {"failed": True, "msg": _no_master(options["cluster"], timeout)}
        elif unknown and not self.check_mode:
            result |= {"failed": True, "msg": _unknown_keys(unknown, timeout)}
        return result

    def _write(self, cluster: Cluster, reports: Mapping[str, host_keys.NodeReport], options: Mapping[str, Any]) -> bool:
        """Write both files, without machines whose keys are unknown: ssh must not connect to those."""
        known = [node for node in cluster.nodes if node.id in reports]
        hosts, config = (Path(file).absolute() for file in host_keys.ssh_files(options["folder"], options["cluster"]))
        texts = {
            hosts: host_keys.known_hosts(known, reports),
            config: host_keys.ssh_config(cluster.name, known, _login(cluster, options), str(hosts), str(config)),
        }
        if self.check_mode:
            return any(not file.exists() or file.read_text(encoding="utf-8") != text for file, text in texts.items())
        changed = [atomic_file.write_if_changed(str(file), text, mode=0o600) for file, text in texts.items()]
        return any(changed)


def _login(cluster: Cluster, options: Mapping[str, Any]) -> host_keys.Login:
    users = (str(node.record["user"]) for node in cluster.nodes)
    key = options["private_key_file"]
    return host_keys.Login(
        EMR_USER if cluster.job_flow else options["user"] or next(filter(None, users), ""),
        str(Path(key).absolute()) if key else "",
        options["connection"],
        options["region"],
        options["profile"],
        options["bastion"],
    )


def _member(node: ClusterNode, reports: Mapping[str, host_keys.NodeReport]) -> dict[str, Any]:
    report = reports.get(node.id)
    return {
        "name": node.name,
        "instance_id": node.id,
        "role": node.role,
        "rank": node.rank,
        "private_address": node.record["private_address"],
        "type": node.record["type"],
        "gpus": report.gpus if report else None,
        "bundle": report.bundle if report else "",
        "held": bool(report and report.is_held),
    }


def _no_master(cluster: str, seconds: float) -> str:
    return (
        f"The cluster {cluster} has no master after {seconds:g} s: Auto Scaling should be starting one. See the reason "
        "with ansible-playbook deeplearning.aws.status, then run this again."
    )


def _unknown_keys(names: list[str], seconds: float) -> str:
    return (
        f"The host keys of {join_names(names)} are unknown after {seconds:g} s: neither a report of theirs nor their "
        "console (GetConsoleOutput) has them. Wait for machines that still boot and run this again; a machine that "
        "hangs is replaced when it is terminated. Example: aws ec2 terminate-instances --instance-ids "
        "i-0123456789abcdef0"
    )
