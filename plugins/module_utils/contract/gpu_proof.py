# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The proof that a framework uses a node's GPUs: it sees all of them and computes on one. If not, one sentence why.

The first half judges and is pure; the second runs `framework_probe` in the framework's Python.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import bounded_program, framework_probe, paths
from .frameworks import RECORDS

LEAST_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
"""By the first number of a framework's CUDA version, the oldest driver that runs it, whatever the second number is:
NVIDIA's page "Minor Version Compatibility", read on 2026-11-24."""
NO_FABRIC_MANAGER = 802
"""CUDA_ERROR_SYSTEM_NOT_READY."""
PROCESSOR = "To train without GPUs: -e processor=true"
SECONDS = 180.0
"""The first import from a new disk reads gigabytes, which takes most of a minute."""
DRIVER = os.path.dirname(paths.NVIDIA_DRIVER)


@dataclass(frozen=True)
class NodeGpus:
    """The GPUs of a node, as its driver lists them, and what a run brings."""

    framework: str
    python: str
    gpus: int
    driver: str = ""
    mig: Sequence[int] = ()
    """The GPUs that are divided (MIG)."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that the user gave the run."""
    own_python: bool = False
    """The Python is the user's, and not an environment of ours."""
    processor: str = field(default_factory=platform.machine)

    @property
    def package(self) -> str:
        return RECORDS[self.framework].package


@dataclass(frozen=True)
class Answer:
    """What the framework's process said. The defaults are those of a process that printed nothing."""

    imported: bool = False
    missing: bool = False
    """This Python does not have the package."""
    version: str = ""
    cuda: str = ""
    """The version of CUDA that the framework was built with; empty if it was built for processors."""
    seen: int = 0
    computed: bool = False
    error: str = ""
    driver: Mapping[str, Any] = field(default_factory=dict)
    """What the driver's own library said to that process, if it came so far."""
    ended: str = ""
    """How the process ended if it has not answered."""


def problem_of(node: NodeGpus, answer: Answer) -> str:
    """Return why the framework cannot use the node's GPUs, with what to do; empty if it can.

    A Python of the user's without the framework's package proves nothing, as its scripts use something else.
    """
    if answer.computed and answer.seen >= node.gpus:
        return ""
    if answer.missing and node.own_python:
        return ""
    name = f"{node.package} {answer.version}".strip()
    state = f"sees {answer.seen} of {node.gpus} GPUs"
    if answer.ended:
        state = "gives no answer"
    elif not answer.imported:
        state = "cannot be imported"
    elif answer.seen >= node.gpus:
        state = f"sees {answer.seen} GPUs and cannot compute on one"
    versions = f"driver {node.driver or 'unknown'}, CUDA of {node.package}: {answer.cuda or 'none'}"
    return f"{name} {state} ({versions}): {_cause(node, answer)}. {PROCESSOR}"


def _cause(node: NodeGpus, answer: Answer) -> str:
    """Return the first cause that the answer shows. Each `if` relies on those before it."""
    library_path = _library_path(node)
    if answer.ended:
        if library_path:
            return f"its process {answer.ended}, and {library_path}"
        return f"its process {answer.ended}: does `nvidia-smi` answer? Reboot the node, or terminate it"
    if not answer.imported and node.processor != "x86_64":
        return (
            f"the node's processor is {node.processor}, and the packages are for x86_64: choose an instance type with "
            f"a processor of Intel or AMD ({answer.error})"
        )
    missing = answer.driver.get("library", "")
    # A build for processors needs none.
    if missing and (answer.cuda or not answer.imported):
        return f"{missing}. Install NVIDIA's driver with its CUDA library, or use AWS's image"
    if not answer.imported:
        return f"{answer.error}: {library_path or _repair(node)}"
    if not answer.cuda and not answer.error:
        if node.own_python:
            return f"{node.python} has a build without CUDA: install one with CUDA in it"
        return (
            "its environment has the packages for processors: train.yml installs those for GPUs, when no other run "
            "uses it"
        )
    return _hidden_gpus(node, answer) or _failed_cuda(node, answer)


def _hidden_gpus(node: NodeGpus, answer: Answer) -> str:
    """Return what keeps the GPUs from an imported framework; empty if nothing that is known of the node does."""
    hidden = node.variables.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and answer.seen < node.gpus:
        return (
            f"env sets CUDA_VISIBLE_DEVICES to {hidden!r}: leave it out, as each process gets its GPUs from the "
            "launcher (processes_per_node)"
        )
    newest = answer.driver.get("cuda", "")
    if newest and answer.cuda and _major(newest) < _major(answer.cuda):
        least = LEAST_DRIVERS.get(answer.cuda.partition(".")[0])
        needed = f"driver {least} or newer" if least else "a newer driver"
        return (
            f"the driver runs CUDA {newest} at most, and {node.package} needs {needed}: choose a newer image "
            "(cluster_image), or update the driver"
        )
    if node.mig and answer.seen < node.gpus:
        turn_off = f"`sudo nvidia-smi -i {','.join(map(str, node.mig))} -mig 0`"
        return f"MIG is on, and a process sees one part of one GPU at most: turn it off ({turn_off}), and reboot"
    library_path = _library_path(node)
    return f"{library_path} ({answer.error or 'no error'})" if library_path else ""


def _failed_cuda(node: NodeGpus, answer: Answer) -> str:
    """Return what CUDA itself says, or lets the framework say."""
    error = answer.driver.get("error", "")
    if f"({NO_FABRIC_MANAGER})" in error:
        return f"{error}. On these types CUDA needs the fabric manager: `sudo systemctl start nvidia-fabricmanager`"
    if error:
        return f"{error}. Look for Xid in `dmesg`, and terminate the node if there is one"
    if answer.seen >= node.gpus:
        if re.search("no kernel image", answer.error, re.IGNORECASE):
            return f"{answer.error}. It was built for other GPUs: choose another instance type or framework"
        if is_out_of_memory(answer):
            return f"{answer.error}. Another process uses the GPU's memory: end it. `nvidia-smi` lists them"
        return f"{answer.error or 'a product of matrices is wrong'}. Terminate the node if that stays after a reboot"
    devices = answer.driver.get("devices", 0)
    if devices < node.gpus:
        return (
            f"CUDA lists {devices} devices, while the driver has {node.gpus}: compare `nvidia-smi -L` and `dmesg`, and "
            "terminate the node if one is lost"
        )
    shown = ". `TF_CPP_MAX_VLOG_LEVEL=3` in env lets it say which" if node.package == "tensorflow" else ""
    error = answer.error or "a library of CUDA cannot be opened"
    return f"CUDA itself lists all of them ({error}): {_repair(node)}{shown}"


def is_out_of_memory(answer: Answer) -> bool:
    """Return whether the product failed because other processes use the GPU."""
    return bool(re.search("out of memory|OOM|RESOURCE_EXHAUSTED", answer.error))


def _library_path(node: NodeGpus) -> str:
    path = node.variables.get("LD_LIBRARY_PATH")
    return f"env sets LD_LIBRARY_PATH to {path!r}, which may bring another CUDA: leave it out" if path else ""


def _repair(node: NodeGpus) -> str:
    if node.own_python:
        return f"repair the packages of {node.python}"
    folder = os.path.dirname(os.path.dirname(node.python))
    return f"remove {folder} on the node, and let train.yml install it again"


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def prove(node: NodeGpus, environment: Mapping[str, str], seconds: float = SECONDS) -> Answer:
    """Return what a new process of the framework's Python answers. It is left alone if it gives none in time."""
    command = [node.python, "-c", inspect.getsource(framework_probe), node.package]
    try:
        done = bounded_program.run(command, seconds, cwd="/", env=environment)
    except subprocess.TimeoutExpired:
        return Answer(ended=f"gave no answer within {seconds:g} s")
    except bounded_program.TooMuchOutput as error:
        return Answer(ended=str(error))
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Answer(ended=f"{_end_of(done.returncode)} ({reason_of(done.stderr)})")
    return Answer(**{**answer, "error": reason_of(answer["error"]) if answer["error"] else ""})


def reason_of(text: str) -> str:
    """Return the line of an output that names the error, or its last one, in a form that fits into a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Traceback" not in line]
    errors = [line for line in lines if "error" in line.lower()]
    line = (errors or lines[-1:] or ["no output"])[0]
    return re.sub(r"[\x00-\x1f\x7f]", " ", line)[:300].rstrip(".")


def _end_of(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def driver_version(folder: str = DRIVER) -> str:
    """Return the version of NVIDIA's kernel module, such as 580.105.08; empty if it is not loaded."""
    try:
        with open(f"{folder}/version", encoding="utf-8") as file:
            match = re.search(r"Kernel Module\b.*?\b(\d+\.\d+(\.\d+)?)\b", file.readline())
    except OSError:
        return ""
    return match[1] if match else ""


def driver_gpus(folder: str = DRIVER) -> int:
    """Return the number of GPUs that the kernel module has bound."""
    try:
        return len(os.listdir(f"{folder}/gpus"))
    except OSError:
        return 0
