"""What the command line may ask of the running service, over a socket that only root can open."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcloud.accepting import Accepting
from localcloud.api import ec2, efs
from localcloud.errors import Refusal
from localcloud.faults import Fault
from localcloud.settings import DEFAULT_REGION, PORT

if TYPE_CHECKING:
    from localcloud.service import Service

log = logging.getLogger(__name__)

Arguments = Mapping[str, Any]


class Control:
    """Commands by name: each takes the arguments of the command line and returns what JSON can carry."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cloud = service.cloud
        self._commands: Mapping[str, Callable[[Arguments], Any]] = {
            "env": self._env,
            "status": self._status,
            "calls": lambda given: self._cloud.calls.since(given["since"]),
            "console": lambda given: self._cloud.machines.console(self._instance(given["instance"]).id),
            "process": self._process,
            "fault": self._fault,
            "clear": self._clear,
            "image": self._image,
            "down": self._down,
        }

    def answer(self, wish: Arguments) -> Any:
        command = self._commands.get(str(wish.get("command")))
        if command is None:
            raise Refusal(
                f"the running service knows no {wish.get('command')}: it may be older than this command line."
            )
        if wish["command"] in ("process", "down"):
            return command(wish)
        with self._cloud.lock:
            return command(wish)

    def _env(self, _given: Arguments) -> dict[str, str]:
        access_key, secret = self._service.operator
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": DEFAULT_REGION,
            "AWS_REGION": DEFAULT_REGION,
        }

    def _status(self, _given: Arguments) -> dict[str, Any]:
        machines = self._service.machines
        return {
            "pid": os.getpid(),
            "endpoint": f"http://127.0.0.1:{PORT}",
            "started": self._service.started,
            "latency": self._cloud.latency.name,
            "instances": [
                {
                    "id": view.id,
                    "name": view.tags.get("Name", ""),
                    "type": view.type,
                    "region": view.region,
                    "zone": view.zone,
                    "private_ip": view.private_ip,
                    "public_ip": view.public_ip,
                    "state": view.state,
                    "since": ec2.state_since(self._cloud, view.id),
                    "pid": machines.pid_of(view.id) if machines else None,
                }
                for view in ec2.instance_views(self._cloud)
            ],
            "file_systems": efs.file_systems(self._cloud),
            "faults": [asdict(fault) for fault in self._cloud.faults],
        }

    def _instance(self, name: str) -> Any:
        view = ec2.find_instance(self._cloud, name)
        if view is None:
            raise Refusal(f"instance {name} does not exist: localcloud status lists those that do.")
        return view

    def _process(self, given: Arguments) -> dict[str, Any]:
        """Where a command can enter a machine."""
        with self._cloud.lock:
            name = self._instance(given["instance"]).id
        machines = self._machines()
        pid = machines.pid_of(name)
        if pid is None:
            raise Refusal(f"instance {name} has no running machine: localcloud status lists those that do.")
        return {"pid": pid, "groups": machines.joining(name)}

    def _machines(self) -> Any:
        if self._service.machines is None:
            raise Refusal("the local cloud was started with --api-only: it has no machines.")
        return self._service.machines

    # Faults --------------------------------------------------------------------------------------------------------

    def _fault(self, given: Arguments) -> dict[str, Any]:
        """Put a fault into force; what strikes an instance or a file system strikes now."""
        kind, target = given["kind"], dict(given["target"])
        if "instance" in target:
            target["instance"] = self._instance(target["instance"]).id
        strikes: dict[str, Callable[[], None]] = {
            "kill": lambda: self._machines().kill(target["instance"]),
            "frozen": lambda: self._machines().freeze(target["instance"], True),
            "stalled": lambda: self._stall(target["file_system"]),
            "expired": lambda: self._expire(target["session"]),
        }
        if kind in strikes:
            strikes[kind]()
        if kind == "kill":
            return {}
        if given.get("seed") is not None:
            self._cloud.faults.seed(given["seed"])
        fault = self._cloud.faults.add(kind, target, given.get("value"), given.get("left"))
        self._cloud.network.changed()
        return asdict(fault)

    def _stall(self, name: str) -> None:
        regions = [known["region"] for known in efs.file_systems(self._cloud) if known["id"] == name]
        if not regions:
            raise Refusal(f"file system {name} does not exist: localcloud status lists those that do.")
        # Also while nobody has mounted it: whoever does will wait as well.
        self._machines().file_systems.open(name, regions[0])
        self._machines().file_systems.stall(name, True)

    def _expire(self, name: str) -> None:
        if not self._cloud.credentials.expire(name):
            raise Refusal(
                f"nobody holds credentials of {name}: give an instance id, a role's name or a session's name."
            )

    def _clear(self, given: Arguments) -> int:
        """Lift faults: all, or those that are named by id, kind or what they strike."""
        wanted = given.get("which")
        kind = given.get("kind")
        of_kind = [fault for fault in self._cloud.faults if kind in (None, fault.kind)]
        found = [fault for fault in of_kind if not wanted or _named(fault, wanted)]
        if wanted and not found:
            raise Refusal(
                f"no fault in force is called {wanted}, of that kind or on that target: localcloud status lists them."
            )
        for fault in found:
            self._cloud.faults.remove(fault)
            with contextlib.suppress(Refusal):  # what it struck may have ended meanwhile
                self._undo(fault)
        self._cloud.network.changed()
        return len(found)

    def _undo(self, fault: Fault) -> None:
        if fault.kind == "frozen":
            self._machines().freeze(fault.target["instance"], False)
        elif fault.kind == "stalled":
            self._machines().file_systems.stall(fault.target["file_system"], False)
        elif fault.kind == "expired":
            self._cloud.credentials.renew(fault.target["session"])

    def _image(self, given: Arguments) -> str:
        return self._service.add_image(tuple(given["features"]), Path(given["path"]))

    def _down(self, _given: Arguments) -> bool:
        self._service.stop()
        return True


def _named(fault: Fault, wanted: str) -> bool:
    return wanted in (fault.id, fault.kind) or wanted in fault.target.values()


class ControlServer:
    """One line of JSON asks, one answers."""

    def __init__(self, path: Path, control: Control) -> None:
        path.unlink(missing_ok=True)
        self._control = control
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(16)
        self._accepting = Accepting(listening, self._answer, "control")

    def _answer(self, client: socket.socket) -> None:
        try:
            with client.makefile() as stream:
                wish = json.loads(stream.readline())
            started = time.monotonic()
            reply: dict[str, Any] = {"answer": self._control.answer(wish)}
            log.debug("%s took %.3f s", wish.get("command"), time.monotonic() - started)
        except Refusal as refusal:
            reply = {"refusal": str(refusal)}
        except Exception as error:
            log.exception("a command failed")
            reply = {"refusal": f"the local cloud failed ({error!r}): its log says more."}
        try:
            client.sendall(json.dumps(reply, default=str).encode() + b"\n")
        except OSError:
            log.info("whoever asked did not wait for the answer")
