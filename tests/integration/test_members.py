"""What members share: the list, names, variables and logins. The first tests of the cluster that all share."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing.booted import command, wait_for
from tests.integration.machines import Cluster, Done, localcloud

MASTER, WORKERS = "deeplearning-master", ["deeplearning-worker2", "deeplearning-worker3"]
NODES = [MASTER, *WORKERS]
ALIASES = ["deeplearning-worker1", *WORKERS]
VARIABLES = {
    "DEEPLEARNING_WORKERS_PATH": "/opt/deeplearning/workers",
    "DEEPLEARNING_WORKERS_COUNT": "3",
    "DEEPLEARNING_WORKER_GPU_COUNT": "0",
    "EFS_MOUNT": "/efs",
}
APPLIED_SECONDS = 120
OPERATOR = "198.51.100.1"
"""The operator's address, as machines see it."""


@pytest.fixture(scope="module")
def cluster(training_cluster: Cluster) -> Cluster:
    return training_cluster


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), id="again"), pytest.param(("--check", "--diff"), id="check mode", marks=pytest.mark.long)],
)
def test_a_second_run_changes_nothing(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    again = cluster.play("playbooks/configure.yml", *arguments)
    assert (again.code, again.changed) == (0, 0), again.output


@pytest.mark.gate
def test_all_go_by_the_same_list(cluster: Cluster) -> None:
    lists = [cluster.members(node) for node in NODES]
    assert lists[0] == lists[1] == lists[2]
    assert [member["rank"] for member in lists[0]["members"]] == [1, 2, 3]
    tags = {
        instance: {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        for instance, machine in cluster.machines().items()
    }
    assert {member["instance_id"]: str(member["rank"]) for member in lists[0]["members"]} == {
        instance: tag["deeplearning:rank"] for instance, tag in tags.items()
    }


def test_the_environment_is_the_same_however_one_comes(cluster: Cluster) -> None:
    ways = (
        "bash -lc env",
        "env",
        "sudo systemd-run --quiet --pipe --wait env",
        "ssh deeplearning-worker1 env",
        "sudo -i env",
    )
    for node in NODES:
        for way in ways:
            seen = dict(line.split("=", 1) for line in cluster.says(node, way).splitlines() if "=" in line)
            assert {name: seen.get(name) for name in VARIABLES} == VARIABLES, (node, way)
        assert cluster.says(node, "cat $DEEPLEARNING_WORKERS_PATH").split() == ALIASES
        hostfile = cluster.says(node, "cat /opt/deeplearning/hostfile").splitlines()
        assert [line.split()[0] for line in hostfile] == ALIASES


def test_old_loops_reach_everybody_and_ask_nothing(cluster: Cluster) -> None:
    loop = 'while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host hostname; done 10<{}'
    for node in (MASTER, WORKERS[0]):
        addresses = cluster.says(node, "getent ahostsv4 " + " ".join(ALIASES) + " | awk '/STREAM/ {print $1}'")
        cluster.says(node, f"echo {shlex.quote(addresses)} > /tmp/addresses")
        outputs = [
            cluster.says(node, loop.format(file)).split() for file in ("$DEEPLEARNING_WORKERS_PATH", "/tmp/addresses")
        ]
        assert outputs[0] == outputs[1] and len(set(outputs[0])) == 3
        # Also for addresses without a machine, and without any key.
        refused = cluster.ssh(node, loop.format("$DEEPLEARNING_WORKERS_PATH") + " 2>&1 | grep -c Permission", "-n")
        assert refused.stdout.strip() == "0"


@contextmanager
def agent_of(key: Path) -> Iterator[dict[str, str]]:
    output = command("ssh-agent", "-s").stdout
    agent = dict(part.split("=", 1) for part in output.replace("\n", ";").split(";") if "=" in part)
    try:
        assert command("ssh-add", "-q", key, env=os.environ | agent).returncode == 0
        yield os.environ | agent
    finally:
        os.kill(int(agent["SSH_AGENT_PID"]), 15)


@pytest.mark.gate
def test_the_operators_agent_comes_along_and_no_key_is_anywhere(cluster: Cluster) -> None:
    key = cluster.cloud.folder / "key"
    with agent_of(key) as environment:
        seen = cluster.ssh(
            MASTER, "ssh deeplearning-worker2 ssh deeplearning-worker3 ssh-add -l", "-A", env=environment
        )
        assert "operator" in seen.stdout, seen
        # To members only, as root on another machine could use it.
        assert "forwardagent no" in cluster.says(MASTER, "ssh -G example.com")
    # Frameworks come from the package index and are large.
    files = "find /etc /home /root /opt /var/lib /efs -path /opt/deeplearning/env -prune -o -type f"
    keys = f"{files} -exec grep -lIsE '^-----BEGIN ([A-Z]+ )*PRIVATE KEY-----' {{}} +"
    for node in NODES:
        listing = cluster.says(node, f"sudo {keys} || true")
        names = {Path(path).name for path in listing.splitlines()}
        assert "ssh_host_ed25519_key" in names <= {"ssh_host_ed25519_key", "ssh_host_ecdsa_key"}, node


def test_files_are_copied_by_the_written_configuration(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "data.tar").write_bytes(bytes(1000))
    options = cluster.ssh_words(MASTER)[1:-1]
    copied = command("scp", *options, tmp_path / "data.tar", f"{MASTER}:/efs/data.tar")
    assert copied.returncode == 0, copied.stderr
    assert cluster.says(MASTER, "stat --format %s /efs/data.tar") == "1000"


@pytest.mark.long
def test_after_a_reboot_all_is_back(cluster: Cluster) -> None:
    node = WORKERS[0]
    before = cluster.says(node, "systemctl show -P UserspaceTimestamp")
    cluster.ssh(node, "sudo systemctl reboot")

    def back() -> bool:
        seen = cluster.ssh(node, "systemctl show -P UserspaceTimestamp")
        return seen.returncode == 0 and seen.stdout.strip() != before

    wait_for(back, 120, "it comes back")
    assert cluster.says(node, "findmnt -n -o TARGET /efs") == "/efs"
    seen = dict(line.split("=", 1) for line in cluster.says(node, "env").splitlines() if "=" in line)
    assert seen.items() >= VARIABLES.items()
    assert (
        cluster.says(node, "for node in $(cat /opt/deeplearning/workers); do ssh $node id -un; done").split()
        == ["ubuntu"] * 3
    )


def test_the_old_habit_of_ending_all_of_python_breaks_nothing(cluster: Cluster) -> None:
    node = WORKERS[0]
    # As it was typed on nodes. A machine sees its own processes alone.
    cluster.ssh(node, "sudo rm /opt/deeplearning/workers; sudo pkill -f '[p]ython'")
    workers = "cat /opt/deeplearning/workers"
    wait_for(lambda: cluster.ssh(node, workers).stdout.split() == ALIASES, APPLIED_SECONDS, "the next tick repairs it")
    timers = cluster.says(node, "systemctl is-active deeplearning-apply.timer deeplearning-report.timer")
    assert timers.split() == ["active", "active"]


def publish(cluster: Cluster) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(cluster.says(MASTER, "sudo deeplearning members publish --json"))
    return answer


@pytest.mark.gate
def test_what_root_on_a_worker_forges_is_refused(cluster: Cluster) -> None:
    folder, node = f"/efs/.deeplearning/{cluster.name}", WORKERS[0]
    true = cluster.members()

    # A list: with another address, and not signed by the master's key.
    forge = (
        f"import json; file = '{folder}/members.json'; content = json.load(open(file)); content['generation'] += 1; "
        "content['members'][0]['private_ip'] = '10.0.128.250'; json.dump(content, open(file, 'w'))"
    )
    cluster.says(node, f"sudo python3 -c {shlex.quote(forge)}")
    refused = cluster.ssh(WORKERS[1], "sudo deeplearning members apply")
    assert refused.returncode == 2 and "sign" in refused.stderr, refused
    assert cluster.members(WORKERS[1])["members"] == true["members"]
    publish(cluster)
    assert cluster.members()["members"] == true["members"]

    # A report of another machine's: the policy of its role knows who it is.
    other = true["members"][2]["instance_id"]
    mine = json.loads(cluster.says(node, "curl -s -H \"X-aws-ec2-metadata-token: $(curl -s -X PUT -H "
        "'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)\" "
        "http://169.254.169.254/latest/dynamic/instance-identity/document"))  # fmt: skip
    assert mine["instanceId"] == true["members"][1]["instance_id"]
    bucket = json.loads(cluster.says(node, "cat /etc/deeplearning/cluster.json"))["bucket"]
    put = (
        "import boto3; "
        "own = boto3.client('sts', 'us-east-1').get_caller_identity()['UserId']; "
        f"boto3.client('s3', 'us-east-1').put_object(Bucket='{bucket}', Body=b'{{}}', "
        f"Key='members/' + own.split(':')[0] + ':{other}/report.json')"
    )
    denied = cluster.ssh(node, f"sudo python3 -c {shlex.quote(put)}")
    assert denied.returncode != 0 and "AccessDenied" in denied.stderr, denied

    # A tag: a worker's role may give none.
    tag = (
        "import boto3; boto3.client('ec2', 'us-east-1').create_tags("
        f"Resources=['{other}'], Tags=[{{'Key': 'deeplearning:rank', 'Value': '1'}}])"
    )
    denied = cluster.ssh(node, f"sudo python3 -c {shlex.quote(tag)}")
    assert denied.returncode != 0 and "UnauthorizedOperation" in denied.stderr, denied


@pytest.mark.long
def test_a_host_key_that_has_changed_is_refused_until_the_machine_reports_it(cluster: Cluster) -> None:
    node = WORKERS[1]
    changed = cluster.members()["members"][2]["instance_id"]
    other = "-f /etc/ssh/ssh_host_ed25519_key -t ed25519 -N ''"
    cluster.says(node, f'sudo sh -c "systemctl stop deeplearning-report.timer; echo y | ssh-keygen -q {other}"')
    algorithm = ("-o", "HostKeyAlgorithms=ssh-ed25519")
    refused = cluster.ssh(node, "true", *algorithm)
    assert refused.returncode == 255 and "HOST IDENTIFICATION HAS CHANGED" in refused.stderr, refused
    fellow = cluster.ssh(MASTER, f"ssh -o HostKeyAlgorithms=ssh-ed25519 {node} true")
    assert fellow.returncode == 255 and "HOST IDENTIFICATION HAS CHANGED" in fellow.stderr, fellow

    # It is not let in either, although it has a member's address.
    own = ("-o", "HostbasedAcceptedAlgorithms=ssh-ed25519", "-o", "PreferredAuthentications=hostbased")
    log_in = ("runuser", "-u", "ubuntu", "--", "ssh", "-o", "BatchMode=yes", *own, MASTER, "true")
    turned_away = localcloud("exec", changed, "--", *log_in)
    assert turned_away.returncode == 255 and "Permission denied" in turned_away.stderr, turned_away

    # It does not answer ssh now: the machine itself reports, by its timer.
    start = localcloud("exec", changed, "--", "systemctl", "start", "deeplearning-report.timer")
    assert start.returncode == 0, start.stderr
    wait_for(lambda: cluster.ssh(MASTER, f"ssh {node} true").returncode == 0, APPLIED_SECONDS, "its fellows know it")
    assert localcloud("exec", changed, "--", *log_in).returncode == 0
    configured = cluster.play("playbooks/configure.yml")
    assert configured.code == 0, configured.output[-6000:]
    cluster.says(node, "true", *algorithm)
    cluster.says(MASTER, f"ssh -o HostKeyAlgorithms=ssh-ed25519 {node} true")


def log_in_with_the_host_key_of(cluster: Cluster, member: str, folder: Path) -> Done:
    """Log in to the master from the operator's machine, with a member's name, user and host key.

    ssh-keysign reads fixed paths: they are replaced in a mount namespace.
    """
    (folder / "ssh").mkdir()
    for name in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
        file = folder / "ssh" / name
        file.write_text(cluster.says(member, f"sudo cat /etc/ssh/{name}") + "\n")
        file.chmod(0o600)
    (folder / "ssh/ssh_config").write_text("EnableSSHKeysign yes\n")
    (folder / "hosts").write_text(f"{OPERATOR} {member}\n")
    (folder / "passwd").write_text("ubuntu:x:0:0::/root:/bin/sh\n")
    replace = "".join(f"mount --bind {folder / name} /etc/{name} && " for name in ("ssh", "hosts", "passwd"))
    master = cluster.members()["members"][0]["instance_id"]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": "5",
        "GlobalKnownHostsFile": "none",
        "HostbasedAuthentication": "yes",
        "PreferredAuthentications": "hostbased",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": os.devnull,
    }
    words = ["ssh", "-v", "-F", os.devnull, *(f"-o{name}={value}" for name, value in options.items())]
    words += [f"ubuntu@{cluster.machines()[master]['PublicIpAddress']}", "id -un"]
    return command("unshare", "--mount", "sh", "-c", f"{replace}exec {shlex.join(words)}")


@pytest.mark.gate
def test_host_keys_let_members_in_and_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    names = [
        name
        for member in cluster.members()["members"]
        for name in (*member["aliases"], member["private_ip"], member["private_dns"])
    ]
    log_in = "ssh -o PreferredAuthentications=hostbased"
    for node in NODES:
        users = cluster.says(node, f"for name in {' '.join(names)}; do {log_in} $name id -un; done").split()
        assert users == ["ubuntu"] * len(names), node

    refused = log_in_with_the_host_key_of(cluster, WORKERS[0], tmp_path)
    assert "userauth_hostbased: trying hostkey" in refused.stderr, refused.stderr
    assert refused.returncode == 255 and "Permission denied" in refused.stderr, refused
