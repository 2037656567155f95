"""The AWS API, with the rights of this machine's role. Only this module imports the SDK, which takes long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from deeplearning.contract.errors import UserError

Result = TypeVar("Result")

ATTEMPTS = 3
RETRY_SECONDS = 2.0
CHUNK = 1 << 20
PARALLEL_REQUESTS = 16
"""Of a process that reads from S3, which sends 85 to 90 MB/s to each: more than one process of Python can take."""
RANGE_BYTES = 8 << 20
"""Of each of these requests, as AWS recommends: 8 to 16 MB. As many as there are requests are held in memory."""
NOT_FOUND = ("NoSuchKey", "NoSuchBucket", "404", "PreconditionFailed", "412")
"""The object does not exist, or not in the version that was requested."""
BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503")
"""S3 asks to try again later, after the SDK has tried several times."""
DENIED = ("AccessDenied", "UnauthorizedOperation", "AccessDeniedException", "403")


class NotFound(UserError):
    """An object does not exist, or was replaced."""


class Unavailable(UserError):
    """AWS did not answer."""


class AccessDenied(UserError):
    """The instance role lacks permission for the call."""


class AwsClient:
    def __init__(self, region: str) -> None:
        from botocore.config import Config
        from botocore.session import Session

        self._session = Session()
        # Older SDKs call a far region otherwise, which a subnet with endpoints alone does not reach.
        self._session.set_config_variable("sts_regional_endpoints", "regional")
        self._config = Config(
            region_name=region,
            connect_timeout=5,
            read_timeout=20,
            retries={"mode": "standard", "max_attempts": 5},
            max_pool_connections=PARALLEL_REQUESTS,
        )
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.create_client(service, config=self._config)
        return self._clients[service]

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation by its snake_case name."""
        with _errors(service, operation, arguments):
            response: dict[str, Any] = getattr(self.client(service), operation)(**arguments)
        return response

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return all items under `key` of all pages."""
        with _errors(service, operation, arguments):
            pages = self.client(service).get_paginator(operation).paginate(**arguments)
            return [item for page in pages for item in page.get(key, [])]

    def read_range(self, bucket: str, key: str, start: int, count: int, **only: str) -> bytearray:
        """Return `count` bytes of an object from `start` on, or fewer at its end. Repeat it if AWS does not answer.

        `only`: conditions of the object, such as IfMatch.
        """

        def read() -> bytearray:
            # Joining the chunks would need twice the memory. A content that grows is copied, too.
            content, end, range_ = bytearray(count), 0, f"bytes={start}-{start + count - 1}"
            for chunk in self.stream_object(bucket, key, CHUNK, Range=range_, **only):
                content[end : end + len(chunk)] = chunk
                end += len(chunk)
            del content[end:]
            return content

        return retry(read, Unavailable, RETRY_SECONDS)

    def stream_object(self, bucket: str, key: str, chunk: int = CHUNK, **arguments: Any) -> Iterator[bytes]:
        """Yield an object piece by piece. Raise Unavailable if the connection breaks."""
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        body = self.call("s3", "get_object", Bucket=bucket, Key=key, **arguments)["Body"]
        try:
            yield from iter(lambda: body.read(chunk), b"")
        # Older SDKs let errors of the library below through.
        except (BotoCoreError, HTTPError, OSError) as error:
            raise Unavailable(f"s3://{bucket}/{key} broke off while it was read ({error}): try again.") from None


def retry(call: Callable[[], Result], passing: type[UserError], pause: float = 0.0) -> Result:
    """Return what `call` returns. Repeat it after an error that may pass, each time after a longer pause."""
    for attempt in range(1, ATTEMPTS):
        with contextlib.suppress(passing):
            return call()
        time.sleep(pause * attempt)
    return call()


@contextlib.contextmanager
def _errors(service: str, operation: str, arguments: dict[str, Any]) -> Iterator[None]:
    """Turn the SDK's errors into messages."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _error(service, operation, arguments, error.response.get("Error", {})) from None
    except BotoCoreError as error:
        raise Unavailable(f"AWS does not answer {service} {operation} ({error}).") from None


def _error(service: str, operation: str, arguments: dict[str, Any], error: dict[str, str]) -> UserError:
    code, message = error.get("Code", ""), error.get("Message", "")
    if code in NOT_FOUND:
        name = f"s3://{arguments.get('Bucket')}/{arguments.get('Key', '')}"
        return NotFound(f"{name} does not exist, or was replaced while it was read: run the same command again.")
    if code in BUSY:
        return Unavailable(f"AWS does not answer {service} {operation} ({code}): try again later.")
    if code in DENIED:
        cure = ", with cluster_s3_read if the bucket is another one" if service == "s3" else ""
        return AccessDenied(
            f"this machine's role is not allowed {service} {operation} ({message}): run "
            f"ansible-playbook deeplearning.aws.provision again{cure}."
        )
    return UserError(f"AWS refused {service} {operation}: {code} ({message}).")
