"""The operations of the running service for the command line, over a socket that only root can open."""

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
from typing import Any

from localcloud.api.ec2 import views as ec2
from localcloud.api.efs import file_systems as efs
from localcloud.core.accepting import Accepting
from localcloud.core.errors import Refusal
from localcloud.core.faults import Fault
from localcloud.core.settings import DEFAULT_REGION, PORT
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
            "calls": lambda arguments: self._cloud.calls.since(arguments["since"]),
            "console": self._console,
            "process": self._process,
            "fault": self._fault,
            "clear": self._clear,
            "image": self._image,
            "down": self._down,
        }

    def answer(self, request: Arguments) -> Any:
        command = self._commands.get(str(request.get("command")))
        if command is None:
            raise Refusal(
                f"the running service knows no {request.get('command')}: it may be older than this command line."
            )
        if request["command"] in ("process", "down"):
            return command(request)
        with self._cloud.lock:
            return command(request)

    def _env(self, _arguments: Arguments) -> dict[str, str]:
        access_key, secret = self._service.operator
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": DEFAULT_REGION,
            "AWS_REGION": DEFAULT_REGION,
        }

    def _status(self, _arguments: Arguments) -> dict[str, Any]:
        machines = self._service.machines
        return {
            "pid": os.getpid(),
            "endpoint": f"http://127.0.0.1:{PORT}",
            "started": self._service.started,
            "latency": self._cloud.latency.name,
            "strict": self._cloud.lateness.enabled,
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
                    "since": view.state_since,
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

    def _console(self, arguments: Arguments) -> str:
        instance_id = self._instance(arguments["instance"]).id
        return self._cloud.machines.console(instance_id) if self._cloud.machines else ""

    def _process(self, arguments: Arguments) -> dict[str, Any]:
        """Return the process and the control groups through which a command enters a machine."""
        with self._cloud.lock:
            name = self._instance(arguments["instance"]).id
        machines = self._machines()
        pid = machines.pid_of(name)
        if pid is None:
            raise Refusal(f"instance {name} has no running machine: localcloud status lists those that do.")
        return {"pid": pid, "groups": machines.procs_files(name)}

    def _machines(self) -> Any:
        if self._service.machines is None:
            raise Refusal("the local cloud was started with --api-only: it has no machines.")
        return self._service.machines

    # Faults --------------------------------------------------------------------------------------------------------

    def _fault(self, arguments: Arguments) -> dict[str, Any]:
        """Put a fault into force; what strikes an instance or a file system strikes now."""
        kind, target = arguments["kind"], dict(arguments["target"])
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
        if arguments.get("seed") is not None:
            self._cloud.faults.seed(arguments["seed"])
        fault = self._cloud.faults.add(kind, target, arguments.get("value"), arguments.get("left"))
        self._cloud.network.changed()
        return asdict(fault)

    def _stall(self, name: str) -> None:
        if all(existing["id"] != name for existing in efs.file_systems(self._cloud)):
            raise Refusal(f"file system {name} does not exist: localcloud status lists those that do.")
        self._machines().file_systems.stall(name, True)

    def _expire(self, name: str) -> None:
        if not self._cloud.credentials.expire(name):
            raise Refusal(
                f"there are no credentials of {name}: use the id of an instance, or the name of a role or a session."
            )

    def _clear(self, arguments: Arguments) -> int:
        """Lift faults: all, or those with that id, kind or target."""
        which = arguments.get("which")
        kind = arguments.get("kind")
        of_kind = [fault for fault in self._cloud.faults if kind in (None, fault.kind)]
        matches = [fault for fault in of_kind if not which or _named(fault, which)]
        if which and not matches:
            raise Refusal(f"no fault in force has the id, kind or target {which}: localcloud status lists them.")
        for fault in matches:
            self._cloud.faults.remove(fault)
            with contextlib.suppress(Refusal):  # its target may be gone
                self._undo(fault)
        self._cloud.network.changed()
        return len(matches)

    def _undo(self, fault: Fault) -> None:
        if fault.kind == "frozen":
            self._machines().freeze(fault.target["instance"], False)
        elif fault.kind == "stalled":
            self._machines().file_systems.stall(fault.target["file_system"], False)
        elif fault.kind == "expired":
            self._cloud.credentials.renew(fault.target["session"])

    def _image(self, arguments: Arguments) -> str:
        return self._service.add_image(tuple(arguments["features"]), Path(arguments["path"]))

    def _down(self, _arguments: Arguments) -> bool:
        self._service.stop()
        return True


def _named(fault: Fault, which: str) -> bool:
    return which in (fault.id, fault.kind) or which in fault.target.values()


class ControlServer:
    """Answers requests: one line of JSON each way."""

    def __init__(self, path: Path, control: Control) -> None:
        path.unlink(missing_ok=True)
        self._control = control
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(16)
        self._path = path
        self._accepting = Accepting(listening, self._answer, "control")

    def close(self) -> None:
        """Stop answering, and remove the socket."""
        self._accepting.close()
        self._path.unlink(missing_ok=True)

    def _answer(self, client: socket.socket) -> None:
        try:
            with client.makefile() as stream:
                request = json.loads(stream.readline())
            started = time.monotonic()
            reply: dict[str, Any] = {"answer": self._control.answer(request)}
            log.debug("%s took %.3f s", request.get("command"), time.monotonic() - started)
        except Refusal as refusal:
            reply = {"refusal": str(refusal)}
        except Exception as error:
            log.exception("a command failed")
            reply = {"refusal": f"the local cloud failed ({error!r}): its log says more."}
        try:
            client.sendall(json.dumps(reply, default=str).encode() + b"\n")
        except OSError:
            log.info("the command line did not wait for the answer")
