"""What the steps share: the mode, the interpreter that has PyTorch, and a folder of the step's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.testing.images import IMAGES, base_folder
from tests.steps import Failed, last_line

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = ROOT / "files/trainers"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
NODE_PYTHON = Path("/opt/deeplearning/env/pytorch/bin/python")
DRIVER = Path("/proc/driver/nvidia/version")
GRACE_SECONDS = 5.0


class NoPython(Exception):
    """No interpreter with PyTorch was found."""


@dataclass(frozen=True)
class Session:
    folder: Path
    python: str
    """It has PyTorch."""
    mpi: Path | None = None
    """A folder in which Open MPI's packages are unpacked; None for the installed one."""
    on_processor: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Threads of busy processors wait for each other."""
        return {"PYTHONPATH": str(TRAINERS), **({"OMP_NUM_THREADS": "1"} if self.on_processor else {})}

    def work(self, name: str) -> Path:
        """Return an empty folder."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def result(self, *words: str | Path, seconds: float, environment: Mapping[str, str] | None = None) -> Any:
        """Run a program of the training interpreter, and return the JSON that it prints last."""
        done = self.run(*words, seconds=seconds, environment=environment)
        if done.returncode:
            raise Failed(f"{Path(words[0]).name} ended with {done.returncode}: {last_line(done.stderr or done.stdout)}")
        return parsed(done.stdout, words[0])

    def run(
        self, *words: str | Path, seconds: float, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [self.python, *map(str, words)]
        child = subprocess.Popen(
            command,
            env={**os.environ, **self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = child.communicate(timeout=seconds)
        except BaseException as error:
            # torchrun ends its workers, which are in sessions of their own.
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{Path(words[0]).name} has not ended in {seconds:g} s") from None
            raise
        return subprocess.CompletedProcess(command, child.returncode, output, errors)


def parsed(output: str, program: str | Path) -> Any:
    """Return the last line of JSON: NCCL may write further lines while a process ends."""
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError):
            if line.startswith("{"):
                return json.loads(line)
    raise Failed(f"{Path(program).name} printed no result, but: {last_line(output)[:200]}")


def gpus(driver: Path = DRIVER) -> tuple[list[str], str]:
    """Return nvidia-smi's line of each GPU, or a sentence that says why there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "nvidia-smi is not installed"
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi -L: {error}"
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU ")]
    if lines:
        return lines, ""
    loaded = f", although its driver is loaded ({driver})" if driver.exists() else ""
    return [], f"nvidia-smi -L shows none{loaded}: {last_line(done.stdout + done.stderr)}"


def interpreter(named: str, on_processor: bool) -> str:
    """Return the interpreter that has PyTorch: the named one, or the first of the usual places."""
    if named:
        if not has_torch(named):
            raise NoPython(f"--python is {named}, which cannot be started or has no torch: give another interpreter")
        return named
    # The frameworks' environments for processors.
    images = IMAGES.glob("*pytorch*/opt/deeplearning/env/pytorch/bin/python") if on_processor else ()
    in_path = (Path(folder, "python3") for folder in os.get_exec_path())
    for place in (NODE_PYTHON, *in_path, *sorted(images)):
        if has_torch(str(place)):
            return str(place)
    raise NoPython(
        "no interpreter here has torch: name one. Example: --python /opt/deeplearning/env/pytorch/bin/python"
    )


def has_torch(python: str) -> bool:
    statement = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return not subprocess.run([python, "-c", statement], capture_output=True, check=False, timeout=60).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def unpacked_mpi(named: str, on_processor: bool) -> Path | None:
    """Return the folder of an unpacked Open MPI: the named one, or the local cloud's image."""
    if named:
        return Path(named).resolve()
    image = base_folder(IMAGES)
    return image if on_processor and (image / "usr/bin/orterun").exists() else None
