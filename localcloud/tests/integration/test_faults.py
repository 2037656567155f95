"""Faults that strike machines."""

from __future__ import annotations

import json

from localcloud.testing.booted import Clients, Network, localcloud, wait_for


def in_force() -> list[str]:
    """Return the kinds of the faults, without the quotas that let all tests have networks."""
    kinds = [fault["kind"] for fault in json.loads(localcloud("status", "--json").stdout)["faults"]]
    return [kind for kind in kinds if kind != "quota"]


def test_a_machine_that_is_frozen_thawed_and_killed(network: Network) -> None:
    (machine,) = network.launch()
    ec2 = network.cloud.ec2

    def status() -> str:
        result = ec2.describe_instance_status(InstanceIds=[machine])["InstanceStatuses"]
        return str(result[0]["InstanceStatus"]["Status"])

    wait_for(lambda: status() == "ok", 120, "status ok")
    assert localcloud("fault", "freeze", machine).returncode == 0
    assert in_force() == ["frozen"]
    wait_for(lambda: status() == "impaired", 120, "status impaired")
    assert network.ssh(machine, "true", timeout=20).returncode != 0
    assert localcloud("fault", "thaw", machine).returncode == 0
    wait_for(lambda: network.ssh(machine, "true").returncode == 0, 120, "thawed")
    assert in_force() == []

    # One that dies is an instance that fails.
    assert localcloud("fault", "kill", machine).returncode == 0
    wait_for(lambda: network.cloud.instance(machine)["State"]["Name"] == "terminated", 120, "terminated")
    assert network.cloud.instance(machine)["StateReason"]["Code"] == "Server.InternalError"


def test_what_cannot_be_done_is_one_sentence(cloud: Clients) -> None:
    """What else the service refuses is in tests/unit/test_control.py."""
    done = localcloud("exec", "i-0123456789abcdef0", "--", "true")
    sentence = "instance i-0123456789abcdef0 does not exist: localcloud status lists those that do."
    assert (done.returncode, done.stderr) == (2, f"localcloud: {sentence}\n")
