"""The options of playbooks: all problems at once, a sentence each; valid values have their type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import (
    playbook_input,
    run_options,
    run_request,
    run_rules,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.option import Option
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_readers import Script, locate_script


def problems(playbook: str = "train", **variables: Any) -> list[str]:
    return run_rules.check(
        playbook, {"framework": "pytorch", **variables} if playbook == "train" else variables
    ).problems


def settled(**variables: Any) -> dict[str, Any]:
    checked = run_rules.check("train", {"framework": "pytorch", **variables})
    assert checked.problems == []
    return run_request.complete(checked.values, "/efs")


def requested(**variables: Any) -> dict[str, Any]:
    checked = run_rules.check("train", variables)
    assert checked.problems == []
    options = run_request.complete(checked.values, "/efs")
    return run_request.request(options, checked.specified, "me@here")


@pytest.mark.parametrize("argument", run_options.TABLE, ids=lambda argument: f"{argument.playbooks[0]}-{argument.name}")
def test_the_example_of_each_message_is_right(argument: Option, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    assert argument.form(argument.example) is not None


@pytest.mark.parametrize("option", run_options.TABLE, ids=lambda option: f"{option.playbooks[0]}-{option.name}")
@pytest.mark.parametrize("value", [{}, "x y", -1, [[]]], ids=str)
def test_no_rule_fails_where_an_option_is_wrong(option: Option, value: Any) -> None:
    for playbook in option.playbooks:
        run_rules.check(playbook, {option.name: value})


@pytest.mark.parametrize(
    ("name", "variables", "read"),
    [
        ("nodes", "2", 2),
        ("nodes", "6-8", "6-8"),
        ("nodes", "6 - 8", "6-8"),
        ("nodes", "8-8", "8-8"),
        ("nodes", "deeplearning-worker1,deeplearning-worker3", ["deeplearning-master", "deeplearning-worker3"]),
        ("nodes", ["deeplearning-worker2", "deeplearning-worker2"], ["deeplearning-worker2"]),
        ("processes_per_node", "auto", "auto"),
        ("processes_per_node", "8", 8),
        ("script_args", '--lr 0.1 --name "a b"', ["--lr", "0.1", "--name", "a b"]),
        ("script_args", ["--lr", 0.1, True, "$HOME 'q'", ""], ["--lr", "0.1", "true", "$HOME 'q'", ""]),
        ("script_args", [], []),
        ("dataset", "mnist", "mnist"),
        ("dataset", "coco2017", "coco2017"),
        ("dataset", "/efs/data/mine/", "/efs/data/mine"),
        ("dataset", "s3://bucket/prefix/", "s3://bucket/prefix"),
        ("detach", "true", True),
        ("max_restarts", "0", 0),
        ("stop_seconds", "600", 600),
        ("env", {"A": 1}, {"A": "1"}),
        ("sweep", [1, 2, 4], [1, 2, 4]),
        ("runs_dir", "/efs/mine/", "/efs/mine"),
        ("nodes", "", None),
    ],
)
def test_what_is_right_gets_its_type_once(name: str, variables: Any, read: Any) -> None:
    assert settled(**{name: variables})[name] == read


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"framework": "tf"},
            "framework is tf: give one of tensorflow, mxnet, pytorch, tensorpack. Example: -e framework=pyt",
        ),
        ({"framework": ""}, "framework is missing: give one of tensorflow,"),
        (
            {"distribution": "dist_sync"},
            "distribution is dist_sync, which only mxnet has: give pytorch's ddp. Example: -e distribution=ddp",
        ),
        ({"framework": "mxnet", "distribution": "local", "nodes": 2}, "which trains on one node, and nodes is 2"),
        ({"framework": "mxnet", "distribution": "device", "sweep": [1, 2]}, "which trains on one node, and nodes is 2"),
        ({"servers": 2}, "servers is 2, and pytorch has no parameter servers"),
        ({"framework": "tensorflow", "servers": 2}, "Example: -e distribution=parameter_server"),
        ({"nodes": 0}, "nodes is 0: give a whole number from 1 to 256."),
        ({"nodes": "all"}, "nodes is all: give a number, a range such as 6-8, or a list of members"),
        ({"nodes": "8-6"}, "nodes is 8-6: give a number, a range such as 6-8, or"),
        ({"nodes": "6-2000"}, "nodes is 6-2000: give 256 or less"),
        ({"framework": "mxnet", "distribution": "local", "nodes": "1-2"}, "which trains on one node, and nodes is 1-2"),
        ({"nodes": ["worker2"]}, "or a list of members as the inventory names them"),
        ({"processes_per_node": "many"}, "give a whole number from 1 to 256"),
        ({"script": "missing.py"}, "there is no such file on this machine, and it is no path below /efs"),
        ({"script": "git+https://example.com/r.git"}, "a script in a repository is given as git+URL@ref:path"),
        ({"script": "/efs/train.py", "sync": "/tmp"}, "it goes along with a script of this machine, and script is"),
        (
            {"script": "git+https://me:s3cret@h/r.git@v1:b.py", "sync": "/tmp"},
            "sync is /tmp: it goes along with a script of this machine, and script is git+https://<hidden>",
        ),
        ({"sync": "/tmp"}, "sync is /tmp: it goes along with a script of this machine."),
        ({"sync": "/nowhere"}, "there is no such folder on this machine"),
        ({"module": "pkg/train.py"}, "module is pkg/train.py: give a module's name"),
        ({"module": "pkg.train"}, "neither pkg/train.py nor pkg/train/__main__.py is in the current folder. Name"),
        ({"module": "pkg.train", "sync": "/tmp"}, "nor pkg/train/__main__.py is in /tmp. Name the folder that"),
        ({"module": "pkg.train", "script": "/efs/train.py"}, "module is pkg.train and script /efs/train.py: leave"),
        ({"module": "a.b", "script": "git+https://h/r.git@v1:b.py"}, "name a/b.py or a/b/__main__.py there, or leave"),
        ({"module": "a.b", "script": "git+https://h/r.git@v1:a/b.py", "sync": "/tmp"}, "script is in a repository"),
        ({"script_args": '--name "a'}, "a quotation mark in it is not closed"),
        ({"script_args": {"lr": 1}}, "give a list"),
        ({"script_args": [["a"]]}, "give a list of words"),
        ({"dataset": "my data"}, "give cifar10, mnist, generated, a folder's name"),
        ({"dataset": "s3://B/x"}, "give the name of a bucket"),
        ({"dataset": "generated", "data_source": "https://x"}, "generated data is made and not taken from anywhere"),
        ({"dataset": "/efs/x", "data_source": "https://x"}, "only a named data set has a source"),
        ({"dataset": "cifar10", "data_source": "/nowhere.tar.gz"}, "there is no such file on this machine"),
        ({"run_id": "a b"}, "give a run's id: up to 48 of a-z"),
        ({"run_id": "all"}, "give a run's id: up to 48 of a-z"),
        ({"run_id": "x" * 49}, "give a run's id: up to 48 of a-z"),
        (
            {"resume": "a", "run_id": "b", "framework": ""},
            "run_id is given together with resume: a continues as",
        ),
        ({"resume": "a"}, "framework is given together with resume"),
        ({"sweep": [1], "nodes": 2}, "nodes is given together with sweep"),
        ({"sweep": []}, "sweep is []: give numbers of nodes"),
        ({"env": '{"A": "1"}'}, 'env is {"A": "1"}: give a map.'),
        ({"env": {"A B": "1"}}, "cannot be the name of a variable"),
        ({"env": {"A": True}}, "of A, give a text, within quotes"),
        ({"runs_dir": "mine"}, "give a path on the nodes"),
        ({"max_restarts": -1}, "max_restarts is -1: give a whole number from 0 to 100."),
        ({"stop_seconds": 0}, "stop_seconds is 0: give a whole number from 1 to 600."),
        ({"stop_seconds": 601}, "stop_seconds is 601: give a whole number from 1 to 600."),
        ({"framework": "mxnet", "script_args": ["--d", "s3://b/x"]}, "this mxnet cannot read S3"),
    ],
)
def test_what_is_wrong_is_a_sentence(variables: dict[str, Any], expected: str) -> None:
    actual = problems(**variables)
    assert len(actual) == 1
    assert expected in actual[0]


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems(framework="tf", nodes=-1, dataset="?", max_restarts="some")) == 4


@pytest.mark.parametrize("playbook", ["stop", "follow", "evaluate", "get"])
def test_which_run_is_asked_for(playbook: str) -> None:
    assert problems(playbook) == ["run_id is not given: say which run. Example: -e run_id=lenet-1"]
    assert problems(playbook, run_id="lenet-1") == []


def test_files_of_a_run_go_to_a_folder_of_this_machine_or_to_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    targets = ("~/a", "/a b", "s3://bucket/a/", "")
    read = {to: run_rules.check("get", {"run_id": "a", "to": to}).values["to"] for to in targets}
    assert read == {"~/a": "/home/anna/a", "/a b": "/a b", "s3://bucket/a/": "s3://bucket/a", "": ""}
    assert run_rules.check("get", {"run_id": "a"}).values["what"] == "model"
    assert problems("get", run_id="a", what="code", to="s3://")[0].startswith("what is code: give one of model, ")
    assert len(problems("get", run_id="a", what="code", to="s3://B*")) == 2


def test_only_some_take_all() -> None:
    assert problems("stop", run_id="all") == problems("tensorboard", run_id="all") == problems("report") == []
    assert problems("follow", run_id="all") != []


ROLES = ("training_run",)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"framwork": "x"}, "framwork is no option of deeplearning.aws.train: framework is meant, perhaps"),
        ({"_raw_params": "0.1 --b"}, "-e has words that belong to no option: 0.1 --b."),
    ],
)
def test_what_the_command_line_lost_or_misnamed_is_refused(extra: dict[str, Any], expected: str) -> None:
    (actual,) = playbook_input.unknown_names("train", extra, ROLES)
    assert expected in actual


def test_what_others_see_to_is_let_through() -> None:
    extra = {"cluster_name": "red", "ansible_user": "me", "training_run_output": True, "nodes": 2, "run_id": "a"}
    assert playbook_input.unknown_names("train", extra, ROLES) == []
    assert playbook_input.foreign_names("stop", {"run_id": "a", "x": 1}, ROLES) == [
        "x is no option of deeplearning.aws.stop and has no effect here: it takes run_id"
    ]


def test_where_a_script_is(tmp_path: Path) -> None:
    here = tmp_path / "train.py"
    here.touch()
    assert locate_script(str(here), "/efs") == Script("file", str(here))
    assert locate_script("/efs/me/train.py", "/efs") == Script("node", "/efs/me/train.py")
    assert locate_script("/efsmine/train.py", "/efs").kind == "file"


def test_a_script_in_a_repository_is_sent_by_this_machine() -> None:
    text = "git+https://h/r.git@v1:a/b.py"
    assert locate_script(text, "/efs") == Script("git", text)
    completed = settled(script=text)
    assert (completed["script"], completed["script_file"]) == (None, text)


@pytest.mark.parametrize("file", ["pkg/train.py", "pkg/train/__main__.py"])
def test_a_module_is_a_file_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    in_folder = settled(module="pkg.train", sync=str(tmp_path))
    assert in_folder["script_file"] == str(tmp_path / file)
    assert in_folder["dataset"] is None
    monkeypatch.chdir(tmp_path)
    assert settled(module="pkg.train") == in_folder
    assert requested(framework="pytorch", module="pkg.train")["as_module"] is True


def test_a_module_of_a_repository_is_a_file_of_it() -> None:
    script = "git+https://example.com/r.git@v1:pkg/train.py"
    completed = settled(module="pkg.train", script=script)
    assert (completed["module"], completed["script_file"], completed["sync"]) == (True, script, None)


def test_our_trainers_have_cifar10_to_train_on_and_scripts_what_they_ask_for(tmp_path: Path) -> None:
    assert settled()["dataset"] == "cifar10"
    (tmp_path / "t.py").touch()
    assert settled(script=str(tmp_path / "t.py"))["dataset"] is None


def test_the_request_holds_what_was_specified() -> None:
    assert requested(framework="pytorch") == {"framework": "pytorch", "requested_by": "me@here"}
    request = requested(
        framework="mxnet",
        distribution="dist_sync",
        script="/efs/b.py",
        script_args="--a 1",
        nodes="2",
        processes_per_node="auto",
        servers="1",
        run_id="mine",
        on_busy="refuse",
        max_restarts="0",
        stop_seconds=60,
    )
    assert request == {
        "framework": "mxnet",
        "distribution": "dist_sync",
        "script": "/efs/b.py",
        "script_args": ["--a", "1"],
        "nodes": 2,
        "servers": 1,
        "run_id": "mine",
        "busy": "refuse",
        "max_restarts": 0,
        "stop_seconds": 60,
        "requested_by": "me@here",
    }


def test_a_resumed_run_keeps_unspecified_options() -> None:
    assert requested(resume="mine") == {"resume": "mine", "requested_by": "me@here"}
    assert requested(resume="mine", nodes=3) == {"resume": "mine", "nodes": 3, "requested_by": "me@here"}


def test_one_node_is_enough_for_what_trains_on_one() -> None:
    assert requested(framework="mxnet", distribution="local")["nodes"] == 1


def test_a_cluster_may_have_a_framework_of_its_own() -> None:
    assert run_rules.check("train", {}, "mxnet").values["framework"] == "mxnet"
    assert run_rules.check("train", {"resume": "a"}, "mxnet").values["framework"] is None
