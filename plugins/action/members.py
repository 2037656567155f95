# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Meets the members of a cluster, and tells ssh of them. The thinking is in plugin_utils/_meeting.py and _trust.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import MASTER, MASTER_ALIAS
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import listed
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking, _trust
from ansible_collections.deeplearning.aws.plugins.plugin_utils._meeting import Reader
from ansible_collections.deeplearning.aws.plugins.plugin_utils._members import Cluster, Place
from ansible_collections.deeplearning.aws.plugins.plugin_utils._writing import replaced

ARGUMENTS: dict[str, dict[str, Any]] = {
    **_looking.SPEC,
    "folder": {"type": "path", "default": ".deeplearning"},
    "user": {"type": "str", "default": ""},
    "private_key_file": {"type": "path", "default": ""},
    "connection": {"type": "str", "default": _trust.JUMP, "choices": list(_trust.CONNECTIONS)},
    "wait_seconds": {"type": "int", "default": 600},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]
        wait = 0 if self._task.check_mode else given["wait_seconds"]
        try:
            reader = Reader(_looking.aws_of(given), given["cluster"])
            cluster, reports = reader.meet(wait, Display().display)
            facts = reader.facts()
        except AwsProblem as problem:
            return {"failed": True, "msg": str(problem)}
        for instance in reader.strange:
            Display().warning(f"The report of {instance} in {reader.names.bucket} is none of ours: it does not count.")
        try:
            changed = self._write(cluster, reports, given)
        except OSError as error:
            return {"failed": True, "msg": f"{error.filename} cannot be written: {error.strerror}. Give a folder."}
        result: dict[str, Any] = {
            "changed": changed,
            "cluster": facts | {"user": _login(cluster, given).user},
            "members": [_told(place, reports) for place in cluster.places],
        }
        silent = [place.name for place in reader.silent(cluster)]
        if not cluster.master:
            result |= {"failed": True, "msg": _no_master(given["cluster"], wait)}
        elif silent and not self._task.check_mode:
            result |= {"failed": True, "msg": _unknown(silent, wait)}
        return result

    def _write(self, cluster: Cluster, reports: Mapping[str, _trust.Report], given: Mapping[str, Any]) -> bool:
        """Both files. The machines whose keys are unknown are left out: ssh goes to nobody whom it cannot know."""
        known = [_known(place, reports) for place in cluster.places if place.record["id"] in reports]
        hosts, config = (Path(file).absolute() for file in _trust.files(given["folder"], given["cluster"]))
        texts = {
            hosts: _trust.known_hosts(known),
            config: _trust.ssh_config(cluster.name, known, _login(cluster, given), str(hosts), str(config)),
        }
        if self._task.check_mode:
            return any(not file.exists() or file.read_text(encoding="utf-8") != text for file, text in texts.items())
        written = [file for file, text in texts.items() if replaced(file, text)]
        return bool(written)


def _login(cluster: Cluster, given: Mapping[str, Any]) -> _trust.Login:
    tagged = next((str(place.record["user"]) for place in cluster.places if place.record["user"]), "")
    key = given["private_key_file"]
    return _trust.Login(
        given["user"] or tagged,
        str(Path(key).absolute()) if key else "",
        given["connection"],
        given["region"],
        given["profile"],
    )


def _known(place: Place, reports: Mapping[str, _trust.Report]) -> _trust.Known:
    record = place.record
    return _trust.Known(
        id=str(record["id"]),
        names=[place.name, MASTER_ALIAS] if place.rank == 1 else [place.name],
        # The master alone is open to the outside, wherever somebody's own subnets may be.
        public_address=str(record["public_address"]) if place.role == MASTER else "",
        private_address=str(record["private_address"]),
        private_name=str(record["private_name"]),
        host_keys=reports[str(record["id"])].host_keys,
    )


def _told(place: Place, reports: Mapping[str, _trust.Report]) -> dict[str, Any]:
    report = reports.get(str(place.record["id"]))
    return {
        "name": place.name,
        "instance_id": place.record["id"],
        "role": place.role,
        "rank": place.rank,
        "private_address": place.record["private_address"],
        "gpus": report.gpus if report else None,
    }


def _no_master(cluster: str, seconds: float) -> str:
    return (
        f"The cluster {cluster} has no master after {seconds:g} s: Auto Scaling should be starting one. See what it "
        "says with ansible-playbook status.yml, and run this again."
    )


def _unknown(silent: list[str], seconds: float) -> str:
    return (
        f"The host keys of {listed(silent)} are unknown after {seconds:g} s: neither a report of theirs nor their "
        "console (GetConsoleOutput) tells them. Wait for what still boots and run this again; what hangs is replaced "
        "when it is terminated. Example: aws ec2 terminate-instances --instance-ids i-0123456789abcdef0"
    )
