"""What train.yml and its like are given: all that is wrong at once, a sentence each; what is right has its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _arguments as arguments
from ansible_collections.deeplearning.aws.plugins.plugin_utils._argument_values import Script, script_of

from .training_docs import PAGE, renewed


def problems(playbook: str = "train", **given: Any) -> list[str]:
    return arguments.check(playbook, {"framework": "pytorch", **given} if playbook == "train" else given).problems


def settled(**given: Any) -> dict[str, Any]:
    checked = arguments.check("train", {"framework": "pytorch", **given})
    assert checked.problems == []
    return arguments.finished(checked, "/efs")


def requested(**given: Any) -> dict[str, Any]:
    checked = arguments.check("train", given)
    assert checked.problems == []
    return arguments.request(arguments.finished(checked, "/efs"), checked.given, "me@here")


@pytest.mark.parametrize("argument", arguments.TABLE, ids=lambda argument: f"{argument.playbooks[0]}-{argument.name}")
def test_the_example_of_each_message_is_right(argument: arguments.Argument, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    assert argument.read(argument.example) is not None


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("nodes", "2", 2),
        ("nodes", "deeplearning-worker1,deeplearning-worker3", ["deeplearning-master", "deeplearning-worker3"]),
        ("nodes", ["deeplearning-worker2", "deeplearning-worker2"], ["deeplearning-worker2"]),
        ("processes_per_node", "auto", "auto"),
        ("processes_per_node", "8", 8),
        ("script_args", '--lr 0.1 --name "a b"', ["--lr", "0.1", "--name", "a b"]),
        ("script_args", ["--lr", 0.1, True, "$HOME 'q'", ""], ["--lr", "0.1", "true", "$HOME 'q'", ""]),
        ("script_args", [], []),
        ("data", "mnist", "mnist"),
        ("data", "coco2017", "coco2017"),
        ("data", "/efs/data/mine/", "/efs/data/mine"),
        ("data", "s3://bucket/prefix/", "s3://bucket/prefix"),
        ("detach", "true", True),
        ("max_restarts", "0", 0),
        ("env", {"A": 1}, {"A": "1"}),
        ("sweep", [1, 2, 4], [1, 2, 4]),
        ("runs_dir", "/efs/mine/", "/efs/mine"),
        ("nodes", "", None),
    ],
)
def test_what_is_right_gets_its_type_once(name: str, given: Any, read: Any) -> None:
    assert settled(**{name: given})[name] == read


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"framework": "tf"},
            "framework is tf: give tensorflow, mxnet, pytorch or tensorpack. Example: -e framework=pyt",
        ),
        ({"framework": ""}, "framework is not given: say what trains."),
        (
            {"distribution": "dist_sync"},
            "distribution is dist_sync: pytorch has ddp, horovod. Example: -e distribution=ddp",
        ),
        ({"framework": "mxnet", "distribution": "local", "nodes": 2}, "which trains on one node, and 2 are asked for"),
        ({"framework": "mxnet", "distribution": "device", "sweep": [1, 2]}, "which trains on one node, and 2"),
        ({"servers": 2}, "servers is 2: pytorch has no parameter servers"),
        ({"framework": "tensorflow", "servers": 2}, "Example: -e distribution=parameter_server"),
        ({"nodes": 0}, "nodes is 0: give 1 or more."),
        ({"nodes": "all"}, "nodes is all: give a number, or a list of members"),
        ({"nodes": ["worker2"]}, "give a number, or a list of members as the inventory names them"),
        ({"processes_per_node": "many"}, "give a whole number from 1 to 256"),
        ({"script": "missing.py"}, "there is no such file on this machine, and it is no path below /efs"),
        ({"script": "git+https://example.com/r.git"}, "a script in a repository is given as git+URL@ref:path"),
        ({"script": "/efs/train.py", "sync": "/tmp"}, "it goes along with a script of this machine, and script is"),
        ({"sync": "/tmp"}, "sync is /tmp: it goes along with a script of this machine."),
        ({"sync": "/nowhere"}, "there is no such folder on this machine"),
        ({"script_args": '--name "a'}, "a quotation mark in it has no other"),
        ({"script_args": {"lr": 1}}, "give a list"),
        ({"script_args": [["a"]]}, "give a list of words"),
        ({"data": "my data"}, "give cifar10, mnist, generated, a folder's name"),
        ({"data": "s3://B/x"}, "give the name of a bucket"),
        ({"data": "generated", "data_source": "https://x"}, "generated data is made and not taken from anywhere"),
        ({"data": "/efs/x", "data_source": "https://x"}, "only a named data set has a source"),
        ({"data": "cifar10", "data_source": "/nowhere.tar.gz"}, "there is no such file on this machine"),
        ({"run_id": "a b"}, "give at most 48 lower-case letters"),
        ({"run_id": "all"}, "give at most 48 lower-case letters"),
        ({"run_id": "x" * 49}, "give at most 48 lower-case letters"),
        ({"resume": "a", "run_id": "b", "framework": ""}, "run_id is given together with resume: a goes on as the run"),
        ({"resume": "a"}, "framework is given together with resume"),
        ({"sweep": [1], "nodes": 2}, "nodes is given together with sweep"),
        ({"sweep": []}, "sweep is []: give numbers of nodes"),
        ({"env": '{"A": "1"}'}, 'env is {"A": "1"}: give a map.'),
        ({"env": {"A B": "1"}}, "cannot be the name of a variable"),
        ({"env": {"A": True}}, "of A, give a text, within quotes"),
        ({"runs_dir": "mine"}, "give a path on the nodes"),
        ({"max_restarts": -1}, "max_restarts is -1: give 0 or more."),
        ({"framework": "mxnet", "script_args": ["--d", "s3://b/x"]}, "this MXNet cannot read S3"),
    ],
)
def test_what_is_wrong_is_a_sentence(given: dict[str, Any], said: str) -> None:
    found = problems(**given)
    assert len(found) == 1
    assert said in found[0]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(problems(framework="tf", nodes=-1, data="?", max_restarts="some")) == 4


@pytest.mark.parametrize("playbook", ["stop", "follow", "evaluate"])
def test_which_run_is_asked_for(playbook: str) -> None:
    assert problems(playbook) == ["run_id is not given: say which run. Example: -e run_id=lenet-1"]
    assert problems(playbook, run_id="lenet-1") == []


def test_only_some_take_all() -> None:
    assert problems("stop", run_id="all") == problems("tensorboard", run_id="all") == problems("report") == []
    assert problems("follow", run_id="all") != []


FOREIGN = ("cluster_", "ansible_", "training_run_")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"framwork": "x"}, "framwork is no setting of train.yml: framework is meant, perhaps"),
        ({"epochs": 5}, """the script is given as its arguments. Example: -e '{"script_args": ["--epochs", "5"]}'"""),
        ({"tunnel": "true"}, "tunnel is no setting of train.yml: tensorboard.yml has it"),
        ({"_raw_params": "0.1 --b"}, "-e was given words that belong to no setting: 0.1 --b."),
    ],
)
def test_what_the_command_line_lost_or_misnamed_is_refused(extra: dict[str, Any], said: str) -> None:
    (found,) = arguments.unknown("train", extra, FOREIGN)
    assert said in found


def test_what_others_see_to_is_let_through() -> None:
    extra = {"cluster_name": "red", "ansible_user": "me", "training_run_output": True, "nodes": 2, "run_id": "a"}
    assert arguments.unknown("train", extra, FOREIGN) == []
    assert arguments.unknown("stop", {"run_id": "a", "x": 1}, FOREIGN) == [
        "x is no setting of stop.yml: it takes run_id"
    ]


def test_where_a_script_is(tmp_path: Path) -> None:
    here = tmp_path / "train.py"
    here.touch()
    assert script_of(str(here), "/efs") == Script("file", str(here))
    assert script_of("/efs/me/train.py", "/efs") == Script("node", "/efs/me/train.py")
    assert script_of("/efsmine/train.py", "/efs").kind == "file"
    assert script_of("git+https://h/r.git@v1:a/b.py", "/efs") == Script("git", "a/b.py", "https://h/r.git", "v1")
    assert script_of("git+https://h/r.git:b.py", "/efs") == Script("git", "b.py", "https://h/r.git", "HEAD")
    assert script_of("git+ssh://git@h/r.git@v1:b.py", "/efs") == Script("git", "b.py", "ssh://git@h/r.git", "v1", True)
    assert not script_of("git+/home/me/models@v1:a.py", "/efs").over_ssh
    assert script_of("git+git@h:me/r.git@a/b:c.py", "/efs") == Script("git", "c.py", "git@h:me/r.git", "a/b", True)
    assert script_of("git+ssh://git@h/r.git:b.py", "/efs") == Script("git", "b.py", "ssh://git@h/r.git", "HEAD", True)


def test_our_trainers_have_cifar10_to_train_on_and_scripts_what_they_ask_for(tmp_path: Path) -> None:
    assert (settled()["data"], settled()["stages"]) == ("cifar10", True)
    (tmp_path / "t.py").touch()
    own = settled(script=str(tmp_path / "t.py"))
    assert (own["data"], own["stages"]) == (None, False)
    assert settled(data="/efs/x")["stages"] is False
    assert settled(data="/efs/x", data_on="node")["stages"] is True
    assert settled(data="coco2017")["stages"] is False


def test_what_the_nodes_are_asked_for_is_what_was_given() -> None:
    assert requested(framework="pytorch") == {"framework": "pytorch", "asked_by": "me@here"}
    asked = requested(
        framework="mxnet",
        distribution="dist_sync",
        script="git+https://h/r.git@v1:b.py",
        script_args="--a 1",
        nodes="2",
        processes_per_node="auto",
        servers="1",
        data="/efs/x",
        run_id="mine",
        busy="refuse",
        max_restarts="0",
    )
    assert asked == {
        "framework": "mxnet",
        "distribution": "dist_sync",
        "script": "git+https://h/r.git@v1:b.py",
        "script_args": ["--a", "1"],
        "nodes": 2,
        "servers": 1,
        "data": "/efs/x",
        "run_id": "mine",
        "busy": "refuse",
        "max_restarts": 0,
        "asked_by": "me@here",
    }


def test_a_resumed_run_keeps_what_was_not_given_again() -> None:
    assert requested(resume="mine") == {"resume": "mine", "asked_by": "me@here"}
    assert requested(resume="mine", nodes=3) == {"resume": "mine", "nodes": 3, "asked_by": "me@here"}


def test_one_node_is_enough_for_what_trains_on_one() -> None:
    assert requested(framework="mxnet", distribution="local")["nodes"] == 1


def test_a_cluster_may_have_a_framework_of_its_own() -> None:
    assert arguments.check("train", {}, "mxnet").values["framework"] == "mxnet"
    assert arguments.check("train", {"resume": "a"}, "mxnet").values["framework"] is None


def test_a_further_command_says_the_same_cluster_and_nothing_else(tmp_path: Path) -> None:
    cluster, run = tmp_path / "demo.yml", tmp_path / "run.yml"
    cluster.write_text("cluster_name: red\ncluster_worker_count: 2\n")
    run.write_text("framework: pytorch\ncluster_name: red\n")
    options = [f"@{cluster}", f"@{run}", '{"cluster_zones": ["a"], "nodes": 2}', "cluster_name=red nodes=2", "data=x"]
    assert arguments.repeated(options, "mine") == (
        f""" -e run_id=mine -e @{cluster} -e '{{"cluster_zones": ["a"]}}' -e cluster_name=red"""
    )


def test_the_guide_lists_them_all() -> None:
    assert PAGE.read_text(encoding="utf-8") == renewed(), "run .venv/bin/python tests/unit/training_docs.py"
