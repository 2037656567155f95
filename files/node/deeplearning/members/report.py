"""What each machine says of itself, in the cluster's bucket: s3://BUCKET/members/<user id>/report.json.

The user id is the role's id and the instance's, and the role lets a machine write under its own only. So a report is
the word of that machine and nobody else's. Addresses never come from here.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from deeplearning import Refusal, files, machine, paths, records
from deeplearning.aws import Aws, Missing
from deeplearning.config import Config
from deeplearning.members.reading import FAULTY, READY, STATES

LONGEST = 64 * 1024

FIELDS = {
    "instance_id": records.instance,
    "host_keys": records.a_list(records.host_key, least=1),
    "gpus": records.gpus,
    "state": records.one_of(*STATES),
    "os": records.matching(r"[\w .+-]{0,80}", "a system's name and version"),
    "reported_at": records.moment,
}


def key_of(user_id: str) -> str:
    return f"members/{user_id}/report.json"


def report(config: Config, trusting: bool = False) -> tuple[bool, str]:
    """Whether there was something new to report, and what is wrong with this machine.

    `trusting`: what was reported once is taken to lie there still. A timer would ask AWS every minute otherwise.
    """
    if not machine.is_mounted(config.efs_mount):
        machine.mount(config.efs_mount)
    said, fault = look(config)
    mark = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    kept = f"{paths.RUNTIME}/reported"
    if trusting and files.text_of(kept) == mark:
        return False, fault
    aws = Aws(config.region)
    key = key_of(aws.call("sts", "get_caller_identity")["UserId"])
    there = not trusting and lies_there(aws, config.bucket, key, said)
    if not there:
        body = json.dumps({**said, "reported_at": now()}, sort_keys=True).encode()
        aws.call("s3", "put_object", Bucket=config.bucket, Key=key, Body=body, ContentType="application/json")
    files.put(kept, mark)
    return not there, fault


def lies_there(aws: Aws, bucket: str, key: str, said: dict[str, Any]) -> bool:
    try:
        found = read(aws, bucket, key)
    except (Missing, Refusal):
        return False
    return all(found[name] == value for name, value in said.items() if name != "schema")


def look(config: Config) -> tuple[dict[str, Any], str]:
    """The report without its time, and the fault that makes it faulty."""
    gpus = machine.gpus()
    fault = fault_of(config, gpus)
    said = {
        "schema": records.SCHEMA,
        "instance_id": machine.instance_id(),
        "host_keys": machine.host_keys(),
        "gpus": gpus,
        "state": FAULTY if fault else READY,
        "os": machine.system(),
    }
    return said, fault


def fault_of(config: Config, gpus: int) -> str:
    if config.gpus is not None and gpus != config.gpus:
        return f"this machine has {gpus} GPUs and its type has {config.gpus}: look at `nvidia-smi` and `dmesg`"
    if not machine.is_mounted(config.efs_mount):
        return f"nothing is mounted at {config.efs_mount}: look at `systemctl status '*.mount'`"
    return ""


def read(aws: Aws, bucket: str, key: str) -> dict[str, Any]:
    """A report, checked: the machine that it speaks of is the one whose place it lies in."""
    body = aws.beginning(bucket, key, LONGEST + 1)
    what = f"s3://{bucket}/{key}"
    try:
        record = json.loads(body if len(body) <= LONGEST else b"")
    except (ValueError, RecursionError):
        raise Refusal(f"{what} is no JSON of up to {LONGEST} bytes.") from None
    found = records.checked(record, FIELDS, what)
    if found["instance_id"] != instance_of(key):
        raise Refusal(f"{what} speaks of {found['instance_id']}, whose place that is not.")
    return found


def instance_of(key: str) -> str:
    return key.split("/")[1].rpartition(":")[2]


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
