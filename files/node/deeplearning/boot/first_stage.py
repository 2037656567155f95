"""User data of a machine that configures itself: fetch the bundle, compare its SHA-256, and run it. For Python 3.9.

No secret is in here: the instance's role signs all calls.
"""

from __future__ import annotations

import glob
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

PARAMETERS: dict[str, Any] = {}

# contract/boot.py has these as well.
HOOK = "deeplearning-configure"
FOLDER = "/opt/deeplearning/boot"
LOG = "/var/log/deeplearning-boot.log"
CONFIGURED = "/var/lib/deeplearning/configured"
PROGRAM = "collections/ansible_collections/deeplearning/aws/files/node"

METADATA = "http://169.254.169.254/latest/"
HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"
NETWORK_SECONDS, DENIED_SECONDS, HOLD_SECONDS = 600, 120, 300
"""How long to retry, as routes and permissions may come up after the machine; the pause between heartbeats."""

UNIT_FILE = "/etc/systemd/system/deeplearning-boot.service"
UNIT = f"""\
[Unit]
Description=Configure this member of its cluster
Wants=network-online.target
After=network-online.target
ConditionPathExists=!{CONFIGURED}
[Service]
Type=exec
ExecStart=/usr/bin/python3 -I {FOLDER}/first_stage.py run
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
        self.status, self.code = status, code

    def retry_seconds(self) -> float:
        if self.status == 403:
            return DENIED_SECONDS
        final = 400 <= self.status < 429 and not re.search("Throttl|LimitExceeded|Expired", self.code)
        return 0 if final else NETWORK_SECONDS


PASSING = (OSError, HTTPException, LookupError, ValueError, Refused)
"""What a network that is not up yet, or AWS for a moment, may answer."""


def log(text: str) -> None:
    print(text, flush=True)
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def retry(action: Callable[[], T], seconds: float, name: str) -> T:
    """Return what `action` returns."""
    start, pause = time.monotonic(), 0.5
    while True:
        try:
            return action()
        except PASSING as error:
            limit = min(seconds, error.retry_seconds() if isinstance(error, Refused) else seconds)
            if time.monotonic() + pause > start + limit:
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


class Machine:
    """This machine, and what it asks AWS for."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters
        self.instance_id = retry(lambda: metadata("instance-id"), NETWORK_SECONDS, "metadata")
        self._clock_offset = 0.0
        self._credentials = {"Expiration": ""}

    def now(self) -> float:
        """Return the time by AWS's clock."""
        return time.time() + self._clock_offset

    def call(self, service: str, request: Request, seconds: float, read: Callable[[Any], T]) -> T:
        return retry(lambda: self._call(service, request, read), seconds, f"{request.get_method()} {request.full_url}")

    def _call(self, service: str, request: Request, read: Callable[[Any], T]) -> T:
        if self._credentials["Expiration"] < timestamp(self.now() + 300):
            roles = "iam/security-credentials/"
            self._credentials = json.loads(metadata(roles + metadata(roles).split()[0]))
        sign(request, self.parameters["region"], service, self._credentials, self.now())
        try:
            with urlopen(request, timeout=20) as response:
                return read(response)
        except HTTPError as error:
            body = error.read(4096).decode(errors="replace")
            code, message = (re.search(f"<{tag}>(.*?)</{tag}>", body, re.S) for tag in ("Code", "Message"))
            refused = Refused(error.code, code[1] if code else "", message[1] if message else "")
            if re.search("Skew|Expired|SignatureDoesNotMatch", refused.code):
                # The clock may be wrong. Use that of AWS.
                date = parsedate_to_datetime(error.headers["Date"])
                self._clock_offset = date.timestamp() - time.time()
                self._credentials = {"Expiration": ""}
            raise refused from None

    def query(self, service: str, version: str, seconds: float, **values: str) -> None:
        """Call EC2 or Auto Scaling."""
        url = f"https://{service}.{self.parameters['region']}.{self.parameters['suffix']}/"
        self.call(service, Request(url, urlencode({"Version": version, **values}).encode()), seconds, lambda _: None)

    def object(self, key: str, method: str = "GET", body: bytes | None = None) -> Request:
        """Return a request for an object of the cluster's bucket."""
        host = "{bucket}.s3.{region}.{suffix}".format(**self.parameters)
        return Request(f"https://{host}/{quote(key)}", body, {"Content-Type": "application/json"}, method=method)

    def report(self, state: str, step: str, lines: Sequence[str] = (), seconds: float = NETWORK_SECONDS) -> None:
        """Write this machine's report, as contract/report.py describes it."""
        keys = [_read(path).split()[:2] for path in sorted(glob.glob(HOST_KEYS))]
        system = dict(line.partition("=")[::2] for line in _read("/etc/os-release").splitlines())
        record = {
            "schema": 1,
            "instance_id": self.instance_id,
            "host_keys": [" ".join(key) for key in keys],
            "gpus": 0,
            "state": state,
            "os": " ".join(system.get(key, "").strip('"') for key in ("ID", "VERSION_ID")),
            "bundle": self.parameters["sha256"],
            "step": _printable(step, 120),
            "log": [_printable(line, 300) for line in lines[-20:]],
            "reported_at": timestamp(self.now()),
        }
        key = f"members/{self.parameters['role_id']}:{self.instance_id}/report.json"
        self.call("s3", self.object(key, "PUT", json.dumps(record).encode()), seconds, lambda _: None)

    def lifecycle(self, action: str, seconds: float, **values: str) -> bool:
        """Return False if no lifecycle action waits for this machine."""
        values.update(Action=action, LifecycleHookName=HOOK, InstanceId=self.instance_id)
        values["AutoScalingGroupName"] = self.parameters["group"]
        try:
            self.query("autoscaling", "2011-01-01", seconds, **values)
        except Refused as error:
            if "No active Lifecycle Action" in str(error):
                return False
            raise
        return True

    def hold(self) -> None:
        """Keep this machine's place in its group: another one would fail as well."""
        log("keeping this machine's place")
        while self.lifecycle("RecordLifecycleActionHeartbeat", NETWORK_SECONDS):
            time.sleep(HOLD_SECONDS)

    def fetch_bundle(self) -> str:
        """Return the folder of the verified bundle."""
        sha256 = self.parameters["sha256"]
        folder, archive, key = f"{FOLDER}/bundle/{sha256}", f"{FOLDER}/bundle.tar", f"bundles/{sha256}.tar"
        if os.path.isdir(folder):
            return folder

        def save(response: Any) -> str:
            digest, size = hashlib.sha256(), 0
            with open(archive, "wb") as file:
                for chunk in iter(lambda: response.read(1 << 20), b""):
                    digest.update(chunk)
                    size += file.write(chunk)
            if size < int(response.headers["Content-Length"]):
                raise OSError(f"the connection broke after {size} bytes")
            return digest.hexdigest()

        actual = self.call("s3", self.object(key), NETWORK_SECONDS, save)
        if actual != sha256:
            raise ValueError(f"s3://{self.parameters['bucket']}/{key} is altered: its SHA-256 is {actual}")
        unpack(archive, f"{folder}.part")
        os.rename(f"{folder}.part", folder)
        return folder


def unpack(archive: str, folder: str) -> None:
    """Unpack files and folders, and refuse anything that could lead out of the folder."""
    # Left by an attempt.
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            parts = member.name.split("/")
            if not (member.isreg() or member.isdir()) or not parts[0] or ".." in parts:
                raise ValueError(f"the bundle has {member.name!r}, which is no file or folder in it")
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _printable(text: str, most: int) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:most])


def install() -> int:
    """Install this program as a service, so that a reboot does not end it, and do not wait for it."""
    os.makedirs(FOLDER, exist_ok=True)
    shutil.copyfile(__file__, f"{FOLDER}/first_stage.py")
    with open(UNIT_FILE, "w", encoding="ascii") as file:
        file.write(UNIT)
    for words in ("daemon-reload", "enable deeplearning-boot", "start --no-block deeplearning-boot"):
        subprocess.run(["systemctl", "--quiet", *words.split()], check=True)
    return 0


def run() -> int:
    """Run the bundle's program, which answers the launch lifecycle hook."""
    machine = Machine(PARAMETERS)
    try:
        machine.report("configuring", "bundle")
        folder = machine.fetch_bundle()
        sys.path.insert(0, f"{folder}/{PROGRAM}")
        if "frameworks" in PARAMETERS:
            from deeplearning.boot.baking import bake

            return bake(PARAMETERS, folder)
        from deeplearning.boot.configuring import configure

        return configure(PARAMETERS, folder)
    except Exception:
        text = traceback.format_exc()
        log(text)
        try:
            machine.report("failed", "bundle", text.splitlines())
        finally:
            if PARAMETERS["group"]:
                machine.hold()
        return 1


if __name__ == "__main__":
    sys.exit(run() if sys.argv[1:] == ["run"] else install())
