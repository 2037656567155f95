"""The AWS API as this machine's role may use it. The SDK is imported nowhere else: its start is most of a tick."""

from __future__ import annotations

import contextlib
from typing import Any

from deeplearning import Refusal

ATTEMPTS = 3
DENIED = ("AccessDenied", "UnauthorizedOperation", "AccessDeniedException", "403")


class Missing(Exception):
    """What was asked for is not there."""


class Unanswered(Refusal):
    """AWS said nothing, neither yes nor no."""


class Denied(Refusal):
    """This machine's role is not allowed the call."""


class Aws:
    def __init__(self, region: str) -> None:
        from botocore.config import Config
        from botocore.session import Session

        self._session = Session()
        # Older SDKs ask a far region otherwise, which a subnet with endpoints alone does not reach.
        self._session.set_config_variable("sts_regional_endpoints", "regional")
        self._settings = Config(
            region_name=region,
            connect_timeout=5,
            read_timeout=20,
            retries={"mode": "standard", "max_attempts": 5},
            max_pool_connections=16,
        )
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.create_client(service, config=self._settings)
        return self._clients[service]

    def call(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        """One call, by its snake_case name."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.client(service), operation)(**given)
        except ClientError as error:
            raise _problem(service, operation, error.response.get("Error", {})) from None
        except BotoCoreError as error:
            raise Unanswered(f"AWS does not answer {service} {operation} ({error}).") from None
        return answer

    def object(self, bucket: str, key: str, **asked: str) -> bytes:
        """All of it, or the piece that is asked for. Of thousands of pieces one may break off."""
        for _unused in range(ATTEMPTS - 1):
            with contextlib.suppress(Unanswered):
                return self._read(bucket, key, None, **asked)
        return self._read(bucket, key, None, **asked)

    def beginning(self, bucket: str, key: str, most: int) -> bytes:
        """Of an object: up to so many bytes."""
        return self._read(bucket, key, most)

    def _read(self, bucket: str, key: str, most: int | None, **asked: str) -> bytes:
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        body = self.call("s3", "get_object", Bucket=bucket, Key=key, **asked)["Body"]
        try:
            read: bytes = body.read(most)
        # Older SDKs let through what the library below says.
        except (BotoCoreError, HTTPError, OSError) as error:
            raise Unanswered(f"s3://{bucket}/{key} broke off while it was read ({error}).") from None
        return read

    def pages(self, service: str, operation: str, key: str, **given: Any) -> list[dict[str, Any]]:
        """All that the pages of an answer hold under `key`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            pages = self.client(service).get_paginator(operation).paginate(**given)
            return [item for page in pages for item in page.get(key, [])]
        except ClientError as error:
            raise _problem(service, operation, error.response.get("Error", {})) from None
        except BotoCoreError as error:
            raise Unanswered(f"AWS does not answer {service} {operation} ({error}).") from None


def _problem(service: str, operation: str, error: dict[str, str]) -> Exception:
    code = error.get("Code", "")
    if code in ("NoSuchKey", "404"):
        return Missing(f"{service} {operation}")
    message = error.get("Message", "")
    if code in DENIED:
        named = ", with cluster_s3_read if the bucket is another one" if service == "s3" else ""
        return Denied(
            f"this machine's role is not allowed {service} {operation} ({message}): run provision.yml again{named}."
        )
    return Refusal(f"AWS refused {service} {operation}: {code} ({message}).")
