"""User data of a machine that configures itself: fetch the bundle, compare its SHA-256, and run it. For Python 3.9.

No secret is in here: the instance's role signs all calls.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

PARAMETERS: dict[str, Any] = {}

METADATA = "http://169.254.169.254/latest/"
HOST_KEYS = "/etc/ssh"
DENIED_SECONDS, HOOK_ACTIVE_SECONDS, HOLD_SECONDS = 120, 60, 300
"""How long to retry, as these may come up after the machine; the pause between heartbeats."""

UNIT = """\
[Unit]
Description=Configure this member of its cluster
Wants=network-online.target
After=network-online.target
ConditionPathExists=!{configured}
[Service]
Type=exec
ExecStart=/usr/bin/python3 -I {folder}/first_stage.py run
Restart=on-abnormal
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""

T = TypeVar("T")


class Refused(Exception):
    """AWS refuses a call."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"HTTP {status} {code} {message}")
        self.code = code
        final = 400 <= status < 429 and not re.search("Throttl|LimitExceeded|Expired", code)
        self.retry_seconds = DENIED_SECONDS if status == 403 else 0 if final else PARAMETERS["network_seconds"]


PASSING: tuple[type[Exception], ...] = (OSError, HTTPException, LookupError, ValueError, Refused)


def log(text: str) -> None:
    print(text, flush=True)
    with open(PARAMETERS["log"], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def retry(action: Callable[[], T], seconds: float, name: str) -> T:
    start, pause = time.monotonic(), 0.5
    while True:
        try:
            return action()
        except PASSING as error:
            if time.monotonic() + pause > start + min(seconds, getattr(error, "retry_seconds", seconds)):
                raise
            log(f"{name}: {error}; retrying")
        time.sleep(pause)
        pause = min(2 * pause, 10)


def metadata(path: str) -> str:
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    with urlopen(Request(f"{METADATA}api/token", headers=lifetime, method="PUT"), timeout=5) as response:
        token = {"X-aws-ec2-metadata-token": response.read().decode()}
    with urlopen(Request(f"{METADATA}meta-data/{path}", headers=token), timeout=5) as response:
        return str(response.read().decode())


def timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sign(request: Request, region: str, service: str, credentials: dict[str, str], now: float) -> None:
    """Add the headers of AWS's Signature Version 4."""
    url, stamp = urlsplit(request.full_url), re.sub("[-:]", "", timestamp(now))
    digest = hashlib.sha256(request.data or b"").hexdigest()  # type: ignore[arg-type]
    headers = {"host": url.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    headers["x-amz-security-token"] = credentials["Token"]
    names = ";".join(headers)
    lines = [request.get_method(), url.path, url.query, *map(":".join, headers.items()), "", names, digest]
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n" + hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = ("AWS4" + credentials["SecretAccessKey"]).encode()
    for word in (*scope.split("/"), text):
        key = hmac.new(key, word.encode(), "sha256").digest()
    credential = f"AWS4-HMAC-SHA256 Credential={credentials['AccessKeyId']}/{scope}"
    headers["authorization"] = f"{credential}, SignedHeaders={names}, Signature={key.hex()}"
    for name, value in headers.items():
        request.add_header(name, value)


class InstanceApi:
    """This machine, and what it asks AWS for. boot/machine.py says what the bundle's program uses of it."""

    passing, log, metadata = PASSING, staticmethod(log), staticmethod(metadata)

    def __init__(self) -> None:
        self.parameters = PARAMETERS
        self.instance_id = retry(lambda: metadata("instance-id"), PARAMETERS["network_seconds"], "metadata")
        self._clock_offset = 0.0

    def now(self) -> float:
        """Return the time by AWS's clock."""
        return time.time() + self._clock_offset

    def call(self, service: str, request: Request, seconds: float) -> bytes:
        return retry(lambda: self._call(service, request), seconds, f"{request.get_method()} {request.full_url}")

    def _call(self, service: str, request: Request) -> bytes:
        roles = "iam/security-credentials/"
        credentials = json.loads(metadata(roles + metadata(roles).split()[0]))
        sign(request, PARAMETERS["region"], service, credentials, self.now())
        try:
            with urlopen(request, timeout=5) as response:
                return bytes(response.read())
        except HTTPError as error:
            body = error.read(4096).decode(errors="replace")
            refused = Refused(error.code, _tag(body, "Code"), _tag(body, "Message"))
            if re.search("Skew|Expired|SignatureDoesNotMatch", refused.code):
                # This clock may be wrong.
                date = parsedate_to_datetime(error.headers["Date"])
                self._clock_offset = date.timestamp() - time.time()
            raise refused from None

    def query(self, service: str, version: str, seconds: float, **values: str) -> None:
        """Call EC2 or Auto Scaling."""
        url = f"https://{service}.{PARAMETERS['region']}.{PARAMETERS['suffix']}/"
        self.call(service, Request(url, urlencode({"Version": version, **values}).encode()), seconds)

    def object(self, key: str, body: bytes | None = None) -> Request:
        """Return a request to read or write an object of the cluster's bucket."""
        url = "https://{bucket}.s3.{region}.{suffix}/".format(**PARAMETERS) + quote(key)
        return Request(url, body, {"Content-Type": "application/json"}, method="PUT" if body else "GET")

    def report(self, state: str, step: str, lines: Sequence[str] = (), seconds: float | None = None) -> None:
        """Write this machine's report, as contract/report.py describes it."""
        record = {
            "schema": 1,
            "instance_id": self.instance_id,
            "host_keys": [" ".join(key.read_text().split()[:2]) for key in sorted(Path(HOST_KEYS).glob("*_key.pub"))],
            "gpus": 0,
            "state": state,
            "bundle": PARAMETERS["sha256"],
            "step": step[:120],
            "log": ["".join(letter if letter.isprintable() else " " for letter in line[:300]) for line in lines[-20:]],
            "reported_at": timestamp(self.now()),
        }
        key = f"members/{PARAMETERS['role_id']}:{self.instance_id}/report.json"
        self.call("s3", self.object(key, json.dumps(record).encode()), seconds or PARAMETERS["network_seconds"])

    def lifecycle(self, action: str, seconds: float, **values: str) -> bool:
        """Return False if no lifecycle action waits for this machine. EMR has none."""
        if not PARAMETERS["group"]:
            return False
        values.update(LifecycleHookName=PARAMETERS["hook"], AutoScalingGroupName=PARAMETERS["group"])
        try:
            self.query("autoscaling", "2011-01-01", seconds, Action=action, InstanceId=self.instance_id, **values)
            return True
        except Refused as error:
            if "No active Lifecycle Action" not in str(error):
                raise
            return False

    def complete(self, result: str) -> None:
        """Answer the launch hook, if there is one."""
        end = time.monotonic() + (HOOK_ACTIVE_SECONDS if PARAMETERS["group"] else 0)
        while not self.lifecycle("CompleteLifecycleAction", DENIED_SECONDS, LifecycleActionResult=result):
            if time.monotonic() >= end:
                log(f"no lifecycle action waits for {result}")
                return
            time.sleep(2)  # between two calls

    def fail(self, step: str, lines: Sequence[str]) -> None:
        """Report the failure and abandon this machine; after several failures keep its place, as another one would
        fail as well."""
        log("\n".join([f"failed: {step}", *lines]))
        try:
            self.report("failed", step, lines, DENIED_SECONDS)
            failures = self.count_failures()
        except PASSING as error:
            # Without the number, machines could be launched and abandoned for ever.
            log(f"failures cannot be counted: {error}")
            failures = PARAMETERS["attempts"] + 1
        if failures <= PARAMETERS["attempts"]:
            self.complete("ABANDON")
            return
        log("keeping this machine's place")
        while self.lifecycle("RecordLifecycleActionHeartbeat", PARAMETERS["network_seconds"]):
            time.sleep(HOLD_SECONDS)

    def count_failures(self) -> int:
        """Return how many machines of this role have failed lately, with this one; not all if they are too many."""
        prefix = last = f"members/{PARAMETERS['role_id']}:"
        oldest, count = timestamp(self.now() - PARAMETERS["failure_seconds"]), 0
        while last and count <= PARAMETERS["attempts"]:
            request = self.object("")
            request.full_url += f"?list-type=2&prefix={quote(prefix, '')}&start-after={quote(last, '')}"
            last = ""
            for item in self.call("s3", request, DENIED_SECONDS).decode().split("<Contents>")[1:]:
                last = _tag(item, "Key")
                # Any machine may have written anything into its own report.
                if _tag(item, "LastModified") >= oldest and int(_tag(item, "Size")) < PARAMETERS["largest_report"]:
                    count += b'"state": "failed"' in self.call("s3", self.object(last), DENIED_SECONDS)
        return count

    def fetch_bundle(self) -> str:
        """Return the folder of the verified bundle."""
        folder, key = f"{PARAMETERS['folder']}/bundle", f"bundles/{PARAMETERS['sha256']}.tar"
        archive = f"{folder}.tar"
        content = self.call("s3", self.object(key), PARAMETERS["network_seconds"])
        actual = hashlib.sha256(content).hexdigest()
        if actual != PARAMETERS["sha256"]:
            raise ValueError(f"s3://{PARAMETERS['bucket']}/{key} is altered: its SHA-256 is {actual}")
        Path(archive).write_bytes(content)
        # A reboot in the middle has left it.
        shutil.rmtree(folder, ignore_errors=True)
        shutil.unpack_archive(archive, folder)
        return folder


def _tag(xml: str, name: str) -> str:
    match = re.search(f"<{name}>(.*?)</{name}>", xml, re.S)
    return match[1] if match else ""


def install() -> int:
    """Install this program as a service, so that a reboot does not end it, and do not wait for it."""
    os.makedirs(PARAMETERS["folder"], exist_ok=True)
    shutil.copyfile(__file__, f"{PARAMETERS['folder']}/first_stage.py")
    Path(PARAMETERS["unit_file"]).write_text(UNIT.format(**PARAMETERS))
    for arguments in ("daemon-reload", "enable deeplearning-boot", "start --no-block deeplearning-boot"):
        subprocess.run(["systemctl", "--quiet", *arguments.split()], check=True)
    return 0


def run() -> int:
    """Run the bundle's program, which answers the launch lifecycle hook."""
    machine = InstanceApi()
    try:
        machine.report("configuring", "bundle")
        folder = machine.fetch_bundle()
        sys.path.insert(0, f"{folder}/{PARAMETERS['program']}")
        from deeplearning.boot.baking import bake
        from deeplearning.boot.configuring import configure

        return (bake if "frameworks" in PARAMETERS else configure)(machine, folder)
    except Exception:
        machine.fail("bundle", traceback.format_exc().splitlines())
        return 1


if __name__ == "__main__":
    sys.exit(run() if sys.argv[1:] == ["run"] else install())
