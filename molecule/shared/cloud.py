"""Start or stop the local cloud for molecule: cloud.py up|down

The folder MOLECULE_EPHEMERAL_DIRECTORY gets the file `credentials`. Only a local cloud that was started here is used
and stopped. While `molecule test` runs, a guard waits for its end and removes what an interrupted run leaves.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from localcloud.testing import booted

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
OF_AN_ACCOUNT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
)
GUARD_SECONDS = 120


def localcloud(*words: str, keep: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    # The first `up` builds the machines' image.
    return booted.localcloud(*words, pass_fds=keep, timeout=30 * 60)


def service() -> int | None:
    """Return the process of the local cloud that is up."""
    status = localcloud("status", "--json")
    return int(json.loads(status.stdout)["pid"]) if status.returncode == 0 else None


def is_ours(pid: int) -> bool:
    """Return whether the local cloud was started here: it inherits the environment of its starter."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return os.fsencode(f"MOLECULE_EPHEMERAL_DIRECTORY={FOLDER}") in variables


def up() -> None:
    for name in OF_AN_ACCOUNT:
        if os.environ.get(name):
            sys.exit(f"{name} is set and would be used with the local cloud. Example: env -u {name} molecule test")
    start_guard()
    # `localcloud up` keeps this lock if this process is killed: the guard waits until a start has ended.
    with (FOLDER / "up.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        pid = service()
        if pid is not None and not is_ours(pid):
            sys.exit("A local cloud is up that molecule did not start. Stop it with localcloud down, then try again.")
        if pid is None:
            remove_files()
            started = localcloud("up", "--strict", keep=(starting.fileno(),))
            if started.returncode != 0:
                sys.exit(started.stderr)
        booted.raise_quotas()
        write_credentials()
    print("started" if pid is None else "up already")


def write_credentials() -> None:
    variables = booted.environment()
    file = FOLDER / "credentials"
    file.touch(mode=0o600)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    file.write_text("\n".join(["[default]", *(f"{name.lower()} = {variables[name]}" for name in names)]) + "\n")


def down() -> None:
    pid = service()
    if pid is None or is_ours(pid):
        # Without a service this removes what one that died has left.
        stopped = localcloud("down")
        if stopped.returncode != 0:
            sys.exit(stopped.stderr)
        remove_files()
        print(stopped.stdout.strip())


def remove_files() -> None:
    """Remove what scenarios write: keys and machines, and what playbooks write in the scenario's folder."""
    for folder in (*FOLDER.glob("machines"), *ROOT.glob("molecule/*/.deeplearning")):
        shutil.rmtree(folder)
    (FOLDER / "credentials").unlink(missing_ok=True)


# The guard ----------------------------------------------------------------------------------------------------------


def test_run() -> int | None:
    """Return the process `molecule test` that this is a part of. None for other commands, such as `molecule converge`,
    and with --destroy=never: they leave machines for later commands."""
    pid, words = parent(os.getpid())
    while pid and not any(Path(word).name == "molecule" for word in words[:3]):
        pid, words = parent(pid)
    # A worker process of molecule has the command line of the process that started it.
    while pid and parent(pid)[1] == words:
        pid, words = parent(pid)
    return pid if "test" in words and not {"never", "--destroy=never"} & set(words) else None


def parent(pid: int) -> tuple[int, list[str]]:
    """Return the parent process and its command line; 0 when there is none."""
    above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return above, Path(f"/proc/{above}/cmdline").read_text().split("\0")[:-1] if above else []


def start_guard() -> None:
    """Start the guard of this `molecule test`, unless it has one. It holds a lock as long as it lives."""
    run = test_run()
    deadline = time.monotonic() + GUARD_SECONDS
    with (FOLDER / "guard.lock").open("a+") as lock:
        while not locked(lock):
            lock.seek(0)
            guarded = int(lock.read() or 0)
            if run is not None and guarded == run:
                return
            if guarded and alive(guarded):
                sys.exit(f"`molecule test` runs in this checkout already: process {guarded}. Wait until it has ended.")
            if time.monotonic() > deadline:
                sys.exit(f"An interrupted `molecule test` is still being cleaned up: see {FOLDER}/guard.log")
            time.sleep(0.2)  # between two attempts to get the lock
        if run is not None:
            lock.truncate(0)
            lock.write(str(run))
            lock.flush()
            with (FOLDER / "guard.log").open("w") as log:
                subprocess.Popen(
                    [sys.executable, __file__, "guard", str(run)],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,
                )


def locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def alive(pid: int, seconds: float | None = 0) -> bool:
    """Return whether a process still runs after so many seconds; None waits for its end."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    ended, _, _ = select.select([handle], [], [], seconds)
    os.close(handle)
    return not ended


def guard(run: int) -> None:
    """Wait for the end of `molecule test`. If it has not stopped the local cloud by then, clean up."""
    alive(run, seconds=None)
    with (FOLDER / "up.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
    pid = service()
    if (FOLDER / "credentials").exists() if pid is None else is_ours(pid):
        subprocess.run([sys.executable, "-m", "molecule", "destroy"], check=True)


if __name__ == "__main__":
    {"up": up, "down": down, "guard": lambda: guard(int(sys.argv[2]))}[sys.argv[1]]()
