"""The action `cluster_info`: what it prints, saves and collects."""

from __future__ import annotations

import base64
import gzip
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action import cluster_info
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import ResourceReader

from tests.unit.actions import run_action
from tests.unit.cluster_kit import REGION, MadeCluster
from tests.unit.conftest import Account

Info = Callable[..., dict[str, Any]]
PLACE = "us-east-1 (account 123456789012)"


@pytest.fixture
def red(aws: Account) -> MadeCluster:
    return MadeCluster(aws)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def info(folder: Path, capsys: pytest.CaptureFixture[str]) -> Info:
    """Run the action. What it prints is returned as `printed`, and its warnings as `warned`."""

    def call(check: bool = False, cluster: str = "red", **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        task_vars = {"deeplearning_folder": str(folder)}
        arguments = {"region": REGION, "cluster": cluster, **options}
        result = run_action("cluster_info", check, task_vars, **arguments)
        out, err = capsys.readouterr()
        return {**result, "printed": out, "warned": " ".join(err.split())}

    return call


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a program in the place of ssh. It prints the file `answers/<host>`; without one it fails."""

    def answer(**answers: str) -> Path:
        place = tmp_path / "answers"
        place.mkdir(exist_ok=True)
        program = tmp_path / "bin/ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!/bin/sh\nfor word; do before=$last; last=$word; done\necho $before >> {tmp_path}/asked\n"
            f"cat {place}/$before 2>/dev/null && exit 0\necho 'Connection timed out' >&2; exit 255\n"
        )
        program.chmod(0o755)
        for host, text in answers.items():
            (place / f"deeplearning-{host}").write_text(text)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return tmp_path / "asked"

    return answer


def known(folder: Path, *instances: str) -> None:
    """Write a configuration of ssh as discover_members does, as far as it is read here."""
    folder.mkdir(exist_ok=True)
    (folder / "red.ssh_config").write_text("".join(f"Host {name}\n" for name in instances))


def test_a_summary_is_printed_and_saved_as_json(red: MadeCluster, info: Info, folder: Path) -> None:
    red.whole()
    planned = info(check=True)
    assert not planned["changed"] and not folder.exists() and "as JSON" not in planned["printed"]

    done = info(user="ubuntu", next="ansible-playbook deeplearning.aws.train", idle_minutes=30)
    file = folder / "red.json"
    summary = json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert not done["changed"] and json.loads(json.dumps(done["clusters"])) == {"red": summary}
    assert (summary["state"], summary["user"], summary["ends"]["idle_minutes"]) == ("ready", "ubuntu", 30)
    assert summary["master"]["instance_id"] == red.instances("master")[0]
    assert "members" not in summary
    lines = done["printed"].splitlines()
    assert lines[0] == "" and lines[1].startswith("Cluster red (us-east-1, account 123456789012) is ready: 2 of 2")
    assert re.search(r"^  next +ansible-playbook deeplearning.aws.train$", done["printed"], re.MULTILINE)
    assert re.search(rf"^  as JSON +{file}$", info(show="status")["printed"], re.MULTILINE)
    # The machines and what they cost by now are read from the history of their groups.
    assert summary["cost_so_far"]["since"]

    as_json = info(format="json", file=str(folder / "other.json"), user="ubuntu")
    printed = json.loads(as_json["printed"])
    assert printed == json.loads((folder / "other.json").read_text())
    assert as_json["printed"].startswith('\n{\n  "account": "123456789012",\n  "active_runs"')
    failed = info(failure="It broke.")
    assert failed["clusters"]["red"]["state"] == "failed" and "It broke." not in failed["printed"]
    # The task that fails prints the sentence.
    assert json.loads(file.read_text())["reasons"] == ["It broke."]
    assert [line.split("  ")[1] for line in failed["printed"].strip("\n").splitlines()] == [
        "still costs",
        "to continue",
        "to remove it",
    ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("s3:HeadBucket", "bucket: s3:ListBucket failed"),
        ("ec2:DescribeInstances", "instance: ec2:DescribeInstances failed"),
        ("autoscaling:DescribeAutoScalingGroups", "auto scaling group: autoscaling:DescribeAutoScalingGroups failed"),
        ("iam:GetRole", "role: iam:GetRole failed"),
    ],
)
def test_after_a_failure_what_cannot_be_read_is_named_beside_what_can(
    action: str, sentence: str, red: MadeCluster, info: Info, quick: None
) -> None:
    red.whole()
    red.fail(action, "ServiceUnavailable", status=503)
    assert info(show="none")["failed"]
    done = info(failure="It broke.")
    assert "failed" not in done
    rows = {line.split("  ")[1]: line for line in done["printed"].strip("\n").splitlines()}
    assert list(rows) == ["still costs, as far as known", "to continue", "to remove it", "could not be read"]
    assert sentence in rows["could not be read"]
    assert done["clusters"]["red"]["reasons"] == ["It broke."]


@pytest.mark.parametrize("action", ["ec2:DescribeTags", "sts:GetCallerIdentity"])
def test_after_a_failure_of_which_nothing_can_be_read_the_commands_remain(
    action: str, red: MadeCluster, info: Info, quick: None
) -> None:
    red.bucket()
    red.fail(action, "ServiceUnavailable", status=503)
    done = info(failure="It broke.")
    assert "failed" not in done and done["clusters"] == {}
    assert "could not be read: " in done["printed"] and "ServiceUnavailable" in done["printed"]
    assert "ansible-playbook deeplearning.aws.destroy -e destroy=red" in done["printed"]


def test_after_a_failure_no_error_of_the_summary_itself_fails_the_task(
    red: MadeCluster, info: Info, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any) -> None:
        raise KeyError("groups")

    monkeypatch.setattr(cluster_info, "health_of", broken)
    done = info(failure="It broke.")
    assert "failed" not in done and "could not be read: KeyError('groups')" in done["printed"]
    assert "failed" not in run_action("cluster_info", False, {}, region=REGION, cluster="red", failure="It broke.")


def test_nothing_is_printed_or_saved_on_request(red: MadeCluster, info: Info, folder: Path) -> None:
    red.bucket()
    done = info(show="none")
    assert (done["printed"], done["changed"]) == ("", False)
    assert done["clusters"]["red"]["state"] == "creating" and not folder.exists()


def test_resources_are_listed_of_one_cluster_or_of_all(red: MadeCluster, info: Info, folder: Path) -> None:
    assert info(show="resources")["printed"] == f"\nThe cluster red has no resources in {PLACE}.\n"
    assert info(cluster="all")["printed"] == (
        f"\nNo cluster has resources in {PLACE}.\n"
        f"Only {PLACE} was read. Other regions and accounts may have more clusters.\n"
    )
    red.bucket()
    blue = MadeCluster(red.aws, "blue")
    blue.bucket()
    done = info(show="resources")
    assert f"The cluster red (us-east-1, account 123456789012) has:\n  bucket {red.names.bucket}\n" in done["printed"]
    assert list(done["clusters"]) == ["red"] and blue.names.bucket not in done["printed"]
    red.s3.create_bucket(Bucket="123456789012-us-east-1-deeplearning-data")
    both = info(cluster="all")
    assert list(both["clusters"]) == ["blue", "red"] and not folder.exists()
    rows = [line.split()[:3] for line in both["printed"].splitlines()[1:4]]
    assert rows == [["cluster", "region", "state"], *([name, "us-east-1", "creating"] for name in ("blue", "red"))]
    assert "The bucket 123456789012-us-east-1-deeplearning-data has 0 data sets, " in both["printed"]


def test_a_cluster_that_the_files_record_elsewhere_is_not_called_absent(
    red: MadeCluster, info: Info, folder: Path
) -> None:
    red.bucket()
    folder.mkdir()
    record = {"cluster": "red", "region": REGION, "account": "123456789012"}
    (folder / "red.json").write_text(json.dumps(record))
    abroad = {"show": "resources", "region": "eu-west-1"}
    refused = info(**abroad)
    assert refused["failed"] and "no resources" not in refused["printed"]
    assert refused["msg"].splitlines() == [
        "The cluster red has no resources in eu-west-1 (account 123456789012), but "
        f"{folder}/red.json records it in {PLACE}.",
        f"To list it: ansible-playbook deeplearning.aws.audit -e audit=red -e cluster_region={REGION}",
    ]
    (folder / "red.json").write_text(json.dumps({**record, "account": "210987654321"}))
    refused = info(**abroad)
    assert refused["msg"].splitlines()[1] == (
        "With credentials of the account 210987654321 (AWS_PROFILE, or -e cluster_profile=NAME), type: "
        f"ansible-playbook deeplearning.aws.audit -e audit=red -e cluster_region={REGION}"
    )
    # It is gone in the place of record too.
    (folder / "red.json").write_text(json.dumps({**record, "region": "eu-west-3"}))
    assert "The cluster red has no resources in eu-west-1" in info(**abroad)["printed"]


def test_tags_that_name_no_cluster_have_lines_of_their_own(red: MadeCluster, info: Info) -> None:
    red.bucket()
    values = ["evil red", "{{ lookup('pipe', 'touch /tmp/made') }}"]
    vpcs = [red.ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"] for _value in values]
    for vpc, value in zip(vpcs, values, strict=True):
        red.ec2.create_tags(Resources=[vpc], Tags=[{"Key": "deeplearning:cluster", "Value": value}])
    tags = [{"Key": "deeplearning:cluster", "Value": "\x1b[2J\x7f"}]
    system = red.efs.create_file_system(CreationToken="s", Tags=tags)["FileSystemId"]
    done = info(cluster="all")
    assert "failed" not in done and list(done["clusters"]) == ["red"]
    assert done["printed"].splitlines()[2].split()[:3] == ["red", "us-east-1", "creating"]
    assert f'The tag deeplearning:cluster is "evil red", which is not a cluster name: VPC {vpcs[0]}.' in done["printed"]
    assert "\x1b" not in done["printed"] and "\x7f" not in done["printed"]
    assert f'is "\\u001b[2J\\u007f", which is not a cluster name: file system {system}.' in done["printed"]
    assert f'is "{values[1]}", which is not a cluster name: VPC {vpcs[1]}.' in done["printed"]
    assert "evil" not in json.dumps(done["clusters"])


def test_a_cluster_that_cannot_be_read_does_not_hide_the_others(
    red: MadeCluster, info: Info, monkeypatch: pytest.MonkeyPatch
) -> None:
    red.bucket()
    MadeCluster(red.aws, "blue").bucket()
    read = ResourceReader.read

    def refused(self: ResourceReader) -> Any:
        if self.names.cluster == "blue":
            raise AwsError("AWS does not allow s3:ListBucket to\n\x1b[2Jme.", "AccessDenied")
        return read(self)

    monkeypatch.setattr(ResourceReader, "read", refused)
    done = info(cluster="all")
    assert "failed" not in done and list(done["clusters"]) == ["red"]
    lines = done["printed"].splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [
        ["red", "us-east-1", "creating"],
        ["blue", "us-east-1", "unknown"],
    ]
    assert "The cluster blue cannot be read: AWS does not allow s3:ListBucket to \ufffd[2Jme." in lines


def test_expired_credentials_end_the_list(red: MadeCluster, info: Info, monkeypatch: pytest.MonkeyPatch) -> None:
    red.bucket()

    def expired(_self: ResourceReader) -> Any:
        raise AwsError("The AWS credentials have expired.", "ExpiredToken", is_fatal=True)

    monkeypatch.setattr(ResourceReader, "read", expired)
    assert info(cluster="all")["msg"] == "The AWS credentials have expired."


def test_the_bucket_of_data_sets_that_cannot_be_read_has_a_line(red: MadeCluster, info: Info) -> None:
    red.bucket()
    red.s3.create_bucket(Bucket="123456789012-us-east-1-deeplearning-data")
    denied = {"code": "AccessDenied", "message": "No.", "status": 403}
    red.aws.cloud.faults.add("error", {"action": "s3:ListObjectsV2"}, denied)
    done = info(cluster="all")
    assert list(done["clusters"]) == ["red"]
    assert "The bucket of data sets cannot be read: AWS does not allow s3:ListBucket" in done["printed"]


def test_the_runs_of_a_cluster_are_read_from_the_tags_of_its_machines(red: MadeCluster, info: Info) -> None:
    red.whole()
    for machine, run in zip((*red.instances("master"), *red.instances("workers")), ("", "lenet-1"), strict=True):
        red.ec2.create_tags(Resources=[machine], Tags=[{"Key": "deeplearning:run", "Value": run}])
    assert info(cluster="all")["printed"].splitlines()[2].split()[3:7] == ["2", "of", "2", "1"]


def test_a_summary_that_cannot_be_saved_costs_a_warning(red: MadeCluster, info: Info, folder: Path) -> None:
    folder.write_text("a file")
    done = info()
    assert "failed" not in done and "does not exist" in done["printed"]
    assert f"The summary cannot be written to {folder}/red.json: " in done["warned"]


def test_an_inventory_of_the_collection_is_needed(aws: Account) -> None:
    refused = run_action("cluster_info", region=REGION, cluster="red")
    assert refused["failed"] and refused["msg"].startswith("deeplearning_folder is not set: give an inventory")


def test_it_is_watched_until_ansible_is_interrupted(
    red: MadeCluster, info: Info, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the first five seconds it cannot be described, after the next five it can."""
    seconds: list[float] = []
    faults: list[Any] = []

    def sleep(length: float) -> None:
        seconds.append(length)
        if len(seconds) == 5:
            faults.append(red.fail("ec2:DescribeTags", "UnauthorizedOperation", status=403))
        if len(seconds) == 10:
            red.aws.cloud.faults.remove(faults[0])
        if len(seconds) == 15:
            raise KeyboardInterrupt

    monkeypatch.setattr(cluster_info, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        info(watch=True)
    shown = [line for line in capsys.readouterr().out.splitlines() if line]
    times = [line for line in shown if re.fullmatch(r"\d\d:\d\d:\d\d UTC", line)]
    assert len(times) == 2 and sum("ec2:DescribeTags" in line for line in shown) == 1
    assert shown[0] == times[0] and shown[-1].startswith("  ") and len(seconds) == 15

    assert "failed" not in info(check=True, watch=True)


STATUS: dict[str, Any] = {"schema": 1, "members": [], "loads": [], "runs": [], "problems": []}


def test_the_status_has_what_the_master_answers(
    red: MadeCluster, info: Info, folder: Path, ssh: Callable[..., Path]
) -> None:
    red.network()
    red.identities()
    red.bucket()
    red.file_system()
    red.machines(master=1, workers=1)
    silent = info(show="status")
    described = silent["clusters"]["red"]
    assert len(described["members"]) == 2
    assert described["master_problem"] == f"The host keys of {red.instances('master')[0]} are not known here yet."
    assert described["efs"]["bytes"] > 0
    known(folder, *red.instances("master"))
    ssh()
    lost = info(show="status")
    assert lost["clusters"]["red"]["master_problem"] == "Connection timed out"
    assert "Problem: The master does not answer. Connection timed out." in lost["printed"]
    asked = ssh(master=json.dumps({**STATUS, "problems": ["The disk is full."]}) + "\n")
    answered = info(show="status")
    assert answered["clusters"]["red"]["master_problem"] == "" and asked.exists()
    assert "The disk is full." in answered["printed"]
    assert json.loads((folder / "red.json").read_text())["members"]
    known(folder)
    assert info(show="status")["clusters"]["red"]["master_problem"]
    no_master = MadeCluster(red.aws, "blue")
    no_master.bucket()
    assert info(cluster="blue", show="status")["clusters"]["blue"]["master_problem"] == "There is no master."


def packed(**texts: str) -> str:
    """What a node prints: a line for each file."""
    return "".join(
        f"{name.replace('_', '.')} {base64.b64encode(gzip.compress(text.encode())).decode()}\n"
        for name, text in texts.items()
    )


def archived(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        contents = {member.name: archive.extractfile(member) for member in archive}
        texts = {name: content.read().decode() for name, content in contents.items() if content}
    stem = file.name.removesuffix(".tar.gz")
    return {name.removeprefix(f"{stem}/"): text for name, text in texts.items()}


def test_logs_of_nodes_and_of_aws_are_in_one_archive(
    red: MadeCluster, info: Info, folder: Path, ssh: Callable[..., Path]
) -> None:
    red.network()
    red.machines(master=1, workers=2)
    (master,), (first, second) = red.instances("master"), red.instances("workers")
    red.rank(first, 2)
    red.rank(second, 3)
    known(folder, master, first)
    (folder / "red.health.json").write_text('{"healthy": true}')
    asked = ssh(master=packed(boot_log="started"), worker2=packed(boot_log="no route\x1b[0m", evil="x"))
    assert "archive" not in info(check=True, show="logs") and not (folder / "logs").exists()

    done = info(show="logs")
    file = Path(done["archive"])
    assert file.parent == folder / "logs" and re.fullmatch(r"red-logs-\d{8}T\d{6}Z\.tar\.gz", file.name)
    assert file.stat().st_mode & 0o777 == 0o600 and len(list(file.parent.iterdir())) == 1
    assert not done["changed"] and done["answered"] == ["deeplearning-master", "deeplearning-worker2"]
    assert done["problems"] == ["deeplearning-worker3 was not asked: its host key is not known yet."]
    assert sorted(asked.read_text().split()) == ["deeplearning-master", "deeplearning-worker2"]
    files = archived(file)
    assert set(files) == {
        "README.txt",
        "aws/cluster.json",
        "aws/master-activities.txt",
        "aws/workers-activities.txt",
        *(f"aws/consoles/{instance}.txt" for instance in (master, first, second)),
        "health.json",
        "operator.json",
        "nodes/deeplearning-master/boot.log",
        "nodes/deeplearning-worker2/boot.log",
    }
    assert json.loads(files["aws/cluster.json"])["cluster"] == "red"
    assert "\x1b" not in files["nodes/deeplearning-worker2/boot.log"]
    assert f"Answered: deeplearning-master, deeplearning-worker2.\n{done['problems'][0]}\n" in files["README.txt"]
    assert files["README.txt"].startswith("Logs of the cluster red, collected at 20")
    assert files["aws/workers-activities.txt"].count("Launching a new EC2 instance") == 2
    versions = json.loads(files["operator.json"])
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", versions["deeplearning.aws"]) and all(versions.values())
    printed = done["printed"]
    assert "Collecting the logs of deeplearning-master.\n" in printed
    kib = -(-file.stat().st_size // 1024)
    assert f"\nThe logs of the cluster red: {file} ({kib} KiB)\n  Answered: deeplearning-master, " in printed
    assert f"  {done['problems'][0]}\nSecrets that have" in printed


def test_logs_of_one_node_are_written_where_they_are_wanted(
    red: MadeCluster, info: Info, folder: Path, tmp_path: Path, ssh: Callable[..., Path]
) -> None:
    red.network()
    red.machines(master=1, workers=1)
    (master,), (worker,) = red.instances("master"), red.instances("workers")
    red.rank(worker, 2)
    known(folder, master, worker)
    asked = ssh(worker2=packed(boot_log="started"))
    for node in ("deeplearning-worker2", worker):
        done = info(show="logs", node=node, file=str(tmp_path / "one.tar.gz"))
        assert done["answered"] == ["deeplearning-worker2"] and done["problems"] == []
        names = {name for name in archived(tmp_path / "one.tar.gz") if name.startswith(("nodes/", "aws/consoles/"))}
        assert names == {"nodes/deeplearning-worker2/boot.log", f"aws/consoles/{worker}.txt"}
    assert set(asked.read_text().split()) == {"deeplearning-worker2"}
    refused = info(show="logs", node="other", file=str(tmp_path / "two.tar.gz"))
    assert refused["msg"] == "node is other; the cluster red has deeplearning-master, deeplearning-worker2."
    assert not (tmp_path / "two.tar.gz").exists() and not list(tmp_path.glob(".*.new"))
    (tmp_path / "three").write_text("a file")
    refused = info(show="logs", file=str(tmp_path / "three/logs.tar.gz"))
    assert refused["failed"] and re.search(r"three.* cannot be written: ", refused["msg"])


def test_without_the_master_nobody_is_asked_unless_another_way_leads_there(
    red: MadeCluster, folder: Path, ssh: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    red.network()
    red.machines(master=1, workers=1)
    (master,), (worker,) = red.instances("master"), red.instances("workers")
    red.rank(worker, 2)
    known(folder, master, worker)
    asked = ssh(worker2=packed(boot_log="started"))
    file = str(tmp_path / "logs.tar.gz")
    task_vars = {"deeplearning_folder": str(folder)}
    options = {"region": REGION, "cluster": "red", "show": "logs", "file": file}
    result = run_action("cluster_info", task_vars=task_vars, **options)
    lost = "The connection to deeplearning-master was lost: Connection timed out"
    left = "deeplearning-worker2 was not asked: the master, which leads to it, does not answer."
    assert result["answered"] == [] and result["problems"] == [lost, left]
    assert asked.read_text().split() == ["deeplearning-master"]
    assert "Answered: no node.\n" in archived(Path(file))["README.txt"] and "Answered: no node." in (
        capsys.readouterr().out
    )
    direct = run_action("cluster_info", task_vars={**task_vars, "deeplearning_connection": "direct"}, **options)
    assert direct["answered"] == ["deeplearning-worker2"] and direct["problems"] == [lost]


def test_logs_of_what_has_ended_and_of_what_aws_does_not_show(
    red: MadeCluster, info: Info, tmp_path: Path, ssh: Callable[..., Path]
) -> None:
    file = tmp_path / "logs.tar.gz"
    refused = info(show="logs", file=str(file))
    assert refused["msg"] == f"There is no cluster red in {PLACE}, so there are no logs of it."
    assert not file.exists()
    red.network()
    red.machines(master=1)
    (master,) = red.instances("master")
    red.scaling.update_auto_scaling_group(AutoScalingGroupName="red-master", MinSize=0, DesiredCapacity=0)
    red.wait(60)
    ended = info(show="logs", file=str(file))
    assert ended["answered"] == [] and f"aws/consoles/{master}.txt" in archived(file)
    assert info(show="logs", file=str(file), node=master)["problems"] == []


def test_what_aws_does_not_show_is_missing_in_an_archive(red: MadeCluster, info: Info, tmp_path: Path) -> None:
    file = tmp_path / "logs.tar.gz"
    red.network()
    red.machines(master=1)
    (master,) = red.instances("master")
    red.fail("autoscaling:DescribeScalingActivities", "AccessDenied", status=403)
    red.fail("ec2:GetConsoleOutput", "UnauthorizedOperation", status=403)
    activities, console, node = info(show="logs", file=str(file))["problems"]
    assert activities.startswith("The activities of red-master cannot be read: AWS does not allow autoscaling:Desc")
    assert console.startswith(f"The console of {master} cannot be read: AWS does not allow ec2:GetConsoleOutput")
    assert node == "deeplearning-master was not asked: its host key is not known yet."
    assert set(archived(file)) == {"README.txt", "aws/cluster.json", "operator.json"}
