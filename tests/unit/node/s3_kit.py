"""As much of S3 as a download needs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

from deeplearning.aws import AwsClient, _error


class Bucket(AwsClient):
    def __init__(self, **objects: bytes) -> None:
        self.objects = {name.replace("__", "/"): content for name, content in objects.items()}
        self.uploaded_in_parts = False
        self.encryption = "AES256"
        self.asked: list[tuple[str, str]] = []
        self.listed: list[str] = []
        self.answers: dict[str, list[Callable[[bytes], io.BytesIO]]] = {}
        """The next answers to a request for a range, in place of its content."""
        self.during: Callable[[str], object] = lambda _range: None

    def client(self, _service: str) -> None: ...

    def tag(self, key: str) -> str:
        digest = hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()
        return f'"{digest}-2"' if self.uploaded_in_parts else f'"{digest}"'

    def pages(self, _service: str, _operation: str, _key: str, **arguments: Any) -> list[dict[str, Any]]:
        self.listed.append(arguments["Prefix"])
        return [
            {"Key": name, "Size": len(content), "ETag": self.tag(name)}
            for name, content in self.objects.items()
            if name.startswith(arguments["Prefix"])
        ]

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        if operation == "head_object":
            return {"ServerSideEncryption": self.encryption}
        key, range_ = arguments["Key"], arguments["Range"]
        self.asked.append((key, range_))
        self.during(range_)
        if key not in self.objects:
            raise _error(service, operation, arguments, {"Code": "NoSuchKey"})
        if arguments["IfMatch"] != self.tag(key):
            raise _error(service, operation, arguments, {"Code": "PreconditionFailed"})
        start, end = map(int, range_.removeprefix("bytes=").split("-"))
        answers = self.answers.get(range_)
        answer = answers.pop(0) if answers else io.BytesIO
        return {"Body": answer(self.objects[key][start : end + 1])}
