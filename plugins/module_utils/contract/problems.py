# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What may be wrong with a cluster: one list, with the threshold, the text and the advice of each problem.

status.yml, the status page, the greeting at a login, follow.yml and health.yml print these texts. tools/alert_rules.py
makes the alerts of Prometheus of them. A text names what is wrong, the value and where; an advice is what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import FAILED, FAULTY, HELD
from .tables import join_names

REPLACE = "ansible-playbook deeplearning.aws.replace -e node={node}"
CONFIGURE = "ansible-playbook deeplearning.aws.configure"
RELEASE = "reboot it, or release it on the node: sudo deeplearning gpus release"
STATUS = "ansible-playbook deeplearning.aws.status"
CHECK = "ansible-playbook deeplearning.aws.health shows which check fails"


@dataclass(frozen=True)
class Problem:
    id: str
    text: str
    advice: str = ""
    threshold: float = 0

    def sentence(self, **values: Any) -> str:
        """Return the text, and the advice if there is one. `values`: what they name."""
        return "; ".join(part.format(**values) for part in (self.text, self.advice) if part)


# Members

MEMBER_DOWN = Problem(
    "member_down",
    "{subject} does not answer",
    "ansible-playbook deeplearning.aws.health shows what is wrong, and Auto Scaling replaces a machine that has died",
)
MEMBERS_MISSING = Problem(
    "members_missing",
    "{desired} machines are desired and {count} are members",
    f"{STATUS} shows why machines are missing",
)
MEMBER_FAULTY = Problem("member_faulty", "{subject} reported a fault", CHECK)
HELD_REASON = "a GPU of it failed, or an operator has held it, which sudo deeplearning gpus release on it ends"
"""Where the member's own reason is not known."""
MEMBER_HELD = Problem("member_held", "{subject} is held: {reason}", f"replace it: {REPLACE}")
EMR_NODE_HELD = Problem("emr_node_held", MEMBER_HELD.text, RELEASE)
"""Auto Scaling does not replace nodes of EMR."""
MEMBER_SILENT = Problem(
    "member_silent",
    "{subject}: no load reported for {minutes:g} minutes",
    "ansible-playbook deeplearning.aws.health checks it",
    # Seconds. A load file that is older describes its node no more, and a machine has so long to write its first one.
    threshold=180,
)
GPUS_DIFFER = Problem("gpus_differ", "the numbers of GPUs differ: {counts}", "give all nodes the same instance type")
MEMBER_UNHEALTHY = Problem("member_unhealthy", "{subject}: unhealthy in its group", "Auto Scaling replaces it")
MEMBER_DETACHED = Problem("member_detached", "{subject}: not in its group any more, and billed", "terminate it in EC2")
MEMBER_FAILED = Problem(
    "member_failed", "{subject}: not able to configure itself", "ansible-playbook deeplearning.aws.logs has its log"
)
MEMBER_JOINING = Problem(
    "member_joining", "{subject}: not in the member list yet", "the master adds it once it has reported itself"
)
MEMBER_LIST_OLD = Problem(
    "member_list_old",
    "it has generation {number} of the member list, others have {newest}",
    "sudo deeplearning members apply",
)
DRIVER_FAULT = Problem("driver_fault", "{subject}: {error}", CHECK)
DISK_ALMOST_FULL = Problem(
    "disk_almost_full",
    "{subject}: its disk {path} is {percent} % full",
    "remove data sets and environments that are not needed, or set cluster_root_volume_gib",
    # Percent. A warning while there is time; CHECKS["disk"] is the space without which nodes cannot work.
    threshold=90,
)
MEMBER_REPLACED = Problem(
    "member_replaced", "{subject} was replaced at {at} UTC: Auto Scaling took it out of service after {reason}"
)
MASTER_SILENT = Problem("master_silent", "The master does not answer. {reason}")

SILENT = "silent"
BY_HEALTH: Mapping[str, Problem] = {
    "unhealthy": MEMBER_UNHEALTHY,
    "detached": MEMBER_DETACHED,
    FAULTY: MEMBER_FAULTY,
    FAILED: MEMBER_FAILED,
    SILENT: MEMBER_SILENT,
    "joining": MEMBER_JOINING,
}
"""A member that is held has a sentence of its own, with the reason."""

# Machines that will be launched

TEMPLATE_UNUSED = Problem(
    "template_unused",
    "{subject} launches machines by version {used} of its launch template, and {newest} is the newest",
    "ansible-playbook deeplearning.aws.site makes it use that",
)
TEMPLATE_CHANGED = Problem(
    "template_changed",
    "{subject}: launched with another {difference} than new machines of {group} get",
    "a machine keeps it until it is replaced",
)
BUNDLE_OLD = Problem(
    "bundle_old",
    "{subject}: configured by an old bundle",
    "ansible-playbook deeplearning.aws.site configures them again",
)
EMR_BUNDLE_OLD = Problem(
    "emr_bundle_old",
    "{subject}: configured by another bundle than the master",
    "ansible-playbook deeplearning.aws.emr configures them again",
)
IMAGE_GONE = Problem(
    "image_gone",
    "The image {subject} is not available any more, so Auto Scaling can launch no machine",
    "ansible-playbook deeplearning.aws.site takes the newest of its family",
)
IMAGE_OLD = Problem(
    "image_old",
    "The image {subject} was made on {day}, and the cluster keeps it",
    "give the id of a newer one as cluster_image, and run deeplearning.aws.site",
    # Days.
    threshold=180,
)

# Scheduled ends

NEAR_SECONDS = 3600
"""An end that is so near is a problem. The greeting at a login names each end at any time."""
END_TTL = Problem(
    "end_ttl",
    "All machines of this cluster end at {at}, and its file system stays",
    "ansible-playbook deeplearning.aws.extend -e hours=4 postpones it",
    threshold=NEAR_SECONDS,
)
END_IDLE = Problem(
    "end_idle", END_TTL.text, "a run, a login or other work until then postpones it", threshold=NEAR_SECONDS
)
END_SETUP = Problem(
    "end_setup",
    "The machines of {subject} end at {at}: no playbook has met one of them in service yet",
    "ansible-playbook deeplearning.aws.site tries again, ansible-playbook deeplearning.aws.extend sets another end in "
    "its place",
    threshold=NEAR_SECONDS,
)

# Runs, and the figures of Prometheus

STALL_COST = "Meanwhile its machines cost {cost}"
RUN_STALLED = Problem(
    "run_stalled",
    "Run {subject} is stalled: {reason}. " + STALL_COST,
    # files/node/deeplearning/runs/stall.py has the limits, which depend on the phase of a run.
    "to end it: ansible-playbook deeplearning.aws.stop -e run_id={subject}",
)
RUN_FIGURES_MISSING = Problem(
    "run_figures_missing",
    "the figures of members and runs are {age} old",
    "journalctl -u deeplearning-metrics on the master shows why",
    # Seconds.
    threshold=300,
)

# GPUs, by NVIDIA's exporter

GPU_ERROR = Problem(
    "gpu_error",
    "GPU {gpu} of {subject} has reported error Xid {xid}",
    "NVIDIA's list of Xid errors shows whether the program or the GPU is to blame",
)
GPU_MEMORY_FAILING = Problem(
    "gpu_memory_failing", "the memory of GPU {gpu} of {subject} is failing", f"replace it: {REPLACE}"
)

# The checks of health.yml

UNREACHABLE = f"is it running, and may this address log in (cluster_ssh_allowed_cidrs)? {STATUS}"
NO_MACHINE = f"ansible-playbook deeplearning.aws.site creates one, {STATUS} shows which clusters exist"
INSTALL_ALIKE = "ansible-playbook deeplearning.aws.train -e framework={framework} installs the same everywhere"
SEE_LOGS = "see the logs on the master"
OTHER_TRAFFIC = "look for other traffic, then replace"
_ADVICE: Mapping[str, str] = {
    "disk": "remove what is not needed, or give cluster_root_volume_gib",
    "memory": "find out on the node what uses it: ps aux --sort -rss | head",
    "clock": "let it follow AWS's clock, on the node: sudo chronyc makestep",
    "member": CONFIGURE,
    "member.timers": f"{CONFIGURE} enables them, or on the node: sudo systemctl enable --now and their names",
    "names": "on the node: sudo deeplearning members apply",
    "ssh": CONFIGURE,
    "efs": f"is there a mount target in the node's zone? {CONFIGURE} mounts it",
    "efs.other": "on the nodes, mount | grep nfs4: is it the same file system everywhere?",
    "efs.silent": "wait: what uses it resumes as soon as it answers; AWS's health dashboard may say when",
    "gpus": REPLACE,
    "gpus.differ": GPUS_DIFFER.advice,
    "driver": f"reboot the node; if that is not enough: {REPLACE}",
    "faults.reset": f"reboot the node, which resets its GPUs; if it happens again: {REPLACE}",
    "faults.reboot": f"reboot the node; if it happens again: {REPLACE}",
    "faults.replace": REPLACE,
    "faults": REPLACE,
    "held": f"{MEMBER_HELD.advice}. Or {RELEASE}",
    "efa": "compare with the other nodes",
    "bandwidth": f"{OTHER_TRAFFIC} one of the two machines: {REPLACE}",
    "bandwidth.ssh": CONFIGURE,
    "bandwidth.unreachable": "do the security groups let members reach each other on all ports?",
    "pairs": f"{OTHER_TRAFFIC} the named machine: {REPLACE}",
    "inside": f"health.yml shows faults of its GPUs; replace the named machine: {REPLACE}",
    "all-reduce": "ansible-playbook deeplearning.aws.health shows which connection is slow",
    "all-reduce.refused": INSTALL_ALIKE,
    "all-reduce.failed": SEE_LOGS,
    "all-reduce.late": f"try again, as a framework that is read for the first time starts slowly; then {SEE_LOGS}",
    "all-reduce.wrong": f"{SEE_LOGS}, and do not train",
    "space": "remove old runs, or give runs_dir",
}
_THRESHOLDS: Mapping[str, float] = {
    # MiB that are free on /, of memory, and for checkpoints: with less a run cannot work, on a disk of any size.
    "disk": 2048,
    "memory": 256,
    "space": 10240,
    # Seconds.
    "clock": 2,
}
CHECKS: Mapping[str, Problem] = {
    id_: Problem(id_, "{detail}", advice, _THRESHOLDS.get(id_, 0)) for id_, advice in _ADVICE.items()
}
"""The checks of a node and of all nodes together, by name, or by name and problem. The detail is the node's. The advice
is not: a node must not suggest commands to the operator."""


def of_members(members: Sequence[Mapping[str, Any]], is_emr: bool) -> list[str]:
    """Return what is wrong with members, each with its name, instance, health and load, and why it is held."""
    sentences = []
    for health, problem in BY_HEALTH.items():
        names = [member["name"] for member in members if member["health"] == health]
        if names:
            sentences.append(problem.sentence(subject=join_names(names), minutes=problem.threshold / 60))
    for member in members:
        if member["health"] == HELD:
            problem, reason = EMR_NODE_HELD if is_emr else MEMBER_HELD, member["held"] or HELD_REASON
            sentences.append(problem.sentence(subject=member["name"], reason=reason, node=member["instance_id"]))
        if member["load"]:
            sentences += _of_load(member["name"], member["load"])
    return sentences


def _of_load(name: str, load: Mapping[str, Any]) -> Iterable[str]:
    yield from (DRIVER_FAULT.sentence(subject=name, error=error) for error in load["errors"])
    if load["disk_percent"] >= DISK_ALMOST_FULL.threshold:
        yield DISK_ALMOST_FULL.sentence(subject=name, path="/", percent=load["disk_percent"])


def of_stalled_run(run_id: str, reason: str, cost: str) -> str:
    """Return the sentence about a stalled run. `cost`: what its machines cost."""
    return RUN_STALLED.sentence(subject=run_id, reason=reason.rstrip(".") or "it reports nothing", cost=cost)
