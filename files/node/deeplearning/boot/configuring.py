"""Configure this machine by the unpacked bundle, and answer the launch lifecycle hook."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from deeplearning import programs
from deeplearning.boot import playbook, system
from deeplearning.boot.machine import OwnMachine
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.boot import CONFIGURED, NETWORK_SECONDS
from deeplearning.contract.errors import UserError
from deeplearning.contract.names import WORKER
from deeplearning.contract.report import CONFIGURING, MEMBER_STATES, key_of

HEARTBEAT_SECONDS = 30
CALL_SECONDS = 15
"""Reports of progress are not worth waiting for longer."""


class ReportedSteps:
    """The current step. A new step is reported, and each task extends the time that Auto Scaling gives the machine."""

    def __init__(self, machine: OwnMachine) -> None:
        self._machine = machine
        self._last_heartbeat = float("-inf")
        self.step = ""

    def begin(self, step: str) -> None:
        if step and step != self.step:
            self.step = step
            self._machine.log(f"{time.strftime('%H:%M:%S', time.gmtime())} {step}")
            self._try(lambda: self._machine.report(CONFIGURING, step, seconds=CALL_SECONDS))
        # A task that hangs sends no heartbeat, so AWS ends its machine.
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            self._try(lambda: self._machine.lifecycle("RecordLifecycleActionHeartbeat", CALL_SECONDS))

    def _try(self, action: Any) -> None:
        try:
            action()
        except self._machine.passing as error:
            self._machine.log(f"{self.step}: {error}")


def configure(machine: OwnMachine, folder: str) -> int:
    atomic_file.write_if_changed(paths.CONFIGURING, "")
    steps = ReportedSteps(machine)
    if not succeeds(machine, steps, lambda: run_steps(machine, folder, steps)):
        return 1
    machine.complete("CONTINUE")
    atomic_file.write_if_changed(CONFIGURED, f"{machine.parameters['sha256']}\n")
    atomic_file.remove(paths.CONFIGURING)
    machine.log("configured")
    return 0


def succeeds(machine: OwnMachine, steps: ReportedSteps, action: Callable[[], None]) -> bool:
    """Return False after a failure, which is reported and answered to the hook."""
    try:
        action()
        return True
    except (UserError, OSError) as error:
        machine.fail(steps.step, str(error).split("\n"))
    return False


def run_steps(machine: OwnMachine, folder: str, steps: ReportedSteps) -> None:
    steps.begin("packages")
    system.defer_updates()
    if machine.parameters["address"]:
        take_address(machine)
    with open(f"{folder}/boot.json", encoding="utf-8") as file:
        settings = json.load(file)
    names = (machine.metadata("local-hostname"), machine.metadata("local-ipv4"))
    variables = playbook.variables(settings, machine.parameters, *names)
    playbook.play("node.yml", machine, folder, variables, steps.begin)
    confirm_report(machine)


def confirm_report(machine: OwnMachine) -> None:
    """Let the node program report again if a late report of a step has replaced its own."""
    key = key_of(f"{machine.parameters['role_id']}:{machine.instance_id}")
    try:
        report = json.loads(machine.call("s3", machine.object(key), CALL_SECONDS))
    except machine.passing as error:
        machine.log(f"the report cannot be read: {error}")
        report = {}
    if report.get("state") not in MEMBER_STATES:
        programs.run(paths.PROGRAM, "members", "report")


def take_address(machine: OwnMachine) -> None:
    """Let a master take the cluster's address and wait for AWS's API. Let a worker remember the address."""
    if machine.parameters["role"] == WORKER:
        atomic_file.write_if_changed(paths.MASTER_ADDRESS, machine.parameters["address"])
        return
    # The answer is lost, as the address that it is sent to is gone: do not wait for it. That to the heartbeat may be as
    # well, so calls are soon repeated.
    threading.Thread(target=associate_address, args=(machine,), daemon=True).start()
    # With several network interfaces it has no address yet: a worker or site.yml associates it.
    try:
        machine.lifecycle("RecordLifecycleActionHeartbeat", NETWORK_SECONDS)
    except machine.passing as error:
        machine.log(f"AWS's API cannot be reached: {error}")


def associate_address(machine: OwnMachine) -> None:
    """Take the cluster's public address over. The operator does so as well, so a refusal is no failure."""
    try:
        interface = machine.metadata(f"network/interfaces/macs/{machine.metadata('mac')}/interface-id")
        machine.query(
            "ec2",
            "2016-11-15",
            CALL_SECONDS,
            Action="AssociateAddress",
            AllocationId=machine.parameters["address"],
            NetworkInterfaceId=interface,
            AllowReassociation="true",
        )
    except machine.passing as error:
        machine.log(f"the address {machine.parameters['address']} cannot be associated: {error}")
