"""The proof that a run's framework uses its node's GPUs: when it is made, and how long it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning import cli, programs
from deeplearning.contract import gpu_proof, paths
from deeplearning.gpus import evidence, kernel_log, nvml
from deeplearning.gpus.reading import Reading
from deeplearning.runs import gpu_proofs, survey, units
from deeplearning.runs.folder import Folder
from deeplearning.runs.units import Preparing, Unfit

from tests.nvml import Gpus
from tests.unit.node.users_kit import bounded

TESTING = ("its GPUs are tested with pytorch", "")
PROVED = ("", "")
SEES_ALL = gpu_proof.Answer(imported=True, version="2.13.0", cuda="13.0", seen=8, computed=True)
TORCH = """
import os
__version__ = f"of {os.environ['SEED']} in {os.environ['PATH'].split(':')[0]}"
class version: cuda = None
class cuda: is_available = staticmethod(lambda: False)
"""


class Systemd:
    """Starts units that do nothing. Their state is what a test sets."""

    def __init__(self) -> None:
        self.state, self.started = "inactive", list[tuple[str, ...]]()

    def __call__(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        if words[0] == "systemd-run":
            self.started.append(words)
        output = {"show": self.state, "--output=cat": "begun\nsudo: a password is required\n"}.get(words[1], "")
        return subprocess.CompletedProcess(words, 0, output, "")


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    systemd = Systemd()
    monkeypatch.setattr(programs, "run", systemd)
    monkeypatch.setattr(units, "as_root", lambda *words: words)
    monkeypatch.setattr(gpu_proof, "driver_version", lambda: "580.105.08")
    return systemd


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment of ours. Return its Python."""
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(tmp_path / "env"))
    folder = tmp_path / "env/pytorch"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / paths.MARKER).write_text('{"requirements_sha256": "1"}')
    return f"{folder}/bin/python"


def asked(run: Folder, python: str, gpus: int = 8, **changes: Any) -> tuple[str, str]:
    record = {**run.run(), "framework": "pytorch", "processor": False, **changes}
    try:
        gpu_proofs.require(record, run, python, gpus)
    except Preparing as step:
        return str(step), ""
    except Unfit as error:
        return "", str(error)
    return PROVED


def make(run: Folder, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, answer: gpu_proof.Answer) -> None:
    """Do what the unit does that was started last."""
    run.write("run.json", {**run.run(), "framework": "pytorch"})
    monkeypatch.setattr(gpu_proof, "prove", lambda node, environment: answer)
    words = systemd.started[-1]
    assert cli.main(list(words[words.index("--") + 2 :])) == 0


def test_a_proof_is_made_once_by_a_unit_of_the_runs_user(
    run: Folder, systemd: Systemd, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(run, environment) == TESTING
    ((*options, program, group, action, folder, python, gpus, _key),) = systemd.started
    assert (program, group, action, folder, python, gpus) == (
        *(paths.PROGRAM, "run", "prove"),
        *(run.path, environment, "8"),
    )
    assert {"--unit=deeplearning-gpus-r1.service", f"--uid={os.geteuid()}"} < set(options)
    assert {"--property=RuntimeDirectoryPreserve=yes", "--property=RuntimeMaxSec=300"} < set(options)
    systemd.state = "active"
    assert asked(run, environment) == TESTING and len(systemd.started) == 1
    make(run, systemd, monkeypatch, SEES_ALL)
    assert asked(run, environment) == PROVED
    # Another run, as all is the same.
    assert asked(run, environment, run_id="r2") == PROVED and len(systemd.started) == 1


@pytest.mark.parametrize("changed", ["gpus", "driver", "packages", "framework", "python", "variables", "boot"])
def test_a_proof_is_made_again_when_something_has_changed(
    run: Folder, systemd: Systemd, environment: str, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    asked(run, environment)
    make(run, systemd, monkeypatch, SEES_ALL)
    assert asked(run, environment) == PROVED
    if changed == "driver":
        monkeypatch.setattr(gpu_proof, "driver_version", lambda: "595.91")
    if changed == "packages":
        Path(environment).parents[1].joinpath(paths.MARKER).write_text('{"requirements_sha256": "2"}')
    if changed == "variables":
        run.write("environment.json", {"environment": {"LD_LIBRARY_PATH": "/x"}})
    if changed == "boot":
        monkeypatch.setattr(paths, "RUNTIME", f"{paths.RUNTIME}-next")
    python = sys.executable if changed == "python" else environment
    framework = "mxnet" if changed == "framework" else "pytorch"
    preparing, _problem = asked(run, python, 7 if changed == "gpus" else 8, framework=framework)
    assert preparing == f"its GPUs are tested with {framework}"


def test_what_the_user_brings_is_tested_for_each_run(
    run: Folder, systemd: Systemd, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write("environment.json", {"environment": {"NCCL_DEBUG": "INFO"}})
    assert asked(run, environment) == TESTING
    make(run, systemd, monkeypatch, SEES_ALL)
    assert asked(run, environment) == PROVED
    assert asked(run, environment, run_id="r2") == TESTING
    assert asked(run, environment, requested_at="2026-02-01T00:00:00Z") == TESTING


def test_a_run_keeps_its_problem_and_another_one_tests_again(
    run: Folder, systemd: Systemd, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(run, environment)
    make(run, systemd, monkeypatch, replace(SEES_ALL, seen=7))
    for _unused in range(2):
        preparing, problem = asked(run, environment)
        assert preparing == "" and "torch 2.13.0 sees 7 of 8 GPUs (driver 580.105.08" in problem
    assert asked(run, environment, run_id="r2") == TESTING


@pytest.mark.parametrize(
    "form", ["pipe", "link", "{", "[]", "5", "{}", '{"problem": ""}', '{"problem": 5, "run": "r1"}']
)
def test_a_malformed_proof_is_a_missing_one(
    run: Folder, systemd: Systemd, environment: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    asked(run, environment)
    make(run, systemd, monkeypatch, SEES_ALL)
    (file,) = Path(f"{paths.RUNTIME}/gpu-proofs").iterdir()
    file.unlink()
    if form == "pipe":
        os.mkfifo(file)
    elif form == "link":
        file.symlink_to("/dev/zero")
    else:
        file.write_text(form)

    def remade() -> list[tuple[str, str]]:
        first = asked(run, environment)
        make(run, systemd, monkeypatch, SEES_ALL)
        return [first, asked(run, environment)]

    assert bounded(remade) == [list(TESTING), list(PROVED)]


def test_a_python_may_lie_in_any_folder(run: Folder, systemd: Systemd) -> None:
    assert asked(run, "/python") == TESTING


@pytest.mark.parametrize(("gpus", "processor"), [(0, False), (8, True)])
def test_nothing_is_proved_for_the_processor(
    run: Folder, systemd: Systemd, environment: str, gpus: int, processor: bool
) -> None:
    assert asked(run, environment, gpus, processor=processor) == PROVED
    # A master that was not updated yet does not write the key.
    assert asked(run, environment, 0) == PROVED
    assert not systemd.started


def test_the_drivers_library_says_which_gpus_are_divided(
    run: Folder, systemd: Systemd, environment: str, gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.set(count=8, mig=0, gpu0_mig=1, gpu3_mig=1)
    asked(run, environment)
    make(run, systemd, monkeypatch, replace(SEES_ALL, seen=1))
    _preparing, problem = asked(run, environment)
    assert "MIG is on" in problem and "sudo nvidia-smi -i 0,3 -mig 0" in problem


def test_a_survey_refuses_a_node_whose_driver_has_gpus_that_its_framework_does_not_see(
    run: Folder, systemd: Systemd, environment: str, gpus: Gpus, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """NVIDIA's library and the framework are stand-ins: the first has 8 GPUs, the second was built for processors."""
    gpus.set(count=8)
    # Without sudo.
    monkeypatch.setattr(survey, "gpu_evidence", lambda: evidence.collect(nvml.read(), 8, kernel_log.NONE))
    (tmp_path / "torch.py").write_text(TORCH)
    variables = {"PYTHONPATH": str(tmp_path), "SEED": "7"}
    run.write("environment.json", {"environment": variables})
    run.write("run.json", {**run.run(), "framework": "pytorch", "distribution": "ddp", "processor": False})

    def answer() -> dict[str, Any]:
        assert cli.main(["run", "survey", "r1", run.path, environment, "127.0.0.1", "2"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    first = answer()
    assert (first["faults"]["answering"], first["preparing"], first["problem"]) == (8, *TESTING)
    words = systemd.started[-1]
    assert cli.main(list(words[words.index("--") + 2 :])) == 0
    second = answer()
    assert second["preparing"] == "" and "sees 0 of 8 GPUs" in second["problem"]
    assert second["problem"].endswith("To train without GPUs: -e processor=true")
    run.write("run.json", {**run.run(), "processor": True})
    assert (answer()["preparing"], answer()["problem"]) == PROVED


def test_a_unit_that_fails_is_a_problem(run: Folder, systemd: Systemd, environment: str) -> None:
    systemd.state = "failed"
    problem = "its GPUs cannot be tested with pytorch: sudo: a password is required"
    assert asked(run, environment) == ("", problem)


def test_the_framework_gets_the_runs_environment(
    run: Folder, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is a stand-in, which was built for processors."""
    (tmp_path / "torch.py").write_text(TORCH)
    run.write("run.json", {**run.run(), "framework": "pytorch"})
    run.write("environment.json", {"environment": {"PYTHONPATH": str(tmp_path), "SEED": "7"}})
    seen: list[Any] = []
    problem_of = gpu_proof.problem_of
    monkeypatch.setattr(gpu_proof, "problem_of", lambda node, answer: seen.append(node) or problem_of(node, answer))
    monkeypatch.setattr(nvml, "read", Reading)
    assert cli.main(["run", "prove", run.path, environment, "8", "key"]) == 0
    record = json.loads(Path(f"{paths.RUNTIME}/gpu-proofs/key.json").read_text())
    assert record["run"] == "r1 2026-01-01T00:00:00Z"
    assert f"torch of 7 in {os.path.dirname(environment)} sees 0 of 8 GPUs" in record["problem"]
    assert "its environment has the packages for processors" in record["problem"]
    node = seen[0]
    assert (node.variables["SEED"], node.own_python, node.gpus) == ("7", False, 8)


def test_a_build_for_processors_in_the_users_python_is_named_as_the_users(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """train.yml installs nothing there."""
    (tmp_path / "torch.py").write_text(TORCH)
    python = tmp_path / "own/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    run.write("run.json", {**run.run(), "framework": "pytorch"})
    run.write("environment.json", {"environment": {"PYTHONPATH": str(tmp_path), "SEED": "7"}})
    monkeypatch.setattr(nvml, "read", Reading)
    assert cli.main(["run", "prove", run.path, str(python), "8", "key"]) == 0
    problem = json.loads(Path(f"{paths.RUNTIME}/gpu-proofs/key.json").read_text())["problem"]
    assert "sees 0 of 8 GPUs" in problem and f"{python} has a build without CUDA: install one with CUDA" in problem
