"""The cluster as its owner sees it with the account, the key, boto3 and ssh, and what its training has left:
present.py CLUSTER REGION KEY-FILE
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
from census import census

CLUSTER, REGION, KEY = sys.argv[1:]
USER = "ubuntu"
# t3.medium takes no placement group.
COUNTS = {
    "VPC": 1,
    "subnet": 2,
    "internet gateway": 1,
    "NAT gateway": 1,
    "address": 2,
    "route table": 2,
    "endpoint": 1,
    "security group": 3,
    "key pair": 1,
    "launch template": 2,
    "Auto Scaling group": 2,
    "instance": 2,
    "volume": 2,
    "file system": 1,
    "role": 2,
    "instance profile": 2,
    "bucket": 1,
}
ec2 = boto3.client("ec2", REGION)


def main() -> None:
    existing = census(CLUSTER, REGION)
    counts = {kind: len(resources) for kind, resources in existing.items()}
    assert counts == COUNTS, counts
    (master,), (worker,) = instances("master"), instances("worker")
    public, private = master["PublicIpAddress"], worker["PrivateIpAddress"]
    assert "PublicIpAddress" not in worker
    with tempfile.TemporaryDirectory() as folder:
        known_hosts = Path(folder) / "known_hosts"
        known_hosts.write_text(f"{public} {host_key(master)}\n{private} {host_key(worker)}\n")
        assert output(known_hosts, public, "hostname -I") == master["PrivateIpAddress"]
        assert output(known_hosts, private, "hostname -I", jump=public) == private
        assert ssh(known_hosts, private, "true").returncode != 0, "a worker is reached without the master"
        check_file_system(known_hosts, public, private, existing["file system"][0]["FileSystemId"])
        check_training(known_hosts, public)


def instances(role: str) -> list[dict[str, Any]]:
    tags = {"tag:deeplearning:cluster": CLUSTER, "tag:deeplearning:role": role, "instance-state-name": "running"}
    filters = [{"Name": name, "Values": [value]} for name, value in tags.items()]
    reservations = ec2.describe_instances(Filters=filters)["Reservations"]
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def host_key(instance: dict[str, Any]) -> str:
    """Return the key on the instance's console, which only the account can read."""
    console = ec2.get_console_output(InstanceId=instance["InstanceId"], Latest=True)["Output"]
    match = re.search(r"-----BEGIN SSH HOST KEY KEYS-----.*?(ssh-ed25519 \S+)", console, re.S)
    assert match, f"no host key on the console of {instance['InstanceId']}"
    return match[1]


def ssh(known_hosts: Path, address: str, command: str, jump: str | None = None) -> subprocess.CompletedProcess[str]:
    options = [
        "-i", KEY, "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={known_hosts}",
    ]  # fmt: skip
    if jump:
        options += ["-o", f"ProxyCommand={' '.join(['ssh', *options, '-W', '%h:%p', f'{USER}@{jump}'])}"]
    words = ["ssh", *options, f"{USER}@{address}", command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def output(known_hosts: Path, address: str, command: str, jump: str | None = None) -> str:
    done = ssh(known_hosts, address, command, jump)
    assert done.returncode == 0, f"{command} at {address}: {done}"
    return done.stdout.strip()


def check_file_system(known_hosts: Path, public: str, private: str, file_system: str) -> None:
    """What the master writes, the worker reads."""
    source = f"{file_system}.efs.{REGION}.amazonaws.com:/"
    mount = f"sudo mkdir -p /try && sudo mount -t nfs4 -o nfsvers=4.1,hard,noresvport {source} /try"
    output(known_hosts, public, f"{mount} && sudo sh -c 'echo shared > /try/word' && sudo umount /try")
    read = f"{mount} && cat /try/word && sudo rm /try/word && sudo umount /try"
    assert output(known_hosts, private, read, jump=public) == "shared"


def check_training(known_hosts: Path, public: str) -> None:
    """The run has finished at the first attempt, on both machines, and has learned something."""
    root = f"/efs/runs/{CLUSTER}"
    (run,) = output(known_hosts, public, f"ls {root}").split()
    result = json.loads(output(known_hosts, public, f"cat {root}/{run}/result.json"))
    assert (result["state"], result["exit_code"], result["first_failure"]) == ("finished", 0, None), result
    assert [attempt["cause"] for attempt in result["attempts"]] == ["finished"], result
    # One class of ten is right by chance.
    assert result["final"]["epoch"] == 1 and result["final"]["val_accuracy"] > 0.3, result
    files = output(known_hosts, public, f"cd {root}/{run} && ls logs metrics checkpoints tensorboard").split()
    for rank in (0, 1):
        assert {f"deeplearning-worker{rank + 1}.worker{rank}.log", f"rank{rank}.jsonl"} <= set(files), files
    for part in ("epoch-0001", "events.out"):
        assert any(part in file for file in files), files


main()
