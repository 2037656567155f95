# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From what each node says of itself to a verdict on the cluster: pure functions.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import _answers
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils._arguments import DISTRIBUTIONS

SCHEMA = 1
SHOWN_NODES = 32
"""A table of more says nothing to a person: from there on only the nodes with a failing check are in it."""

ALL = "all"
"""In the place of a node: what concerns all of them together."""

Check = dict[str, Any]
Seen = Mapping[str, Any]
"""What Ansible has registered of the node's own look."""

_CONFIGURE = "ansible-playbook configure.yml"
ADVICE: Mapping[str, str] = {
    "disk": "remove what is not needed, or give cluster_root_volume_gib",
    "memory": "find out on the node what uses it: ps aux --sort -rss | head",
    "clock": "let it follow AWS's clock, on the node: sudo chronyc makestep",
    "member": _CONFIGURE,
    "member.timers": f"{_CONFIGURE} enables them, or on the node: sudo systemctl enable --now and their names",
    "names": "on the node: sudo deeplearning members apply",
    "ssh": _CONFIGURE,
    "efs": f"is there a mount target in the node's zone? {_CONFIGURE} mounts it",
    "efs.other": "on the nodes, mount | grep nfs4: is it the same file system everywhere?",
    "efs.silent": "wait: what uses it resumes as soon as it answers; AWS's health dashboard may tell when",
    "gpus": "replace the machine: terminate it in EC2, and Auto Scaling launches another",
    "gpus.differ": "give all nodes the same instance type",
    "driver": "reboot the node; if that is not enough, replace the machine",
    "xid": "see NVIDIA's list of Xid errors; mostly: replace the machine",
    "bandwidth": "look for other traffic, then replace one of the two machines",
    "bandwidth.ssh": _CONFIGURE,
    "bandwidth.unreachable": "do the security groups let members reach each other on all ports?",
    "all-reduce": "ansible-playbook health.yml shows which connection is slow",
    "all-reduce.refused": "ansible-playbook train.yml -e framework={} installs the same everywhere",
    "all-reduce.failed": "see the logs on the master",
    "all-reduce.wrong": "see the logs on the master, and do not train",
    "space": "remove old runs, or give runs_dir",
}
"""What to do about a check that fails: by its name, or its name and its problem. It stands on this side, as a node must
not be able to tell the operator what to run."""

_CHECK = u.record(
    name=u.choice(*(name for name in ADVICE if "." not in name)), ok=u.flag, detail=u.words, problem=u.optional(u.words)
)
_NODE = u.record(
    generation=u.count, environments=u.map_of(u.words, u.words, 100), checks=u.list_of(_CHECK, len(ADVICE))
)
_TRAINING = u.record(framework=_answers.framework, checks=u.list_of(_CHECK, len(ADVICE)))


def verdict(seen: Mapping[str, Seen], joining: Iterable[str] = (), training: Seen | None = None) -> dict[str, Any]:
    """All checks of all nodes, and whether every one passes. `training`: what a short run over all of them gave."""
    said = {node: _said(node, result) for node, result in seen.items()}
    checks = [check for node in seen for check in said[node]["checks"]]
    checks += _behind({node: answer["generation"] for node, answer in said.items() if "generation" in answer})
    tried = _of_training(training) if training is not None else {}
    environments = {node: answer["environments"] for node, answer in said.items() if "environments" in answer}
    checks += _versions(environments, tried.get("framework", ""))
    checks += [_joining(machine) for machine in joining]
    checks += tried.get("checks", [])
    if not checks:
        fix = "ansible-playbook site.yml makes one, ansible-playbook status.yml says which clusters there are"
        checks = [_check("-", "cluster", "it has no machine", fix)]
    return {"schema": SCHEMA, "ok": all(check["ok"] for check in checks), "checks": checks}


def _said(node: str, result: Seen) -> dict[str, Any]:
    """The node's own answer, or the one check that says why there is none."""
    if result.get("unreachable") or not result:
        words = str(result.get("msg", "")).strip().splitlines() or ["it was not asked"]
        fix = "is it running, and may this address log in (cluster_ssh_location)? ansible-playbook status.yml"
        return {"checks": [_check(node, "reachable", u.one_line(words[-1]), fix)]}
    try:
        answer = _NODE(u.from_json(str(result.get("stdout", ""))))
    except u.Malformed:
        return {"checks": [_check(node, "reachable", _last_word(result), _CONFIGURE)]}
    known = {name: version for name, version in answer["environments"].items() if name in DISTRIBUTIONS}
    checks = [_check(node, "reachable", "", ok=True), *(_of_node(node, check) for check in answer["checks"])]
    return {"generation": answer["generation"], "environments": known, "checks": checks}


def _last_word(result: Seen) -> str:
    """Of a program that did not do its work."""
    if str(result.get("stdout") or "").strip():
        return "it answers, but as another version of the program does"
    words = str(result.get("stderr") or result.get("msg") or "").strip().splitlines()
    return u.one_line(words[-1]) if words else "it gave no answer"


def _behind(generations: Mapping[str, int]) -> list[Check]:
    newest = max(generations.values(), default=0)
    return [
        _check(
            node,
            "members",
            f"it knows list {number} of the members, others {newest}",
            "sudo deeplearning members apply",
        )
        for node, number in generations.items()
        if number < newest
    ]


def _versions(environments: Mapping[str, Mapping[str, str]], wanted: str) -> list[Check]:
    """Nodes whose frameworks are of other versions than on most nodes; and all nodes, where one is `wanted`."""
    frameworks = {name for installed in environments.values() for name in installed}
    usual = {
        name: Counter(installed[name] for installed in environments.values() if name in installed).most_common(1)[0][0]
        for name in frameworks
    }
    checks = []
    for node, installed in environments.items():
        wrong = [name for name, version in sorted(installed.items()) if version != usual[name]]
        if wrong:
            words = f"its {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} of other versions than elsewhere"
        else:
            wrong = [wanted] if wanted and wanted not in installed else []
            words = f"it has no {wanted}" if wrong else f"{wanted} as on all nodes"
        fix = f"ansible-playbook train.yml -e framework={wrong[0]} installs the same everywhere" if wrong else ""
        if wrong or wanted:
            checks.append(_check(node, "versions", words, fix, ok=not wrong))
    return checks


def _of_training(training: Seen) -> dict[str, Any]:
    """What the short run was of, and what came of it."""
    try:
        answer = _TRAINING(u.from_json(str(training.get("stdout", ""))))
    except u.Malformed:
        return {"checks": [_check(ALL, "all-reduce", _last_word(training), _CONFIGURE)]}
    framework = answer["framework"]
    return {"framework": framework, "checks": [_of_node(ALL, check, framework) for check in answer["checks"]]}


def _of_node(node: str, check: Mapping[str, Any], framework: str = "") -> Check:
    """What passes needs nothing to be done."""
    advice = ADVICE.get(f"{check['name']}.{check['problem']}", ADVICE[check["name"]]).format(framework)
    return _check(node, check["name"], check["detail"], "" if check["ok"] else advice, check["ok"])


def _joining(machine: str) -> Check:
    return _check(machine, "member", "it is no member yet", _CONFIGURE)


def _check(node: str, name: str, detail: str, fix: str = "", ok: bool = False) -> Check:
    return {"node": node, "name": name, "ok": ok, "detail": detail, "fix": fix}


def lines(cluster: str, said: Mapping[str, Any]) -> list[str]:
    """The verdict for a person: a table of nodes and checks, then each failing check and what to do about it."""
    checks = said["checks"]
    failing = [check for check in checks if not check["ok"]]
    nodes = list(dict.fromkeys(check["node"] for check in checks))
    told = (
        nodes
        if len(nodes) <= SHOWN_NODES
        else [node for node in nodes if any(check["node"] == node for check in failing)]
    )
    left = len(nodes) - len(told)
    together = [check for check in checks if check["node"] == ALL and check["ok"]]
    return [
        *_table(told, checks),
        *([f"  and {left} nodes on which all is well"] if left else []),
        *[f"{check['name']}: {check['detail']}" for check in together],
        *[line for check in failing for line in _told(check)],
        _closing(cluster, len([node for node in nodes if node != ALL]), len(failing)),
    ]


def _table(nodes: Sequence[str], checks: Sequence[Check]) -> list[str]:
    names = list(dict.fromkeys(check["name"] for check in checks if check["node"] in nodes))
    state = {(check["node"], check["name"]): "ok" if check["ok"] else "FAILS" for check in checks}
    width = max((len(node) for node in nodes), default=0)
    rows = [["", *names], *([node, *(state.get((node, name), "-") for name in names)] for node in nodes)]
    return (
        ["  " + "  ".join([row[0].ljust(width), *map(_column, row[1:], names)]).rstrip() for row in rows]
        if nodes
        else []
    )


def _column(word: str, name: str) -> str:
    return word.ljust(max(len(name), len("FAILS")))


def _told(check: Check) -> list[str]:
    told = [f"{check['node']}, {check['name']}: {check['detail']}"]
    return [*told, f"    what to do: {check['fix']}"] if check["fix"] else told


def _closing(cluster: str, nodes: int, failing: int) -> str:
    if failing:
        return f"Cluster {cluster} is not well: {failing} {'check fails' if failing == 1 else 'checks fail'}."
    return f"Cluster {cluster} is well: {nodes} {'node' if nodes == 1 else 'nodes'}, all checks pass."
