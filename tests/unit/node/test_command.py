"""The command `deeplearning`: its groups, its messages to people, and its behaviour in timers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from deeplearning import aws as aws_module
from deeplearning import cli, config, environment, identity, machine
from deeplearning.config import Config, read_config
from deeplearning.contract import atomic_file, paths, schema
from deeplearning.contract.errors import UserError
from deeplearning.members import rendering
from deeplearning.upkeep import commands

from tests.nvml import Gpus
from tests.unit.node.members_kit import Cluster, cluster_in, instance

ROOT = Path(__file__).parents[3]
NODE = ROOT / "files" / "node"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = cluster_in(tmp_path, monkeypatch)
    monkeypatch.setattr(commands, "AwsClient", lambda region: cluster.aws)
    return cluster


# The command


def test_without_a_group_the_groups_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in cli.GROUPS)


def test_an_unknown_group_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["member"]) == 2
    assert capsys.readouterr().err.startswith("deeplearning: member is no group of commands: give one of members,")


def test_a_refusal_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "APPLIED", "/nowhere/members.json")
    assert cli.main(["members", "show"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "deeplearning: this node has no member list yet: "
        "`deeplearning members wait --count 3` waits for a list of three."
    ]


def test_a_permission_error_advises_sudo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(argv: list[str]) -> int:
        raise PermissionError(13, "Permission denied", "/etc/hosts")

    monkeypatch.setattr(commands, "main", refuse)
    assert cli.main(["members", "apply"]) == 2
    assert capsys.readouterr().err == "deeplearning: /etc/hosts is not for this user (Permission denied): use sudo.\n"


@pytest.mark.parametrize("group", cli.GROUPS)
def test_each_group_has_help(group: str) -> None:
    command = [sys.executable, "-m", "deeplearning", group, "--help"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(NODE)}, capture_output=True, text=True)
    assert done.returncode == 0 and f"deeplearning {group}" in done.stdout, done.stderr


def test_a_tick_without_work_imports_nothing_heavy() -> None:
    code = (
        "import sys; from deeplearning import cli; from deeplearning.upkeep import cli as members;"
        "members.is_unchanged();"
        "print([name for name in ('json', 're', 'argparse', 'dataclasses', 'botocore') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(NODE)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_system_error_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise OSError(28, "No space left on device", "/efs/data/x")

    monkeypatch.setattr(commands, "main", fail)
    assert cli.main(["members", "apply"]) == 2
    assert capsys.readouterr().err == "deeplearning: /efs/data/x reports an error: No space left on device.\n"


def test_help_names_the_verbs_of_each_group() -> None:
    for group in ("data", "unpack", "tensorboard"):
        verbs = cli.GROUPS[group][1].rpartition(": ")[2].split(", ")
        usage = subprocess.run(
            [sys.executable, "-m", "deeplearning", group, "--help"],
            env={**os.environ, "PYTHONPATH": str(NODE)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"{{{','.join(verbs)}}}" in usage


# Units


def test_every_unit_runs_an_existing_command() -> None:
    for unit in sorted((NODE / "units").glob("deeplearning-*.service")):
        lines = dict(line.partition("=")[::2] for line in unit.read_text().splitlines() if "=" in line)
        words = lines["ExecStart"].split()
        assert words[0] == "/usr/local/bin/deeplearning" and words[1] in cli.GROUPS, unit.name


@pytest.mark.parametrize("name", ["report", "publish", "apply"])
def test_a_timer_starts_a_oneshot_unit(name: str) -> None:
    service = (NODE / "units" / f"deeplearning-{name}.service").read_text()
    assert "Type=oneshot\n" in service and "TimeoutStartSec=" in service
    assert "OnUnitInactiveSec=" in (NODE / "units" / f"deeplearning-{name}.timer").read_text()


# Members


def test_publish_apply_show_and_wait(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    master = cluster.master()
    cluster.workers(2)
    with master.here():
        commands.main(["publish", "--json"])
        assert json.loads(capsys.readouterr().out) == {"generation": 1, "changed": True, "left_out": []}
        commands.main(["apply"])
        assert capsys.readouterr().out == "generation 1 applied\n"
        commands.main(["apply"])
        assert capsys.readouterr().out == "generation 1 is in place\n"
        commands.main(["wait", "--count", "2", "--generation", "1", "--timeout", "0"])
        commands.main(["show"])
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split() == ["deeplearning-worker1", instance(1), "10.0.0.5", "p3.16xlarge", "8", "8", "ready"]
        assert lines[-1] == "generation 1, 2 of 2 desired machines"
        commands.main(["show", "--json"])
        assert json.loads(capsys.readouterr().out)["members"][1]["aliases"] == ["deeplearning-worker2"]


def test_machines_that_are_left_out_are_reported_after_publishing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master()
    cluster.workers(2)
    cluster.aws.report(2, gpus=-1)
    with master.here(), pytest.raises(UserError, match="gpus is -1.* That machine is left out until it reports again"):
        commands.main(["publish"])
    assert cluster.list["generation"] == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--count", "3"], "after 0 s 2 members are in the list, and not 3."),
        (["--count", "2", "--generation", "2"], "after 0 s this node has generation 1 of the member list, not 2."),
        (["--count", "1"], "after 0 s 2 members are in the list, and not 1."),
        (
            ["--count", "2"],
            "after 0 s 3 machines are desired and 2 are members; ansible-playbook deeplearning.aws.status shows why "
            "machines are "
            "missing.",
        ),
    ],
)
def test_wait_reports_what_is_missing(cluster: Cluster, words: list[str], sentence: str) -> None:
    master = cluster.master()
    cluster.workers(2)
    cluster.aws.desired["demo-workers"] = 2
    master.publish()
    master.apply()
    with master.here(), pytest.raises(UserError) as refusal:
        commands.main(["wait", "--timeout", "0", *words])
    assert str(refusal.value) == sentence


def test_wait_ends_when_the_list_is_complete(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    master = cluster.master()
    with master.here(), monkeypatch.context() as once:

        def meanwhile(_seconds: float) -> None:
            once.undo()
            master.publish()
            master.apply()

        once.setattr(time, "sleep", meanwhile)
        commands.main(["wait", "--count", "1"])


def test_a_timer_reports_an_error_once_and_its_end(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    master = cluster.master()
    cluster.workers(2)
    tick = ["publish", "--repeated"]
    with master.here():
        cluster.aws.denied = {"describe_instances"}
        commands.main(tick)
        assert capsys.readouterr().err == "this machine's role is not allowed describe_instances.\n"
        commands.main(tick)
        cluster.aws.denied = {"create_tags"}
        commands.main(tick)
        assert capsys.readouterr().err == "this machine's role is not allowed create_tags.\n"
        cluster.aws.denied = set()
        commands.main(tick)
        assert capsys.readouterr().out == "generation 1 published\nmembers publish: recovered\n"
        commands.main(tick)
        assert capsys.readouterr() == ("", "")


def test_a_timer_reports_a_file_that_cannot_be_written_in_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master()
    master.publish()
    hosts = master.root / "etc/hosts"
    hosts.unlink()
    hosts.mkdir()
    with master.here():
        commands.main(["apply", "--repeated"])
    printed = capsys.readouterr().err
    assert "etc/hosts" in printed and len(printed.splitlines()) == 1


def test_what_apply_has_written_is_forgotten_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    master = cluster.master()
    master.publish()
    with master.here():
        commands.main(["apply", "--json"])
        assert json.loads(capsys.readouterr().out)["changed"] is True
        assert "deeplearning-worker1" in master.text("/etc/hosts")
        commands.main(["forget"])
        assert capsys.readouterr().out == "forgotten\n"
        assert "deeplearning-worker1" not in master.text("/etc/hosts")
        commands.main(["forget"])
        commands.main(["forget", "--json"])
        assert capsys.readouterr().out == 'nothing to forget\n{"changed": false}\n'


def test_figures_and_loads_are_written_where_they_are_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master()
    master.publish()
    master.apply()
    with master.here():
        Path(paths.METRICS).parent.mkdir(parents=True)
        commands.main(["metrics"])
        assert capsys.readouterr().out == "written\n"
        commands.main(["metrics", "--json"])
        assert json.loads(capsys.readouterr().out) == {"path": paths.METRICS}
        assert "deeplearning_members 1\n" in Path(paths.METRICS).read_text()
        # A timer's journal has no line for each.
        for words in (["metrics", "--repeated"], ["load", "--repeated"]):
            commands.main(words)
        assert capsys.readouterr() == ("", "")
        commands.main(["load", "--json"])
        assert json.loads(capsys.readouterr().out)["instance_id"] == instance(1)


@pytest.mark.parametrize(
    ("remembered", "associates", "changed"),
    [("", True, False), ("eipalloc-1", False, False), ("eipalloc-1", True, True)],
)
def test_the_masters_address_is_associated_if_there_is_one(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    remembered: str, associates: bool, changed: bool,
) -> None:  # fmt: skip
    asked: list[Any] = []
    monkeypatch.setattr(
        commands,
        "associate",
        lambda members, aws, address: asked.append((members.generation, aws, address)) or associates,
    )
    master = cluster.master()
    master.publish()
    master.apply()
    with master.here():
        if remembered:
            Path(paths.MASTER_ADDRESS).write_text(remembered)
        commands.main(["address"])
        assert capsys.readouterr().out == ("associated\n" if changed else "nothing to do\n")
        commands.main(["address", "--json"])
        assert json.loads(capsys.readouterr().out) == {"changed": changed}
        commands.main(["address", "--repeated"])
        assert capsys.readouterr().out == ("associated\n" if changed else "")
    assert asked == ([(1, cluster.aws, remembered)] * 3 if remembered else [])


@pytest.mark.parametrize(("fault", "code"), [("", 0), ("it has no GPU", 2)])
def test_a_report_is_printed_and_a_fault_is_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: str, code: int
) -> None:
    changes = [True, False, True]
    monkeypatch.setattr(commands, "report", lambda config, trust_cache: (changes.pop(0), fault))
    with cluster.master().here():
        assert cli.main(["members", "report"]) == cli.main(["members", "report"]) == code
        printed = capsys.readouterr()
        assert printed.out == "reported\nnothing new to report\n"
        assert printed.err == (f"deeplearning: {fault}.\n" * 2 if fault else "")
        assert cli.main(["members", "report", "--json"]) == code
        assert json.loads(capsys.readouterr().out) == {"changed": True, "fault": fault}


def test_a_list_that_is_still_current_is_not_published_again(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master()
    with master.here():
        commands.main(["publish"])
        commands.main(["publish"])
    assert capsys.readouterr().out == "generation 1 published\ngeneration 1 is still current\n"


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        (["apply", "--repeated"], [["address", "--repeated"], ["apply", "--repeated"]]),
        (["apply"], [["apply"]]),
        (["report", "--repeated"], [["report", "--repeated"], ["load", "--repeated"]]),
        (["report"], [["report"]]),
        (["publish", "--repeated"], [["publish", "--repeated"]]),
        (["publish"], [["publish"]]),
    ],
)
def test_a_tick_of_a_timer_does_what_is_due(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, words: list[str], calls: list[list[str]]
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(commands, "main", called.append)
    node = cluster.node(2)
    with node.here():
        Path(paths.MASTER_ADDRESS).write_text("eipalloc-1")
        assert cli.main(["members", *words]) == 0 and called == calls
        # Nothing is due.
        monkeypatch.setattr("deeplearning.upkeep.cli.is_unchanged", lambda: True)
        Path(paths.CHECK_TIMES).write_text(json.dumps({"next": time.monotonic() + 60}))
        called.clear()
        cli.main(["members", *words])
    assert called == {("apply", "--repeated"): calls[:1], ("publish", "--repeated"): []}.get(tuple(words), calls)


def test_show_prints_a_table_without_spaces_at_its_ends(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    master = cluster.master()
    cluster.workers(2)
    cluster.aws.report(2, state="faulty")
    master.publish()
    master.apply()
    with master.here():
        commands.main(["show"])
    assert capsys.readouterr().out.splitlines() == [
        "name                  instance             address   type         gpus  slots  state",
        f"deeplearning-worker1  {instance(1)}  10.0.0.5  p3.16xlarge  8     8      ready",
        f"deeplearning-worker2  {instance(2)}  10.0.0.6  p3.16xlarge  8     8      faulty",
        "generation 1, 2 of 2 desired machines",
    ]


# What a node knows of its cluster


def test_the_cluster_record_is_validated(cluster: Cluster) -> None:
    node = cluster.node(1)
    with node.here():
        assert read_config() == cluster.config
        known = json.loads(node.text("/etc/deeplearning/cluster.json"))
        for changed, words in (
            ({"vpc_cidrs": ["10.0.0.1/8"]}, "not a range of IPv4 addresses"),
            ({"efs_mount": "/mnt/a b"}, "efs_mount is '/mnt/a b', not an absolute path without blanks"),
            ({"password": "x"}, "unknown keys: password"),
            ({"schema": 3}, "schema 3, not 1"),
        ):
            Path(paths.CLUSTER).write_text(json.dumps({**known, **changed}))
            with pytest.raises(UserError, match=words):
                read_config()
        Path(paths.CLUSTER).unlink()
        with pytest.raises(UserError, match="configure this node"):
            read_config()


@pytest.mark.parametrize(
    "command",
    [
        *("data show generated", "data show photos --bucket /nonexistent", "data stage photos --bucket /nonexistent"),
        *("run list", "run show missing", "status", "env", "tensorboard check all", "members apply", "members report"),
        *("members load", "members metrics", "health begin token"),
        *("gpus faults", f"unpack show photos --from /nonexistent --sha256 {'0' * 64}"),
    ],
)
def test_a_command_reads_the_nodes_configuration_once(
    command: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it succeeds or not."""
    opened: list[str] = []

    def counted(path: str, *words: Any, **more: Any) -> Any:
        opened.append(path)
        return open(path, *words, **more)

    monkeypatch.setattr(config, "open", counted, raising=False)
    monkeypatch.setattr(identity.os, "geteuid", lambda: 1000)
    with cluster.node(1).here():
        cli.main(command.split())
    assert len(opened) == 1


@pytest.mark.parametrize("value", [1.5, True, "1", -1, None, 10**12])
def test_a_number_must_be_an_integer(value: Any) -> None:
    with pytest.raises(schema.InvalidValue):
        schema.uint32(value)


def test_env_prints_the_activation_line_of_a_complete_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(tmp_path))
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "pytorch").mkdir()
    (tmp_path / "pytorch" / ".deeplearning.json").write_text("{}")
    environment.main(["pytorch"])
    assert capsys.readouterr().out == f". {tmp_path}/pytorch/bin/activate\n"
    with pytest.raises(UserError, match="mxnet is not installed on this node: give one of pytorch, or install it"):
        environment.main(["mxnet"])
    default = Config(**{**vars(cluster_in(tmp_path / "pytorch", monkeypatch).config), "default_framework": "pytorch"})
    monkeypatch.setattr(environment, "read_config", lambda: default)
    environment.main([])


# The machine


def test_only_gpus_that_answer_count(gpus: Gpus) -> None:
    assert machine.gpus() == 0
    gpus.set(count=8, gpu2_lost=1)
    assert machine.gpus() == 7


def test_the_instance_id_is_read_once_per_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def ask(method: str, path: str, headers: dict[str, str]) -> str:
        asked.append(f"{method} {path}")
        return "token" if method == "PUT" else {"X-aws-ec2-metadata-token": "i-00000000"}[next(iter(headers))]

    monkeypatch.setattr(machine, "_request", ask)
    monkeypatch.setattr(paths, "RUNTIME", str(tmp_path))
    assert [machine.instance_id(), machine.instance_id()] == ["i-00000000"] * 2
    assert asked == ["PUT api/token", "GET meta-data/instance-id"]


def test_a_missing_metadata_service_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(machine, "METADATA", "127.0.0.1:1")
    with pytest.raises(UserError, match="the metadata service does not return the instance-id"):
        machine.instance_id()


# AWS


class Client:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def refuse(*positional: Any, **named: Any) -> Any:
            raise self._error

        return refuse


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "Why."}}, "Operation")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            client_error("AccessDenied"),
            r"role is not allowed s3 get_object \(Why.\): run ansible-playbook deeplearning.aws.provis",
        ),
        (client_error("Throttling"), r"AWS refused s3 get_object: Throttling \(Why.\)"),
        (EndpointConnectionError(endpoint_url="https://s3"), "AWS does not answer s3 get_object"),
    ],
)
def test_an_error_of_aws_is_one_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    aws = aws_module.AwsClient("us-east-1")
    monkeypatch.setattr(aws, "client", lambda service: Client(error))
    with pytest.raises(UserError, match=words):
        aws.call("s3", "get_object")
    with pytest.raises(UserError):
        aws.pages("s3", "list_objects_v2", "Contents")


def test_a_missing_object_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = aws_module.AwsClient("us-east-1")
    monkeypatch.setattr(aws, "client", lambda service: Client(client_error("NoSuchKey")))
    with pytest.raises(aws_module.NotFound):
        aws.call("s3", "get_object")


# Files


def test_a_managed_block_is_inserted_replaced_and_removed() -> None:
    one = rendering.with_block("a\n", "x\n")
    assert one == f"a\n{rendering.BEGIN}x\n{rendering.END}"
    assert rendering.with_block(one + "b\n", "y\n") == f"a\n{rendering.BEGIN}y\n{rendering.END}b\n"
    assert rendering.with_block(one + "b\n", "") == "a\nb\n"
    assert rendering.with_block("a", "x\n").startswith("a\n# BEGIN")
    assert rendering.with_block(f"a\n{rendering.BEGIN}half", "x\n") == one


def test_a_file_is_replaced_through_a_link_only_if_it_differs(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert atomic_file.write_if_changed(f"{tmp_path}/link", "new") is True
    inode = (tmp_path / "real").stat().st_ino
    assert atomic_file.write_if_changed(f"{tmp_path}/link", "new") is False
    assert (tmp_path / "real").read_text() == "new" and (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_the_timer_does_not_report_a_machine_that_configures_itself(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[bool] = []
    monkeypatch.setattr(commands, "read_config", lambda: cluster.config)
    monkeypatch.setattr(commands, "report", lambda config, trust_cache: (bool(reported.append(trust_cache)), ""))
    monkeypatch.setattr(paths, "CONFIGURING", str(tmp_path / "configuring"))
    (tmp_path / "configuring").touch()
    assert cli.main(["members", "report", "--repeated"]) == 0 and reported == []
    assert cli.main(["members", "report"]) == 0 and reported == [False]
    (tmp_path / "configuring").unlink()
    assert cli.main(["members", "report", "--repeated"]) == 0 and reported == [False, True]
