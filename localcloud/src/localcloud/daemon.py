"""Start and stop of the service from the command line, and cleanup after one that has died."""

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
from localcloud.core.errors import Refusal
from localcloud.core.settings import PORT, SUITE, SUITES, image_with
from localcloud.image import features as image_features
from localcloud.image.build import base_image, feature_image, print_progress, tidy
from localcloud.image.recipes import recipes_file
from localcloud.machines import cgroups, leftovers, network
from localcloud.machines.filesystem import can_cache
from localcloud.machines.host import withheld_credentials

_START_SECONDS = 60
SERVICE_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(1024 * 1024)}
"""Memory of large bodies goes back to the system at once, instead of fragmenting the heap of each thread."""
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


def up(latency: str, cpus: float | None, memory: int | None, api_only: bool, strict: bool) -> None:
    _check_linux()
    if not api_only:
        _check_machine()
    with state.only_one_service():
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
                _report_missing_cache()
            _check_port()
            base = None if api_only else base_image(state.IMAGES, print_progress)
            _start(latency, cpus, memory, base, strict)
        except BaseException:
            _end_service()
            _sweep()
            raise
    print(f"the local cloud is up, its API at http://127.0.0.1:{PORT}")
    print('use it: eval "$(localcloud env)"; end it: localcloud down')


def down() -> None:
    _check_linux()
    with state.only_one_service():
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


def build_image(features: list[str], recipes: str = "") -> None:
    """Build an image. `recipes` is the file with the features, if the command names one."""
    _check_machine()
    file = recipes_file(recipes)
    if file is not None:
        image_features.load(file)
    elif features:
        raise Refusal(
            f"no recipes describe {', '.join(features)}: name their file. "
            "Example: localcloud image build --recipes FILE --with NAME"
        )
    tidy(state.IMAGES)
    if not features:
        print(base_image(state.IMAGES, print_progress))
        return
    report_withheld_credentials()
    chosen = sorted(set(features))
    _, layer = feature_image(state.IMAGES, chosen, print_progress)
    image_features.record(state.IMAGES, chosen, layer)
    name = image_with(chosen)
    if state.service_pid() is not None:
        print(f"{name} is {state.ask('image', features=chosen, path=str(layer))}")
    else:
        print(f"{name} will be there with the next localcloud up")


def report_withheld_credentials() -> None:
    settings = withheld_credentials()
    if settings:
        print_progress(
            f"a user or password is part of pip's {' and '.join(settings)} on this machine. Machines and images get "
            "the address without it: an index that requires it gives pip nothing (No matching distribution found). "
            "Use an index or a folder of wheels that requires none. Example: PIP_FIND_LINKS=/srv/wheels localcloud up"
        )


def _report_missing_cache() -> None:
    if not can_cache():
        print_progress(
            "bindfs on this machine is built with FUSE 3: shared file systems do not cache here as NFS does."
        )


def _check_linux() -> None:
    if sys.platform != "linux":
        raise Refusal(f"the local cloud needs Linux, and this is {sys.platform}.")


def _check_machine() -> None:
    """Raise Refusal if machines cannot be booted on this one."""
    _check_linux()
    if SUITE not in SUITES:
        raise Refusal(f"LOCALCLOUD_SUITE is {SUITE}: give one of {', '.join(SUITES)}.")
    problem = _problem_of_machine()
    if problem:
        raise Refusal(f"{problem}. Without machines it works: localcloud up --api-only")


def _problem_of_machine() -> str:
    if os.geteuid() != 0:
        return "the local cloud needs root to boot machines (sudo localcloud up)"
    missing = {package for program, package in _NEEDED.items() if shutil.which(program) is None}
    if missing:
        return f"programs are missing on this machine (apt-get install {' '.join(sorted(missing))})"
    done = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"the local cloud needs namespaces of its own, and this machine refuses them ({done.stderr.strip()})"
    if not cgroups.are_writable():
        return "the local cloud needs control groups, and those below /sys/fs/cgroup cannot be written on this machine"
    if not Path("/dev/fuse").exists():
        return "the local cloud needs FUSE for shared file systems, and this machine has no /dev/fuse"
    return ""


def _check_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            raise Refusal(f"port {PORT} on 127.0.0.1 is taken by another program: end that one first.") from error


def _start(latency: str, cpus: float | None, memory: int | None, base: Path | None, strict: bool) -> None:
    state.RUN.mkdir(parents=True, exist_ok=True)
    state.RUN.chmod(0o700)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "localcloud.serve", f"--latency={latency}", f"--ready={writing}"]
    command += [f"--base={base}"] if base else []
    command += [f"--cpus={cpus}"] if cpus else []
    command += [f"--memory={memory}"] if memory else []
    command += ["--strict"] if strict else []
    # The service inherits no credentials of the caller, and no temporary folder that the caller may remove.
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
            env={**inherited, **SERVICE_ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parent.parent)},
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
    """End the service: by a request, or by force if it does not answer."""
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
    """Remove what a dead service left behind, so that the next one can start."""
    if os.geteuid() == 0:
        leftovers.sweep(state.RUN)
    state.forget_service()
    tidy(state.IMAGES)
    shutil.rmtree(state.RUN, ignore_errors=True)
