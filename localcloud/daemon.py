"""Starting and ending the service from the command line, and cleaning up after one that died."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from localcloud import state
from localcloud.errors import Refusal
from localcloud.image.build import base_image, feature_image, say, tidy
from localcloud.machines import leftovers, network
from localcloud.machines.host import withheld_credentials
from localcloud.settings import PORT

_START_SECONDS = 60
_END_SECONDS = 60

# Programs and the Debian packages that have them.
_NEEDED = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "bindfs": "bindfs",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "sysctl": "procps",
}


def up(latency: str, cpus: float | None, memory: int | None, api_only: bool) -> None:
    _check_machine(api_only)
    with state.only_one():
        pid = state.service_pid()
        if pid is not None:
            state.ask("env")
            print(f"the local cloud is up already (pid {pid})")
            return
        _sweep()
        try:
            if not api_only:
                network.check_free()
                report_withheld_credentials()
            _check_port()
            base = None if api_only else base_image(state.IMAGES, say)
            _start(latency, cpus, memory, base)
        except BaseException:
            _end_service()
            _sweep()
            raise
    print(f"the local cloud is up, its API at http://127.0.0.1:{PORT}")
    print('use it: eval "$(localcloud env)"; end it: localcloud down')


def down() -> None:
    _check_root()
    with state.only_one():
        was_up = state.service_pid() is not None
        left_over = state.RUN.exists()
        _end_service()
        _sweep()
    if was_up:
        print("the local cloud is down")
    elif left_over:
        print("the local cloud had died; what it left is gone")
    else:
        print("the local cloud is down already")


def build_image(features: list[str]) -> None:
    _check_machine(api_only=False)
    with state.only_one():
        tidy(state.IMAGES)
        if not features:
            print(base_image(state.IMAGES, say))
            return
        report_withheld_credentials()
        _, layer = feature_image(state.IMAGES, features, say)
    name = f"localcloud-debian-12-{'-'.join(sorted(set(features)))}"
    if state.service_pid() is not None:
        print(f"{name} is {state.ask('image', features=sorted(set(features)), path=str(layer))}")
    else:
        print(f"{name} will be there with the next localcloud up")


def report_withheld_credentials() -> None:
    settings = withheld_credentials()
    if settings:
        say(
            f"a user or password is part of pip's {' and '.join(settings)} on this machine. Machines and images get "
            "the address without it: an index that requires it gives pip nothing (No matching distribution found). "
            "Use an index or a folder of wheels that requires none. Example: PIP_FIND_LINKS=/srv/wheels localcloud up"
        )


def _check_root() -> None:
    if sys.platform != "linux":
        raise Refusal(f"the local cloud needs Linux, and this is {sys.platform}.")
    if os.geteuid() != 0:
        raise Refusal("the local cloud needs root, to boot machines and to wire them. Example: sudo localcloud up")


def _check_machine(api_only: bool) -> None:
    _check_root()
    if api_only:
        return
    missing = {package for program, package in _NEEDED.items() if shutil.which(program) is None}
    if missing:
        raise Refusal(f"programs are missing on this machine: apt-get install {' '.join(sorted(missing))}")


def _check_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            raise Refusal(f"port {PORT} on 127.0.0.1 is taken by another program: end that one first.") from error


def _start(latency: str, cpus: float | None, memory: int | None, base: Path | None) -> None:
    state.RUN.mkdir(parents=True, exist_ok=True)
    state.RUN.chmod(0o700)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "localcloud.service", f"--latency={latency}", f"--ready={writing}"]
    command += [f"--base={base}"] if base else []
    command += [f"--cpus={cpus}"] if cpus else []
    command += [f"--memory={memory}"] if memory else []
    # Nothing of whoever starts it: its own credentials, and a temporary folder that nobody removes under it.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
    with state.LOG.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[writing],
            cwd=state.RUN,
            env={**inherited, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _START_SECONDS)
        if not ready or os.read(reading, 3) != b"up\n":
            raise Refusal(f"the local cloud did not start. Its last words:\n  {_last_words(state.LOG)}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(reading)


def _last_words(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return "\n  ".join(lines[-8:])


def _end_service() -> None:
    """In good order if it answers, by force if not."""
    pid = state.service_pid()
    if pid is None:
        return
    handle = os.pidfd_open(pid)
    try:
        state.ask("down")
    except Refusal:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    ended, _, _ = select.select([handle], [], [], _END_SECONDS)
    if not ended:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], _END_SECONDS)
    os.close(handle)


def _sweep() -> None:
    """What is left of a service that died, if anything: nothing of it may be in the way of the next one."""
    leftovers.sweep(state.RUN)
    tidy(state.IMAGES)
    shutil.rmtree(state.RUN, ignore_errors=True)
