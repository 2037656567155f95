"""EMR's bootstrap action: it notices damage, finds out its role, and ends as the configuration of the machine does."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from deeplearning.boot import bootstrap_action, first_stage

ROOT = Path(__file__).resolve().parents[3]
PARAMETERS = {"cluster": "red", "folder": "", "gpus": {"master": 0, "worker": 8}, "role_id": "AROA"}
# In place of first_stage.py.
PROGRAM = """import json, sys, time
PARAMETERS: dict[str, Any] = {}
print("packages", flush=True)
"""


@pytest.fixture
def action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a machine that EMR has started as a core node."""
    (tmp_path / "instance.json").write_text(json.dumps({"isMaster": False, "instanceGroupId": "ig-1"}))
    (tmp_path / "job-flow.json").write_text(json.dumps({"jobFlowId": "j-1"}))
    (tmp_path / "log").mkdir(0o700)
    return tmp_path


def run(
    folder: Path, program: str, *arguments: str, sudo: bool = False, deadline: int = 60
) -> subprocess.CompletedProcess[str]:
    """Run the action, as `boot_bundle` stores it, with its own SHA-256 as argument unless there are others."""
    wrapper = bundle.read_program(ROOT, "bootstrap_action.py")
    for line, value in (
        ('LOGS, PASS = "/var/log"', f'LOGS, PASS = "{folder}/log"'),
        ('INFO = "/mnt/var/lib/info"', f'INFO = "{folder}"'),
        ('PYTHON = "/usr/bin/python3"', f'PYTHON = "{sys.executable}"'),
        ("DEADLINE_SECONDS = 2400", f"DEADLINE_SECONDS = {deadline}"),
        # The user who runs the tests is root on the machine, or not.
        ("if os.geteuid():", f"if {sudo} and not os.environ.get('ROOT'):"),
    ):
        assert wrapper.count(line) == 1
        wrapper = wrapper.replace(line, value)
    path = folder / "action.py"
    path.write_text(bundle.bootstrap_action(wrapper, program, {**PARAMETERS, "folder": f"{folder}/boot"}))
    (folder / "bin").mkdir()
    (folder / "bin/sudo").write_text(f'#!/bin/sh\nprintf "%s " "$@" > {folder}/sudo\nshift; ROOT=1 exec "$@"\n')
    (folder / "bin/sudo").chmod(0o755)
    words = arguments or (hashlib.sha256(path.read_bytes()).hexdigest(),)
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.run([sys.executable, path, *words], capture_output=True, text=True, check=False, env=environment)


def test_it_agrees_with_the_program_that_it_runs() -> None:
    assert bootstrap_action.PARAMETERS_LINE in Path(first_stage.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize(("primary", "role", "gpus"), [(True, "master", 0), (False, "worker", 8)])
def test_it_configures_the_machine_as_root(action: Path, primary: bool, role: str, gpus: int) -> None:
    (action / "instance.json").write_text(json.dumps({"isMaster": primary}))
    program = f"from typing import Any\n{PROGRAM}print(json.dumps(PARAMETERS), sys.argv[1:])\n"
    done = run(action, program, sudo=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (action / "sudo").read_text().startswith(f"-n {sys.executable} -I {action}/action.py ")
    step, parameters = done.stdout.splitlines()
    assert step == "packages"
    expected = {
        **PARAMETERS,
        "folder": f"{action}/boot",
        "role": role,
        "gpus": gpus,
        "job_flow": "j-1",
        "group": "",
        "address": "",
    }
    assert parameters == f"{json.dumps(expected)} ['run']"


@pytest.mark.parametrize(("mode", "opened"), [(0o700, 0o711), (0o750, 0o751), (0o755, 0o755), (0o1777, 0o1777)])
def test_emrs_services_can_pass_through_the_folder_of_logs(action: Path, mode: int, opened: int) -> None:
    (action / "log").chmod(mode)
    assert run(action, f"from typing import Any\n{PROGRAM}").returncode == 0
    assert stat.S_IMODE((action / "log").stat().st_mode) == opened


def test_a_failure_ends_with_its_last_lines_on_stderr(action: Path) -> None:
    program = f"from typing import Any\n{PROGRAM}print('failed: efs_mount\\nno route to host')\nsys.exit(7)\n"
    done = run(action, program)
    assert done.returncode == 1
    assert done.stderr == "packages\nfailed: efs_mount\nno route to host\n"


def test_a_machine_that_hangs_is_given_up(action: Path) -> None:
    done = run(action, f"from typing import Any\n{PROGRAM}time.sleep(600)\n", deadline=10)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["packages", "this machine was not configured within 10 s"]


def test_an_altered_action_runs_nothing(action: Path) -> None:
    done = run(action, PROGRAM, "a" * 64, sudo=True)
    assert done.returncode == 1 and "is altered: its SHA-256 is " in done.stderr
    assert not (action / "sudo").exists() and not (action / "boot").exists()


def test_a_machine_that_is_not_emrs_is_refused(action: Path) -> None:
    (action / "instance.json").unlink()
    done = run(action, PROGRAM)
    assert done.returncode == 1
    assert done.stderr.startswith("this machine cannot be configured: ") and "instance.json" in done.stderr
