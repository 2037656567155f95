"""Surveys of nodes before an attempt: what is asked, and which answers are accepted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning import cli, programs
from deeplearning.contract import bounded_program, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.data import staging
from deeplearning.gpus import cli as gpus_cli
from deeplearning.gpus import evidence, nvml
from deeplearning.gpus.evidence import Evidence
from deeplearning.gpus.reading import Gpu, Reading
from deeplearning.runs import survey, units
from deeplearning.runs.allocation import MustWait, Situation, usable_nodes
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node
from deeplearning.runs.survey import NodeSurvey
from deeplearning.runs.units import Preparing, Unfit

from tests.nvml import Gpus
from tests.unit.node.master_kit import master_of
from tests.unit.node.members_kit import cluster_in
from tests.unit.node.programs_kit import install
from tests.unit.node.runs_kit import CONFIG, member

SURVEY: dict[str, Any] = {"boot_id": "0f-1", "in_use": "", "efa": 4, "interface": "ens5", "ports": [20000, 20001]}
SURVEY |= {"environment": "torch 2.13.0, Python 3.11", "preparing": "", "problem": "", "held": ""}
FAULTS: dict[str, Any] = {
    **{"answering": 8, "message": 5, "log": [], "reading": None},
    **{"buses": ["0000:53:00.0"], "in_use": ""},
}
SURVEY |= {"faults": FAULTS}


def with_gpus(count: Any) -> dict[str, Any]:
    return {**FAULTS, "answering": count}


def survey_of(monkeypatch: pytest.MonkeyPatch, answer: Any, ports: int = 2) -> NodeSurvey:
    done = subprocess.CompletedProcess("ssh", 0, json.dumps(answer), "")
    monkeypatch.setattr(bounded_program, "run", lambda command, seconds: done)
    (result,) = survey.survey_nodes([member(2)], Folder("/r1"), "/p", ports)
    return result


def test_a_survey_describes_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    result = survey_of(monkeypatch, SURVEY)
    assert result.node == Node("deeplearning-worker2", "10.0.0.2", 8, "ens5", (20000, 20001), 4, ("0000:53:00.0",))
    assert (result.boot_id, result.problem) == ("0f-1", "")
    result = survey_of(monkeypatch, {**SURVEY, "ports": list(range(1, 60000))})
    assert result.node and result.node.ports == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        {key: value for key, value in SURVEY.items() if key != "efa"},
        [],
        *({**SURVEY, "faults": with_gpus(count)} for count in (10**12, 65, True)),
        {**SURVEY, "gpus": 8},
        {**SURVEY, "faults": None},
        {**SURVEY, "efa": 65},
        {**SURVEY, "efa": -1},
        {**SURVEY, "ports": [0]},
        {**SURVEY, "ports": [65536]},
        {**SURVEY, "ports": "20000"},
        {**SURVEY, "interface": "ens5 --mca x"},
        {**SURVEY, "interface": "a" * 16},
        {**SURVEY, "interface": "../x"},
        {**SURVEY, "interface": None},
        {**SURVEY, "boot_id": ["b"]},
        {**SURVEY, "problem": "\x1b]52;c;x"},
        {**SURVEY, "environment": "\x1b]52;c;x"},
        {**SURVEY, "in_use": "\x1b]52;c;x"},
        {**SURVEY, "faults": {**FAULTS, "buses": ["../../x"]}},
        {**SURVEY, "faults": {**FAULTS, "buses": ["0000:53:00.0"] * 65}},
        {**SURVEY, "faults": {**FAULTS, "buses": "0000:53:00.0"}},
        {**SURVEY, "held": "\x1b]52;c;x"},
        *({**SURVEY, name: text} for name in ("problem", "held") for text in ("\x9b31m", "\u202e", "\ud800")),
        {**SURVEY, "\x1b]52;c;x": 5},
        {**SURVEY, "faults": {"answering": 8, "message": 5, "log": []}},
        {**SURVEY, "faults": {**FAULTS, "message": -2}},
        {**SURVEY, "faults": {**FAULTS, "log": [{"level": "worse", "text": "x"}]}},
        {**SURVEY, "faults": {**FAULTS, "reading": [{"level": "reset", "text": "\x1b]52;c;x"}]}},
    ],
)
def test_a_node_with_an_invalid_answer_takes_no_part(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    result = survey_of(monkeypatch, answer)
    assert result.node is None and "deeplearning-worker2 has another version of our programs" in result.problem
    assert result.problem.isprintable()


def test_a_node_replaces_what_is_not_printable(
    run: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(survey, "stop_earlier_attempts", lambda *_unused: None)
    monkeypatch.setattr(survey.held, "reason", lambda: "a\x1b[1m")
    monkeypatch.setattr(survey, "require_basics", Mock(side_effect=Unfit("b\x9b1m\udcff")))
    survey.main(["r1", run.path, sys.executable, "127.0.0.1", "2"])
    answer = schema.validate_part(json.loads(capsys.readouterr().out), survey.ANSWER, "the answer")
    assert (answer["held"], answer["problem"]) == ("a\ufffd[1m", "b\ufffd1m\ufffd")


def test_the_reason_of_a_node_that_does_not_answer_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess("ssh", 255, "", "x\n\x1b]52;c;x\x9b1m\n")
    monkeypatch.setattr(bounded_program, "run", lambda command, seconds: done)
    with pytest.raises(survey.Unanswered, match=r"^: \ufffd\]52;c;x\ufffd1m$"):
        survey.output_of("w2", ["true"], 1)


def test_a_node_whose_program_does_not_know_an_option_is_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = """
import argparse
import sys
parser = argparse.ArgumentParser(prog="deeplearning run survey")
for name in ("run_id", "folder", "python", "address"):
    parser.add_argument(name)
parser.add_argument("ports", type=int)
parser.parse_args(sys.argv[-1].split()[3:])
"""
    (tmp_path / "older.py").write_text(older)
    install(tmp_path / "bin", monkeypatch, ssh=f'exec {sys.executable} {tmp_path}/older.py "$@"')
    (tmp_path / "run/attempts/0").mkdir(parents=True)
    (result,) = survey.survey_nodes([member(2)], Folder(str(tmp_path / "run")), "/p", 2)
    assert result.node is None and result.problem == (
        "deeplearning-worker2 has another version of our programs, or is broken: run ansible-playbook "
        "deeplearning.aws.configure. (deeplearning run survey: error: unrecognized arguments: --attempt=1)"
    )


def test_an_answer_may_have_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bin", monkeypatch, ssh="printf '\\377'; printf 'x\\377\\n' >&2; exit $CODE")
    monkeypatch.setenv("CODE", "0")
    (result,) = survey.survey_nodes([member(2)], Folder("/r1"), "/p", 2)
    assert "deeplearning-worker2 has another version of our programs" in result.problem
    assert survey.stop_leftovers({"w2": "0f-1"}, "r1", 0) == {"w2": "it has booted since"}
    monkeypatch.setenv("CODE", "255")
    (result,) = survey.survey_nodes([member(2)], Folder("/r1"), "/p", 2)
    assert result.problem == "deeplearning-worker2 does not answer: x\ufffd."


def test_a_node_that_copies_its_data_set_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    copying = survey_of(monkeypatch, {**SURVEY, "preparing": "photos is copied to its disk"})
    assert copying.is_preparing and copying.problem == "deeplearning-worker2: photos is copied to its disk"
    with pytest.raises(MustWait):
        usable_nodes([copying], Situation.FIRST_START, may_wait=False)
    refused = survey_of(monkeypatch, {**SURVEY, "problem": "it is full", "preparing": ""})
    assert not refused.is_preparing
    with pytest.raises(UserError, match="it is full"):
        usable_nodes([refused], Situation.FIRST_START, may_wait=True)


def test_a_missing_local_copy_is_made_by_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ON_NODE", tmp_path)
    run = {"run_id": "r1", "local_copy": {"data": "photos", "source": "", "bucket": "s3://b"}}
    unit, asked = {"state": "inactive"}, list[tuple[str, ...]]()

    def answer(*words: str, **_options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        output = {"show": unit["state"], "--output=cat": "fetching\nphotos is not staged\n"}.get(words[1], "")
        return subprocess.CompletedProcess(words, 0, output, "")

    monkeypatch.setattr(programs, "run", answer)
    monkeypatch.setattr(units, "as_root", lambda *words: words)
    survey.require_local_copy({**run, "local_copy": None})
    assert not asked
    with pytest.raises(Preparing, match="^photos is copied to its disk$"):
        survey.require_local_copy(run)
    started = ["systemd-run", "--quiet", "--unit=deeplearning-copy-r1.service", "--"]
    started += ["/usr/local/bin/deeplearning", "data"]
    assert list(asked[-1]) == [*started, "stage", "photos", "--on", "node", "--bucket", "s3://b", "--from", ""]
    for unit["state"] in ("active", "activating"):
        asked.clear()
        with pytest.raises(Preparing, match="^photos is copied to its disk$"):
            survey.require_local_copy(run)
        assert len(asked) == 1
    unit["state"] = "failed"
    with pytest.raises(Unfit, match="^photos cannot be copied to its disk: photos is not staged$"):
        survey.require_local_copy(run)
    assert asked[-1] == ("systemctl", "reset-failed", "deeplearning-copy-r1.service")
    folder = staging.StagingRequest("photos", Path(), on_node=True).path
    folder.mkdir()
    (folder / "a").write_text("x")
    (folder / paths.MARKER).write_text(json.dumps({"files": {"a": 1}}))
    survey.require_local_copy(run)


def test_a_node_answers_the_command_of_a_survey_and_stops_what_an_earlier_attempt_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master = master_of(cluster_in(tmp_path, monkeypatch))
    run = master.create_run()
    driver = Path(f"{master.node.root}{paths.NVIDIA_DRIVER}")
    driver.parent.mkdir(parents=True)
    driver.touch()
    with master.node.here():
        words = ["run", "survey", "r1", run.path, sys.executable, "--attempt=2", "127.0.0.1", "2"]
        assert cli.main(words) == 0
    answer = schema.validate_part(json.loads(capsys.readouterr().out), survey.ANSWER, "the answer")
    assert (answer["faults"].answering, answer["interface"], len(answer["ports"])) == (8, "lo", 2)
    assert (answer["problem"], answer["preparing"]) == ("", "its GPUs are tested with pytorch")
    assert answer["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Nothing of a later attempt, which may run before a request that the network has held up.
    assert master.asked("stop") == ["stop deeplearning-run-r1:0.service deeplearning-run-r1:1.service"]


RELEASE, CHECKOUT = "tensorpack 0.11, Python 3.11", "tensorpack 0.11 from /efs/data/tensorpack, Python 3.11"


@pytest.mark.parametrize(
    ("environments", "refused"),
    [
        ([RELEASE] * 3, []),
        ([CHECKOUT, CHECKOUT, RELEASE], [3]),
        ([CHECKOUT, RELEASE], [2]),
        ([RELEASE, CHECKOUT, CHECKOUT], [1]),
        # A user's own Python.
        ([""] * 2, []),
        (["", RELEASE, RELEASE], [1]),
    ],
)
def test_nodes_with_another_environment_are_refused(environments: list[str], refused: list[int]) -> None:
    surveys = [
        NodeSurvey(member(number), Node(f"deeplearning-worker{number}", "10.0.0.1", 0, "lo", (1,), 0), environment=text)
        for number, text in enumerate(environments, 1)
    ]
    judged = survey.refuse_other_environments(surveys)
    problems = {
        number: survey_result.problem for number, survey_result in enumerate(judged, 1) if survey_result.problem
    }
    assert list(problems) == refused
    assert all(f"deeplearning-worker{number}: it has " in problem for number, problem in problems.items())
    with pytest.raises(UserError) if refused else contextlib.nullcontext():
        assert usable_nodes(judged, Situation.FIRST_START, may_wait=True) == judged


def test_a_node_that_has_a_problem_says_nothing_about_the_others() -> None:
    broken = NodeSurvey(member(1), problem="deeplearning-worker1 does not answer.")
    whole = [NodeSurvey(member(number), environment=RELEASE) for number in (2, 3)]
    assert survey.refuse_other_environments([broken, *whole]) == [broken, *whole]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"torch": "2.13.0+cu130"}, "torch 2.13.0, Python 3.11"),
        ({"torch": "2.13.0+cpu"}, "torch 2.13.0, Python 3.11"),
        (
            {"tensorflow": "2.15.1", "tensorpack": "0.11", "horovod": "0.28.1"},
            "tensorflow 2.15.1, tensorpack 0.11, horovod 0.28.1, Python 3.11",
        ),
        ({"tensorflow-cpu": "2.15.1", "numpy": "1.23.5"}, "tensorflow 2.15.1, Python 3.11"),
        ({"mxnet-cu112": "1.9.1"}, "mxnet 1.9.1, Python 3.11"),
        (
            {"tensorflow": "2.15.1", "tensorpack": "0.11 from /efs/data/t"},
            "tensorflow 2.15.1, tensorpack 0.11 from /efs/data/t, Python 3.11",
        ),
        (None, "an environment that is damaged"),
    ],
)
def test_an_environment_is_described_alike_with_and_without_gpus(
    versions: dict[str, str] | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(tmp_path))
    (tmp_path / "x/bin").mkdir(parents=True)
    if versions:
        (tmp_path / "x" / paths.MARKER).write_text(json.dumps({"python": "3.11.2", "versions": versions}))
    assert survey.describe_environment(f"{tmp_path}/x/bin/python") == expected
    assert survey.describe_environment("/usr/bin/python3") == ""


def test_a_run_with_horovod_cannot_use_an_environment_without_it() -> None:
    """A machine that configured itself before a wheel was built has none."""
    lacking = "tensorflow 2.15.1, tensorpack 0.11, Python 3.11"
    problem = f"its environment has {lacking} and no Horovod: run deeplearning.aws.train again."
    with pytest.raises(Unfit, match=f"^{re.escape(problem)}$"):
        survey.require_horovod(lacking)
    for usable in (lacking.replace("0.11", "0.11, horovod 0.28.1"), "", survey.DAMAGED):
        survey.require_horovod(usable)


def test_ports_are_free_and_differ() -> None:
    ports = survey.free_ports(20, "some-run")
    assert len(set(ports)) == 20 and all(survey.FIRST_PORT <= port < survey.LAST_PORT for port in ports)


def test_ports_that_are_in_use_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may use more of them than a process may open."""
    probes, held = list[socket.socket](), list[int]()

    class Probe(socket.socket):
        def bind(self, address: Any) -> None:
            probes.append(self)
            held.append(sum(probe.fileno() >= 0 for probe in probes))
            if len(probes) < 50:
                raise OSError(errno.EADDRINUSE, "Address already in use")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Probe)
    assert len(survey.free_ports(2, "some-run")) == 2 and max(held) < 5


def test_the_interface_of_an_address() -> None:
    assert survey.interface_of("127.0.0.1") == "lo"
    assert survey.interface_of("192.0.2.1") == ""


def test_a_survey_does_not_wait_for_a_driver_that_cannot_be_killed(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.set(count=8, hang=1)
    monkeypatch.setattr(gpus_cli, "read_config", lambda: CONFIG)
    monkeypatch.setattr(nvml, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(bounded_program, "END_SECONDS", 0.1)
    kill, left = os.killpg, list[int]()
    monkeypatch.setattr(os, "killpg", lambda group, number: left.append(group))
    try:
        assert cli.main(["gpus", "faults"]) == 0
        assert [os.waitpid(pid, os.WNOHANG) for pid in left] == [(0, 0)]
    finally:
        for pid in left:
            kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["answering"], answer["reading"]) == (0, None)


def as_sudo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Let `deeplearning gpus faults` run here, as sudo would run it."""

    def call(*words: str, **_more: Any) -> subprocess.CompletedProcess[str]:
        printed = ""
        if words[-2:] == ("gpus", "faults"):
            assert cli.main(["gpus", "faults"]) == 0
            printed = capsys.readouterr().out
        return subprocess.CompletedProcess(words, 0, printed, "")

    monkeypatch.setattr(programs, "run", call)
    monkeypatch.setattr(gpus_cli, "read_config", lambda: CONFIG)


def test_a_survey_opens_nvidias_library_once(
    run: Folder, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each process that opens it initializes eight GPUs where the persistence daemon does not run."""
    gpus.set(count=3)
    (tmp_path / "driver").touch()
    monkeypatch.setattr(paths, "NVIDIA_DRIVER", str(tmp_path / "driver"))
    monkeypatch.setattr(gpus_cli, "read_config", lambda: CONFIG)
    read, readings = nvml.read, list[float]()
    monkeypatch.setattr(nvml, "read", lambda seconds: readings.append(seconds) or read(seconds))
    as_sudo(monkeypatch, capsys)
    proved: list[int] = []
    monkeypatch.setattr(survey.gpu_proofs, "require", lambda run, folder, python, gpus: proved.append(gpus))
    survey.main(["r1", run.path, sys.executable, "127.0.0.1", "2"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["faults"]["answering"], proved, len(readings)) == (3, [3], 1)


@pytest.mark.parametrize("stream", [1, 2])
def test_an_answer_without_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: int) -> None:
    install(tmp_path / "bin", monkeypatch, ssh=f"exec cat /dev/zero >&{stream}")
    for name in ("SURVEY_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(survey, name, 30 if stream == 1 else 3)
    (result,) = survey.survey_nodes([member(2)], Folder("/r1"), "/p", 2)
    why = ": its program printed more than 1 MiB, and was read no further" if stream == 1 else " within 3 s"
    assert result.problem == f"deeplearning-worker2 does not answer{why}."
    assert survey.stop_leftovers({"w2": "0f-1"}, "r1", 0) == {"w2": f"it does not answer{why}"}


def test_a_node_whose_driver_is_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the persistence daemon, eight GPUs need up to 30 s."""
    limits = dict[str, float]()

    def answer(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        limits[command[5]] = seconds
        return subprocess.CompletedProcess(command, 0, json.dumps(SURVEY), "")

    monkeypatch.setattr(bounded_program, "run", answer)
    survey.survey_nodes([member(2), member(3, gpus=8)], Folder("/r1"), "/p", 2)
    assert limits == pytest.approx({"deeplearning-worker2": 8.0, "deeplearning-worker3": 40.0}, abs=6)
    assert 30 <= nvml.ANSWER_SECONDS < 40


def test_a_node_that_does_not_answer_has_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        if "deeplearning-worker2" in command:
            raise subprocess.TimeoutExpired(command, 8)
        code = 255 if "deeplearning-worker3" in command else 0
        printed = "Warning: x\nPermission denied.\n" if code else ""
        return subprocess.CompletedProcess(command, code, json.dumps(SURVEY), printed)

    monkeypatch.setattr(bounded_program, "run", answer)
    surveys = survey.survey_nodes([member(rank) for rank in (2, 3, 4)], Folder("/r1"), "/p", 2)
    assert [each.problem for each in surveys] == [
        "deeplearning-worker2 does not answer within 8 s.",
        "deeplearning-worker3 does not answer: Permission denied..",
        "",
    ]
    assert [bool(each.node) for each in surveys] == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "problem", "copies"),
    [
        (
            {"faults": with_gpus(7)},
            "deeplearning-worker2: 7 of its 8 GPUs answer: run `nvidia-smi -L` there",
            False,
        ),
        ({"faults": with_gpus(9)}, "", False),
        (
            {"problem": "it lacks EFS", "faults": with_gpus(0)},
            "deeplearning-worker2: it lacks EFS",
            False,
        ),
        ({"preparing": "x is copied", "faults": with_gpus(0)}, "deeplearning-worker2: x is copied", True),
        ({"preparing": "x is copied", "problem": "y"}, "deeplearning-worker2: y", False),
        ({"preparing": "x is copied", "held": "y"}, "deeplearning-worker2: it is held: y", False),
        ({"preparing": "x is copied", "in_use": "GPU 0"}, "deeplearning-worker2: x is copied", True),
    ],
)
def test_a_node_with_a_problem_is_described(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], problem: str, copies: bool
) -> None:
    done = subprocess.CompletedProcess("ssh", 0, json.dumps({**SURVEY, **changes}), "")
    monkeypatch.setattr(bounded_program, "run", lambda command, seconds: done)
    (survey_of_node,) = survey.survey_nodes([member(2, gpus=8)], Folder("/r1"), "/p", 2)
    assert (survey_of_node.problem, survey_of_node.is_preparing, bool(survey_of_node.node)) == (problem, copies, True)
    assert survey_of_node.is_held is ("held" in changes)


def test_a_node_whose_gpus_are_in_use_names_gpu_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {**SURVEY, "in_use": "GPU 1 holds memory of process 41 (python3)"}
    result = survey_of(monkeypatch, answer)
    assert result.is_in_use and not result.is_preparing
    assert result.problem == (
        "deeplearning-worker2: its GPU 1 holds memory of process 41 (python3): end what is left there, and start the "
        "run again"
    )
    assert not survey_of(monkeypatch, {**answer, "problem": "it lacks EFS"}).is_in_use


def test_a_survey_names_the_processes_that_hold_memory_unless_the_run_uses_no_gpu(
    run: Folder, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.set(count=2, gpu1_processes=f"{os.getpid()}:1024 {2**22 + 1}:2048", gpu0_bus_id="00000000:53:00.0")
    (tmp_path / "driver").touch()
    monkeypatch.setattr(paths, "NVIDIA_DRIVER", str(tmp_path / "driver"))
    as_sudo(monkeypatch, capsys)
    monkeypatch.setattr(survey.gpu_proofs, "require", Mock())

    def answer() -> dict[str, Any]:
        survey.main(["r1", run.path, sys.executable, "127.0.0.1", "2"])
        return schema.validate_part(json.loads(capsys.readouterr().out), survey.ANSWER, "the answer")

    name = Path("/proc/self/comm").read_text().strip()
    expected = f"GPU 1 holds memory of process {os.getpid()} ({name}), GPU 1 holds memory of process {2**22 + 1}"
    run.write("run.json", {**run.run(), "local_copy": None})
    assert (answer()["in_use"], answer()["faults"].buses) == (expected, ("0000:53:00.0", ""))
    run.write("run.json", {**run.run(), "processor": True})
    assert answer()["in_use"] == ""
    run.write("run.json", {**run.run(), "processor": False})
    gpus.set(gpu1_processes=None)
    assert answer()["in_use"] == ""


def test_many_processes_are_counted_and_the_service_of_mps_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Reading(gpus=(Gpu(0, processes=tuple(2**22 + number for number in range(1, 12))),))
    assert evidence.holders(held).endswith(f"process {2**22 + 8}, 3 more")
    monkeypatch.setattr(evidence.atomic_file, "read_or_none", lambda path: "nvidia-cuda-mps\n")
    assert evidence.holders(held) == ""


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        ("00000000:C6:00.0", "0000:c6:00.0"),
        ("00010000:C6:1A.3", "10000:c6:1a.3"),
        ("0000:C6:00.0", "0000:c6:00.0"),
        ("../../x", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_place_of_a_gpu_is_named_as_linux_does(bus_id: str | None, expected: str) -> None:
    assert evidence.bus_of(Gpu(0, bus_id=bus_id)) == expected


def test_nodes_with_the_same_problem_are_named_together() -> None:
    torch = "torch sees 0 of 8 GPUs"
    problems = {
        1: f"{{}}: {torch}",
        2: "",
        3: f"{{}}: {torch}",
        4: "{} does not answer within 8 s.",
        5: "{}: it is full",
    }
    surveys = [
        NodeSurvey(member(rank), problem=problem.format(member(rank).alias)) for rank, problem in problems.items()
    ]
    assert survey.problems_of(surveys) == (
        f"deeplearning-worker1, deeplearning-worker3: {torch} deeplearning-worker4 does not answer within 8 s. "
        "deeplearning-worker5: it is full"
    )
    assert survey.problems_of(surveys[1:2]) == ""


def test_this_machine_is_asked_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def answer(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(SURVEY), "")

    monkeypatch.setattr(bounded_program, "run", answer)
    survey.survey_nodes([member(1), member(2)], Folder("/efs/runs/c/r1"), "/p y", 2)
    own, other = sorted(map(tuple, commands), key=len)[::-1]
    own, other = (own, other) if own[0] == paths.PROGRAM else (other, own)
    words = ("run", "survey", "r1", "/efs/runs/c/r1")
    assert own == (paths.PROGRAM, *words, "/p y", "10.0.0.1", "2")
    assert other[-2:] == ("deeplearning-worker2", f"{paths.PROGRAM} {' '.join(words)} '/p y' 10.0.0.2 2")


def test_nodes_are_asked_for_packages_if_the_run_has_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older program refuses the option: it would start without them."""
    commands: list[tuple[str, ...]] = []
    answer = subprocess.CompletedProcess((), 0, json.dumps(SURVEY), "")
    monkeypatch.setattr(bounded_program, "run", lambda command, _seconds: commands.append(command) or answer)
    for _time in range(2):
        survey.survey_nodes([member(1)], Folder(str(tmp_path)), "/p", 2)
        (tmp_path / "requirements.txt").touch()
    assert ["--packages" in command for command in commands] == [False, True]


def test_nodes_learn_which_attempt_is_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None before the first one: then nothing is left, and a node with an older program takes part."""
    commands: list[tuple[str, ...]] = []
    answer = subprocess.CompletedProcess((), 0, json.dumps(SURVEY), "")
    monkeypatch.setattr(bounded_program, "run", lambda command, _seconds: commands.append(command) or answer)
    for number in range(3):
        survey.survey_nodes([member(1)], Folder(str(tmp_path)), "/p", 2)
        (tmp_path / f"attempts/{number}").mkdir(parents=True)
    assert [tuple(command)[6:-2] for command in commands] == [(), ("--attempt=1",), ("--attempt=2",)]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("", ""),
        ("gpus", "torch sees 2 of 3 GPUs"),
        ("proof", ""),
        ("folder", "{folder} is missing: is EFS mounted?"),
        ("python", "{python} is missing: install the framework on all members, or set python to a path that all have."),
        ("address", "no network interface has the address 192.0.2.1"),
    ],
)
def test_a_node_answers_what_it_lacks(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    broken: str, problem: str,
) -> None:  # fmt: skip
    ran: list[tuple[str, ...]] = []
    proof = {"gpus": Unfit(problem), "proof": Preparing("its GPUs are tested")}.get(broken)
    faults = {**FAULTS, "answering": 3}

    def answer_of(*words: str, **_options: Any) -> subprocess.CompletedProcess[str]:
        ran.append(words)
        return subprocess.CompletedProcess(words, 0, json.dumps(faults), "")

    monkeypatch.setattr(programs, "run", answer_of)
    monkeypatch.setattr(paths, "NVIDIA_DRIVER", run.file("run.json"))
    monkeypatch.setattr(survey.gpu_proofs, "require", Mock(side_effect=proof))
    monkeypatch.setattr(survey, "require_local_copy", Mock(side_effect=Preparing("tensorflow is copied")))
    folder = str(tmp_path / "gone") if broken == "folder" else run.path
    python = "/nowhere/python" if broken == "python" else sys.executable
    address = "192.0.2.1" if broken == "address" else "127.0.0.1"
    survey.main(["r1", folder, python, address, "2", "--attempt", "1"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["problem"] == problem.format(folder=folder, python=python)
    assert answer["preparing"] == {"": "tensorflow is copied", "proof": "its GPUs are tested"}.get(broken, "")
    assert (answer["interface"], len(answer["ports"])) == ("" if broken == "address" else "lo", 2)
    assert answer["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert ran[0][-3:] == ("systemctl", "stop", "deeplearning-run-r1:0.service")
    assert answer["faults"] == faults and ran[1][-3:] == (paths.PROGRAM, "gpus", "faults")


@pytest.mark.parametrize("printed", ["", "[]", '{"answering": 8}'])
def test_a_node_whose_gpus_cannot_be_read_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    """Without a baseline, each fault since its boot would be new after the attempt."""
    monkeypatch.setattr(programs, "run", lambda *words: subprocess.CompletedProcess(words, 1, printed, "sudo: x\x9b"))
    monkeypatch.setattr(paths, "NVIDIA_DRIVER", str(tmp_path / "none"))
    assert survey.gpu_evidence() == Evidence()
    (tmp_path / "none").touch()
    problem = "its GPUs cannot be read (`sudo deeplearning gpus faults`): sudo: x\ufffd"
    with pytest.raises(Unfit, match=f"^{re.escape(problem)}$"):
        survey.gpu_evidence()
    assert survey_of(monkeypatch, SURVEY).evidence.message == 5


def test_a_silent_node_and_one_that_has_booted_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        if "silent" in command:
            raise subprocess.TimeoutExpired(command, 5)
        return subprocess.CompletedProcess(command, 0, "boot-2\n" if "booted" in command else "boot-1\n", "")

    monkeypatch.setattr(bounded_program, "run", answer)
    nodes = ("deeplearning-worker1", "well", "booted", "silent")
    lost = survey.stop_leftovers(dict.fromkeys(nodes, "boot-1"), "r1", 0)
    assert lost == {"booted": "it has booted since", "silent": "it does not answer within 5 s"}
