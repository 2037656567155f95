# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The filters that are short. What each does is documented in the YAML file of its name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isfunction
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import iam_action, refusal
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, frameworks, names, paths, ports
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import build, shared
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import once
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import format_time
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for
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


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        functions = (
            *(answer, cluster_record, contract, evaluation_request, failure_reason, framework_pins, gpu_tables),
            *(health_verdict, member_policy, missing_service, node_config, one_line, run_plan, schedule_once),
        )
        return {function.__name__: function for function in functions}
