"""The machines behind the instances: a thread looks after each, from its first boot until its disk is thrown away."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localcloud.api import ec2, efs, rules
from localcloud.api.auth import Session, service_caller
from localcloud.api.registry import Call
from localcloud.cloud import Cloud
from localcloud.errors import Refusal
from localcloud.machines import namespaces, nspawn
from localcloud.machines.filesystem import FileSystems, MountServer, put_into
from localcloud.machines.metadata import Metadata, MetadataServer
from localcloud.machines.network import HostNetwork, Vpc
from localcloud.machines.nspawn import Limits, Machine
from localcloud.machines.resolver import Resolver
from localcloud.settings import METADATA_ADDRESS, RESOLVER_ADDRESS
from localcloud.views import InstanceView

log = logging.getLogger(__name__)

_CREDENTIAL_SECONDS = 6 * 3600

_APT_LOCK_UNIT = """\
[Unit]
Description=Holds apt's lock for {seconds} s, as unattended upgrades do after a boot
DefaultDependencies=no
Before=cloud-init.service

[Service]
ExecStart=/usr/bin/python3 -c "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); \\
    fcntl.lockf(f, fcntl.LOCK_EX); time.sleep({seconds})"
"""


@dataclass
class Kept:
    """A machine that is there, running or not."""

    view: InstanceView
    machine: Machine
    since: float
    wish: str = "run"
    """run, stop or destroy: what the API wants of it"""
    thread: threading.Thread | None = None
    changed: threading.Event = field(default_factory=threading.Event)
    rebooting: bool = False


class HostMachines:
    """Machines on this host; `Machines` in cloud.py says what each method means."""

    def __init__(
        self, cloud: Cloud, folder: Path, layers_of: Callable[[str], Sequence[Path]], limits: Limits, authority: str
    ) -> None:
        self._cloud = cloud
        self._folder = folder
        self._layers_of = layers_of
        self._limits = limits
        self._authority = authority
        self._kept: dict[str, Kept] = {}
        self.file_systems = FileSystems(folder / "efs")
        self.metadata = Metadata(cloud.clock, self._credentials_of)
        self.network = HostNetwork(folder, lambda: ec2.vpc_views(cloud), self._cut, self._serve)

    def open(self) -> None:
        self.network.open()

    def follow(self) -> None:
        """Make wires and folders follow the API's records; called under the cloud's lock when they may have changed."""
        self.network.changed()
        self.file_systems.keep({known["id"] for known in efs.file_systems(self._cloud)})

    def close(self) -> None:
        """End everything at once."""
        everything = list(self._kept.values())
        for kept in everything:
            kept.wish = "destroy"
            kept.changed.set()
            kept.machine.kill()
        for kept in everything:
            if kept.thread:
                kept.thread.join(10)
        self.file_systems.close()
        self.network.close()

    # What the API asks for ---------------------------------------------------------------------------------------

    def start(self, instance: InstanceView) -> None:
        kept = self._kept.get(instance.id)
        if kept is None:
            folder = self._folder / "machines" / instance.id
            machine = Machine(folder, instance.id, self._layers_of(instance.image_id), self._limits)
            kept = self._kept[instance.id] = Kept(instance, machine, time.time())
        kept.view, kept.wish, kept.since = instance, "run", time.time()
        before = kept.thread
        kept.changed.clear()
        kept.thread = threading.Thread(target=self._look_after, args=(kept, before), name=instance.id, daemon=True)
        kept.thread.start()

    def stop(self, instance_id: str) -> None:
        self._wish(instance_id, "stop")

    def destroy(self, instance_id: str) -> None:
        self._wish(instance_id, "destroy")

    def _wish(self, instance_id: str, wish: str) -> None:
        kept = self._kept.get(instance_id)
        if kept is None:
            self._report(instance_id, "stopped" if wish == "stop" else "destroyed")
            return
        kept.wish = wish
        kept.changed.set()
        if kept.thread is None or not kept.thread.is_alive():
            kept.thread = threading.Thread(target=self._finish, args=(kept,), name=instance_id, daemon=True)
            kept.thread.start()

    def reboot(self, instance_id: str) -> None:
        kept = self._kept.get(instance_id)
        if kept is not None:
            kept.machine.ask_to_reboot()

    def console(self, instance_id: str) -> str:
        kept = self._kept.get(instance_id)
        try:
            return kept.machine.console_file.read_text(encoding="utf-8", errors="replace")[-65536:] if kept else ""
        except OSError:
            return ""

    # What a person asks for --------------------------------------------------------------------------------------

    def pid_of(self, instance_id: str) -> int | None:
        kept = self._kept.get(instance_id)
        return kept.machine.pid if kept else None

    def since(self, instance_id: str) -> float | None:
        kept = self._kept.get(instance_id)
        return kept.since if kept else None

    def kill(self, instance_id: str) -> None:
        """The machine dies, as when its host's power fails."""
        self._running(instance_id).machine.kill()

    def freeze(self, instance_id: str, frozen: bool) -> None:
        self._running(instance_id).machine.freeze(frozen)

    def joining(self, instance_id: str) -> list[str]:
        """Groups that a command must join to live and die with the machine."""
        return self._running(instance_id).machine.cgroup.joining()

    def _running(self, instance_id: str) -> Kept:
        kept = self._kept.get(instance_id)
        if kept is None or not kept.machine.running:
            raise Refusal(f"instance {instance_id} has no running machine: localcloud status lists those that do.")
        return kept

    # The life of a machine ---------------------------------------------------------------------------------------

    def _look_after(self, kept: Kept, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        name = kept.view.id
        try:
            ended = self._run(kept)
        except Exception:
            log.exception("machine %s could not be booted", name)
            ended = "failed"
        if kept.wish == "run":
            self._tidy(kept)
            with self._cloud.lock:
                # Wishes are made under the lock: one that came while we tidied up is still to be fulfilled.
                if kept.wish == "run":
                    kept.thread = None
                    self._report(name, ended)
                    return
        self._finish(kept)

    def _run(self, kept: Kept) -> str:
        """Boot it and wait for its end, booting again when it reboots."""
        view = kept.view
        faults = self._cloud.faults
        what = {"instance": view.id, "zone": view.zone, "type": view.type}
        with self._cloud.lock:
            apt_lock = max((fault.value for fault in faults.of_kind("apt-lock", **what)), default=0)
            subnet = next(
                subnet for vpc in ec2.vpc_views(self._cloud) for subnet in vpc.subnets if subnet.id == view.subnet_id
            )
            namespace = self.network.attach(view, subnet.cidr)
        self._cloud.clock.later(0, lambda: ec2.machine_started(self._cloud, view.id))
        while self._held_back(what, time.time() - kept.since):
            if kept.changed.wait(0.2):  # looked at again, since a fault may be lifted meanwhile
                return "stopped"
        files = nspawn.files_for(view)
        if apt_lock:
            unit = "/etc/systemd/system/busy-apt.service"
            files[unit] = (0o644, _APT_LOCK_UNIT.format(seconds=apt_lock).encode())
            files["/etc/systemd/system/multi-user.target.d/busy-apt.conf"] = (
                0o644,
                b"[Unit]\nWants=busy-apt.service\n",
            )
        kept.machine.prepare(files, self._authority)
        while True:
            kept.machine.boot(namespace, view.private_dns.partition(".")[0])
            watcher = threading.Thread(target=self._end_when_wished, args=(kept,), daemon=True)
            watcher.start()
            ended = kept.machine.wait()
            if ended != "reboot" or kept.wish != "run":
                return ended
            kept.machine.cgroup.remove()

    def _held_back(self, what: Mapping[str, str], waited: float) -> bool:
        """Whether a fault keeps a machine from booting that was launched so long ago."""
        faults = self._cloud.faults
        with self._cloud.lock:
            delays = [fault.value for fault in faults.of_kind("slow-boot", **what)]
            return bool(faults.of_kind("hang-boot", **what)) or waited < max(delays, default=0)

    def _end_when_wished(self, kept: Kept) -> None:
        kept.changed.wait()
        if kept.machine.running:
            kept.machine.end(15.0 if kept.wish == "stop" else 4.0)

    def _finish(self, kept: Kept) -> None:
        """What was wished for has happened, or nothing ran to begin with: clean up and say so."""
        self._tidy(kept)
        if kept.wish == "destroy":
            kept.machine.remove_disk()
            self._kept.pop(kept.view.id, None)
        self._report(kept.view.id, "destroyed" if kept.wish == "destroy" else "stopped")

    def _tidy(self, kept: Kept) -> None:
        try:
            kept.machine.clean()
        except (OSError, TimeoutError):
            log.exception("machine %s left something behind", kept.view.id)
        with self._cloud.lock:
            self.network.detach(kept.view.id)

    def _report(self, instance_id: str, how: str) -> None:
        self._cloud.clock.later(0, lambda: ec2.machine_exited(self._cloud, instance_id, how))

    # What machines ask for ---------------------------------------------------------------------------------------

    def _cut(self) -> set[str]:
        return {fault.target["instance"] for fault in self._cloud.faults.of_kind("cut")}

    def _credentials_of(self, machine: InstanceView) -> Session:
        """Of the role, in a session named after the instance: kept until it is about to expire. None (an AwsError) if
        the role does not trust EC2."""
        params = {"RoleArn": machine.role_arn, "RoleSessionName": machine.id}
        ec2_itself = service_caller("ec2.amazonaws.com")
        with self._cloud.lock:
            call = Call(self._cloud, "sts", "AssumeRole", params, machine.region, ec2_itself)
            rules.enforce(call, rules.required(call), "")
            return self._cloud.credentials.for_instance(str(machine.role_name), machine.id, _CREDENTIAL_SECONDS)

    def _serve(self, vpc: Vpc) -> Callable[[], None]:
        """Start what answers inside a VPC."""

        def find(address: str) -> InstanceView | None:
            known = vpc.machines.get(address)
            if known is None:
                return None
            with self._cloud.lock:
                return ec2.find_instance(self._cloud, known.id)

        def zone_of(address: str) -> str | None:
            known = vpc.machines.get(address)
            return known.zone if known else None

        metadata_socket, udp, tcp, nfs = namespaces.within(vpc.namespace, _listen)
        metadata = MetadataServer(metadata_socket, self.metadata, find)
        threading.Thread(target=metadata.serve_forever, daemon=True, name=f"metadata-{vpc.id}").start()
        resolver = Resolver(udp, tcp, lambda: vpc.view, zone_of)
        mounts = MountServer(
            nfs, lambda client, server, path, target, ro: self._mount(vpc, client, server, path, target, ro)
        )

        def close() -> None:
            metadata.shutdown()
            metadata.server_close()
            resolver.close()
            mounts.close()

        return close

    def _mount(self, vpc: Vpc, client: str, server: str, path: str, target: str, readonly: bool) -> str:
        """A machine has reached a mount target: put the folder where it wants it."""
        machine = vpc.machines.get(client)
        view = vpc.view
        found = next((place for place in view.mount_targets if place.ip == server), None) if view else None
        pid = self.pid_of(machine.id) if machine else None
        if machine is None or found is None or pid is None:
            return "access denied by server while mounting %s"
        try:
            top = self.file_systems.open(found.file_system_id, found.region)
            folder = Path(os.path.realpath(f"{top}{path}"))
            if not folder.is_relative_to(top) or not folder.is_dir():
                return "mounting %s failed, reason given by server: No such file or directory"
            put_into(pid, folder, target, readonly)
        except OSError as error:
            log.warning("%s could not mount %s: %s", machine.id, found.file_system_id, error)
            return f"mounting %s failed, reason given by server: {error}"
        return "mounted"


def _listen() -> tuple[socket.socket, socket.socket, socket.socket, socket.socket]:
    """The sockets of a VPC, made inside its namespace."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((RESOLVER_ADDRESS, 53))
    return (
        socket.create_server((METADATA_ADDRESS, 80), backlog=128),
        udp,
        socket.create_server((RESOLVER_ADDRESS, 53)),
        socket.create_server(("", 2049), backlog=128),
    )
