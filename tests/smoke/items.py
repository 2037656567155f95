"""Questions about AWS that its documentation leaves open, and what a record says about each: settled, or not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]
Entries = Sequence[Entry]
NOT_SEEN = "not seen"
THROTTLED = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown", "TooManyRequestsException")
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")


@dataclass(frozen=True)
class Item:
    name: str
    question: str
    answer: Callable[[Entries], str]
    """Returns what was seen; nothing if the record does not settle the question."""


def calls(entries: Entries, name: str) -> Iterator[Entry]:
    return (entry for entry in entries if entry.get("call") == name)


def facts(entries: Entries, image: str = "") -> list[Mapping[str, str]]:
    return [entry["facts"] for entry in entries if "facts" in entry and image in ("", entry["image"])]


def python_of_ubuntu(entries: Entries) -> str:
    versions = [entry["python3.11"] for entry in facts(entries, "ubuntu2204") if "python3.11" in entry]
    return f"a machine of it has configured itself with Python {versions[0]}" if versions else ""


def kept_fields(entries: Entries) -> str:
    puts = [entry for entry in calls(entries, "autoscaling:PutScheduledUpdateGroupAction") if entry["stage"] == "1"]
    if len(puts) < 2 or "Recurrence" in puts[-1]["request"]:
        return ""
    if puts[-1].get("code"):
        return f"kept, as the second call was refused: {puts[-1]['code']}"
    for read in reversed(list(calls(entries, "autoscaling:DescribeScheduledActions"))):
        actions = read.get("answer", {}).get("ScheduledUpdateGroupActions", [])
        if read["stage"] == "1" and actions and isinstance(actions[0], Mapping):
            return "kept" if "Recurrence" in actions[0] or "EndTime" in actions[0] else "replaced"
    return ""


def moved_address(entries: Entries) -> str:
    killed = [entry for entry in entries if entry.get("killed") == "master"]
    return f"{'moved' if killed[-1]['has_address'] else 'not moved'} to the new master" if killed else ""


def mount_target(entries: Entries) -> str:
    tried = [entry for entry in calls(entries, "ec2:DeleteNetworkInterface") if entry["request"].get("DryRun")]
    deleted = list(calls(entries, "efs:DeleteMountTarget"))
    if not tried or tried[-1].get("code") not in DENIED or not deleted:
        return ""
    code = deleted[-1].get("code")
    return f"refused: {code}" if code else "deleted, although the caller may not delete it"


def linked_roles(entries: Entries) -> str:
    """Return how the first creations went if Auto Scaling's role did not exist before."""
    created = list(calls(entries, "autoscaling:CreateAutoScalingGroup"))
    if not created or not any(entry.get("linked_role_existed") is False for entry in entries):
        return ""
    code = created[0].get("code")
    return f"the first group was refused: {code}" if code else "the first group was created at once"


def throttling(entries: Entries) -> str:
    made = [entry for entry in entries if "call" in entry]
    throttled = sorted({call["call"] for call in made if call.get("code") in THROTTLED})
    return f"seen in {len(made)} calls: {', '.join(throttled)}" if throttled else ""


def own_disk(entries: Entries) -> str:
    return _shown(facts(entries, "al2023"), "dlami_nvme", "mdadm", "mkfs_xfs")


def wait_online(entries: Entries) -> str:
    return _shown(facts(entries, "efa"), "wait_online")


def boto3_of_pip(entries: Entries) -> str:
    return "configured all the same" if any(entry.get("boto3_by") == "pip" for entry in facts(entries)) else ""


def boto3_and_awscli(entries: Entries) -> str:
    return _shown(facts(entries, "al2023"), "rpm_python3-boto3", "rpm_awscli-2")


def selinux(entries: Entries) -> str:
    return _shown(facts(entries, "al2023"), "selinux")


def own_image(entries: Entries) -> str:
    started = [entry for entry in calls(entries, "emr:RunJobFlow") if "CustomAmiId" in entry["request"]]
    states = {
        entry.get("answer", {}).get("Cluster", {}).get("Status", {}).get("State")
        for entry in calls(entries, "emr:DescribeCluster")
        if "CustomAmiId" in entry.get("answer", {}).get("Cluster", {})
    }
    ended = sorted(states & {"WAITING", "TERMINATED_WITH_ERRORS"})
    return f"its cluster became {ended[-1]}" if started and ended else ""


def _shown(entries: Sequence[Mapping[str, str]], *names: str) -> str:
    pairs = [f"{name} {entries[-1][name]}" for name in names if entries and entries[-1].get(name)]
    return ", ".join(pairs)


ITEMS = (
    Item("python-of-ubuntu-22.04", "Does the package python3.11 of Ubuntu 22.04 run ansible-core?", python_of_ubuntu),
    Item("fields-of-scheduled-actions", "Are fields that PutScheduledUpdateGroupAction leaves out kept?", kept_fields),
    Item("address-of-a-replaced-master", "May a new master take over the Elastic IP by its policy?", moved_address),
    Item("mount-target-by-tags", "May a caller delete a mount target who may not delete interfaces?", mount_target),
    Item("first-linked-role", "Does the first group of an account wait for its service-linked role?", linked_roles),
    Item("throttling", "Which calls does AWS throttle?", throttling),
    Item("own-disk-of-al2023", "Has Amazon Linux 2023 what the role needs for a node's own disk?", own_disk),
    Item("wait-online-with-many-cards", "How long does a boot wait for many network cards?", wait_online),
    Item("boto3-by-pip", "Does a boto3 of pip beside the system's own disturb a node?", boto3_of_pip),
    Item("boto3-and-awscli-of-al2023", "Can python3-boto3 and awscli-2 be installed together?", boto3_and_awscli),
    Item("selinux-of-al2023", "Which mode of SELinux has Amazon Linux 2023?", selinux),
    Item("own-image-on-emr", "Does EMR accept a Deep Learning AMI as its image?", own_image),
)  # fmt: skip


def lines(entries: Entries) -> list[dict[str, str]]:
    """Return a line of the record for each item."""
    return [
        {"item": item.name, "question": item.question, "outcome": f"settled: {answer}" if answer else NOT_SEEN}
        for item in ITEMS
        for answer in [item.answer(entries)]
    ]
