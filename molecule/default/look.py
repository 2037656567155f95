"""What somebody sees of a cluster who has the account, the key, boto3 and ssh: look.py CLUSTER REGION KEY-FILE"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3

CLUSTER, REGION, KEY = sys.argv[1:]
USER = "ubuntu"
ec2 = boto3.client("ec2", REGION)


def machines(role: str) -> list[dict]:
    wanted = {"tag:deeplearning:cluster": CLUSTER, "tag:deeplearning:role": role, "instance-state-name": "running"}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    found = ec2.describe_instances(Filters=filters)["Reservations"]
    return [instance for reservation in found for instance in reservation["Instances"]]


def host_key(machine: dict) -> str:
    """From the machine's console, which only whoever has the account can read: never from the network."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        console = ec2.get_console_output(InstanceId=machine["InstanceId"], Latest=True).get("Output", "")
        if match := re.search(r"-----BEGIN SSH HOST KEY KEYS-----.*?(ssh-ed25519 \S+)", console, re.S):
            return match[1]
        time.sleep(0.5)  # the console grows while the machine boots
    raise AssertionError(f"no host key on the console of {machine['InstanceId']}")


def ssh(known_hosts: Path, address: str, command: str, jump: str | None = None) -> subprocess.CompletedProcess:
    options = [
        "-i", KEY, "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={known_hosts}",
    ]  # fmt: skip
    if jump:
        options += ["-o", f"ProxyCommand={' '.join(['ssh', *options, '-W', '%h:%p', f'{USER}@{jump}'])}"]
    return subprocess.run(["ssh", *options, f"{USER}@{address}", command], capture_output=True, text=True, timeout=60)


def said(known_hosts: Path, address: str, command: str, jump: str | None = None) -> str:
    deadline = time.monotonic() + 60
    while (done := ssh(known_hosts, address, command, jump)).returncode == 255 and time.monotonic() < deadline:
        time.sleep(0.5)  # sshd comes up some time after the instance is "running"
    assert done.returncode == 0, f"{command} at {address}: {done}"
    return done.stdout.strip()


def main() -> None:
    (master,), workers = machines("master"), machines("worker")
    assert len(workers) == 2, workers
    public = master["PublicIpAddress"]
    assert not any("PublicIpAddress" in worker for worker in workers)
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known_hosts"
        lines = [f"{public} {host_key(master)}"]
        lines += [f"{worker['PrivateIpAddress']} {host_key(worker)}" for worker in workers]
        known.write_text("\n".join(lines) + "\n")
        assert said(known, public, "hostname -I") == master["PrivateIpAddress"]
        for worker in workers:
            address = worker["PrivateIpAddress"]
            assert said(known, address, "hostname -I", jump=public) == address
            assert ssh(known, address, "true").returncode != 0, "a worker was reached without the master"
        efs = boto3.client("efs", REGION)
        (shared,) = [fs for fs in efs.describe_file_systems()["FileSystems"] if fs["Name"] == f"{CLUSTER}-efs"]
        source = f"{shared['FileSystemId']}.efs.{REGION}.amazonaws.com:/"
        mount = f"sudo mkdir -p /try && sudo mount -t nfs4 -o nfsvers=4.1,hard,noresvport {source} /try"
        said(known, public, f"{mount} && sudo sh -c 'echo shared > /try/word' && sudo umount /try")
        read = f"{mount} && cat /try/word && sudo rm /try/word && sudo umount /try"
        assert said(known, workers[0]["PrivateIpAddress"], read, jump=public) == "shared"


main()
