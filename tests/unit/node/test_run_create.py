"""`run create`: a request becomes a folder, or is refused in one sentence and leaves nothing."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.config import Config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.identity import become
from deeplearning.members.member_list import Member, Members
from deeplearning.runs import create, unit, units
from deeplearning.runs import folder as folders
from deeplearning.runs.folder import Folder, check_folder_safety, find_run
from deeplearning.runs.script import hashed
from deeplearning.runs.unit import run_unit

from tests.unit.node.runs_kit import member
from tests.unit.node.users_kit import as_nobody, open_folder

Create = Callable[..., dict[str, Any]]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    networks = ("10.0.0.0/16",)
    return Config(
        "c", "sg-1", "us-east-1", "b", networks, "me", "master", "AROA", True, str(tmp_path / "efs"), "fs", None, 0, ""
    )


@pytest.fixture
def create_run(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> Create:
    (tmp_path / "efs").mkdir()
    (tmp_path / "efs/train.py").write_text("print('hello')")
    member = Member(1, ("deeplearning-worker1",), "i-1", "10.0.0.1", "h", "t3.micro", 0, 1, (), "ready")
    members = Members("c", "sg-1", 1, 1, "i-1", "2026-01-01T00:00:00Z", (member,))
    monkeypatch.setattr(create, "read_applied", lambda: members)
    monkeypatch.setattr(units, "is_active", lambda run_id: False)
    monkeypatch.setattr(units, "active_runs", list)
    default = {"framework": "pytorch", "python": sys.executable, "script": f"{config.efs_mount}/train.py"}

    def create_run(**more: Any) -> dict[str, Any]:
        request = {"requested_by": "me", **({} if "resume" in more else {**default, "run_id": "r1"}), **more}
        return create.create(request, config)

    return create_run


def with_checkpoint(config: Config) -> Folder:
    folder = find_run(config, "r1")
    Path(folder.file("checkpoints/1")).touch()
    return folder


def runs(config: Config) -> list[str]:
    root = Path(config.efs_mount, "runs", config.cluster)
    return sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) if root.exists() else []


def test_a_request_becomes_a_folder_and_the_environment_is_for_its_user_alone(
    create_run: Create, config: Config
) -> None:
    answer = create_run(environment={"SECRET": "s"})
    folder = find_run(config, "r1")
    assert (answer["run_id"], answer["run_dir"]) == ("r1", folder.path)
    assert "SECRET" not in Path(folder.file("run.json")).read_text()
    formats = Path(create.__file__).with_name("README.md").read_text()
    assert f"| `run.json` | `{' '.join(folder.run())}` |" in formats
    assert os.stat(folder.file("environment.json")).st_mode & 0o777 == 0o600
    assert {"logs", "metrics", "checkpoints", "tensorboard", "attempts"} < set(os.listdir(folder.path))


def test_a_run_elsewhere_has_a_link_in_its_usual_place(create_run: Create, config: Config) -> None:
    elsewhere = f"{config.efs_mount}/mine"
    create_run(runs_dir=elsewhere)
    assert os.path.realpath(find_run(config, "r1").path) == f"{elsewhere}/r1"
    with pytest.raises(UserError, match="There is a run r1 already"):
        create_run()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"script": "/nowhere/train.py"}, "script is /nowhere/train.py, and there is no such file on the master"),
        ({"script": "/etc/passwd"}, "neither .py nor .sh, and cannot be executed: chmod"),
        ({"script": "train.py"}, "script is no absolute path: train.yml sends"),
        ({"python": "/nowhere/python"}, "python is /nowhere/python, and there is no such program on the master"),
        ({"python": None, "framework": "mxnet"}, "mxnet is not installed on the master"),
        ({"data": "nothing"}, "data is nothing, and there is no folder .*/data/nothing: stage it first"),
        ({"nodes": 2}, "nodes is 2, and only 1 of the members can train: request fewer"),
        (
            {"nodes": ["deeplearning-worker2"]},
            "nodes has deeplearning-worker2, which is not a training member: choose",
        ),
        ({"runs_dir": "/proc/mine"}, "/proc/mine/r1 cannot be created: .*Is EFS mounted, and is there room on it"),
        ({"resume": "r9"}, "There is no run r9. There is none at all"),
    ],
)
def test_an_invalid_request_is_refused_in_one_sentence_and_leaves_nothing(
    create_run: Create, config: Config, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        create_run(**changes)
    assert "\n" not in str(refused.value)
    assert runs(config) == []


def test_a_run_on_processors_is_distributed_as_on_machines_without_gpus() -> None:
    cluster = Members("c", "sg-1", 1, 2, "i-1", "", (member(1, gpus=8), member(2, gpus=8)))
    requests: list[dict[str, Any]] = [{"framework": "mxnet"}, {"framework": "mxnet", "processor": True}]
    distributions = [create.with_defaults(request, cluster)["distribution"] for request in requests]
    assert distributions == ["dist_device_sync", "dist_sync"]


def test_a_run_id_in_use_is_refused_and_its_run_stays_as_it_is(create_run: Create, config: Config) -> None:
    create_run(script_args=["first"])
    with pytest.raises(UserError, match=r"There is a run r1 already: .* Example: -e resume=r1"):
        create_run(script_args=["second"])
    assert find_run(config, "r1").run()["script_args"] == ["first"]


def test_a_repeated_request_is_the_same_run_until_that_has_ended(create_run: Create, config: Config) -> None:
    """The first caller may have been killed before it got the answer."""
    request = {"script_args": ["--epochs", "2"], "environment": {"A": "1"}}
    first = create_run(**request)
    assert create_run(**request) == first
    others: list[dict[str, Any]] = [
        {"environment": {"A": "2"}},
        {"requested_by": "you"},
        {"runs_dir": f"{config.efs_mount}/mine"},
        {"script": f"git+{config.efs_mount}/train.git@main:train.py"},
    ]
    for other in others:
        with pytest.raises(UserError, match="There is a run r1 already"):
            create_run(**{**request, **other})
    Path(config.efs_mount, "train.py").write_text("print('goodbye')")
    with pytest.raises(UserError, match="There is a run r1 already"):
        create_run(**request)
    Path(config.efs_mount, "train.py").write_text("print('hello')")
    assert create_run(**request) == first
    find_run(config, "r1").write("result.json", {"state": "finished"})
    with pytest.raises(UserError, match="There is a run r1 already"):
        create_run(**request)


def test_a_repeated_request_with_the_same_code_is_the_same_run(create_run: Create, config: Config) -> None:
    def sent(text: str) -> dict[str, Any]:
        folder = Path(config.efs_mount, "runs", config.cluster, ".incoming", text + secrets.token_hex(4))
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(text)
        return {"code": str(folder), "script": "train.py"}

    first = create_run(**sent("one"))
    assert create_run(**sent("one")) == first
    with pytest.raises(UserError, match="There is a run r1 already"):
        create_run(**sent("two"))


def test_the_leftovers_of_an_interrupted_request_are_reported(create_run: Create, config: Config) -> None:
    left = Path(config.efs_mount, "runs", config.cluster, "r1")
    left.mkdir(parents=True)
    with pytest.raises(UserError, match=f"{left} exists without a run.json: .* Example: rm -r {left}"):
        create_run()


def test_a_run_without_a_checkpoint_cannot_be_resumed(create_run: Create, config: Config) -> None:
    create_run()
    Path(find_run(config, "r1").file("checkpoints/.new")).touch()
    with pytest.raises(UserError, match="Run r1 has no checkpoint in .*/checkpoints, so it cannot be resumed: start"):
        create_run(resume="r1")


def test_a_resumed_run_keeps_what_the_request_does_not_change(create_run: Create, config: Config) -> None:
    create_run(script_args=["--epochs", "2"], environment={"A": "1"}, max_restarts=0)
    folder = with_checkpoint(config)
    create_run(resume="r1", script_args=["--epochs", "4"])
    assert (folder.run()["script_args"], folder.run()["max_restarts"]) == (["--epochs", "4"], 0)
    assert (folder.read("environment.json") or {})["environment"] == {"A": "1"}


def test_requirements_are_a_file_of_the_run_until_a_resumed_one_has_others(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"{paths.ENVIRONMENTS}/pytorch/bin/python"
    monkeypatch.setattr(create, "find_interpreter", lambda _framework, python: (python or ours, {}))
    create_run(python=None, requirements="einops\n")
    folder = with_checkpoint(config)
    file = Path(folder.file("requirements.txt"))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("einops\n", 0o600)
    before = folder.run()["requirements"]
    create_run(resume="r1")
    assert folder.run()["requirements"] == before and file.exists()
    create_run(resume="r1", requirements="scipy\n")
    assert folder.run()["requirements"] != before and file.read_text() == "scipy\n"
    with pytest.raises(UserError, match="requirements and python are given together"):
        create_run(resume="r1", python=sys.executable, requirements="scipy\n")
    create_run(resume="r1", python=sys.executable)
    assert folder.run()["requirements"] is None and not file.exists()
    with pytest.raises(UserError, match="requirements and python are given together"):
        create_run(resume="r1", requirements="scipy\n")


def test_a_run_of_an_older_cluster_is_resumed_as_one_of_this_cluster(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run()
    folder = with_checkpoint(config)
    folder.write("run.json", {**folder.run(), "cluster_id": "sg-older"})
    create_run(resume="r1")
    assert folder.run()["cluster_id"] == config.cluster_id


def test_a_run_of_a_cluster_of_another_name_on_the_same_file_system_is_resumed(
    create_run: Create, config: Config
) -> None:
    create_run()
    with_checkpoint(config)
    ours = Path(config.efs_mount, "runs", config.cluster, "r1")
    theirs = Path(config.efs_mount, "runs", "former", "r1")
    theirs.parent.mkdir()
    ours.rename(theirs)
    # As docs/training.md says.
    ours.symlink_to(theirs)
    create_run(resume="r1")
    run = find_run(config, "r1").run()
    assert (run["cluster"], run["cluster_id"]) == (config.cluster, config.cluster_id)
    assert (theirs / "run.json").is_file() and find_run(config, "r1").checkpoints()


def test_runs_are_created_on_the_master_only(create_run: Create, config: Config) -> None:
    with pytest.raises(UserError, match="Runs are started on the master: ssh deeplearning-master."):
        create.create({"requested_by": "me", "framework": "pytorch"}, replace(config, role="worker"))
    assert runs(config) == []


def test_an_active_run_is_not_resumed(create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    create_run()
    with_checkpoint(config)
    monkeypatch.setattr(units, "is_active", lambda run_id: run_id == "r1")
    with pytest.raises(UserError, match="Run r1 is still active: stop it first, or follow it."):
        create_run(resume="r1")


def test_a_run_that_cannot_be_written_leaves_nothing(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"{config.efs_mount}/mine"

    def write(folder: Folder, name: str, record: dict[str, Any], mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Folder, "write", write)
        for more in ({}, {"runs_dir": elsewhere}):
            with pytest.raises(UserError, match="r1 cannot be written: No space left on device."):
                create_run(**more)
        assert runs(config) == [] and os.listdir(elsewhere) == []
    create_run()
    folder = with_checkpoint(config)
    folder.write("result.json", {"state": "failed"})
    monkeypatch.setattr(Folder, "write", write)
    with pytest.raises(UserError, match="r1 cannot be written: No space left on device."):
        create_run(resume="r1")
    assert (folder.result() or {})["state"] == "failed"


def test_the_end_of_a_resumed_run_is_kept_with_its_last_attempt(create_run: Create, config: Config) -> None:
    create_run()
    folder = with_checkpoint(config)
    for number in (0, 1):
        Path(folder.file(f"attempts/{number}")).mkdir()
    for name in ("events.jsonl", "result.json", "stop.json", "state.json"):
        Path(folder.file(name)).write_text(f'{{"schema": 1, "name": "{name}"}}')
    create_run(resume="r1")
    assert sorted(os.listdir(folder.file("attempts/1"))) == ["events.jsonl", "result.json"]
    assert os.listdir(folder.file("attempts/0")) == []
    assert not {"events.jsonl", "result.json", "stop.json", "state.json"} & set(os.listdir(folder.path))


def test_the_answer_describes_the_run_and_warns(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(config.efs_mount, "data/tiny")
    data.mkdir(parents=True)
    answer = create_run(data="tiny")
    assert answer["warnings"] == [] and answer["generated"] is False
    process = {"node": "deeplearning-worker1", "role": "worker", "rank": 0, "gpus": None}
    assert answer == {
        **{"schema": 1, "run_id": "r1", "run_dir": find_run(config, "r1").path, "framework": "pytorch"},
        **{"distribution": "ddp", "script": f"{config.efs_mount}/train.py", "code": answer["code"]},
        **{"data": str(data), "generated": False, "processes": [process], "warnings": []},
    }
    (data / "GENERATED").touch()
    gpus = [1]
    monkeypatch.setattr(create.machine, "gpus", lambda seconds: gpus[0])
    members = create.read_applied()
    monkeypatch.setattr(
        create, "read_applied", lambda: replace(members, desired=3, members=(replace(members.members[0], gpus=2),))
    )
    generated = f"{data} was generated: accuracies on it say nothing about real data."
    missing = "3 machines are desired, and 1 are members now."
    silent = "The master's GPUs do not answer: run `nvidia-smi -L` there."
    assert create_run(data="tiny", run_id="r2")["warnings"] == [generated, missing, silent]
    gpus[0] = 2
    assert create_run(data="tiny", run_id="r3")["warnings"] == [generated, missing]
    # The GPUs of other nodes are theirs.
    (master,) = create.read_applied().members
    worker = replace(master, rank=2, aliases=("deeplearning-worker2",))
    monkeypatch.setattr(create, "read_applied", lambda: replace(members, desired=2, members=(master, worker)))
    assert create_run(data="tiny", run_id="r4")["warnings"] == [generated]


@pytest.mark.parametrize(("free", "fits"), [(64 * 2**20 - 1, False), (64 * 2**20, True)])
def test_a_run_needs_some_room(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    space = type("Space", (), {"f_bavail": free, "f_frsize": 1})
    monkeypatch.setattr(folders.os, "statvfs", lambda path: space)
    if fits:
        create_run()
    else:
        with pytest.raises(UserError, match="r1 for a run: 63 MiB are free, and it needs 64 MiB. Remove"):
            create_run()
        assert runs(config) == []


@pytest.mark.parametrize(("busy", "refused"), [("refuse", True), ("wait", False)])
def test_nodes_in_use_are_refused_on_request(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch, busy: str, refused: bool
) -> None:
    create_run()
    find_run(config, "r1").write("state.json", {"nodes": ["deeplearning-worker1"]})
    monkeypatch.setattr(units, "active_runs", lambda: ["r1", "removed"])
    if refused:
        message = r"Needed nodes are in use: deeplearning-worker1 \(run r1\): stop that run"
        with pytest.raises(UserError, match=message):
            create_run(run_id="r2", busy=busy)
        assert runs(config) == ["r1"]
    else:
        create_run(run_id="r2", busy=busy)
    # Its own nodes are no obstacle.
    with_checkpoint(config)
    create_run(resume="r1", busy=busy)


def test_a_full_file_system_is_reported_before_anything_starts(
    create_run: Create, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run()
    with_checkpoint(config)
    really = os.statvfs

    def full(path: str) -> Any:
        seen = really(path)
        return os.statvfs_result((*seen[:4], 1, *seen[5:]))

    monkeypatch.setattr(os, "statvfs", full)
    for changes in ({"run_id": "r2"}, {"resume": "r1"}):
        with pytest.raises(UserError, match="There is no room on .* for a run: 0 MiB are free, and it needs 64 MiB"):
            create_run(**changes)
    assert runs(config) == ["r1"]


def test_the_repository_of_sent_code_is_kept(create_run: Create, config: Config, tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent/train.py").write_text("")
    repository = {"url": "https://h/models.git", "ref": "v1", "commit": "0" * 40}
    answer = create_run(code=f"{tmp_path}/sent", script="train.py", repository=repository)
    folder = find_run(config, "r1")
    assert answer["script"] == folder.file("code/train.py")
    assert folder.run()["code"] == {**hashed(folder.file("code")), **repository}


@pytest.mark.parametrize(
    ("repository", "is_same"),
    [({}, True), ({"commit": "1" * 40}, True), ({"ref": "v2"}, False), ({"url": "https://h/others.git"}, False)],
)
def test_a_repeated_request_for_a_repository_is_the_same_run_if_its_branch_has_moved(
    create_run: Create, tmp_path: Path, repository: dict[str, str], is_same: bool
) -> None:
    def sent(text: str, **changed: str) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "train.py").write_text(text)
        kept = {"url": "https://h/models.git", "ref": "main", "commit": "0" * 40}
        return {"code": str(folder), "script": "train.py", "repository": {**kept, **changed}}

    first = create_run(**sent("first"))
    if is_same:
        assert create_run(**sent("second", **repository))["run_dir"] == first["run_dir"]
        return
    with pytest.raises(UserError, match="r1"):
        create_run(**sent("second", **repository))


def test_nodes_clone_nothing(create_run: Create, config: Config, tmp_path: Path) -> None:
    for script in (f"git+{tmp_path}/models@main:train.py", "git+https://me:s3cret@h/x.git@v1:train.py"):
        with pytest.raises(UserError, match="^script is no absolute path: train.yml sends"):
            create_run(script=script)
    assert runs(config) == []


# What another user of the file system can prepare


@pytest.fixture
def shared(config: Config) -> Iterator[Config]:
    """A file system on which everybody may make folders."""
    with open_folder() as mount:
        yield replace(config, efs_mount=str(mount))


def folder_of_all(path: str) -> None:
    os.umask(0)
    os.makedirs(path)


@pytest.mark.root
@pytest.mark.parametrize("prepared", ["runs", "runs/c", "runs/c/.incoming"])
def test_folders_that_another_user_has_created_are_refused(shared: Config, prepared: str) -> None:
    as_nobody(lambda: folder_of_all(f"{shared.efs_mount}/{prepared}"))
    top = f"{shared.efs_mount}/runs"
    for make in (
        lambda: folders.create_folder("r1", None, shared),
        lambda: folders.create_folder("r1", f"{shared.efs_mount}/mine", shared),
        lambda: folders.create_incoming(f"{top}/c/.incoming", shared),
        lambda: run_unit("r1", shared),
    ):
        with pytest.raises(UserError, match=f"{top} belongs to .*: sudo chown root: {top} && sudo chmod 1777 {top}$"):
            make()


@pytest.mark.root
def test_a_cluster_s_folder_of_another_user_next_to_ours_is_refused(shared: Config) -> None:
    folders.create_folder("r1", None, replace(shared, cluster="other"))
    root = f"{shared.efs_mount}/runs/c"
    as_nobody(lambda: folder_of_all(f"{root}/r2"))
    for make in (
        lambda: folders.create_folder("r1", None, shared),
        lambda: folders.create_incoming(f"{root}/.incoming", shared),
    ):
        with pytest.raises(UserError, match=f"{root} belongs to nobody"):
            make()
    assert os.listdir(root) == ["r2"]


@pytest.mark.root
def test_a_link_in_place_of_the_runs_is_refused(shared: Config) -> None:
    os.mkdir(f"{shared.efs_mount}/victim")
    as_nobody(lambda: os.symlink(f"{shared.efs_mount}/victim", f"{shared.efs_mount}/runs"))
    with pytest.raises(UserError, match="runs is a link"):
        folders.create_folder("r1", None, shared)
    assert os.listdir(f"{shared.efs_mount}/victim") == []


@pytest.mark.root
@pytest.mark.parametrize("name", ["runs", "mine"])
def test_a_link_that_another_user_puts_there_in_between_changes_nothing_where_it_leads(
    shared: Config, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    victim, planted = f"{shared.efs_mount}/victim", f"{shared.efs_mount}/{name}"
    os.mkdir(victim, 0o700)
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        if path == planted and not os.path.lexists(planted):
            as_nobody(lambda: os.symlink(victim, planted))
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(UserError, match=f"{name} is a link"):
        folders.create_folder("r1", f"{shared.efs_mount}/mine", shared)
    assert os.stat(victim).st_mode & 0o7777 == 0o700 and os.listdir(victim) == []


@pytest.mark.parametrize("name", ["runs", "runs/c", "runs/c/.incoming", "mine", "mine/.incoming"])
def test_folders_of_an_older_release_are_closed(shared: Config, name: str) -> None:
    """Their group could write in them, by Ubuntu's umask. Scripts were sent into one like /tmp."""
    for older in (0o775, 0o1777):
        folder = f"{shared.efs_mount}/{name}"
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, older)
        mount = shared.efs_mount
        folders.create_folder(f"r{older}", f"{mount}/mine", shared)
        for parent in (f"{mount}/runs/c", f"{mount}/mine"):
            folders.create_incoming(f"{parent}/.incoming", shared)
        seen = os.stat(folder).st_mode
        assert not seen & 0o022 or (seen & 0o1000 and name in ("runs", "mine"))


@pytest.mark.root
def test_a_folder_of_ours_that_others_have_used_is_refused(shared: Config) -> None:
    incoming = f"{shared.efs_mount}/runs/c/.incoming"
    folders.create_incoming(incoming, shared)
    os.chmod(incoming, 0o1777)
    as_nobody(lambda: folder_of_all(f"{incoming}/theirs"))
    for _unused in range(2):
        with pytest.raises(UserError, match="incoming has mode 1777, .* Example: sudo chmod go-w "):
            folders.create_incoming(incoming, shared)


@pytest.mark.root
def test_a_path_on_which_others_could_exchange_a_folder_is_refused(shared: Config) -> None:
    mount = shared.efs_mount
    as_nobody(lambda: folder_of_all(f"{mount}/theirs"))
    for path in ("theirs/mine", "theirs/deep/mine"):
        with pytest.raises(UserError, match=f"{path} is no safe place for runs, as {mount}/theirs belongs to nobody"):
            folders.create_folder("r1", f"{mount}/{path}", shared)
    assert os.listdir(f"{mount}/theirs") == []
    os.symlink(mount, f"{mount}/link")
    with pytest.raises(UserError, match="link is a link: give a path without links"):
        folders.create_folder("r1", f"{mount}/link/mine", shared)
    assert folders.create_folder("r1", f"{mount}/deep/mine", shared).path == f"{mount}/runs/c/r1"


def exchangeable(config: Config, runs_dir: str | None) -> str:
    """Make a run, and then others able to exchange it. Return the folder that they can write in."""
    folder = folders.create_folder("r1", runs_dir, config)
    folder.write("run.json", {"run_id": "r1", "max_restarts": 0})
    opened = f"{config.efs_mount}/{'mine' if runs_dir else 'runs'}"
    os.chmod(opened, 0o777)
    return opened


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_others_could_exchange_ends_with_a_sentence(
    shared: Config, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    monkeypatch.setattr(unit, "is_superseded", lambda config: False)
    monkeypatch.setattr(unit.signal, "signal", lambda *_: None)
    opened = exchangeable(shared, f"{shared.efs_mount}/mine/deep" if elsewhere else None)
    with pytest.raises(UserError, match=f"{opened} has mode 0777"):
        check_folder_safety(shared, "r1")
    run_unit("r1", shared)
    result = find_run(shared, "r1").result()
    assert result and (result["state"], result["exit_code"]) == ("failed", 1)
    assert f"{opened} has mode 0777" in result["sentence"]


@pytest.mark.root
def test_a_folder_of_another_user_in_a_run_s_place_is_not_written_to(
    shared: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "is_superseded", lambda config: False)
    monkeypatch.setattr(unit.signal, "signal", lambda *_: None)
    opened = exchangeable(shared, None)
    os.rename(f"{opened}/c", f"{opened}/d")
    as_nobody(lambda: (folder_of_all(f"{opened}/c/r1"), Path(f"{opened}/c/r1/run.json").write_text("{}")))
    with pytest.raises(UserError, match=f"{opened} has mode 0777"):
        run_unit("r1", shared)
    assert os.listdir(f"{opened}/c/r1") == ["run.json"]


@pytest.mark.parametrize(("mode", "fits"), [(0o777, False), (0o775, True), (0o1777, True), (0o755, True)])
def test_a_runs_dir_is_refused_if_others_could_exchange_the_run(shared: Config, mode: int, fits: bool) -> None:
    mine = f"{shared.efs_mount}/mine"
    os.makedirs(f"{mine}/theirs")
    os.chmod(mine, mode)
    for make in (
        lambda: folders.create_folder("r1", mine, shared),
        lambda: folders.create_incoming(f"{mine}/.incoming", shared),
    ):
        if fits:
            make()
        else:
            with pytest.raises(UserError, match=f"{mine} has mode 0{mode:o}"):
                make()


def test_folders_of_runs_are_closed_to_others_with_any_umask(shared: Config) -> None:
    before = os.umask(0)
    try:
        folders.create_incoming(f"{shared.efs_mount}/runs/c/.incoming", shared)
        folders.create_incoming(f"{shared.efs_mount}/mine/.incoming", shared)
    finally:
        os.umask(before)
    modes = {name: os.stat(f"{shared.efs_mount}/{name}").st_mode & 0o7777 for name in ("runs", "runs/c", "mine")}
    assert modes == {"runs": 0o1777, "runs/c": 0o755, "mine": 0o755}
    assert os.stat(f"{shared.efs_mount}/runs/c/.incoming").st_mode & 0o7777 == 0o700
    assert os.stat(f"{shared.efs_mount}/mine/.incoming").st_mode & 0o7777 == 0o700


def test_a_folder_for_sent_code_that_cannot_be_created_is_a_sentence(shared: Config) -> None:
    with pytest.raises(UserError, match="/proc/mine/.incoming cannot be created: .*Is EFS mounted"):
        folders.create_incoming("/proc/mine/.incoming", shared)


@pytest.mark.root
def test_no_caller_creates_what_a_group_may_write(tmp_path: Path) -> None:
    with open_folder() as folder:

        def work() -> None:
            os.umask(0o002)
            become("me")
            (folder / "run").mkdir()

        as_nobody(work)
        assert (folder / "run").stat().st_mode & 0o7777 == 0o755
