"""Machines ask for AWS by its own names. Only clients that trust the authority accept the certificates."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from localcloud.endpoint.server import HttpServer
from localcloud.endpoint.tls import Authority


def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Authority, int]]:
    authority = Authority()
    server = HttpServer(app, "127.0.0.1", 0, authority.context())
    server.start()
    yield authority, server.port
    server.stop()


def certificate_of(port: int, name: str | None, trust: ssl.SSLContext) -> dict[str, Any]:
    """Return the certificate that a server presents to a client that asks for a name and verifies it."""
    import socket

    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        trust.wrap_socket(plain, server_hostname=name) as secured,
    ):
        result: Any = secured.getpeercert()
        return dict(result)


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


@pytest.mark.parametrize(
    "name", ["ec2.us-east-1.amazonaws.com", "bucket.with.dots.s3.eu-west-1.amazonaws.com", "sts.amazonaws.com"]
)
def test_who_trusts_the_authority_believes_each_name(served: tuple[Authority, int], name: str) -> None:
    authority, port = served
    shown = certificate_of(port, name, trusting(authority))
    assert shown["subjectAltName"] == (("DNS", name),)
    # Once made, it stays the same.
    assert certificate_of(port, name, trusting(authority))["serialNumber"] == shown["serialNumber"]


def test_a_name_longer_than_a_common_name_may_be(served: tuple[Authority, int]) -> None:
    authority, port = served
    name = f"{'b' * 63}.s3.us-east-1.amazonaws.com"
    assert certificate_of(port, name, trusting(authority))["subjectAltName"] == (("DNS", name),)


def test_strict_clients_find_nothing_to_complain_of(served: tuple[Authority, int]) -> None:
    """As Python does from 3.13 on."""
    authority, port = served
    trust = trusting(authority)
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    assert certificate_of(port, "ec2.us-east-1.amazonaws.com", trust)


def test_who_does_not_trust_it_refuses(served: tuple[Authority, int]) -> None:
    _, port = served
    for trust in (ssl.create_default_context(), trusting(Authority())):
        with pytest.raises(ssl.SSLCertVerificationError):
            certificate_of(port, "ec2.us-east-1.amazonaws.com", trust)


def test_who_asks_for_no_name_gets_no_certificate_for_the_address(served: tuple[Authority, int]) -> None:
    authority, port = served
    with pytest.raises(ssl.SSLCertVerificationError):
        certificate_of(port, "127.0.0.1", trusting(authority))


def test_plain_http_on_this_port_is_refused_and_harms_nobody(served: tuple[Authority, int]) -> None:
    authority, port = served
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    assert certificate_of(port, "ec2.us-east-1.amazonaws.com", trusting(authority))
