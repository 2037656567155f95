"""Run modules in children of this process, which has boto3 and the models of AWS's services loaded.

server.py SOCKET: prints `ready` once it listens, and ends when its standard input does.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from importlib.abc import InspectLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import botocore.loaders
import botocore.session

sys.path[0] = str(Path(__file__).parents[2])
from tests.forking.compiled import keep_modules  # noqa: E402

del sys.path[0]

SERVICES = ("autoscaling", "ec2", "efs", "emr", "iam", "s3", "ssm", "sts")
LONGEST_SLEEP = 0.1
"""Seconds. Modules of amazon.aws sleep for fixed times after writing, and in waiters for 15 s and more."""


class StandardInput(InspectLoader):
    """Ansible passes modules to Python this way."""

    def get_source(self, fullname: str) -> str:
        return sys.stdin.read()


def load() -> None:
    """Load what most modules load, and let all sessions share one reader of models."""
    loader = botocore.loaders.create_loader()
    botocore.loaders.create_loader = botocore.session.create_loader = lambda search_path_string=None: loader
    session = boto3.Session("key", "secret", region_name="us-east-1")
    for service in SERVICES:
        session.client(service)
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(float(seconds), LONGEST_SLEEP))
    gc.collect()
    gc.freeze()


def serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    # The children that attend to a request are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN)
    waiting.register(listener, select.POLLIN)
    while [event[0] for event in waiting.poll()] == [listener.fileno()]:
        peer, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            attend(peer)
        peer.close()


def attend(peer: socket.socket) -> None:
    """Run one module in a child, and answer with its exit code. A killed client ends its module."""
    request = receive(peer)
    module = os.fork()
    if not module:
        peer.close()
        run(request)
    for standard in range(3):
        os.close(standard)
    ended = os.pidfd_open(module)
    if ended not in select.select([peer.fileno(), ended], [], [])[0]:
        os.kill(module, signal.SIGKILL)
    _, status = os.waitpid(module, 0)
    code = os.waitstatus_to_exitcode(status)
    try:
        peer.send(bytes([code & 255]))
    finally:
        os._exit(0)


def receive(peer: socket.socket) -> dict[str, Any]:
    """Return the request, and take over the client's standard input, output and error."""
    standard = array.array("i")
    content, ancillary, _flags, _address = peer.recvmsg(1 << 16, socket.CMSG_LEN(3 * standard.itemsize))
    for _level, _kind, descriptors in ancillary:
        standard.frombytes(descriptors)
    while not content.endswith(b"\0"):
        part = peer.recv(1 << 16)
        if not part:
            os._exit(1)
        content += part
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    request: dict[str, Any] = json.loads(content[:-1])
    return request


def import_customization() -> None:
    """Do what a Python does as it starts: import the sitecustomize of PYTHONPATH."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path]
    for path in paths:
        if path and os.path.exists(os.path.join(path, "sitecustomize.py")):
            sys.modules.pop("sitecustomize", None)
            importlib.import_module("sitecustomize")
            return


def run(request: dict[str, Any]) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [""]
    code = 0
    try:
        import_customization()
        StandardInput().exec_module(ModuleType("__main__"))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    load()
    keep_modules(Path(sys.argv[1]).with_name("compiled"))
    serve(sys.argv[1])
