"""A script and its folder, sent with the request for a run: into a folder where no other user can write."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action.node_command import ActionModule
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive, code_source, node_program

ROOT = Path(__file__).resolve().parents[4]
Send = Callable[..., dict[str, Any]]
PROGRAM = """#!{python}
import os, sys
from types import SimpleNamespace
sys.path.insert(0, {node!r})
from deeplearning.contract.errors import UserError
from deeplearning.runs import commands

def create_run(request, config):
    if request["script"] == "refused.py":
        raise UserError("refused.py is refused")
    os.rename(request["code"], {run!r})
    repository = request.get("repository", {{}})
    return {{"run_id": "r1", "warnings": [request["script"], request["environment"]["SECRET"], *repository.values()]}}

commands.read_config = lambda: SimpleNamespace(efs_mount={efs!r}, cluster="red", user="me")
commands.become = lambda user: os.umask(0o022)
commands.create = create_run
assert sys.argv[1] == "run", sys.argv
try:
    sys.exit(commands.main(sys.argv[2:]))
except UserError as error:
    sys.exit(f"deeplearning: {{error}}")
"""


@pytest.fixture
def efs(tmp_path: Path) -> Path:
    (tmp_path / "efs").mkdir()
    return tmp_path / "efs"


@pytest.fixture
def send(tmp_path: Path, efs: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends a script and the folder that it is in; the node is this machine, with a program of its own."""
    program = tmp_path / "deeplearning"
    values = {"python": sys.executable, "node": str(ROOT / "files/node"), "efs": str(efs), "run": str(efs / "code")}
    program.write_text(PROGRAM.format(**values))
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    (tmp_path / "src/models").mkdir(parents=True)
    for name in ("train.py", "refused.py", "models/net.py"):
        (tmp_path / "src" / name).write_text(name)

    def run(script: str = "train.py", check: bool = False, **code: list[str]) -> dict[str, Any]:
        file = {"script": f"{tmp_path}/src/{script}", "folder": f"{tmp_path}/src"}
        arguments = {
            "words": ["run", "create", "--code", "-"],
            "request": {"framework": "pytorch", "environment": {"SECRET": "two\nlines"}},
            "code": {**({"script": script} if script.startswith("git+") else file), **code},
            "writes": True,
        }
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=check, delegate_to=None, action="node_command")
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"), transport="local")
        action = ActionModule(task, connection, SimpleNamespace(become=False), None, None, None)
        return action.run(None, {"inventory_hostname": "deeplearning-master"})

    return run


def test_a_script_comes_with_its_folder_to_where_only_its_user_comes(send: Send, efs: Path) -> None:
    sent = send()
    assert sent["changed"] and sent["answer"] == {"run_id": "r1", "warnings": ["train.py", "two lines"]}, sent
    assert (efs / "code/train.py").read_text() == "train.py"
    assert (efs / "code/models/net.py").read_text() == "models/net.py"
    assert (efs / "runs/red/.incoming").stat().st_mode & 0o7777 == 0o700
    assert os.listdir(efs / "runs/red/.incoming") == []


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """The folder as a repository, with a file that is no code."""
    (tmp_path / "src/.env").write_text("TOKEN=s3cret")
    git = ["git", "-C", str(tmp_path / "src"), "-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    return f"{tmp_path}/src"


def test_a_script_of_a_repository_is_sent_as_a_folder_is(send: Send, efs: Path, repository: str) -> None:
    sent = send(f"git+{repository}@main:models/net.py")
    commit = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    *words, recorded = sent["answer"]["warnings"]
    assert words == ["models/net.py", "two lines", repository, "main"] and recorded == commit.stdout.strip()
    files = {str(path.relative_to(efs / "code")) for path in (efs / "code").rglob("*") if path.is_file()}
    assert files == {"train.py", "refused.py", "models/net.py"}
    (warning,) = sent["warnings"]
    assert warning == (
        "Not sent with the code, as they may hold secrets: .env. Pass secrets with the option env. To send a file "
        """nevertheless: -e '{"code_include": [".env"]}'"""
    )


def test_a_link_to_a_script_is_sent_with_the_script(send: Send, efs: Path, tmp_path: Path) -> None:
    (tmp_path / "src/latest.py").symlink_to("models/net.py")
    assert send("latest.py")["answer"]["warnings"][0] == "models/net.py"
    assert (efs / "code/latest.py").is_symlink() and not (efs / "code/models/net.py").is_symlink()
    assert (efs / "code/latest.py").read_text() == (efs / "code/models/net.py").read_text() == "models/net.py"


def test_in_check_mode_a_repository_is_cloned_and_nothing_is_sent(send: Send, efs: Path, repository: str) -> None:
    checked = send(f"git+{repository}@main:train.py", check=True)
    assert checked["changed"] and "Not sent" in checked["warnings"][0] and os.listdir(efs) == []
    missing = send(f"git+{repository}@v9:train.py", check=True)
    assert missing["failed"] and f"{repository} at v9 could not be cloned: " in missing["msg"]


def test_many_files_that_are_left_out_are_counted(send: Send, tmp_path: Path) -> None:
    for number in range(22):
        (tmp_path / f"src/{number:02}.pem").write_text("")
    (warning,) = send()["warnings"]
    assert "00.pem, 01.pem, " in warning and "19.pem, 2 more. Pass" in warning


def test_a_script_may_be_named_from_the_home_folder(
    send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    packed, _repository = code_source.pack(code_source.CodeSource("~/src/train.py"))
    assert packed.script == "train.py"


def test_what_was_named_before_is_not_named_again(send: Send, efs: Path, tmp_path: Path) -> None:
    for name in ("a.pem", "credentials.json", "secrets.yml"):
        (tmp_path / f"src/{name}").write_text("x")
    (warning,) = send(announced=["a.pem"], include=["secrets.yml"])["warnings"]
    assert warning.startswith("Not sent with the code, as they may hold secrets: credentials.json. ")
    assert (efs / "code/secrets.yml").exists()
    assert not {"a.pem", "credentials.json"} & set(os.listdir(efs / "code"))


def test_what_is_included_of_a_repository_is_sent(send: Send, efs: Path, repository: str) -> None:
    sent = send(f"git+{repository}@main:train.py", include=[".env"])
    assert "warnings" not in sent and (efs / "code/.env").read_text() == "TOKEN=s3cret"
    missing = send(f"git+{repository}@main:train.py", include=["none.pem"])
    assert missing["failed"] and "code_include is none.pem, and nothing of that path can be sent" in missing["msg"]


def test_in_check_mode_it_is_packed_and_nothing_is_sent(send: Send, efs: Path) -> None:
    assert send(check=True)["changed"] and os.listdir(efs) == []
    missing = send("missing.py", check=True)
    assert missing["failed"] and missing["msg"].endswith("missing.py cannot be read: No such file or directory.")


def test_what_a_killed_process_left_is_removed_after_an_hour(send: Send, efs: Path) -> None:
    left = efs / "runs/red/.incoming/left"
    left.mkdir(parents=True)
    (efs / "runs").chmod(0o1777)
    os.utime(left, times=(time.time() - 4000,) * 2)
    assert not send().get("failed")
    assert os.listdir(efs / "runs/red/.incoming") == []


def test_code_of_a_refused_run_is_removed(send: Send, efs: Path) -> None:
    sent = send("refused.py")
    assert sent["failed"] and sent["msg"] == "refused.py is refused"
    assert os.listdir(efs / "runs/red/.incoming") == []


@pytest.mark.parametrize("prepared", ["runs", "runs/red", "runs/red/.incoming"])
def test_a_folder_that_others_may_write_is_refused_and_nothing_is_sent(send: Send, efs: Path, prepared: str) -> None:
    (efs / prepared / "theirs").mkdir(parents=True)
    (efs / prepared).chmod(0o777)
    sent = send()
    assert sent["failed"] and f"{efs}/{prepared} has mode 0777" in sent["msg"] and "Example: sudo chmod" in sent["msg"]
    assert not [path for path in efs.rglob("*") if path.is_file()]


def test_a_link_is_refused_and_nothing_comes_to_where_it_leads(send: Send, efs: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (efs / "runs/red").mkdir(parents=True)
    (efs / "runs").chmod(0o1777)
    (efs / "runs/red/.incoming").symlink_to(tmp_path / "victim")
    sent = send()
    assert sent["failed"] and "runs/red/.incoming is a link" in sent["msg"]
    assert os.listdir(tmp_path / "victim") == []


def test_a_node_without_the_program_is_a_sentence(send: Send, efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "PROGRAM", "/nowhere/deeplearning")
    sent = send()
    assert sent["failed"] and "deeplearning-master has no command deeplearning: run ansible-playbook" in sent["msg"]
    assert os.listdir(efs) == []


def test_an_archive_that_does_not_unpack_leaves_nothing(send: Send, efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = code_archive.Packed(b"broken", "train.py")
    monkeypatch.setattr(code_archive, "pack", lambda script, folder, include: broken)
    sent = send()
    assert sent["failed"] and "cannot be unpacked in" in sent["msg"] and "Traceback" not in sent["msg"]
    assert os.listdir(efs / "runs/red/.incoming") == []
