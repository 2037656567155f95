"""Write this machine's report to the cluster's bucket, and read those of others."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from deeplearning import machine
from deeplearning.aws import AwsClient
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import FAULTY, HELD, MAX_BYTES, MAX_LINE, READY, key_of, parse
from deeplearning.gpus import held
from deeplearning.members.check_times import request_check


def report(config: Config, trust_cache: bool = False) -> tuple[bool, str]:
    """Return whether the report has changed, and what is wrong with this machine. Mount the file system if needed.

    `trust_cache`: assume that a report that was written once is still in the bucket. A timer would otherwise call AWS
    every minute.
    """
    if not machine.is_mounted(config.efs_mount):
        machine.mount(config.efs_mount)
    record, fault = inspect_machine(config)
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    cache = f"{paths.RUNTIME}/reported"
    if trust_cache and atomic_file.read_or_none(cache) == digest:
        return False, fault
    aws = AwsClient(config.region)
    key = key_of(aws.call("sts", "get_caller_identity")["UserId"])
    is_current = not trust_cache and is_reported(aws, config.bucket, key, record)
    if not is_current:
        body = json.dumps({**record, "reported_at": schema.format_time()}, sort_keys=True).encode()
        aws.call("s3", "put_object", Bucket=config.bucket, Key=key, Body=body, ContentType="application/json")
        request_check(config.efs_mount, config.cluster, machine.instance_id())
    atomic_file.write_if_changed(cache, digest)
    return not is_current, fault


def is_reported(aws: AwsClient, bucket: str, key: str, record: dict[str, Any]) -> bool:
    try:
        current = read(aws, bucket, key)
    except UserError:
        return False
    return all(current[name] == value for name, value in record.items() if name != "schema")


def inspect_machine(config: Config) -> tuple[dict[str, Any], str]:
    """Return the report without its time, and why no run may use the machine."""
    gpus, reason = machine.gpus(), held.reason()
    fault = f"this machine is held: {reason}" if reason else fault_of(config, gpus)
    record = {
        "schema": schema.VERSION,
        "instance_id": machine.instance_id(),
        "host_keys": machine.host_keys(),
        "gpus": gpus,
        "state": HELD if reason else FAULTY if fault else READY,
        "bundle": config.bundle,
        "step": "",
        "log": [reason[:MAX_LINE]] if reason else [],
    }
    return record, fault


def fault_of(config: Config, gpus: int) -> str:
    if config.gpus is not None and gpus != config.gpus:
        return (
            f"this machine has {gpus} GPUs and its type has {config.gpus}: run `nvidia-smi -L`, check `dmesg` for "
            "errors (Xid), and terminate the machine if it has any, so that another one replaces it. If all machines "
            "are like this, the image has no driver for the type"
        )
    if not machine.is_mounted(config.efs_mount):
        return f"nothing is mounted at {config.efs_mount}: look at `systemctl status '*.mount'`"
    return ""


def read(aws: AwsClient, bucket: str, key: str) -> dict[str, Any]:
    """Return a validated report."""
    return parse(next(aws.stream_object(bucket, key, MAX_BYTES + 1), b""), key, bucket)
