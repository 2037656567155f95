"""The machines behind the instances: a thread supervises each, from its first boot until its disk is removed."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from localcloud.api import enforcement as rules
from localcloud.api.ec2 import lifecycle
from localcloud.api.ec2 import views as ec2
from localcloud.api.efs import file_systems as efs
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud, Report
from localcloud.core.errors import Refusal
from localcloud.core.identity import Session
from localcloud.core.settings import METADATA_ADDRESS, RESOLVER_ADDRESS
from localcloud.core.views import InstanceView
from localcloud.machines import namespaces, nspawn
from localcloud.machines.filesystem import FileSystems, MountServer, put_into
from localcloud.machines.metadata import Metadata, MetadataServer
from localcloud.machines.network import HostNetwork, Vpc
from localcloud.machines.nspawn import Limits, Machine
from localcloud.machines.resolver import Resolver

log = logging.getLogger(__name__)

_CREDENTIAL_SECONDS = 6 * 3600


@dataclass
class Supervised:
    """A machine, running or not, and its thread."""

    view: InstanceView
    machine: Machine
    target: str = "run"
    """run, stop or destroy, as the API requests"""
    thread: threading.Thread | None = None
    changed: threading.Event = field(default_factory=threading.Event)


class HostMachines:
    """Machines on this host; `Machines` in cloud.py documents its methods."""

    def __init__(
        self, cloud: Cloud, folder: Path, layers_of: Callable[[str], Sequence[Path]], limits: Limits, authority: str
    ) -> None:
        self._cloud = cloud
        self._folder = folder
        self._layers_of = layers_of
        self._limits = limits
        self._authority = authority
        self._supervised: dict[str, Supervised] = {}
        self.file_systems = FileSystems(folder / "efs")
        self.metadata = Metadata(cloud.clock, self._credentials_of)
        self.network = HostNetwork(folder, lambda: ec2.vpc_views(cloud), self._cut, self._serve)

    def open(self) -> None:
        self.network.open()

    def follow(self) -> None:
        """Apply the API's records to links and folders; called under the cloud's lock when they may have changed."""
        self.network.changed()
        self.file_systems.retain({record["id"] for record in efs.file_systems(self._cloud)})

    def close(self) -> None:
        """Kill all machines, and remove their network and file systems."""
        entries = list(self._supervised.values())
        for entry in entries:
            entry.target = "destroy"
            entry.changed.set()
            entry.machine.kill()
        for entry in entries:
            if entry.thread:
                entry.thread.join(10)
        self.file_systems.close()
        self.network.close()

    # Calls of the API --------------------------------------------------------------------------------------------

    def start(self, instance: InstanceView) -> None:
        entry = self._supervised.get(instance.id)
        if entry is None:
            folder = self._folder / "machines" / instance.id
            machine = Machine(folder, instance.id, self._layers_of(instance.image_id), self._limits)
            entry = self._supervised[instance.id] = Supervised(instance, machine)
        entry.view, entry.target = instance, "run"
        before = entry.thread
        entry.changed.clear()
        entry.thread = threading.Thread(target=self._supervise, args=(entry, before), name=instance.id, daemon=True)
        entry.thread.start()

    def stop(self, instance_id: str) -> None:
        self._set_target(instance_id, "stop")

    def destroy(self, instance_id: str) -> None:
        self._set_target(instance_id, "destroy")

    def _set_target(self, instance_id: str, target: str) -> None:
        entry = self._supervised.get(instance_id)
        if entry is None:
            self._report(instance_id, "stopped" if target == "stop" else "destroyed")
            return
        entry.target = target
        entry.changed.set()
        if entry.thread is None or not entry.thread.is_alive():
            entry.thread = threading.Thread(target=self._finish, args=(entry,), name=instance_id, daemon=True)
            entry.thread.start()

    def reboot(self, instance_id: str) -> None:
        entry = self._supervised.get(instance_id)
        if entry is not None:
            entry.machine.request_reboot()

    def copy_disk(self, instance_id: str, name: str, done: Callable[[tuple[Path, ...]], None]) -> None:
        machine = self._supervised[instance_id].machine
        target = self._folder / "images" / name
        threading.Thread(target=lambda: done(machine.copy_disk(target)), name=name, daemon=True).start()

    def console(self, instance_id: str) -> str:
        entry = self._supervised.get(instance_id)
        try:
            return entry.machine.console_file.read_text(encoding="utf-8", errors="replace")[-65536:] if entry else ""
        except OSError:
            return ""

    def provision(self, instance_id: str, settings: Mapping[str, Any], report: Report) -> None:
        arguments = (instance_id, settings, report)
        threading.Thread(target=self._provision, args=arguments, name=f"emr-{instance_id}", daemon=True).start()

    def _provision(self, instance_id: str, settings: Mapping[str, Any], report: Report) -> None:
        """Run the node's program in a machine as soon as it boots, and hand on what the program prints."""
        entry = self._supervised.get(instance_id)
        if entry is None:
            return
        while (pid := entry.machine.pid) is None:
            if entry.changed.wait(0.2):
                return
        program = Path(__file__).with_name("emr_node.py").read_text(encoding="utf-8")
        argv = entry.machine.cgroup.command(
            *namespaces.inside(pid), "/usr/bin/python3", "-c", program, json.dumps(settings)
        )
        status: Mapping[str, Any] = {}
        with (
            entry.machine.console_file.open("ab") as console,
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=console) as process,
        ):
            for line in process.stdout or ():
                status = json.loads(line)
                self._cloud.clock.later(0, partial(report, status))
        if "status" not in status and entry.machine.running:
            log.error("the EMR program in %s failed: its console says why", instance_id)
            self._cloud.clock.later(0, lambda: report({"status": 1}))

    # Commands of a person ----------------------------------------------------------------------------------------

    def pid_of(self, instance_id: str) -> int | None:
        entry = self._supervised.get(instance_id)
        return entry.machine.pid if entry else None

    def kill(self, instance_id: str) -> None:
        """Kill the machine, as a power failure of its host does."""
        self._running(instance_id).machine.kill()

    def freeze(self, instance_id: str, frozen: bool) -> None:
        self._running(instance_id).machine.freeze(frozen)

    def procs_files(self, instance_id: str) -> list[str]:
        """Return the files to which a command writes its id to end with the machine."""
        return self._running(instance_id).machine.cgroup.procs_files()

    def _running(self, instance_id: str) -> Supervised:
        entry = self._supervised.get(instance_id)
        if entry is None or not entry.machine.running:
            raise Refusal(f"instance {instance_id} has no running machine: localcloud status lists those that do.")
        return entry

    # The life of a machine ---------------------------------------------------------------------------------------

    def _supervise(self, entry: Supervised, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        name = entry.view.id
        try:
            ended = self._run(entry)
        except Exception:
            log.exception("machine %s could not be booted", name)
            ended = "failed"
        if entry.target == "run":
            self._tidy(entry)
            with self._cloud.lock:
                # Targets change under the lock: one that changed during the clean-up is still to be reached.
                if entry.target == "run":
                    entry.thread = None
                    self._report(name, ended)
                    return
        self._finish(entry)

    def _run(self, entry: Supervised) -> str:
        """Boot the machine and wait until it ends; boot it again if it reboots. Return how it ended."""
        view = entry.view
        with self._cloud.lock:
            subnet = next(
                subnet for vpc in ec2.vpc_views(self._cloud) for subnet in vpc.subnets if subnet.id == view.subnet_id
            )
            namespace = self.network.attach(view, subnet.cidr)
        self._cloud.clock.later(0, lambda: lifecycle.machine_started(self._cloud, view.id))
        entry.machine.prepare(nspawn.files_for(view), self._authority)
        while True:
            entry.machine.boot(namespace, view.private_dns.partition(".")[0])
            watcher = threading.Thread(target=self._end_when_requested, args=(entry,), daemon=True)
            watcher.start()
            ended = entry.machine.wait()
            if ended != "reboot" or entry.target != "run":
                return ended
            entry.machine.cgroup.remove()

    def _end_when_requested(self, entry: Supervised) -> None:
        entry.changed.wait()
        if entry.machine.running:
            entry.machine.end(15.0 if entry.target == "stop" else 4.0)
            self.file_systems.unmount_all(entry.view.id)

    def _finish(self, entry: Supervised) -> None:
        """Clean up after the machine and report that the target is reached."""
        self._tidy(entry)
        if entry.target == "destroy":
            entry.machine.remove_disk()
            self._supervised.pop(entry.view.id, None)
        self._report(entry.view.id, "destroyed" if entry.target == "destroy" else "stopped")

    def _tidy(self, entry: Supervised) -> None:
        self.file_systems.unmount_all(entry.view.id)
        try:
            entry.machine.clean()
        except (OSError, TimeoutError):
            log.exception("machine %s left something behind", entry.view.id)
        with self._cloud.lock:
            self.network.detach(entry.view.id)

    def _report(self, instance_id: str, how: str) -> None:
        self._cloud.clock.later(0, lambda: lifecycle.machine_exited(self._cloud, instance_id, how))

    # What machines ask for ---------------------------------------------------------------------------------------

    def _cut(self) -> set[str]:
        return {fault.target["instance"] for fault in self._cloud.faults.of_kind("cut")}

    def _credentials_of(self, machine: InstanceView) -> Session:
        """Return credentials of the machine's role, cached until shortly before they expire.

        Raise AwsError if the role does not trust EC2.
        """
        params = {"RoleArn": machine.role_arn, "RoleSessionName": machine.id}
        ec2_itself = Caller.service("ec2.amazonaws.com")
        with self._cloud.lock:
            call = Call(self._cloud, "sts", "AssumeRole", params, machine.region, ec2_itself)
            rules.enforce(call, rules.required(call), "")
            return self._cloud.credentials.for_instance(str(machine.role_name), machine.id, _CREDENTIAL_SECONDS)

    def _serve(self, vpc: Vpc) -> Callable[[], None]:
        """Start the services inside a VPC, and return a function that stops them."""

        def find(address: str) -> InstanceView | None:
            machine = vpc.machines.get(address)
            if machine is None:
                return None
            with self._cloud.lock:
                return ec2.find_instance(self._cloud, machine.id)

        def zone_of(address: str) -> str | None:
            machine = vpc.machines.get(address)
            return machine.zone if machine else None

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
        """Mount a file system in the machine that has reached its mount target. Return what `mount.nfs4` prints."""
        machine = vpc.machines.get(client)
        view = vpc.view
        mount_target = next((item for item in view.mount_targets if item.ip == server), None) if view else None
        pid = self.pid_of(machine.id) if machine else None
        if machine is None or mount_target is None or pid is None:
            return "access denied by server while mounting %s"
        try:
            with self.file_systems.mounted(mount_target.file_system_id, mount_target.region, machine.id) as top:
                folder = Path(os.path.realpath(f"{top}{path}"))
                if not folder.is_relative_to(top) or not folder.is_dir():
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                put_into(pid, folder, target, readonly)
        except FileNotFoundError as error:
            return f"mounting %s failed, reason given by server: {error.strerror}"
        except OSError as error:
            log.warning("%s could not mount %s: %s", machine.id, mount_target.file_system_id, error)
            return f"mounting %s failed, reason given by server: {error}"
        return "mounted"


def _listen() -> tuple[socket.socket, socket.socket, socket.socket, socket.socket]:
    """Return the sockets of a VPC. It runs inside the VPC's namespace."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((RESOLVER_ADDRESS, 53))
    return (
        socket.create_server((METADATA_ADDRESS, 80), backlog=128),
        udp,
        socket.create_server((RESOLVER_ADDRESS, 53)),
        socket.create_server(("", 2049), backlog=128),
    )
