# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Judge a cluster by the health checks of its nodes: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.contract import problems
from ...module_utils.contract.frameworks import DISTRIBUTIONS
from ...module_utils.contract.problems import CHECKS
from ...module_utils.contract.tables import text_table
from .. import untrusted as u
from ..runs import answers

SCHEMA = 1
SHOWN_NODES = 32
"""The most nodes in a full table. With more, only the nodes with a failing check are in it."""

ALL = "all"
"""Instead of a node's name: a check of all nodes together."""

Check = dict[str, Any]
Result = Mapping[str, Any]
"""What Ansible registered when a node checked itself."""

_CHECK = u.record(
    name=u.one_of(*(name for name in CHECKS if "." not in name)),
    ok=u.boolean,
    detail=u.words,
    problem=u.optional(u.words),
)
_NODE = u.record(
    generation=u.count, environments=u.map_of(u.words, u.words, 100), checks=u.list_of(_CHECK, len(CHECKS))
)
_TRAINING = u.record(framework=answers.framework, checks=u.list_of(_CHECK, len(CHECKS)))


def verdict(
    results: Mapping[str, Result], joining: Iterable[str] = (), training: Result | None = None
) -> dict[str, Any]:
    """Return all checks of all nodes, and whether every one passes. `training`: the result of a short run on them."""
    nodes = {node: _checks_of_node(node, result) for node, result in results.items()}
    checks = [check for answer in nodes.values() for check in answer["checks"]]
    checks += _outdated({node: answer["generation"] for node, answer in nodes.items() if "generation" in answer})
    run = _checks_of_training(training) if training is not None else {}
    environments = {node: answer["environments"] for node, answer in nodes.items() if "environments" in answer}
    checks += _versions(environments, run.get("framework", ""))
    checks += [_check(machine, "member", "it is no member yet", problems.CONFIGURE) for machine in joining]
    checks += run.get("checks", [])
    if not checks:
        checks = [_check("-", "cluster", "it has no machine", problems.NO_MACHINE)]
    return {"schema": SCHEMA, "ok": all(check["ok"] for check in checks), "checks": checks}


def _checks_of_node(node: str, result: Result) -> dict[str, Any]:
    """Return the node's own answer, or the one check that explains why it is missing."""
    if result.get("unreachable") or not result:
        words = str(result.get("msg", "")).strip().splitlines() or ["it was not checked"]
        return {"checks": [_check(node, "reachable", u.one_line(words[-1]), problems.UNREACHABLE)]}
    try:
        answer = _NODE(u.from_json(str(result.get("stdout", ""))))
    except u.InvalidValue:
        return {"checks": [_check(node, "reachable", _last_line(result), problems.CONFIGURE)]}
    environments = {name: version for name, version in answer["environments"].items() if name in DISTRIBUTIONS}
    checks = [_check(node, "reachable", "", ok=True), *(_with_advice(node, check) for check in answer["checks"])]
    return {"generation": answer["generation"], "environments": environments, "checks": checks}


def _last_line(result: Result) -> str:
    """Return the last line of the errors of a program that failed."""
    if str(result.get("stdout") or "").strip():
        return "it answers as another version of the program does"
    words = str(result.get("stderr") or result.get("msg") or "").strip().splitlines()
    return u.one_line(words[-1]) if words else "it gave no answer"


def _outdated(generations: Mapping[str, int]) -> list[Check]:
    newest, problem = max(generations.values(), default=0), problems.MEMBER_LIST_OLD
    return [
        _check(node, "members", problem.text.format(number=number, newest=newest), problem.advice)
        for node, number in generations.items()
        if number < newest
    ]


def _versions(environments: Mapping[str, Mapping[str, str]], framework: str) -> list[Check]:
    """Return a check of each node whose versions of frameworks differ from most nodes.

    With `framework`, return one of every node: it also fails where that framework is not installed.
    """
    names = {name for installed in environments.values() for name in installed}
    usual = {
        name: Counter(installed[name] for installed in environments.values() if name in installed).most_common(1)[0][0]
        for name in names
    }
    checks = []
    for node, installed in environments.items():
        wrong = [name for name, version in sorted(installed.items()) if version != usual[name]]
        if wrong:
            detail = f"its {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} of other versions than elsewhere"
        else:
            wrong = [framework] if framework and framework not in installed else []
            detail = f"it has no {framework}" if wrong else f"{framework} as on all nodes"
        fix = problems.INSTALL_ALIKE.format(framework=wrong[0]) if wrong else ""
        if wrong or framework:
            checks.append(_check(node, "versions", detail, fix, ok=not wrong))
    return checks


def _checks_of_training(training: Result) -> dict[str, Any]:
    """Return the framework of the short run, and its checks."""
    try:
        answer = _TRAINING(u.from_json(str(training.get("stdout", ""))))
    except u.InvalidValue:
        return {"checks": [_check(ALL, "all-reduce", _last_line(training), problems.CONFIGURE)]}
    framework = answer["framework"]
    return {"framework": framework, "checks": [_with_advice(ALL, check, framework) for check in answer["checks"]]}


def _with_advice(node: str, check: Mapping[str, Any], framework: str = "") -> Check:
    problem = CHECKS.get(f"{check['name']}.{check['problem']}", CHECKS[check["name"]])
    advice = problem.advice.format(framework=framework, node="…" if node == ALL else node)
    return _check(node, check["name"], check["detail"], "" if check["ok"] else advice, check["ok"])


def _check(node: str, name: str, detail: str, fix: str = "", ok: bool = False) -> Check:
    return {"node": node, "name": name, "ok": ok, "detail": detail, "fix": fix}


def verdict_lines(cluster: str, verdict: Mapping[str, Any]) -> list[str]:
    """Return the verdict as text: a table of nodes and checks, each failing check with its advice, the conclusion."""
    checks = verdict["checks"]
    failing = [check for check in checks if not check["ok"]]
    nodes = list(dict.fromkeys(check["node"] for check in checks))
    shown = nodes if len(nodes) <= SHOWN_NODES else list(dict.fromkeys(check["node"] for check in failing))
    hidden = len(nodes) - len(shown)
    together = [check for check in checks if check["node"] == ALL and check["ok"]]
    return [
        *_table(shown, checks),
        *([f"  and {hidden} nodes on which every check passes"] if hidden else []),
        *[f"{check['name']}: {check['detail']}" for check in together],
        *[line for check in failing for line in _failure_lines(check)],
        _conclusion(cluster, len([node for node in nodes if node != ALL]), len(checks), len(failing)),
    ]


def _table(nodes: Sequence[str], checks: Sequence[Check]) -> list[str]:
    if not nodes:
        return []
    names = list(dict.fromkeys(check["name"] for check in checks if check["node"] in nodes))
    state = {(check["node"], check["name"]): "ok" if check["ok"] else "FAILS" for check in checks}
    rows = [["", *names], *([node, *(state.get((node, name), "-") for name in names)] for node in nodes)]
    return text_table(rows, "  ")


def _failure_lines(check: Check) -> list[str]:
    lines = [f"{check['node']}, {check['name']}: {check['detail']}"]
    return [*lines, f"    what to do: {check['fix']}"] if check["fix"] else lines


def _conclusion(cluster: str, nodes: int, checks: int, failing: int) -> str:
    if failing:
        return f"Cluster {cluster} is not healthy: {failing} {'check fails' if failing == 1 else 'checks fail'}."
    return f"Cluster {cluster} is healthy: {nodes} {'node' if nodes == 1 else 'nodes'}, all {checks} checks pass."
