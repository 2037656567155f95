"""One machine: a Debian system that systemd-nspawn boots from an image with a disk of its own over it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcloud.core.settings import LOGIN_USER
from localcloud.core.views import InstanceView
from localcloud.gpu import files as gpu
from localcloud.machines.cgroups import Cgroup
from localcloud.machines.host import pip_folders, unmount, write_host_settings

_REBOOT_STATUS = 133
"""nspawn's exit status when the machine wants a reboot, which nspawn's caller performs"""

_STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Limits:
    cpus: float | None = None
    memory: int | None = None


class Machine:
    """The process, the mount and the folder of one machine. Not thread-safe: one thread supervises it."""

    def __init__(self, folder: Path, name: str, layers: Sequence[Path], limits: Limits) -> None:
        self.name = name
        self.folder = folder
        self.cgroup = Cgroup(name)
        self._layers = layers
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def console_file(self) -> Path:
        return self.folder / "console.log"

    def prepare(self, files: Mapping[str, tuple[int, bytes]], authority: str) -> None:
        """Create the disk of a new machine, and mount it. `authority` is the certificate that it trusts for AWS."""
        upper = self.folder / "upper"
        if not upper.exists():
            for name in ("upper", "work", "root"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            write_host_settings(upper, authority)
        for path, (mode, content) in files.items():
            target = upper / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(mode)
        lower = ":".join(str(layer) for layer in self._layers)
        options = f"lowerdir={lower},upperdir={upper},workdir={self.folder / 'work'}"
        subprocess.run(
            ["mount", "-t", "overlay", self.name, "-o", options, str(self.root)], check=True, capture_output=True
        )

    def boot(self, namespace: Path, hostname: str) -> None:
        self.cgroup.create(self._limits.cpus, self._limits.memory)
        command = [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--boot",
            f"--directory={self.root}",
            f"--machine={self.name}",
            f"--hostname={hostname}",
            f"--network-namespace-path={namespace}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=read-only",
            *(f"--bind-ro={folder}" for folder in pip_folders()),
            "--setenv=SYSTEMD_COLORS=0",
            "systemd.show_status=true",
        ]
        with self.console_file.open("ab") as console:
            self._process = subprocess.Popen(
                self.cgroup.command(*command),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> str:
        """Wait for the end of the machine. Return poweroff, reboot or killed."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never booted")
        status = self._process.wait()
        if status == _REBOOT_STATUS:
            return "reboot"
        return "poweroff" if status == 0 else "killed"

    @property
    def pid(self) -> int | None:
        """The host's id of the machine's init process."""
        if self._process is None or self._process.poll() is not None:
            return None
        try:
            children = (
                Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii").split()
            )
        except OSError:
            return None
        for child in children:
            try:
                if Path(f"/proc/{child}/comm").read_text(encoding="ascii").strip() == "systemd":
                    return int(child)
            except OSError:
                continue
        return None

    def request_stop(self) -> None:
        """Press the power button."""
        self.freeze(False)
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self, deadline: float = _STOP_SECONDS) -> None:
        """Shut the machine down, and kill it after the deadline."""
        self.request_stop()
        try:
            if self._process is not None:
                self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()

    def request_reboot(self) -> None:
        leader = self.pid
        if leader is not None:
            os.kill(leader, signal.SIGRTMIN + 5)

    def kill(self) -> None:
        self.cgroup.kill()

    def freeze(self, frozen: bool) -> None:
        if self.running:
            self.cgroup.freeze(frozen)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def clean(self) -> None:
        """Remove the control groups and the mount of a machine that has ended. Its disk stays."""
        try:
            self.cgroup.remove()
        finally:
            _remove_runtime(self.name, self.root)
            unmount(self.root)

    def copy_disk(self, target: Path) -> tuple[Path, ...]:
        """Copy the disk of a machine that has ended. Return the layers that other machines boot from."""
        target.parent.mkdir(parents=True, exist_ok=True)
        # With the marks of what was removed: they are devices and extended attributes.
        subprocess.run(["cp", "-a", "--reflink=auto", str(self.folder / "upper"), str(target)], check=True)
        return (target, *self._layers)

    def remove_disk(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_runtime(name: str, root: Path) -> None:
    """Remove the folders and the lock that nspawn leaves when it is killed."""
    runtime = Path("/run/systemd/nspawn")
    if root.exists():
        status = root.stat()
        (runtime / "locks" / f"inode-{status.st_dev}:{status.st_ino}").unlink(missing_ok=True)
    for kind in ("propagate", "unix-export"):
        folder = runtime / kind / name
        unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def files_for(machine: InstanceView) -> dict[str, tuple[int, bytes]]:
    """Return the files of a new machine that depend on its instance, as path: (mode, content)."""
    domain = machine.private_dns.partition(".")[2]
    hostname = machine.private_dns.partition(".")[0]
    # For AWS clients with certificates of their own.
    trust = "AWS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"
    files = {
        "/etc/hostname": (0o644, f"{hostname}\n".encode()),
        "/etc/resolv.conf": (
            0o644,
            f"nameserver 169.254.169.253\nsearch {domain}\noptions timeout:2 attempts:2\n".encode(),
        ),
        "/etc/environment": (0o644, f"HWLOC_COMPONENTS=-gl\n{trust}\n".encode()),
        "/etc/systemd/system.conf.d/20-aws.conf": (0o644, f"[Manager]\nDefaultEnvironment={trust}\n".encode()),
        "/etc/sudoers.d/10-aws": (0o440, b'Defaults env_keep += "AWS_CA_BUNDLE"\n'),
    }
    if machine.login_user != LOGIN_USER:
        user = f"system_info: {{default_user: {{name: {machine.login_user}}}}}\n"
        files["/etc/cloud/cloud.cfg.d/10-user.cfg"] = (0o644, user.encode())
    return {**files, **(gpu.files_for(machine) if machine.gpus else {})}
