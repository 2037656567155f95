"""logs.yml on an account, with a stand-in for ssh: what is in the archive, and what if nodes or AWS are missing."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from pathlib import Path

import pytest

from tests.account.fleet import Fleet, fleet, wait_until, with_file_system
from tests.account.kit import Account, Ran

pytestmark = pytest.mark.gate

MASTER, WORKER = "deeplearning-master", "deeplearning-worker2"
ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRETS = {
    "key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "session": "IQoJb3JpZ2luX2VjEDsaCXVzLWVhc3QtMSJHMEUCIQD" * 6,
    "password": "correct-horse",
    "token": "hf_abcdefghijklmnopqrstuvwx",
    "private": "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ",
}
JOURNAL = f"""\
Nov 23 sudo: AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRETS["key"]} train.py
Nov 23 train: session token: {SECRETS["session"]}
Nov 23 train: -----BEGIN OPENSSH PRIVATE KEY-----
Nov 23 train: {SECRETS["private"]}
Nov 23 train: -----END OPENSSH PRIVATE KEY-----
Nov 23 kernel: Out of memory \x1b]0;owned\x07
"""
RUN = json.dumps({"script_args": ["--db-password", SECRETS["password"], "--epochs", "2"], "HF_TOKEN": SECRETS["token"]})
ANSWER = {
    "journal.log": JOURNAL,
    "runs/lenet-1/run.json": RUN,
    "../evil": "x",
    "boot.log": "mount.nfs4: No route to host\n",
}


class Nodes:
    """The nodes of a cluster, as a program in the place of ssh answers for them."""

    def __init__(self, account: Account, red: Fleet) -> None:
        self.account, self.red = account, red
        self.folder = account.folder / "answers"
        self.folder.mkdir()
        ssh = account.folder / "bin/ssh"
        ssh.parent.mkdir()
        ssh.write_text(
            "#!/bin/sh\nfor word; do host=$before before=$word; done\n"
            f"echo $host >> {account.folder}/asked\n"
            f"cat {self.folder}/$host 2>/dev/null || {{ echo Connection timed out >&2; exit 255; }}\n"
        )
        ssh.chmod(0o755)
        account.environment["PATH"] = f"{ssh.parent}:{account.environment['PATH']}"
        for number, role in ((1, "master"), (2, "worker"), (3, "worker")):
            red.report(red.id(number), role)
        red.rank()
        tag = {"ResourceType": "auto-scaling-group", "Key": "deeplearning:cluster", "PropagateAtLaunch": False}
        account.client("autoscaling").create_or_update_tags(
            Tags=[{**tag, "ResourceId": f"red-{group}", "Value": "red"} for group in ("master", "workers")]
        )

    def answer(self, host: str, **files: str) -> None:
        lines = [f"{name} {base64.b64encode(gzip.compress(text.encode())).decode()}\n" for name, text in files.items()]
        (self.folder / host).write_text("".join(lines))

    def asked(self) -> list[str]:
        file = self.account.folder / "asked"
        hosts = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return hosts

    def play(self, **options: str) -> Ran:
        return self.account.play("playbooks/logs.yml", cluster_name="red", **options)

    def archive(self) -> dict[str, str]:
        """What is in the newest archive, which is removed."""
        (file,) = (self.account.folder / ".deeplearning/logs").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        with tarfile.open(file) as archive:
            members = archive.getmembers()
            contents = {member.name: archive.extractfile(member) for member in members if member.isfile()}
            texts = {name: content.read().decode() for name, content in contents.items() if content}
        assert len(texts) == len(members)
        stem = file.name.removesuffix(".tar.gz")
        file.unlink()
        assert all(name.startswith(f"{stem}/") for name in texts)
        return {name.removeprefix(f"{stem}/"): text for name, text in texts.items()}


@pytest.fixture
def nodes(account: Account) -> Nodes:
    red = fleet(account, "red", 2)
    with_file_system(red)
    return Nodes(account, red)


def test_the_archive_has_what_nodes_and_aws_say_without_secrets(nodes: Nodes) -> None:
    for host in (MASTER, WORKER, "deeplearning-worker3"):
        nodes.answer(host, **ANSWER)
    ran = nodes.play()
    assert ran.code == 0, ran.output
    assert sorted(nodes.asked()) == [MASTER, WORKER, "deeplearning-worker3"]
    files = nodes.archive()
    for host in (MASTER, WORKER):
        assert {f"nodes/{host}/{name}" for name in ANSWER if "evil" not in name} <= set(files)
    assert not [name for name in files if "evil" in name or ".." in name]
    assert {"README.txt", "operator.json", "aws/cluster.json", "aws/master-activities.txt"} <= set(files)
    assert nodes.red.id(1) in files["aws/master-activities.txt"]
    assert f"aws/consoles/{nodes.red.id(2)}.txt" in files
    everything = "".join(files.values())
    for name, secret in {**SECRETS, "id": ACCESS_KEY}.items():
        assert secret not in everything, name
    # What is around the secrets stays, and nothing controls a terminal.
    assert "Out of memory" in everything and "No route to host" in everything and "--epochs" in everything
    assert not set("\x1b\x07") & set(everything)
    assert f"Answered: {MASTER}, {WORKER}, deeplearning-worker3." in files["README.txt"]

    assert nodes.play(node=WORKER, run_id="lenet-1").code == 0
    assert nodes.asked() == [WORKER]
    assert {name.split("/")[1] for name in nodes.archive() if name.startswith("nodes/")} == {WORKER}


def test_without_the_master_there_is_what_aws_knows_and_who_did_not_answer(nodes: Nodes) -> None:
    nodes.answer(WORKER, **ANSWER)
    ran = nodes.play()
    assert ran.code == 0, ran.output
    assert nodes.asked() == [MASTER]
    assert "The connection to deeplearning-master was lost: Connection timed out" in ran.output
    assert f"{WORKER} was not asked: the master, which leads to it, does not answer." in ran.output
    files = nodes.archive()
    assert "Answered: no node." in files["README.txt"] and "was not asked" in files["README.txt"]
    assert f"aws/consoles/{nodes.red.id(1)}.txt" in files and "aws/workers-activities.txt" in files
    refused = nodes.play(node="deeplearning-worker9")
    assert refused.code == 2 and f"the cluster red has {MASTER}, {WORKER}, deeplearning-worker3." in refused.output
    assert "give a member as the inventory names it" in nodes.play(node="a b").output


def test_what_may_not_be_read_is_named_and_the_rest_is_there(nodes: Nodes) -> None:
    """Of a group that is short of machines, the activities are read for its description as well."""
    account, iam = nodes.account, nodes.account.client("iam")
    account.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="red-workers", MaxSize=9)
    iam.create_user(UserName="reader")
    deny = {"Effect": "Deny", "Action": "autoscaling:DescribeScalingActivities", "Resource": "*"}
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow, deny]})
    iam.put_user_policy(UserName="reader", PolicyName="most", PolicyDocument=document)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    reader = account.as_user(key["AccessKeyId"], key["SecretAccessKey"])
    nodes.answer(MASTER, **ANSWER)
    ran = reader.play("playbooks/logs.yml", cluster_name="red", node=MASTER)
    assert ran.code == 0, ran.output
    assert "The cluster cannot be described: " in ran.output
    assert "The activities of red-workers cannot be read: " in ran.output
    files = nodes.archive()
    assert f"nodes/{MASTER}/journal.log" in files and "aws/workers-activities.txt" not in files


def test_of_a_cluster_without_machines_there_is_what_aws_knows_and_of_none_a_sentence(nodes: Nodes) -> None:
    scaling, machines = nodes.account.client("autoscaling"), [nodes.red.id(number) for number in (1, 2, 3)]
    for group in ("red-master", "red-workers"):
        scaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    wait_until(lambda: not nodes.red.machines("master") + nodes.red.machines("workers"))
    ran = nodes.play()
    assert ran.code == 0, ran.output
    assert nodes.asked() == []
    files = nodes.archive()
    assert json.loads(files["aws/cluster.json"])["cluster"] == "red"
    consoles = [Path(name).stem for name in files if name.startswith("aws/consoles/")]
    assert sorted(consoles) == sorted(machines), files["README.txt"]

    absent = nodes.account.play("playbooks/logs.yml", cluster_name="blue")
    assert absent.code == 2
    sentence = "There is no cluster blue in us-east-1 (account 123456789012), so there are no logs of it."
    assert sentence in " ".join(absent.output.split())
