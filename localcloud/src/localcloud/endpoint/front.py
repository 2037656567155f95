"""The front of the API: a WSGI application that identifies caller and operation, applies permissions and faults, lets a
function of the service or moto answer, and logs the call."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import ipaddress
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Any

from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY, Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import SerializationContext, get_serializer_class
from moto.core.utils import get_service_model
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from localcloud.api import enforcement as rules
from localcloud.api.ec2 import late_reads, late_tags
from localcloud.api.ec2.moto_records import regions
from localcloud.api.s3_storage import body_on_disk
from localcloud.api.services import BY_NAME, BY_SIGNING_NAME
from localcloud.core.caller import Caller
from localcloud.core.calls import Record
from localcloud.core.cloud import Call, Cloud, handler_of
from localcloud.core.errors import AwsError
from localcloud.core.settings import DEFAULT_REGION, TRANSIT_NETWORK
from localcloud.core.words import aws_error
from localcloud.endpoint.ec2_xml import render
from localcloud.endpoint.signature import Signature, check_signature, read_signature
from localcloud.models import origin_of
from localcloud.models.recorder import recorder

log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_IN_MEMORY = 1024 * 1024
"""Bytes of a request's body that are kept in memory; larger bodies are files."""
_READS = ("Describe", "Get", "List", "Head", "Select", "Search", "Lookup", "Simulate", "Validate", "AssumeRole")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class Front:
    """`app(environ, start_response)`: what the HTTP server runs."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._recorder = recorder()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        started = time.time()
        start_response = self._dated(start_response)
        headers = _headers(environ)
        digest = _spool_body(environ)
        record = Record(started, "anonymous", "", "", DEFAULT_REGION, source=environ.get("REMOTE_ADDR", ""))
        signature = read_signature(headers, environ.get("QUERY_STRING", ""))
        addressed = BY_SIGNING_NAME.get(signature.signing_name if signature else "s3")
        service = addressed.name if addressed else ""
        if service != "s3" and _through_s3_endpoint(record.source):
            raise ConnectionAbortedError("only S3 is behind an S3 gateway endpoint")
        model: OperationModel | None = None
        try:
            if not service:
                name = signature.signing_name if signature else "?"
                raise AwsError("UnknownOperationException", f"The local cloud has no service {name}.", 400)
            record.service = service
            if signature and signature.region not in regions():
                raise AwsError(
                    "SignatureDoesNotMatch",
                    f"Credential should be scoped to a valid region, not '{signature.region}'.",
                    403,
                )
            record.region = signature.region if signature else DEFAULT_REGION
            try:
                caller = self._identify(signature, environ, headers, digest, record)
            except AwsError as error:
                raise BY_NAME[service].refused_login(error) from error
            model, params = _understand(service, environ)
            record.operation = model.name
            record.writes = not model.name.startswith(_READS)
            call = Call(self._cloud, service, model.name, params, record.region, caller)
            if self._recorder and (origin := origin_of(caller, headers, self._recorder.origins)):
                self._recorder.request(model, environ, headers, params, origin)
            return self._perform(call, model, environ, start_response, record)
        except AwsError as error:
            return self._refuse(error, service, model, environ, start_response, record)
        except NotImplementedError as error:
            # moto does not have the operation. Not an error of 500, which clients would retry.
            refusal = AwsError("UnsupportedOperation", f"The local cloud has no {record.operation}: {error}", 400)
            return self._refuse(refusal, service, model, environ, start_response, record)
        except Exception as error:
            log.exception("%s.%s failed", record.service, record.operation)
            failure = AwsError("InternalError", f"The local cloud failed: {error!r}. Its log says more.", 500)
            return self._refuse(failure, service, model, environ, start_response, record)
        finally:
            record.milliseconds = round((time.time() - started) * 1000, 1)
            self._cloud.calls.add(record)

    def _now(self) -> float:
        return self._cloud.clock.time() + self._cloud.faults.clock_skew()

    def _dated(self, start_response: StartResponse) -> StartResponse:
        """Return the function with AWS's time added to the headers."""
        date = formatdate(self._now(), usegmt=True)

        def start(status: str, headers: list[tuple[str, str]]) -> Any:
            others = [header for header in headers if header[0].lower() != "date"]
            return start_response(status, [*others, ("Date", date)])

        return start

    def _refuse(
        self,
        error: AwsError,
        service: str,
        model: OperationModel | None,
        environ: Environ,
        start_response: StartResponse,
        record: Record,
    ) -> Iterable[bytes]:
        record.result, record.status = error.code, error.status
        return _respond(start_response, *_serialize(service or _stand_in(environ), model, environ, error))

    def _identify(
        self, signature: Signature | None, environ: Environ, headers: Mapping[str, str], digest: str, record: Record
    ) -> Caller:
        if signature is None:
            raise aws_error("sts:*", "MissingAuthenticationToken")
        with self._cloud.lock:
            caller, secret = self._cloud.credentials.resolve(signature.access_key, signature.token)
        record.caller = caller.arn
        raw = environ.get("RAW_URI") or environ.get("REQUEST_URI") or environ.get("PATH_INFO", "/")
        if "?" not in raw and environ.get("QUERY_STRING"):
            raw += "?" + environ["QUERY_STRING"]
        url = f"http://{headers.get('host', 'localhost')}{raw}"
        check_signature(signature, secret, environ["REQUEST_METHOD"], url, headers, digest, self._now())
        return caller

    def _perform(
        self, call: Call, model: OperationModel, environ: Environ, start_response: StartResponse, record: Record
    ) -> Iterable[bytes]:
        cloud = self._cloud
        delay = cloud.latency.of("call")
        if delay:
            time.sleep(delay)  # the round trip to AWS, if the latency profile has one
        with cloud.lock, cloud.lateness.call(call.service, environ.get("HTTP_USER_AGENT", "")):
            needs = rules.required(call)
            record.action, record.resource = needs.action, needs.resource
            record.required = needs.as_json()
            cloud.faults.refuse_call(call.service, call.operation, BY_NAME[call.service].throttled())
            rules.enforce(call, needs, record.source)
            handler = handler_of(call.service, call.operation)
            if handler is None and not BY_NAME[call.service].uses_moto:
                # As moto does: the caller gets UnsupportedOperation.
                raise NotImplementedError(call.operation)
            answer: tuple[int, list[tuple[str, str]], bytes | Iterable[bytes]]
            with late_tags.recorded(call):
                if call.service == "ec2" and late_reads.apply(call):
                    answer = self._serialized(call, model, environ, late_reads.answer(call, handler))
                elif handler is None:
                    answer = self._from_moto(environ, record)
                    if self._recorder and isinstance(answer[2], bytes) and record.status < 400:
                        self._recorder.answer(model, environ, answer[2], answer[1])
                else:
                    answer = self._serialized(call, model, environ, handler(call) or {})
            if record.writes and record.status < 400 and call.service in ("ec2", "efs", "autoscaling"):
                cloud.network.changed()
        return _respond(start_response, *answer)

    def _serialized(
        self, call: Call, model: OperationModel, environ: Environ, result: Mapping[str, Any]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        if self._recorder:
            self._recorder.result(model, result)
        return _serialize(call.service, model, environ, result)

    def _from_moto(
        self, environ: Environ, record: Record
    ) -> tuple[int, list[tuple[str, str]], bytes | Iterable[bytes]]:
        answer: dict[str, Any] = {}
        is_large = int(environ["CONTENT_LENGTH"]) > _IN_MEMORY
        on_disk = is_large and record.service == "s3" and record.operation in ("PutObject", "UploadPart")

        def remember(status: str, headers: list[tuple[str, str]], _exc: Any = None) -> Any:
            answer.update(status=int(status.split()[0]), headers=headers)

        app = self._moto.get_application(environ)
        with body_on_disk(environ) if on_disk else contextlib.nullcontext():
            chunks = app(environ, remember)
        record.status = answer["status"]
        if (record.service, record.operation) == ("s3", "GetObject") and record.status in (200, 206):
            return record.status, answer["headers"], chunks
        try:
            body = b"".join(chunks)
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
            if is_large:
                # moto's request and its body refer to each other: without this, many bodies wait to be collected.
                gc.collect(1)
        if record.status >= 400:
            record.result = _error_code(body, record.status)
        return record.status, answer["headers"], body


def _stand_in(environ: Environ) -> str:
    """Return a service with the protocol of a request to a service that does not exist here."""
    return "ssm" if "json" in environ.get("CONTENT_TYPE", "") else "sts"


def _through_s3_endpoint(source: str) -> bool:
    return bool(source) and ipaddress.ip_address(source) in ipaddress.ip_network(TRANSIT_NETWORK)


def _headers(environ: Environ) -> dict[str, str]:
    """Return the headers by lower-case name, with the underscores that moto's handler preserves."""
    spelled = environ.get(PRESERVED_HEADER_NAMES_ENVIRON_KEY) or {}
    headers = {
        spelled.get(name, name[5:].replace("_", "-")).lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    headers["content-length"] = environ.get("CONTENT_LENGTH", "")
    return headers


def _spool_body(environ: Environ) -> str:
    """Replace the body's stream by one that can be read again, on disk if it is large. Return its SHA-256."""
    source, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
    left = int(length) if length else sys.maxsize if environ.get("wsgi.input_terminated") else 0
    body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - it lives as long as the request
    digest = hashlib.sha256()
    size = 0
    while size < left and (chunk := source.read(min(_CHUNK, left - size))):
        digest.update(chunk)
        size += body.write(chunk)
    body.seek(0)
    environ["wsgi.input"] = body
    environ["CONTENT_LENGTH"] = str(size)
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return digest.hexdigest()


def _understand(service: str, environ: Environ) -> tuple[OperationModel, Mapping[str, Any]]:
    """Return the operation and the parameters of a request."""
    request = Request(dict(environ))
    try:
        model, labels = get_service_router(service).match(request)
        protocol = determine_request_protocol(_model_of(service), request.content_type)
        parser = PROTOCOL_PARSERS[protocol](model, map_type=dict)
        params = parser.parse(
            {
                "method": request.method,
                "values": request.values,
                "headers": request.headers,
                "body": b"" if model.has_streaming_input else request.data,
                "url_path": request.path,
                "url_params": labels,
            }
        )
    except Exception as error:
        log.info("cannot understand a request to %s: %r", service, error)
        raise AwsError(
            "InvalidAction", f"The request to {service} names no operation that is known here.", 400
        ) from error
    finally:
        environ["wsgi.input"].seek(0)
    return model, dict(params)


@functools.cache
def _model_of(service: str) -> ServiceModel:
    return get_service_model(service)


class _Refused(Exception):
    """What moto's serializers take for an error."""

    def __init__(self, error: AwsError) -> None:
        super().__init__(error.message)
        # Some errors tell more than code and message: the id of what exists already, say.
        self.__dict__.update(vars(error))


def _serialize(
    service: str, model: OperationModel | None, environ: Environ, result: Mapping[str, Any] | AwsError
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return a result or an error in the protocol of the service."""
    service_model = _model_of(service)
    try:
        protocol = determine_request_protocol(service_model, environ.get("CONTENT_TYPE", ""))
    except NotImplementedError:
        protocol = str(service_model.protocol)
    if model is None:
        model = OperationModel({"name": "Unknown"}, service_model)
    if service == "ec2" and not isinstance(result, AwsError):
        return 200, [("Content-Type", "text/xml;charset=UTF-8")], render(model, result, secrets.token_hex(16))
    context = SerializationContext(secrets.token_hex(16))
    serializer = get_serializer_class(service, protocol)(operation_model=model, context=context)
    value = _Refused(result) if isinstance(result, AwsError) else result
    response = serializer.serialize(value)
    status = result.status if isinstance(result, AwsError) else response["status_code"]
    body = response["body"]
    headers = [(str(name), str(content)) for name, content in response["headers"].items()]
    return status, headers, body if isinstance(body, bytes) else str(body).encode()


def _error_code(body: bytes, status: int) -> str:
    """Return the code of an error that moto has serialized."""
    import re

    match = re.search(rb"<Code>([^<]+)</Code>|\"__type\"\s*:\s*\"(?:[^\"#]*#)?([^\"]+)\"", body)
    return (match[1] or match[2]).decode() if match else str(status)


def _respond(
    start_response: StartResponse, status: int, headers: list[tuple[str, str]], body: bytes | Iterable[bytes]
) -> Iterable[bytes]:
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in ("content-length", "status", "transfer-encoding")
    ]
    declared = next((value for name, value in headers if name.lower() == "content-length"), None)
    if isinstance(body, bytes) and (body or declared is None):
        declared = str(len(body))
    # An answer to HEAD, and an object that is streamed, declare their length.
    kept.append(("Content-Length", str(declared)))
    start_response(f"{status} {'OK' if status < 400 else 'Error'}", kept)
    return [body] if isinstance(body, bytes) else body
