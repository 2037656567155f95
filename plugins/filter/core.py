# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The filters. What each does is documented in the YAML file of its name."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isfunction
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import iam_action, refusal
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, frameworks, names, paths, ports
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import build, shared
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.hosts import host_name
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import RANK_TAG, RUN_TAG
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import once
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import format_time
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.holding import held_lock, verify
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_request import evaluation_request, run_plan
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import one_line
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import health

CONTRACT = {"boot": boot, "frameworks": frameworks, "names": names, "paths": paths, "ports": ports}
FILES = Path(__file__).resolve().parents[2] / "roles/framework/files"
PIN_LENGTH = 12
_ERROR = re.compile(r"An error occurred \(([\w.]+)\) when calling the (\w+) operation[^:]*: ?(.*)", re.DOTALL)
_SERVICES = {"UnsupportedAvailabilityZone": "EFS", "NotAvailableInZone": "NAT gateways"}
"""By the codes of efs:CreateMountTarget and ec2:CreateNatGateway in a zone that AWS does not offer them in."""
_SERVICE_CODE = re.compile(rf"\(({'|'.join(_SERVICES)})\)")
SSH_DESCRIPTION = "deeplearning: ssh from cluster_ssh_allowed_cidrs"
"""Marks the rules that the settings made."""
_SSH = 22
# Where ec2_security_group_info lists the peers of a rule, its key for them, and ec2_security_group's option.
_PEERS = (
    ("ip_ranges", "cidr_ip", "cidr_ip"),
    ("ipv6_ranges", "cidr_ipv6", "cidr_ipv6"),
    ("user_id_group_pairs", "group_id", "group_id"),
    ("prefix_list_ids", "prefix_list_id", "ip_prefix"),
)
_RANK = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_UNRANKED = 100_000
"""Above all ranks."""


def contract(name: str, *arguments: str) -> Any:
    module, _dot, attribute = name.partition(".")
    value = getattr(CONTRACT.get(module), attribute, None)
    if arguments and isfunction(value):
        return value(*arguments)
    if not attribute.isupper() or value is None or arguments:
        raise AnsibleFilterError(f"{name} is no constant of the contract.")
    return value


def cluster_record(cluster: Mapping[str, Any], facts: Mapping[str, Any], emr: bool | str) -> dict[str, Any]:
    return shared(cluster, facts, bool(emr))


def node_config(cluster: Mapping[str, Any], role: str, gpus: int | str | None = None) -> str:
    try:
        content = build(json.loads(json.dumps(dict(cluster))), role, None if gpus is None else int(gpus))
    except UserError as error:
        raise AnsibleFilterError(str(error)) from None
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def member_policy(role: str, *, read: Iterable[str] = (), write: Iterable[str] = (), **access: Any) -> dict[str, Any]:
    return policy_for(role, MemberAccess(read=_locations(read), write=_locations(write), **access))


def _locations(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(value).rstrip("/") for value in values)


def schedule_once(seconds: float | str, kind: str) -> dict[str, str]:
    action = once(kind, float(seconds))
    return {
        "start_time": format_time(action["StartTime"].timestamp()),
        "end_time": format_time(action["EndTime"].timestamp()),
        "recurrence": action["Recurrence"],
    }


def framework_pins(chosen: Iterable[str]) -> dict[str, str]:
    pins = {}
    for name in list(chosen) or frameworks.FRAMEWORKS:
        files = sorted((FILES / name).glob("requirements-*.txt"))
        pins[name] = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:PIN_LENGTH]
    return pins


def gpu_tables(chosen: Iterable[str]) -> dict[str, Any]:
    tables = {name: FILES / name / "gpu.json" for name in list(chosen) or frameworks.FRAMEWORKS}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in tables.items()}


def while_locked(value: Any, taken: Mapping[str, Any]) -> Any:
    lock = held_lock(taken)
    if lock is not None:
        try:
            verify(lock)
        except UserError as error:
            raise AnsibleFilterError(str(error)) from None
    return value


def answer(text: Any, name: str) -> dict[str, Any]:
    try:
        return answers.parse("A node", name.split(), str(text))
    except UserError as error:
        raise AnsibleFilterError(str(error)) from None


def health_verdict(
    results: Mapping[str, Any], cluster: str, joining: Sequence[str] = (), training: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    run = training if training and not training.get("skipped") else None
    verdict = health.verdict(results, joining, run)
    return {**verdict, "lines": health.verdict_lines(cluster, verdict)}


def failure_reason(result: Mapping[str, Any], action: str = "") -> str:
    """Explain why a task failed, also where a module of amazon.aws passes on AWS's own text."""
    failed = next((item for item in result.get("results") or () if item.get("failed")), result)
    message = str(failed.get("msg") or "The task failed without a message: -v prints its result.")
    error = _ERROR.search(message)
    if not error or not action.startswith("amazon.aws."):
        return message
    code, operation, words = error.groups()
    service = action.removeprefix("amazon.aws.").split("_")[0]
    return str(refusal(code, " ".join(words.split()), iam_action(service, operation)))


def missing_service(result: Mapping[str, Any]) -> str:
    code = _SERVICE_CODE.search(str(result.get("msg", ""))) if result.get("failed") else None
    return _SERVICES[code[1]] if code else ""


def ssh_rules(
    permissions: Iterable[Mapping[str, Any]], locations: Iterable[str], purge: bool = False, owner: str = ""
) -> list[dict[str, Any]]:
    own = list(dict.fromkeys(_ssh_peer(block) for block in locations))
    rules = [{"proto": "tcp", "ports": [_SSH], option: block, "rule_desc": SSH_DESCRIPTION} for option, block in own]
    if purge:
        return rules
    for rule in _existing_ssh_rules(permissions, owner):
        same = any(
            rule.get(option) == block and (rule["proto"], rule.get("from_port"), rule.get("to_port")) == ("tcp", 22, 22)
            for option, block in own
        )
        if rule.get("rule_desc") != SSH_DESCRIPTION and not same:
            rules.append(rule)
    return rules


def _ssh_peer(block: str) -> tuple[str, str]:
    """Return the option of ec2_security_group for a block, and the block as EC2 writes it."""
    network = ipaddress.ip_network(block, strict=False)
    return "cidr_ip" if network.version == 4 else "cidr_ipv6", str(network)


def _existing_ssh_rules(permissions: Iterable[Mapping[str, Any]], owner: str) -> Iterator[dict[str, Any]]:
    for permission in permissions:
        rule = {
            "proto": permission["ip_protocol"],
            "from_port": permission.get("from_port"),
            "to_port": permission.get("to_port"),
        }
        for peers, key, option in _PEERS:
            for peer in permission.get(peers) or ():
                name = _foreign(peer) if option == "group_id" and peer.get("user_id", owner) != owner else peer[key]
                described = {**rule, option: name, "rule_desc": peer.get("description")}
                yield {name: value for name, value in described.items() if value is not None}


def _foreign(peer: Mapping[str, Any]) -> str:
    """Return how ec2_security_group names a security group of another account."""
    return f"{peer['user_id']}/{peer['group_id']}/{peer.get('group_name') or 'peer'}"


def surplus_workers(
    group: Mapping[str, Any], machines: Sequence[Mapping[str, Any]], desired_capacity: int
) -> list[dict[str, Any]]:
    ranks = {machine["instance_id"]: _rank(machine) for machine in machines}
    runs = {machine["instance_id"]: str(machine["tags"].get(RUN_TAG, "")) for machine in machines}
    present = [
        (ranks.get(item["instance_id"], _UNRANKED), item)
        for item in group["instances"]
        if not item["lifecycle_state"].startswith("Terminat")
    ]
    present.sort(key=lambda ranked: ranked[0], reverse=True)
    return [
        {
            "instance_id": item["instance_id"],
            "name": item["instance_id"] if rank == _UNRANKED else host_name(rank),
            "run": runs.get(item["instance_id"], ""),
        }
        for rank, item in present[: max(0, len(present) - int(desired_capacity))]
    ]


def _rank(machine: Mapping[str, Any]) -> int:
    tag = str(machine["tags"].get(RANK_TAG, ""))
    return int(tag) if _RANK.fullmatch(tag) else _UNRANKED


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        functions = (
            *(answer, cluster_record, contract, evaluation_request, failure_reason, framework_pins, gpu_tables),
            *(health_verdict, member_policy, missing_service, node_config, one_line, run_plan, schedule_once),
            *(ssh_rules, surplus_workers, while_locked),
        )
        return {function.__name__: function for function in functions}
