"""Turn this machine into the source of an image: install frameworks, remove what belongs to this machine, power off.

It is no member of its cluster, so most of what belongs to a cluster is never written.
"""

from __future__ import annotations

import glob
import os
import shutil

from deeplearning import programs
from deeplearning.boot import playbook, system
from deeplearning.boot.configuring import ReportedSteps, succeeds
from deeplearning.boot.machine import OwnMachine
from deeplearning.contract import atomic_file
from deeplearning.contract.boot import FOLDER, UNIT_FILE
from deeplearning.contract.report import READY

CALL_SECONDS = 120

OWN = (
    *("/etc/machine-id", "/var/lib/dbus/machine-id", "/var/lib/systemd/credential.secret"),
    # With an equal seed, all machines would begin with the same random numbers.
    "/var/lib/systemd/random-seed",
    # The first is the registration of AWS's Systems Manager.
    *(f"/var/{name}" for name in ("lib/amazon/ssm/*", "tmp/*", "tmp/.[!.]*")),
    *("/var/lib/cloud", "/var/lib/dhcp/*", "/var/lib/deeplearning"),
    *("/etc/deeplearning", "/root/.*_history", "/home/*/.*_history"),
    # The next cluster's user may be another person.
    *(f"{home}/.ssh/{name}" for home in ("/root", "/home/*") for name in ("authorized_keys", "known_hosts*")),
    *(UNIT_FILE, "/etc/systemd/system/*.wants/deeplearning-*", FOLDER),
)
"""What must not be in an image. sshd's host keys are removed last, as the report contains them."""
STOPPED = ("systemd-random-seed.service", "amazon-ssm-agent.service", "snap.amazon-ssm-agent.amazon-ssm-agent.service")
"""They write their files again, the first at shutdown."""
HOST_KEYS = "/etc/ssh/ssh_host_*"
LOGS = "/var/log"


def bake(machine: OwnMachine, folder: str) -> int:
    steps = ReportedSteps(machine)
    if not succeeds(machine, steps, lambda: prepare(machine, folder, steps)):
        return 1
    programs.run("systemctl", "--no-block", "poweroff")
    return 0


def prepare(machine: OwnMachine, folder: str, steps: ReportedSteps) -> None:
    steps.begin("packages")
    system.defer_updates()
    variables = {
        **playbook.LOCAL,
        "bake_frameworks": machine.parameters["frameworks"],
        "deeplearning_gpus": machine.parameters["gpus"],
    }
    playbook.play("bake.yml", machine, folder, variables, steps.begin)
    steps.begin("clean")
    for service in STOPPED:
        programs.run("systemctl", "stop", service)
    remove(OWN)
    machine.report(READY, "clean", seconds=CALL_SECONDS)
    remove((HOST_KEYS,))
    remove_logs()
    # Without this file systemd would take the machine for one that boots for the first time, and enable units.
    with open(OWN[0], "w", encoding="ascii"):
        pass


def remove(patterns: tuple[str, ...]) -> None:
    for path in (path for pattern in patterns for path in glob.glob(pattern)):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            atomic_file.remove(path)


def remove_logs() -> None:
    """Remove all logs, but not their folders, which services expect."""
    for folder, _folders, names in os.walk(LOGS):
        for name in names:
            atomic_file.remove(os.path.join(folder, name))
