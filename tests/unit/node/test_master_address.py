"""A worker gives a new master with several network interfaces the cluster's address."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import paths
from deeplearning.members import master_address
from deeplearning.members.member_list import Member, Members
from deeplearning.upkeep import cli, commands

ALLOCATION = "eipalloc-1"


def member(rank: int) -> Member:
    return Member(rank, (f"deeplearning-worker{rank}",), f"i-{rank}", f"10.0.0.{rank}", "", "", 8, 8, (), "ready")


MEMBERS = Members("red", "sg-1", 3, 3, "i-1", "", (member(1), member(2), member(3)))


class Aws:
    """A group whose new master has two interfaces, and an address that the old one had."""

    def __init__(self) -> None:
        self.states = {"i-1": "Terminating", "i-4": "Pending:Wait"}
        self.running = True
        self.holder = "eni-old"
        self.calls: list[str] = []

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        self.calls.append(operation)
        if operation == "describe_auto_scaling_groups":
            assert arguments["AutoScalingGroupNames"] == ["red-master"]
            return [{"Instances": [{"InstanceId": id_, "LifecycleState": of} for id_, of in self.states.items()]}]
        assert arguments["InstanceIds"] == ["i-4"]
        interfaces = [
            {"NetworkInterfaceId": "eni-efa", "Attachment": {"DeviceIndex": 1, "NetworkCardIndex": 1}},
            {"NetworkInterfaceId": "eni-4", "Attachment": {"DeviceIndex": 0, "NetworkCardIndex": 0}},
        ]
        state = {"Name": "running" if self.running else "pending"}
        return [{"Instances": [{"State": state, "NetworkInterfaces": interfaces}]}]

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        self.calls.append(operation)
        if operation == "associate_address":
            assert (arguments["AllocationId"], arguments["AllowReassociation"]) == (ALLOCATION, True)
            self.holder = arguments["NetworkInterfaceId"]
        return {"Addresses": [{"NetworkInterfaceId": self.holder}]}


class Worker:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, aws: Aws) -> None:
        self.aws: Any = aws
        self.now, self.reachable, self.rank = 1000.0, False, 2
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(master_address, "is_reachable", lambda address: self.reachable)
        monkeypatch.setattr(master_address, "this_member", lambda members: member(self.rank))

    def ticks(self, seconds: float) -> float | None:
        """Return after how many seconds it associates the address, if it does."""
        started = self.now
        while self.now <= started + seconds:
            if master_address.associate(MEMBERS, self.aws, ALLOCATION):
                return self.now - started
            self.now += 5
        return None


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(master_address, "SINCE", str(tmp_path / "since"))
    yield Worker(monkeypatch, Aws())


@pytest.mark.parametrize(("rank", "seconds"), [(2, 100), (3, 120), (9, 240)])
def test_a_lost_master_gets_the_address_from_one_worker_after_another(
    worker: Worker, rank: int, seconds: float
) -> None:
    worker.rank = rank
    assert worker.ticks(600) == seconds
    assert worker.aws.holder == "eni-4"


def test_nothing_is_asked_while_the_master_can_be_reached_or_was_until_a_minute_ago(worker: Worker) -> None:
    worker.reachable = True
    assert worker.ticks(600) is None
    worker.reachable = False
    assert worker.ticks(50) is None
    worker.reachable = True
    assert worker.ticks(5) is None
    worker.reachable = False
    assert worker.ticks(95) is None
    assert worker.aws.calls == []


def test_an_address_that_the_master_has_is_left_alone(worker: Worker) -> None:
    worker.aws.holder = "eni-4"
    assert worker.ticks(600) is None
    assert "associate_address" not in worker.aws.calls
    # It asks again, but not with each tick.
    assert len(worker.aws.calls) < 50


def test_a_master_that_does_not_run_yet_gets_it_later(worker: Worker) -> None:
    worker.aws.running = False
    assert worker.ticks(200) is None
    worker.aws.running = True
    assert worker.ticks(60) is not None


def test_a_machine_that_refuses_the_connection_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(master_address, "PORT", unused.getsockname()[1])
        assert master_address.is_reachable("127.0.0.1")

    def lost(*_words: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", lost)
    assert not master_address.is_reachable("127.0.0.1")


@pytest.mark.parametrize("has_address", [True, False])
def test_the_timer_checks_it_on_workers_that_know_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_address: bool
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(paths, "MASTER_ADDRESS", str(tmp_path / "address"))
    monkeypatch.setattr(cli, "is_unchanged", lambda: True)
    monkeypatch.setattr(commands, "main", lambda argv: ran.append(argv) or 0)
    if has_address:
        (tmp_path / "address").write_text(ALLOCATION)
    cli.main(["apply", "--repeated"])
    assert ran == ([["address", "--repeated"]] if has_address else [])
