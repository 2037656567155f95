"""The instance metadata service, which recognizes an instance by the source address of its request."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from localcloud.core.clock import Clock
from localcloud.core.errors import AwsError
from localcloud.core.identity import Session
from localcloud.core.settings import ACCOUNT
from localcloud.core.views import InstanceView

log = logging.getLogger(__name__)

_NOT_TRUSTED = "EC2 cannot assume the role: its trust policy must name ec2.amazonaws.com."
_TOKEN_PATH = "/latest/api/token"
_LONGEST_TOKEN_SECONDS = 21600
_TIME_TO_LIVE = 64

Tree = dict[str, Any]
"""entries by name: a str is a document, a dict a folder, None a name that does not exist"""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    kind: str = "text/plain"
    hop_limit: int | None = None
    token_seconds: str | None = None


class Metadata:
    """The answers to requests of machines. `MetadataServer` adds HTTP."""

    def __init__(self, clock: Clock, credentials: Callable[[InstanceView], Session]) -> None:
        self._clock = clock
        self._credentials = credentials
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, headers: dict[str, str], machine: InstanceView) -> Answer:
        """Answer a request. The names of the headers are in lower case."""
        if machine.http_endpoint == "disabled":
            return Answer(403)
        if path.rstrip("/") == _TOKEN_PATH:
            return self._token(method, headers, machine)
        if method not in ("GET", "HEAD"):
            return Answer(405)
        token = headers.get("x-aws-ec2-metadata-token")
        if (token is not None or machine.http_tokens == "required") and not self._valid(token, machine):
            return Answer(401)
        return self._document(path, machine)

    def _token(self, method: str, headers: dict[str, str], machine: InstanceView) -> Answer:
        if method != "PUT":
            return Answer(405)
        if "x-forwarded-for" in headers:
            return Answer(403)
        seconds = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdecimal() or not 1 <= int(seconds) <= _LONGEST_TOKEN_SECONDS:
            return Answer(400)
        token = secrets.token_urlsafe(40)
        now = self._clock.time()
        with self._lock:
            self._tokens = {name: entry for name, entry in self._tokens.items() if entry[1] > now}
            self._tokens[token] = (machine.id, now + int(seconds))
        return Answer(200, token.encode(), hop_limit=machine.hop_limit, token_seconds=seconds)

    def _valid(self, token: str | None, machine: InstanceView) -> bool:
        with self._lock:
            owner, until = self._tokens.get(token or "", ("", 0.0))
        return owner == machine.id and self._clock.time() < until

    def _document(self, path: str, machine: InstanceView) -> Answer:
        parts = [unquote(part) for part in path.split("/") if part]
        if not parts:
            return Answer(200, b"latest")
        entry: Any = self._tree(machine)
        for part in parts[1:]:
            entry = entry.get(part) if isinstance(entry, dict) else None
            if callable(entry):
                entry = entry()
            if entry is None:
                return Answer(404)
        if isinstance(entry, dict):
            names = [f"{name}/" if isinstance(child, dict) else name for name, child in entry.items()]
            return Answer(200, "\n".join(names).encode())
        body = entry if isinstance(entry, bytes) else str(entry).encode()
        kind = "application/octet-stream" if parts[1:] == ["user-data"] else "text/plain"
        return Answer(200, body, kind)

    def _tree(self, machine: InstanceView) -> Tree:
        tree: Tree = {
            "meta-data": self._meta_data(machine),
            "dynamic": {"instance-identity": {"document": _identity_document(machine)}},
        }
        if machine.user_data:
            tree["user-data"] = machine.user_data
        return tree

    def _meta_data(self, machine: InstanceView) -> Tree:
        data: Tree = {
            "ami-id": machine.image_id,
            "ami-launch-index": str(machine.launch_index),
            "hostname": machine.private_dns,
            "instance-action": "none",
            "instance-id": machine.id,
            "instance-life-cycle": "spot" if machine.spot else "on-demand",
            "instance-type": machine.type,
            "local-hostname": machine.private_dns,
            "local-ipv4": machine.private_ip,
            "mac": machine.mac,
            "network": {"interfaces": {"macs": {machine.mac: _interface(machine)}}},
            "placement": _placement(machine),
            "reservation-id": machine.reservation_id,
            "security-groups": "\n".join(machine.security_group_names),
            "services": {"domain": "amazonaws.com", "partition": "aws"},
        }
        if machine.public_ip:
            data["public-hostname"] = machine.public_dns
            data["public-ipv4"] = machine.public_ip
        if machine.public_key and machine.key_name:
            data["public-keys"] = _public_keys(machine)
        if machine.role_name:
            data["iam"] = self._iam(machine)
        if machine.tags_in_metadata:
            data["tags"] = {"instance": dict(machine.tags)}
        return data

    def _iam(self, machine: InstanceView) -> Tree:
        def document() -> str:
            try:
                session = self._credentials(machine)
            except AwsError:
                return json.dumps({"Code": "AssumeRoleUnauthorizedAccess", "Message": _NOT_TRUSTED})
            issued = datetime.fromtimestamp(session.issued, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return json.dumps(
                {
                    "Code": "Success",
                    "LastUpdated": issued,
                    "Type": "AWS-HMAC",
                    "AccessKeyId": session.access_key,
                    "SecretAccessKey": session.secret,
                    "Token": session.token,
                    "Expiration": session.expiration,
                },
                indent=1,
            )

        info = {"Code": "Success", "InstanceProfileArn": machine.profile_arn, "InstanceProfileId": machine.profile_id}
        return {"info": json.dumps(info), "security-credentials": {str(machine.role_name): document}}


def _public_keys(machine: InstanceView) -> Tree:
    """Return a folder whose list has `0=name` and whose entry is `0`."""

    class Keys(dict[str, Any]):
        def items(self) -> Any:
            return [(f"0={machine.key_name}", "")]

    return Keys({"0": {"openssh-key": machine.public_key}})


def _placement(machine: InstanceView) -> Tree:
    placement = {
        "availability-zone": machine.zone,
        "availability-zone-id": machine.zone_id,
        "region": machine.region,
    }
    return {**placement, "group-name": machine.placement_group} if machine.placement_group else placement


def _interface(machine: InstanceView) -> Tree:
    described: Tree = {
        "device-number": "0",
        "interface-id": machine.interface_id,
        "local-hostname": machine.private_dns,
        "local-ipv4s": machine.private_ip,
        "mac": machine.mac,
        "owner-id": ACCOUNT,
        "security-group-ids": "\n".join(machine.security_groups),
        "security-groups": "\n".join(machine.security_group_names),
        "subnet-id": machine.subnet_id,
        "vpc-id": machine.vpc_id,
    }
    if machine.public_ip:
        described["public-hostname"] = machine.public_dns
        described["public-ipv4s"] = machine.public_ip
    return described


def _identity_document(machine: InstanceView) -> str:
    return json.dumps(
        {
            "accountId": ACCOUNT,
            "architecture": "x86_64",
            "availabilityZone": machine.zone,
            "imageId": machine.image_id,
            "instanceId": machine.id,
            "instanceType": machine.type,
            "pendingTime": machine.launch_time,
            "privateIp": machine.private_ip,
            "region": machine.region,
            "version": "2017-09-30",
        },
        indent=1,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MetadataServer
    timeout = 60

    def _answer(self) -> None:
        machine = self.server.find(str(self.client_address[0]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if machine is None:
            answer = Answer(404)
        else:
            answer = self.server.metadata.answer(self.command, self.path.partition("?")[0], headers, machine)
        # The packet that carries a token expires after the instance's hop limit. Other answers on the same connection
        # have no limit.
        self.connection.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, answer.hop_limit or _TIME_TO_LIVE)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.token_seconds is not None:
            self.send_header("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", answer.token_seconds)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        log.debug(format, *args)


class MetadataServer(ThreadingHTTPServer):
    """Serves one VPC on a socket that was created inside its namespace."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, metadata: Metadata, find: Callable[[str], InstanceView | None]
    ) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.metadata = metadata
        self.find = find
