"""On a worker: give the cluster's public address to a master that has none.

AWS gives machines with several network interfaces no public address at launch, and without one a new master does not
reach AWS's API. Only workers of clusters with such a master have the file with the address.
"""

from __future__ import annotations

import contextlib
import socket
import time

from deeplearning.aws import AwsClient
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.hosts import primary_interface
from deeplearning.contract.names import Names
from deeplearning.members.cloud import describe_groups
from deeplearning.members.member_list import Members, this_member

UNREACHABLE_SECONDS = 60.0
RANK_SECONDS = 20.0
"""Each worker waits this much longer than the previous one: usually the first one is enough."""
PROBE_SECONDS = 2.0
PORT = 1
"""Nothing listens there: a machine that runs refuses the connection."""
SINCE = f"{paths.RUNTIME}/master-unreachable-since"


def associate(members: Members, aws: AwsClient, allocation: str) -> bool:
    """Associate the address if the master has been unreachable for long, and return whether that was needed."""
    if is_reachable(next(member.private_ip for member in members.members if member.rank == 1)):
        atomic_file.remove(SINCE)
        return False
    now = time.monotonic()
    since = atomic_file.read_or_none(SINCE)
    if since is None:
        atomic_file.write_if_changed(SINCE, str(now))
        return False
    if now < float(since) + UNREACHABLE_SECONDS + RANK_SECONDS * this_member(members).rank:
        return False
    # If it does not help, it is tried again: the group may be launching the next one.
    atomic_file.write_if_changed(SINCE, str(now - UNREACHABLE_SECONDS))
    return _associate(aws, members.cluster, allocation)


def is_reachable(address: str) -> bool:
    try:
        with contextlib.closing(socket.create_connection((address, PORT), PROBE_SECONDS)):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _associate(aws: AwsClient, cluster: str, allocation: str) -> bool:
    groups = describe_groups(aws, Names(cluster).master_group)
    ids = [item["InstanceId"] for group in groups for item in group["Instances"] if _comes(item["LifecycleState"])]
    if not ids:
        return False
    reservations = aws.pages("ec2", "describe_instances", "Reservations", InstanceIds=ids)
    instances = [instance for reservation in reservations for instance in reservation["Instances"]]
    interfaces = [primary_interface(instance) for instance in instances if instance["State"]["Name"] == "running"]
    (address,) = aws.call("ec2", "describe_addresses", AllocationIds=[allocation])["Addresses"]
    if not interfaces or address.get("NetworkInterfaceId") in interfaces:
        return False
    # AWS refuses an instance's id if it has several interfaces.
    aws.call(
        "ec2",
        "associate_address",
        AllocationId=allocation,
        NetworkInterfaceId=interfaces[0],
        AllowReassociation=True,
    )
    return True


def _comes(state: str) -> bool:
    return state.startswith("Pending") or state == "InService"
