"""RunInstances: creates the instances of a validated request, as many as quota, capacity and subnet allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.ec2.models.instances import Reservation

from localcloud.api.ec2.capacity import launchable_count
from localcloud.api.ec2.errors import conflicting, invalid
from localcloud.api.ec2.filters import refuse_dry_run
from localcloud.api.ec2.instance import Instance, Launch, attach_interfaces, attach_volumes
from localcloud.api.ec2.instances import reservation_as_dict
from localcloud.api.ec2.lifecycle import begin
from localcloud.api.ec2.moto_records import backend_of, new_id
from localcloud.api.ec2.records import no_public_addresses, now, once, records_of
from localcloud.api.ec2.run_request import validated
from localcloud.core.cloud import Call, Cloud, answers


@answers("ec2", "RunInstances")
def run_instances(call: Call) -> dict[str, Any]:
    existing = records_of(call.cloud).instances
    made = once(call, lambda made: any(instance.id in existing for instance in made), lambda: _run(call))
    return reservation_as_dict([instance for instance in made if instance.id in existing])


def _run(call: Call) -> list[Instance]:
    launch = validated(call)
    min_count, max_count = _counts(call.params)
    refuse_dry_run(call.params)
    count = launchable_count(call.cloud, launch, min_count, max_count)
    instances = launch_instances(call.cloud, launch, count)
    begin(call.cloud, instances)
    return instances


def _counts(params: Mapping[str, Any]) -> tuple[int, int]:
    min_count, max_count = int(params.get("MinCount") or 1), int(params.get("MaxCount") or params.get("MinCount") or 1)
    if min_count < 1 or max_count < 1:
        raise invalid(f"Value ({min(min_count, max_count)}) for parameter minCount is invalid.")
    if min_count > max_count:
        raise conflicting(f"Value ({min_count}) for parameter minCount is greater than maxCount ({max_count}).")
    return min_count, max_count


def launch_instances(cloud: Cloud, launch: Launch, count: int) -> list[Instance]:
    """Make the records of so many instances. They are pending, and nothing has been started."""
    backend = backend_of(launch.region)
    records = records_of(cloud)
    moment = now(cloud)
    reservation = Reservation(new_id("r"), backend.account_id)
    addresses = _public_addresses(cloud, launch, count)
    make: Any = Instance  # abstract to mypy, see ec2_instance
    made: list[Instance] = []
    for index in range(count):
        instance: Instance = make(backend, launch, index, reservation.id, moment)
        attach_interfaces(instance, launch, moment)
        instance.nics[min(instance.nics)].public_ip = addresses[index] or instance.public_ip
        attach_volumes(instance, launch, moment)
        backend.tags[instance.id] = dict(launch.tags.get("instance") or {})
        reservation.instances.append(instance)
        made.append(instance)
        records.instances[instance.id] = instance
    backend.reservations[reservation.id] = reservation
    cloud.faults.take_capacity(launch.type, launch.zone, count)
    return made


def _public_addresses(cloud: Cloud, launch: Launch, count: int) -> list[str | None]:
    if not launch.interfaces[0].public:
        return [None] * count
    public = records_of(cloud).public
    if launch.image.boots_nothing:
        return [public.take_unreal() for _ in range(count)]
    taken = [public.take() for _ in range(count)]
    if None in taken:
        for address in taken:
            if address:
                public.give_back(address)
        raise no_public_addresses()
    return taken
