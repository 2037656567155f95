"""The systemd units of a run: one that watches over it on the master, and one for each start on each node."""

from __future__ import annotations

import subprocess

from deeplearning import Refusal
from deeplearning.run.identity import as_root

RECOVERING = "deeplearning-recover.service"


def watching(run_id: str) -> str:
    return f"deeplearning-run@{run_id}.service"


def working(run_id: str, attempt: int) -> str:
    """Where mpirun and its daemons, and so all processes of a start, live. No run's id has a colon."""
    return f"deeplearning-run-{run_id}:{attempt}.service"


def working_ones(run_id: str) -> str:
    """A pattern for systemctl: those of any start of this run and of no other."""
    return f"deeplearning-run-{run_id}:*.service"


def is_active(run_id: str) -> bool:
    done = subprocess.run(
        ["systemctl", "is-active", watching(run_id)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.strip() in ("active", "activating", "deactivating", "reloading")


def may_go_on(run_id: str) -> bool:
    """It is active, or this master has booted and has not yet started again what broke off."""
    if is_active(run_id):
        return True
    words = ["systemctl", "show", "--value", "--property=ExecMainExitTimestampMonotonic", RECOVERING]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout.strip() == "0"


def active_runs() -> list[str]:
    """Ids of the runs that this master watches over."""
    done = subprocess.run(
        ["systemctl", "list-units", "--plain", "--no-legend", "--all", "deeplearning-run@*"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    going = [words[0] for words in lines if len(words) > 2 and words[2] in ("active", "activating", "deactivating")]
    return [name[len("deeplearning-run@") : -len(".service")] for name in going]


def start(run_id: str) -> None:
    done = subprocess.run(
        as_root("systemctl", "start", watching(run_id)), stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Refusal(f"systemd did not start {watching(run_id)}: {done.stderr.strip()}")


def stop(run_id: str) -> None:
    done = subprocess.run(
        as_root("systemctl", "stop", watching(run_id)), stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Refusal(f"systemd did not stop {watching(run_id)}: {done.stderr.strip()}")
