"""The life of an instance: its API state follows its machine, with the delays of the latency profile.

pending → running → stopping → stopped → pending …, and from each → shutting-down → terminated. The machines report by
`machine_started` and `machine_exited`. An instance of an API-only image has the same states by the clock alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moto.ec2.models.instances import StateReason

from localcloud.api.ec2.errors import missing
from localcloud.api.ec2.filters import refuse_dry_run
from localcloud.api.ec2.instance import STATES, Instance
from localcloud.api.ec2.records import SHOWN_AFTER_DEATH, instances_named, no_public_addresses, now, records_of
from localcloud.api.ec2.views import view_of
from localcloud.core.cloud import Call, Cloud, Machines, Report, answers
from localcloud.core.errors import AwsError
from localcloud.core.views import InstanceView
from localcloud.core.words import aws_error

_FAILED = ("Server.InternalError", "Server.InternalError: Internal error on launch or host failure")
_BY_ITSELF = ("Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
_BY_USER = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")


def on_change(cloud: Cloud, listener: Callable[[Instance], None]) -> None:
    """Have a function called, under the cloud's lock, whenever an instance has changed its state."""
    records_of(cloud).listeners.append(listener)


def _become(cloud: Cloud, instance: Instance, state: str) -> None:
    instance.become(state, cloud.clock.time())
    for listener in records_of(cloud).listeners:
        listener(instance)


# From the API to the machines


class NoMachines:
    """API-only instances: nothing boots, and everything is reported at once."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def start(self, instance: InstanceView) -> None:
        self._cloud.clock.later(0, lambda: machine_started(self._cloud, instance.id))

    def stop(self, instance_id: str) -> None:
        self._cloud.clock.later(0, lambda: machine_exited(self._cloud, instance_id, "stopped"))

    def destroy(self, instance_id: str) -> None:
        self._cloud.clock.later(0, lambda: machine_exited(self._cloud, instance_id, "destroyed"))

    def reboot(self, instance_id: str) -> None:
        """Nothing runs, so nothing restarts."""

    def copy_disk(self, instance_id: str, name: str, done: Callable[[tuple[Path, ...]], None]) -> None:
        done(())

    def console(self, instance_id: str) -> str:
        return ""

    def provision(self, instance_id: str, settings: Mapping[str, Any], report: Report) -> None:
        action = self._cloud.failing_bootstrap_action(instance_id, settings)
        result = {"status": 1, "action": action} if action else {"status": 0}
        self._cloud.clock.later(0, lambda: report({"state": "BOOTSTRAPPING"}))
        self._cloud.clock.later(self._cloud.latency.of("emr_bootstrapped"), lambda: report(result))


def machines_of(cloud: Cloud, instance: Instance) -> Machines:
    """Return what boots an instance: nothing if its image, or the local cloud, boots no machines."""
    return NoMachines(cloud) if instance.boots_nothing or cloud.machines is None else cloud.machines


def begin(cloud: Cloud, instances: Sequence[Instance]) -> None:
    """Start what is pending."""
    # The wires are there before the machines, also where no call of a client is at the bottom of this.
    cloud.network.changed()
    for instance in instances:
        instance.ready_at = cloud.clock.time() + cloud.latency.of("instance_running")
        machines_of(cloud, instance).start(view_of(cloud, instance))


def machine_started(cloud: Cloud, instance_id: str) -> None:
    """Set the instance of a machine that boots to running, after its latency."""
    instance = records_of(cloud).instances.get(instance_id)
    if instance is None or instance.state != "pending":
        return
    _when_due(cloud, instance, "pending", lambda: _become(cloud, instance, "running"))


def machine_exited(cloud: Cloud, instance_id: str, how: str) -> None:
    """Update the instance of a machine that has ended.

    The end is "stopped" or "destroyed" as requested, "poweroff" from inside, "killed", or "failed" to boot.
    """
    instance = records_of(cloud).instances.get(instance_id)
    if instance is None or instance.state == "terminated":
        return
    state = instance.state
    if how == "destroyed":
        _when_due(cloud, instance, state, lambda: _terminated(cloud, instance))
    elif state == "stopping":
        _when_due(cloud, instance, state, lambda: _stopped(cloud, instance))
    elif state in ("shutting-down", "stopped"):
        # Either "destroyed" will follow, or nothing ran.
        return
    elif how in ("killed", "failed"):
        instance.terminated_as = _FAILED
        machines_of(cloud, instance).destroy(instance.id)
        _terminated(cloud, instance)
    elif how == "poweroff" and instance.instance_initiated_shutdown_behavior == "terminate":
        _shut_down(cloud, instance, _BY_ITSELF)
    elif how in ("poweroff", "stopped"):
        _set_reason(cloud, instance, _BY_ITSELF)
        _stopped(cloud, instance)
    else:
        raise ValueError(f"a machine cannot exit as {how}")


def _when_due(cloud: Cloud, instance: Instance, state: str, action: Callable[[], Any]) -> None:
    """Do it now, or when the latency profile says, unless the instance has moved on by then."""
    wait = instance.ready_at - cloud.clock.time()
    if wait <= 0:
        action()
        return
    due = instance.ready_at
    cloud.clock.later(wait, lambda: action() if (instance.state, instance.ready_at) == (state, due) else None)


def _set_reason(cloud: Cloud, instance: Instance, why: tuple[str, str]) -> None:
    code, message = why
    instance.state_reason = StateReason(message, code)
    by_user = why == _BY_USER
    instance._reason = (
        f"User initiated ({now(cloud).strftime('%Y-%m-%d %H:%M:%S')} GMT)" if by_user else message.partition(": ")[0]
    )


def _shut_down(cloud: Cloud, instance: Instance, why: tuple[str, str]) -> None:
    """On the way out: a machine is destroyed, and reports that."""
    instance.ready_at = cloud.clock.time() + cloud.latency.of("instance_terminated")
    instance.terminated_as = why
    _set_reason(cloud, instance, why)
    _become(cloud, instance, "shutting-down")
    machines_of(cloud, instance).destroy(instance.id)


def _stopped(cloud: Cloud, instance: Instance) -> None:
    for interface in instance.nics.values():
        release_automatic_address(cloud, interface)
    cloud.faults.take_capacity(instance.instance_type, str(instance.availability_zone), -1)
    _become(cloud, instance, "stopped")
    cloud.network.changed()


def _terminated(cloud: Cloud, instance: Instance) -> None:
    """Nothing is left of it but its record, which is shown for an hour."""
    if instance.state == "terminated":
        return
    if instance.state != "stopped" and not instance.was_stopped:
        cloud.faults.take_capacity(instance.instance_type, str(instance.availability_zone), -1)
    _set_reason(cloud, instance, instance.terminated_as)
    _release_resources(cloud, instance)
    _become(cloud, instance, "terminated")
    cloud.clock.later(SHOWN_AFTER_DEATH, lambda: _forget(cloud, instance))
    cloud.network.changed()


def _release_resources(cloud: Cloud, instance: Instance) -> None:
    """Interfaces and volumes go, except for those that are meant to stay."""
    backend = instance.ec2_backend
    for interface in list(instance.nics.values()):
        release_automatic_address(cloud, interface)
        for address in backend.addresses:
            if address.eni is interface:
                address.instance = None
                if interface.delete_on_termination:
                    address.eni = address.association_id = None
        instance.detach_eni(interface)
        if interface.delete_on_termination:
            backend.enis.pop(interface.id, None)
            for item in interface.private_ip_addresses:
                interface.subnet.del_subnet_ip(item["PrivateIpAddress"])
            backend.tags.pop(interface.id, None)
    for mapping in list(instance.block_device_mapping.values()):
        volume = backend.volumes.get(mapping.volume_id)
        if volume is not None:
            volume.attachment = None
            if mapping.delete_on_termination:
                del backend.volumes[volume.id]
                backend.tags.pop(volume.id, None)
    instance.block_device_mapping.clear()


def release_automatic_address(cloud: Cloud, interface: Any) -> None:
    """Release an instance's automatic public address; an elastic one stays."""
    if interface.public_ip and not any(
        address.public_ip == interface.public_ip for address in interface.ec2_backend.addresses
    ):
        records_of(cloud).public.give_back(interface.public_ip)
        interface.public_ip = None


def give_automatic_address(cloud: Cloud, interface: Any, instance: Instance) -> None:
    """Give an instance a public address if its launch requested one and it has no elastic one."""
    if interface.public_ip or not interface.public_ip_auto_assign:
        return
    public = records_of(cloud).public
    address = public.take_unreal() if instance.boots_nothing else public.take()
    if address is None:
        raise no_public_addresses()
    interface.public_ip = address


def _forget(cloud: Cloud, instance: Instance) -> None:
    records_of(cloud).instances.pop(instance.id, None)
    backend = instance.ec2_backend
    backend.tags.pop(instance.id, None)
    reservation = backend.reservations.get(instance.reservation_id)
    if reservation is not None:
        reservation.instances = [other for other in reservation.instances if other is not instance]
        if not reservation.instances:
            del backend.reservations[reservation.id]


# What is asked of instances


def _state_change(instance: Instance, before: str) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "CurrentState": {"Code": STATES[instance.state], "Name": instance.state},
        "PreviousState": {"Code": STATES[before], "Name": before},
    }


def _named(call: Call) -> list[Instance]:
    ids = call.params.get("InstanceIds") or ()
    if not ids:
        raise missing("InstanceId")
    return instances_named(call.cloud, call.region, ids)


@answers("ec2", "TerminateInstances")
def terminate_instances(call: Call) -> dict[str, Any]:
    instances = _named(call)
    for instance in instances:
        if instance.disable_api_termination and instance.state != "terminated":
            raise _protected(instance, "terminated", "disableApiTermination")
    refuse_dry_run(call.params)
    changes = []
    for instance in instances:
        before = instance.state
        if before not in ("shutting-down", "terminated"):
            instance.was_stopped = before == "stopped"
            _shut_down(call.cloud, instance, _BY_USER)
        changes.append(_state_change(instance, before))
    return {"TerminatingInstances": changes}


@answers("ec2", "StopInstances")
def stop_instances(call: Call) -> dict[str, Any]:
    instances = _named(call)
    for instance in instances:
        if instance.disable_api_stop:
            raise _protected(instance, "stopped", "disableApiStop")
        if instance.state not in ("running", "pending", "stopping", "stopped"):
            raise _wrong_state(instance, "stopped")
        if instance.lifecycle == "spot":
            raise AwsError(
                "UnsupportedOperation", f"You can't stop the Spot Instance '{instance.id}' of a one-time request."
            )
    refuse_dry_run(call.params)
    changes = []
    for instance in instances:
        before = instance.state
        if before in ("running", "pending"):
            instance.ready_at = call.cloud.clock.time() + call.cloud.latency.of("instance_stopped")
            _set_reason(call.cloud, instance, _BY_USER)
            _become(call.cloud, instance, "stopping")
            machines_of(call.cloud, instance).stop(instance.id)
        changes.append(_state_change(instance, before))
    return {"StoppingInstances": changes}


@answers("ec2", "RebootInstances")
def reboot_instances(call: Call) -> dict[str, Any]:
    instances = _named(call)
    for instance in instances:
        if instance.state not in ("running", "pending"):
            raise _wrong_state(instance, "rebooted")
    refuse_dry_run(call.params)
    for instance in instances:
        machines_of(call.cloud, instance).reboot(instance.id)
    return {}


def _protected(instance: Instance, what: str, by: str) -> AwsError:
    return aws_error("ec2:TerminateInstances", "OperationNotPermitted", id=instance.id, what=what, attribute=by)


def _wrong_state(instance: Instance, what: str) -> AwsError:
    return aws_error("ec2:StopInstances", "IncorrectInstanceState", id=instance.id, what=what)
