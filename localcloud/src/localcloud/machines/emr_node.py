"""Run as a program in a machine, as root, with settings as JSON: makes it a node of an EMR cluster.

It stands in for EMR's instance controller: creates the user hadoop and the info files, fetches each bootstrap action
from S3 with the machine's own credentials, runs it as hadoop, and stores its logs in S3. It prints a JSON object before
the first action and at the end; `provision` in core/cloud.py documents them.
"""

import gzip
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

INFO = Path("/mnt/var/lib/info")
SCRIPTS = Path("/emr/instance-controller/lib/bootstrap-actions")
LOGS = Path("/mnt/var/log/bootstrap-actions")
TRUST = {"AWS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt"}

# YARN does not run. The nodes that its list would have are the core nodes that run, which the node's role may list.
YARN = """#!/usr/bin/python3
import json, sys
import boto3
if sys.argv[1:] != ["node", "-list"]:
    sys.exit("There is no YARN here: only yarn node -list is answered.")
cluster = json.load(open("/mnt/var/lib/info/job-flow.json"))["jobFlowId"]
pages = boto3.client("emr", {region!r}).get_paginator("list_instances").paginate(
    ClusterId=cluster, InstanceGroupTypes=["CORE"], InstanceStates=["RUNNING"])
names = [node["PrivateDnsName"] for page in pages for node in page["Instances"]]
print("Total Nodes:%d" % len(names))
print("         Node-Id\\t     Node-State\\tNode-Http-Address\\tNumber-of-Running-Containers")
for name in names:
    print("%s:8041\\t        RUNNING\\t%s:8042\\t                           0" % (name, name))
"""

# Debian's package is not in the image.
NSLOOKUP = """#!/usr/bin/python3
import socket, sys
name = sys.argv[1].rstrip(".")
print("Server:\\t\\t169.254.169.253\\nAddress:\\t169.254.169.253#53\\n")
try:
    address = socket.gethostbyname(name)
except OSError:
    sys.exit("** server can't find %s: NXDOMAIN\\n" % name)
print("Non-authoritative answer:\\nName:\\t%s\\nAddress: %s\\n" % (name, address))
"""


def write(path: Path, text: str, mode: int = 0o644, owner: str = "root") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    os.chown(path, pwd.getpwnam(owner).pw_uid, pwd.getpwnam(owner).pw_gid)


def prepare(settings: Mapping[str, Any]) -> None:
    """Create the user hadoop, the info files and the stand-ins."""
    if subprocess.run(["id", "hadoop"], capture_output=True, check=False).returncode:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "hadoop"], check=True)
    write(Path("/etc/sudoers.d/50-hadoop"), "hadoop ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    keys = Path("/home/hadoop/.ssh/authorized_keys")
    write(keys, f"{settings['public_key']}\n", 0o600, "hadoop")
    keys.parent.chmod(0o700)
    os.chown(keys.parent, keys.stat().st_uid, keys.stat().st_gid)
    write(INFO / "instance.json", json.dumps(settings["instance_info"]))
    write(INFO / "job-flow.json", json.dumps(settings["job_flow_info"]))
    for name, text in (("yarn", YARN.replace("{region!r}", repr(settings["region"]))), ("nslookup", NSLOOKUP)):
        if not Path("/usr/bin", name).exists():
            write(Path("/usr/bin", name), text, 0o755)


def run(settings: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Run a bootstrap action and store its logs. Return what to report: the exit status."""
    action = settings["actions"][number - 1]
    logs, path = LOGS / str(number), SCRIPTS / str(number) / os.path.basename(action["path"])
    logs.mkdir(parents=True, exist_ok=True)
    for log in ("stdout", "stderr"):
        (logs / log).touch()
    report: dict[str, Any] = {"status": 1, "action": number, "downloaded": False}
    with (logs / "controller").open("w", encoding="utf-8") as controller:

        def note(text: str) -> None:
            controller.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z INFO {text}\n")

        note(f"Fetching file '{action['path']}'")
        source = urlsplit(action["path"])
        try:
            body = boto3.client("s3", settings["region"]).get_object(Bucket=source.netloc, Key=source.path[1:])["Body"]
            write(path, "", 0o700, "hadoop")
            path.write_bytes(body.read())
            os.chown(path.parent, path.stat().st_uid, path.stat().st_gid)
        except Exception as error:
            note(f"Failed to fetch the file: {error}")
        else:
            note(f"startExec '{path} {' '.join(action['args'])}'")
            report = {"status": execute(path, action["args"], logs), "action": number, "downloaded": True}
            note(f"waitProcessCompletion ended with exit code {report['status']}")
    store(settings, number, logs)
    return report


def execute(path: Path, args: list[str], logs: Path) -> int:
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/home/hadoop",
        "USER": "hadoop",
        "LOGNAME": "hadoop",
        "LANG": "C.UTF-8",
        **TRUST,
    }
    with (logs / "stdout").open("wb") as stdout, (logs / "stderr").open("wb") as stderr:
        done = subprocess.run(
            ["/bin/bash", "-c", '"$0" "$@"', str(path), *args],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            user="hadoop",
            group="hadoop",
            extra_groups=[],
            cwd=path.parent,
            env=variables,
            check=False,
        )
    return done.returncode


def store(settings: Mapping[str, Any], number: int, logs: Path) -> None:
    """Store the logs of an action below the cluster's LogUri. As in AWS, only they are missing if that fails."""
    if not settings["log_uri"]:
        return
    target = urlsplit(settings["log_uri"])
    folder = "/".join(
        part
        for part in (
            target.path.strip("/"),
            f"{settings['cluster']}/node/{settings['instance']}/bootstrap-actions/{number}",
        )
        if part
    )
    for log in ("stdout", "stderr", "controller"):
        body = gzip.compress((logs / log).read_bytes())
        try:
            s3 = boto3.client("s3", settings["region"])
            s3.put_object(Bucket=target.netloc, Key=f"{folder}/{log}.gz", Body=body)
        except Exception as error:
            print(f"emr: {log} of bootstrap action {number} was not stored: {error}", file=sys.stderr)


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ.update(TRUST)
    while not os.path.exists("/run/cloud-init/result.json"):
        time.sleep(0.2)  # cloud-init writes it at its end
    prepare(settings)
    print(json.dumps({"state": "BOOTSTRAPPING"}), flush=True)
    report: dict[str, Any] = {"status": 0}
    for number in range(1, len(settings["actions"]) + 1):
        report = run(settings, number)
        if report["status"]:
            break
    print(json.dumps(report), flush=True)


main()
