"""The instance metadata service: tokens, and what it tells whom."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from localcloud.core.identity import Credentials, Session
from localcloud.core.views import InstanceView
from localcloud.machines.metadata import Answer, Metadata, MetadataServer
from localcloud.testing.clock import ManualClock
from localcloud_kits.views_kit import machine

TTL = "x-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "x-aws-ec2-metadata-token"

FULL = machine(
    10,
    public_ip="198.51.100.20",
    public_dns="ec2-198-51-100-20.compute-1.amazonaws.com",
    key_name="tester",
    public_key="ssh-ed25519 AAAA tester",
    role_name="worker",
    profile_arn="arn:aws:iam::123456789012:instance-profile/worker",
    profile_id="AIPA1",
    user_data=b"#!/bin/sh\n\x00\xff",
    tags_in_metadata=True,
    tags={"Name": "one", "deeplearning:rank": "0", "empty": ""},
)


@pytest.fixture
def service(clock: ManualClock) -> Metadata:
    credentials = Credentials(clock)

    def of(view: InstanceView) -> Session:
        return credentials.for_instance(str(view.role_name), view.id, 3600)

    return Metadata(clock, of)


def token(service: Metadata, view: InstanceView = FULL, seconds: str = "60") -> str:
    answer = service.answer("PUT", "/latest/api/token", {TTL: seconds}, view)
    assert (answer.status, answer.token_seconds) == (200, seconds)
    return answer.body.decode()


def get(service: Metadata, path: str, view: InstanceView = FULL, **headers: str) -> Answer:
    return service.answer("GET", f"/latest/{path}", {TOKEN: headers["token"]} if "token" in headers else {}, view)


# Tokens


@pytest.mark.parametrize(
    "method, headers, status",
    [
        ("PUT", {TTL: "1"}, 200),
        ("PUT", {TTL: "21600"}, 200),
        ("PUT", {TTL: "21601"}, 400),
        ("PUT", {TTL: "0"}, 400),
        ("PUT", {TTL: "-1"}, 400),
        ("PUT", {TTL: "soon"}, 400),
        ("PUT", {}, 400),
        ("PUT", {TTL: "60", "x-forwarded-for": "192.0.2.1"}, 403),  # it has come through a proxy
        ("GET", {TTL: "60"}, 405),
        ("POST", {TTL: "60"}, 405),
    ],
)
def test_asking_for_a_token(service: Metadata, method: str, headers: dict[str, str], status: int) -> None:
    assert service.answer(method, "/latest/api/token", headers, FULL).status == status


def test_a_token_is_one_machines_and_for_its_time(service: Metadata, clock: ManualClock) -> None:
    other, strict = machine(11), machine(10, http_tokens="required")
    mine = token(service)
    assert get(service, "meta-data/instance-id", token=mine).body == b"i-10"
    assert get(service, "meta-data/instance-id", other, token=mine).status == 401
    # Who does not have to bring one may; but what he brings must be good.
    assert get(service, "meta-data/instance-id").status == 200
    assert get(service, "meta-data/instance-id", token="made up").status == 401
    assert get(service, "meta-data/instance-id", strict).status == 401
    assert get(service, "meta-data/instance-id", strict, token="").status == 401
    assert get(service, "meta-data/instance-id", strict, token=token(service, strict)).status == 200
    clock.advance(59)
    assert get(service, "meta-data/instance-id", token=mine).status == 200
    clock.advance(1)
    assert get(service, "meta-data/instance-id", token=mine).status == 401


def test_only_the_token_bears_the_hop_limit(service: Metadata) -> None:
    view = machine(10, hop_limit=2)
    assert service.answer("PUT", "/latest/api/token/", {TTL: "60"}, view).hop_limit == 2
    assert get(service, "meta-data/instance-id", view).hop_limit is None


def test_a_disabled_endpoint_answers_nothing(service: Metadata) -> None:
    view = machine(10, http_endpoint="disabled")
    assert get(service, "meta-data/instance-id", view).status == 403
    assert service.answer("PUT", "/latest/api/token", {TTL: "60"}, view).status == 403


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_metadata_is_only_read(service: Metadata, method: str) -> None:
    assert service.answer(method, "/latest/meta-data/instance-id", {}, FULL).status == 405


# Contents


@pytest.mark.parametrize(
    "path, body",
    [
        ("", "meta-data/\ndynamic/\nuser-data"),
        ("meta-data/instance-id", "i-10"),
        ("meta-data/instance-id/", "i-10"),
        ("meta-data/placement", "availability-zone\navailability-zone-id\nregion"),
        ("meta-data/placement/availability-zone", "us-east-1a"),
        ("meta-data/placement/availability-zone-id", "use1-az6"),
        ("meta-data/instance-life-cycle", "on-demand"),
        ("meta-data/local-hostname", "ip-10-0-0-10.ec2.internal"),
        ("meta-data/public-ipv4", "198.51.100.20"),
        ("meta-data/security-groups", "red-members"),
        ("meta-data/network/interfaces/macs/02:00:00:00:00:01/security-groups", "red-members"),
        ("meta-data/network/interfaces/macs/02:00:00:00:00:01/security-group-ids", "sg-a"),
        ("meta-data/public-keys", "0=tester"),
        ("meta-data/public-keys/", "0=tester"),
        ("meta-data/public-keys/0", "openssh-key"),
        ("meta-data/public-keys/0/openssh-key", "ssh-ed25519 AAAA tester"),
        ("meta-data/iam", "info\nsecurity-credentials/"),
        ("meta-data/iam/security-credentials/", "worker"),
        ("meta-data/network/interfaces/macs/", "02:00:00:00:00:01/"),
        ("meta-data/network/interfaces/macs/02:00:00:00:00:01/subnet-id", "subnet-public"),
        ("meta-data/network/interfaces/macs/02%3A00%3A00%3A00%3A00%3A01/vpc-id", "vpc-1"),
        ("meta-data/tags/instance", "Name\ndeeplearning:rank\nempty"),
        ("meta-data/tags/instance/deeplearning:rank", "0"),
        ("meta-data/tags/instance/empty", ""),
        ("meta-data/nothing", None),
        ("meta-data/instance-id/more", None),
        ("meta-data/public-keys/1/openssh-key", None),
        ("meta-data/iam/security-credentials/other", None),
        ("nothing", None),
    ],
)
def test_the_tree(service: Metadata, path: str, body: str | None) -> None:
    answer = get(service, path)
    assert (answer.status, answer.body.decode()) == ((404, "") if body is None else (200, body))


def test_a_spot_instance_in_a_placement_group(service: Metadata) -> None:
    view = machine(10, spot=True, placement_group="near")
    assert get(service, "meta-data/instance-life-cycle", view).body == b"spot"
    assert get(service, "meta-data/placement/group-name", view).body == b"near"


def test_every_version_is_the_latest(service: Metadata) -> None:
    for version in ("latest", "2021-03-23", "1.0"):
        assert service.answer("GET", f"/{version}/meta-data/instance-id", {}, FULL).body == b"i-10"
    assert service.answer("GET", "/", {}, FULL).body == b"latest"


def test_what_an_instance_does_not_have_is_not_there(service: Metadata) -> None:
    bare = machine(10)
    assert get(service, "", bare).body == b"meta-data/\ndynamic/"
    for path in ("user-data", "meta-data/iam", "meta-data/public-keys/", "meta-data/public-ipv4", "meta-data/tags"):
        assert get(service, path, bare).status == 404


def test_user_data_comes_byte_for_byte(service: Metadata) -> None:
    answer = get(service, "user-data")
    assert (answer.body, answer.kind) == (b"#!/bin/sh\n\x00\xff", "application/octet-stream")


def test_the_identity_document(service: Metadata) -> None:
    document = json.loads(get(service, "dynamic/instance-identity/document").body)
    assert document["instanceId"] == "i-10"
    assert (document["region"], document["accountId"]) == ("us-east-1", "123456789012")


def test_credentials_stay_the_same_until_they_are_about_to_expire(service: Metadata, clock: ManualClock) -> None:
    def credentials() -> dict[str, Any]:
        result: dict[str, Any] = json.loads(get(service, "meta-data/iam/security-credentials/worker").body)
        return result

    first = credentials()
    assert (first["Code"], first["Type"]) == ("Success", "AWS-HMAC")
    assert first["AccessKeyId"].startswith("ASIA")
    assert first["Expiration"].endswith("Z") and first["Expiration"] > first["LastUpdated"]
    clock.advance(2900)
    assert credentials() == first
    clock.advance(200)
    second = credentials()
    assert second["AccessKeyId"] != first["AccessKeyId"]
    assert second["Expiration"] > first["Expiration"]


# Over HTTP


class Server(MetadataServer):
    """Keeps the last accepted connection."""

    connection: socket.socket

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connection, address = super().get_request()
        return self.connection, address


@pytest.fixture
def server(service: Metadata) -> Iterator[tuple[Server, dict[str, InstanceView]]]:
    """A server for the machine that has the address 127.0.0.1, if there is one."""
    machines = {"127.0.0.1": FULL}
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(listening, service, machines.get)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server, machines
    server.shutdown()
    server.server_close()


def test_over_http(server: tuple[Server, dict[str, InstanceView]]) -> None:
    service, machines = server
    connection = http.client.HTTPConnection("127.0.0.1", service.server_address[1], timeout=5)

    def ask(method: str, path: str, **headers: str) -> tuple[int, bytes]:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()

    connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    answer = connection.getresponse()
    assert answer.headers["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"] == "60"
    issued = answer.read().decode()
    assert service.connection.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 1
    assert ask("GET", "/latest/meta-data/instance-id?x=y", X_aws_ec2_metadata_token=issued) == (200, b"i-10")
    assert service.connection.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 64
    assert ask("HEAD", "/latest/meta-data/instance-id") == (200, b"")
    assert ask("GET", "/latest/meta-data/instance-id", X_aws_ec2_metadata_token="wrong") == (401, b"")
    machines.clear()
    assert ask("GET", "/latest/meta-data/instance-id") == (404, b"")
