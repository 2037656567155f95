"""The faults of GPUs: what the kernel's log and NVML say, what it means, and whose fault a failed attempt is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning import cli, programs
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.gpus import cli as gpus_cli
from deeplearning.gpus import evidence, faults, held, kernel_log, nvml
from deeplearning.gpus.evidence import Evidence
from deeplearning.gpus.faults import MONITOR, PROGRAM, REBOOT, REPLACE, RESET, Fault
from deeplearning.gpus.reading import Gpu, Reading
from deeplearning.runs import blame as blames
from deeplearning.runs.blame import Blame, blame
from deeplearning.runs.survey import Unanswered

from tests.unit.node.runs_kit import CONFIG

NAMES = {"0000:c6:00": "GPU 2"}
RECORDED = (
    "NVRM: gpuClearFbhubPoisonIntrForBug2924523_GA100: FBHUB Interrupt detected. Clearing it.",
    "NVRM: GPU at PCI:0000:00:06: GPU-00000000-0000-0000-0000-000000000000",
    "NVRM: GPU Board Serial Number: 0000000000000",
    "NVRM: Xid (PCI:0000:00:06): 31, pid=1417, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00001000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
)
"""Of an H100 with driver 580.159.04, after a kernel that used a wrong address (`make gpu`); the numbers are removed."""


def xid(number: int, rest: str = "pid='<unknown>', name=<unknown>", address: str = "PCI:0000:c6:00") -> str:
    return f"NVRM: Xid ({address}): {number}, {rest}"


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (xid(79, "GPU has fallen off the bus."), REBOOT, "GPU 2 fell off the bus (Xid 79)"),
        # Older drivers write the address without its bus.
        (xid(48, address="0000:C6:00"), RESET, "GPU 2 has an uncorrectable memory error (two bits) (Xid 48)"),
        (xid(13, address="PCI:0000:01:00"), PROGRAM, "the GPU at 0000:01:00 reports an exception in a kernel, such as"),
        (xid(31), PROGRAM, "GPU 2 reports a page fault"),
        (xid(43), PROGRAM, "GPU 2 stopped the program"),
        (xid(94), PROGRAM, "GPU 2 contained a memory error to one program (Xid 94)"),
        (xid(95), RESET, "GPU 2 has a memory error that affects all programs (Xid 95)"),
        (xid(119, "Timeout waiting for RPC from GSP!"), RESET, "GPU 2 has a system processor (GSP)"),
        (xid(54), REPLACE, "GPU 2 lacks auxiliary power (Xid 54)"),
        (xid(45), MONITOR, "GPU 2 reports an event (Xid 45)"),
        (xid(63), MONITOR, "GPU 2 reports an event (Xid 63)"),
        (xid(92), MONITOR, "GPU 2 reports an event (Xid 92)"),
        (xid(999), MONITOR, "GPU 2 reports an event (Xid 999)"),
        (xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 06"), RESET, "GPU 2 reports an error of NVLink (Xid 149)"),
        (xid(145, "RLW_REMAP Nonfatal XC0 i0 Link 08"), MONITOR, "GPU 2 reports an error of NVLink (Xid 145)"),
        (xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"), RESET, "needs a reset"),
        (xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"), REBOOT, "a reboot of"),
        (xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"), MONITOR, "needs nothing"),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            *(RESET, "the NVSwitch at 0000:c1:00.0 reports SXid 20034, Fatal"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28002, Non-fatal, Link 46 MC TS crumbstore MCTO",
            *(MONITOR, "the NVSwitch at 0000:c1:00.0 reports SXid 28002, Non-fatal"),
        ),
    ],
)
def test_a_line_of_the_kernel_log_has_a_level_and_names_its_gpu(line: str, level: str, text: str) -> None:
    (fault,) = faults.of_log(["usb 1-1: new device", line, line], NAMES)
    assert fault.level == level and text in fault.text


def test_what_a_real_driver_has_written_of_a_wrong_address_is_the_programs_fault() -> None:
    (fault,) = faults.of_log(RECORDED, {"0000:00:06": "GPU 0"})
    assert fault.level == PROGRAM and fault.text.startswith("GPU 0 reports a page fault")


def test_lines_of_the_driver_that_report_no_fault_are_none() -> None:
    lines = ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module", "nvidia-nvswitch0: open", "my program: Xid 79"]
    assert faults.of_log(lines, NAMES) == []


def test_each_xid_of_the_table_has_a_level_and_none_is_the_nodes_that_nvidia_calls_an_applications() -> None:
    assert {level for level, _text in faults.XIDS.values()} == {PROGRAM, RESET, REBOOT, REPLACE}
    of_programs = {number for number, (level, _text) in faults.XIDS.items() if level == PROGRAM}
    assert {13, 31, 43, 94, 126} <= of_programs and not of_programs & {48, 62, 64, 74, 79, 95, 119, 120, 140}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu(2), []),
        (Gpu(2, ecc_uncorrected=0, remapping_pending=False, remapping_failed=False), []),
        (Gpu(2, lost="GPU is lost"), [Fault(REBOOT, "GPU 2 is lost: GPU is lost")]),
        (Gpu(2, ecc_uncorrected=3), [Fault(RESET, "GPU 2 has uncorrectable memory errors: 3")]),
        (
            Gpu(2, remapping_pending=True, remapping_failed=False),
            [Fault(RESET, "GPU 2 remaps a memory row once it is reset")],
        ),
        (
            Gpu(2, remapping_pending=True, remapping_failed=True),
            [Fault(REPLACE, "GPU 2 could not remap a memory row")],
        ),
    ],
)
def test_what_nvml_shows_of_a_gpu(gpu: Gpu, expected: list[Fault]) -> None:
    assert faults.of_reading(Reading(gpus=(gpu,)), 1) == expected


def test_a_device_that_nvml_does_not_list_any_more_is_the_nodes_fault() -> None:
    gpus = tuple(map(Gpu, range(7)))
    assert faults.of_reading(Reading(gpus=gpus), 8) == [Fault(REBOOT, "7 of its 8 GPUs answer")]
    assert faults.of_reading(Reading(gpus=gpus), None) == faults.of_reading(Reading(gpus=gpus), 7) == []
    # Then nothing is known of the devices.
    assert faults.of_reading(Reading(error="Driver/library version mismatch"), 8) == []


# The kernel's log


def message(number: int, text: str) -> str:
    return f"6,{number},{number * 1000},-;{text}\n SUBSYSTEM=pci\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of the kernel's log."""
    monkeypatch.setattr(kernel_log, "KERNEL_LOG", str(tmp_path / "kmsg"))
    return tmp_path / "kmsg"


def test_only_messages_after_a_number_count(log: Path) -> None:
    assert kernel_log.messages() == []
    log.write_text("".join(message(number, f"text; {number}") for number in (7, 8, 9)) + "no message\n")
    assert kernel_log.messages() == [(7, "text; 7"), (8, "text; 8"), (9, "text; 9")]
    assert kernel_log.messages(after=8) == [(9, "text; 9")]


def test_the_device_gives_one_message_with_each_read_and_loses_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    # None: nothing has been logged since.
    reads = [message(1, "a").encode(), BrokenPipeError(), message(5, "b").encode(), None]
    device = Mock(read=Mock(side_effect=reads))
    monkeypatch.setattr(kernel_log, "KERNEL_LOG", "/dev/null")
    monkeypatch.setattr("deeplearning.gpus.kernel_log.os.fdopen", lambda *_arguments, **_options: nullcontext(device))
    assert kernel_log.messages() == [(1, "a"), (5, "b")]


def test_a_pipe_that_has_no_messages_is_not_waited_for(log: Path) -> None:
    """A container has one in the device's place."""
    os.mkfifo(log)
    assert kernel_log.messages() == []


# Evidence


def test_evidence_is_what_is_new_since_the_attempt_began(log: Path) -> None:
    log.write_text(message(3, xid(95)))
    old = Gpu(0, bus_id="00000000:C6:00.0", ecc_uncorrected=1)
    before = evidence.collect(Reading(gpus=(old,)), 1, kernel_log.NONE)
    assert before.message == 3 and len(before.log) == 1 and before.reading
    assert evidence.parse(json.loads(json.dumps(asdict(before))), "it") == before
    unchanged = evidence.collect(Reading(gpus=(old,)), 1, before.message)
    assert unchanged.message == 3 and evidence.new_faults(before, unchanged) == []
    log.write_text(message(3, xid(95)) + message(4, xid(79)))
    worse = Gpu(0, bus_id="00000000:C6:00.0", ecc_uncorrected=2)
    now = evidence.collect(Reading(gpus=(worse,)), 1, before.message)
    assert [fault.text for fault in evidence.new_faults(before, now)] == [
        "GPU 0 fell off the bus (Xid 79)",
        "GPU 0 has uncorrectable memory errors: 2",
    ]


def test_errors_count_only_if_it_is_known_that_they_are_new() -> None:
    """NVML may have given no answer before the attempt, and the errors may be old."""
    shown = Evidence(reading=(Fault(RESET, "GPU 0 has uncorrectable memory errors: 1"),))
    assert evidence.new_faults(Evidence(reading=None), shown) == []
    assert len(evidence.new_faults(Evidence(reading=()), shown)) == 1
    assert evidence.new_faults(Evidence(reading=()), Evidence(reading=None)) == []


def test_of_many_faults_an_answer_has_the_nodes_own(log: Path) -> None:
    lines = [message(number, xid(13, address=f"PCI:0000:{number:02x}:00")) for number in range(100)]
    log.write_text("".join([*lines, message(100, xid(79))]))
    collected = evidence.collect(Reading(), None, kernel_log.NONE)
    assert len(collected.log) == evidence.MOST_FAULTS and collected.log[0].is_the_nodes
    evidence.parse(json.loads(json.dumps(asdict(collected))), "it")


# Blame

BUS, PAGE, EVENT = (
    Fault(REBOOT, "GPU 2 fell off the bus (Xid 79)"),
    Fault(PROGRAM, "GPU 0: Xid 31"),
    Fault(MONITOR, "x"),
)


@pytest.mark.parametrize(
    ("faults_by_node", "expected"),
    [
        ({}, Blame()),
        ({"w1": [], "w2": [EVENT]}, Blame()),
        ({"w1": [], "w2": [PAGE, BUS]}, Blame({"w2": BUS.text})),
        ({"w1": [PAGE], "w2": []}, Blame(reason="w1: GPU 0: Xid 31, the program's fault")),
        ({"w1": [PAGE], "w2": [PAGE]}, Blame(reason="w1: GPU 0: Xid 31, the program's fault")),
        # The only node of a run is not all of them for that reason.
        ({"w2": [BUS]}, Blame({"w2": BUS.text})),
        ({"w1": [BUS], "w2": [BUS], "w3": []}, Blame({"w1": BUS.text, "w2": BUS.text})),
        # Of two nodes, one is silent.
        ({"w1": [BUS], "w2": None}, Blame({"w1": BUS.text})),
        ({"w1": [PAGE], "w2": None}, Blame(reason="w1: GPU 0: Xid 31, the program's fault")),
        ({"w1": None, "w2": None}, Blame()),
        *(({"w2": [fault]}, Blame({"w2": fault.text})) for fault in (Fault(RESET, "a"), Fault(REPLACE, "b"))),
    ],
)
def test_a_node_is_at_fault_by_the_levels_of_its_own_faults_alone(
    faults_by_node: dict[str, Sequence[Fault] | None], expected: Blame
) -> None:
    assert blame(faults_by_node) == expected


def test_faults_on_all_nodes_hold_none_of_them() -> None:
    verdict = blame({"w1": [BUS], "w2": [BUS]})
    assert (
        not verdict.at_fault and "the GPUs of all 2 nodes report faults (w1: GPU 2 fell off the bus" in verdict.reason
    )


def test_a_silent_node_does_not_count_as_one_without_faults() -> None:
    verdict = blame({"w1": [BUS], "w2": [BUS], "w3": None})
    assert not verdict.at_fault and "the GPUs of all 2 nodes that answer report faults (w1: GPU 2" in verdict.reason


def test_a_node_that_gives_no_answer_is_left_out_of_the_judgment(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(node: str, command: Sequence[str], seconds: float) -> str:
        if node == "w3":
            raise Unanswered(" within 40 s")
        return json.dumps(asdict(Evidence(8, 9, (BUS,), ())))

    monkeypatch.setattr(blames, "output_of", answer)
    verdict = blames.of_attempt(dict.fromkeys(("w1", "w2", "w3"), Evidence()), lambda: False)
    assert not verdict.at_fault and "all 2 nodes that answer" in verdict.reason
    note = "w3 does not say what its GPUs report, so nothing is blamed on it: no answer within 40 s"
    assert verdict.notes == [note]


# The commands


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the programs that it calls."""
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(paths, "HELD", str(tmp_path / "run/held"))
    monkeypatch.setattr(programs, "run", lambda *words: ran.append(words))
    return ran


def test_a_node_is_held_and_released_and_reports_that_at_once(
    node: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    report = ("systemctl", "start", "--no-block", "deeplearning-report.service")
    assert held.reason() == ""
    assert cli.main(["gpus", "hold", BUS.text]) == 0
    assert held.reason() == BUS.text and node == [report]
    assert cli.main(["gpus", "release"]) == 0
    assert held.reason() == "" and node == [report, report]
    assert cli.main(["gpus", "release"]) == 0
    assert capsys.readouterr().out == "released\nit was not held\n"


def test_a_hold_is_lost_at_a_reboot() -> None:
    """systemd mounts a new file system at /run."""
    assert paths.HELD.startswith("/run/")


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "x" * 201])
def test_a_reason_is_one_line(node: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str], reason: str) -> None:
    assert cli.main(["gpus", "hold", reason]) == 2
    assert "give one of up to 200 printable characters" in capsys.readouterr().err and not node


def test_the_faults_of_a_node_are_printed_for_the_master(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(message(3, xid(31)) + message(4, xid(79)))
    monkeypatch.setattr(gpus_cli, "read_config", lambda: CONFIG)
    monkeypatch.setattr(nvml, "read", lambda seconds: Reading(gpus=(Gpu(2, bus_id="00000000:C6:00.0"),)))
    assert cli.main(["gpus", "faults", "--after", "3"]) == 0
    answer = evidence.parse(json.loads(capsys.readouterr().out), "it")
    assert answer == Evidence(1, 4, (BUS,), (), ("0000:c6:00.0",))


def test_an_answer_of_another_form_is_refused() -> None:
    answers: list[Any] = [[], {}, {"message": 1, "log": [{"level": "reset"}], "reading": None}]
    for broken in answers:
        with pytest.raises(UserError):
            evidence.parse(broken, "it")
