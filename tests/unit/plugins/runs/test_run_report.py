"""report.yml against a master that lies: what is written on this machine, and what is sent back."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.action.run_report import ActionModule
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program, report_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

from tests.unit.conftest import Account
from tests.unit.plugins.hostile_kit import EVIL_IDS
from tests.unit.plugins.runs.report_kit import a_run


class Connection:
    transport = "local"


class Task:
    check_mode = False


class Report(ActionModule):
    """With a master that is a folder of this machine. What is sent to it is kept."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments, self._connection, self._task, self._display = arguments, Connection(), Task(), Display()
        self.sent: list[bytes] = []

    def validate_argument_spec(self, argument_spec: Any = None) -> Any:
        return None, self._arguments

    def _low_level_execute_command(self, command: str, sudoable: bool = True, in_data: bytes | None = None) -> Any:
        if in_data:
            self.sent.append(in_data)
        ran = subprocess.run(["/bin/sh", "-c", command], input=in_data or b"", capture_output=True, check=False)
        return {"rc": ran.returncode, "stdout": ran.stdout.decode(), "stderr": ran.stderr.decode()}


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its runs; the master's program lists what is in `listed.json`."""
    program = tmp_path / "deeplearning"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/listed.json\n")
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    runs = tmp_path / "efs/runs/red"
    a_run(runs, "mine", 2, 100)
    return runs


@pytest.fixture
def report(tmp_path: Path, master: Path) -> Callable[..., tuple[dict[str, Any], Report]]:
    def make(*runs: Any, listed: Any = None) -> tuple[dict[str, Any], Report]:
        (tmp_path / "listed.json").write_text(json.dumps({"runs": listed}))
        login = {"region": "us-east-1", "profile": "", "role_arn": ""}
        action = Report({"runs": list(runs), "root": str(master), "folder": str(tmp_path / "here/reports"), **login})
        return action.run(None, {"inventory_hostname": "deeplearning-master"}), action

    return make


def here(tmp_path: Path) -> set[str]:
    return {str(path.relative_to(tmp_path / "here")) for path in tmp_path.glob("here/**/*") if not path.is_dir()}


def test_a_report_is_made_and_only_its_own_files_are_sent(report: Any, master: Path, tmp_path: Path) -> None:
    secret = tmp_path / "here/reports/mine/id_ed25519"
    secret.parent.mkdir(parents=True)
    secret.write_text("TOP SECRET")
    (secret.parent / "report.html").write_text("an older report")
    result, action = report(listed=[{"run_id": "mine", "state": "finished"}, {"run_id": "other", "state": "running"}])
    assert result["runs"] == ["mine"], result
    (sent,) = action.sent
    page = (secret.parent / "report.html").read_bytes()
    assert sent == page and b"<svg" in page
    assert [path.name for path in (master / "reports/mine").iterdir()] == ["report.html"]
    assert (master / "reports/mine/report.html").read_bytes() == page
    assert "reports/.runs/mine/metrics/rank1.jsonl" in here(tmp_path)


@pytest.mark.parametrize("evil", EVIL_IDS)
def test_a_run_that_the_master_calls_by_a_path_is_refused(report: Any, tmp_path: Path, evil: Any) -> None:
    refused(tmp_path, *report(listed=[{"run_id": evil, "state": "finished"}]))


@pytest.mark.parametrize("evil", [name for name in EVIL_IDS if isinstance(name, str)])
def test_so_is_one_of_a_sweep_whose_ids_the_master_has_answered(report: Any, tmp_path: Path, evil: str) -> None:
    refused(tmp_path, *report("mine", evil))


def refused(tmp_path: Path, result: dict[str, Any], action: Report) -> None:
    """In one sentence, with nothing written and nothing sent."""
    assert result["failed"] and result["msg"] and "\n" not in result["msg"]
    assert here(tmp_path) == set() and action.sent == []


@pytest.mark.parametrize("listed", [None, "x", {"run_id": "mine"}, [["mine"]], [{"run_id": "mine", "state": "/etc"}]])
def test_a_list_that_is_none_is_refused(report: Any, tmp_path: Path, listed: Any) -> None:
    result, action = report(listed=listed)
    assert "run list" in result["msg"]
    refused(tmp_path, result, action)


def test_of_a_run_the_files_that_a_report_needs_are_packed_whatever_lies_next_to_them(
    report: Any, master: Path, tmp_path: Path
) -> None:
    metrics = master / "mine/metrics"
    (metrics / "rank0.eval.jsonl").write_text("{}")
    (metrics / "rank7.jsonl").mkdir()
    (metrics / "rank8.jsonl").hardlink_to(metrics / "rank0.jsonl")
    (master / "mine/events.jsonl").write_text("{}")
    elsewhere = master.parent / "elsewhere"
    (master / "mine").rename(elsewhere)
    (master / "mine").symlink_to(elsewhere)
    result, _made = report("mine")
    assert result["runs"] == ["mine"], result
    fetched = tmp_path / "here/reports/.runs/mine"
    names = {str(path.relative_to(fetched)) for path in fetched.rglob("*") if path.is_file()}
    assert names == {"run.json", "result.json", "state.json", *(f"metrics/rank{n}.jsonl" for n in (0, 1, 8))}


def test_a_run_under_anothers_name_is_refused(report: Any, master: Path) -> None:
    (master / "mine").rename(master / "other")
    result, action = report("other")
    assert result["failed"] and "holds another run" in result["msg"] and action.sent == []


def test_a_connection_that_the_node_ends_is_reported_in_one_clean_line() -> None:
    class Ends(Report):
        def _low_level_execute_command(self, *_: Any, **__: Any) -> Any:
            raise AnsibleConnectionFailure("Failed to connect: \x1b]52;c;ZXZpbA==\x07\n\x1b[2J")

    with pytest.raises(AnsibleConnectionFailure) as failure:
        node_program.execute(Ends({}), "true")
    assert not any(character in str(failure.value) for character in "\x1b\x07\n")


def test_a_run_that_is_not_there_is_a_sentence(report: Any) -> None:
    result, _made = report("none")
    assert result["failed"] and "There is no run in" in result["msg"]


def archive(*members: tuple[tarfile.TarInfo | str, bytes], packed: bool = True) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if packed else "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name) if isinstance(name, str) else name
            member.size = len(content) if member.isfile() else 0
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def of_type(name: str, kind: bytes, leads_to: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, leads_to
    return member


def beyond_path_max() -> bytes:
    """A chain of links whose resolved path is longer than PATH_MAX: Python's own filter lets it out of the folder."""
    members: list[tuple[tarfile.TarInfo | str, bytes]] = []
    path = ""
    for letter in "abcdefghijklmnop":
        members.append((of_type(f"{path}{'d' * 247}", tarfile.DIRTYPE), b""))
        members.append((of_type(f"{path}{letter}", tarfile.SYMTYPE, "d" * 247), b""))
        path += f"{'d' * 247}/"
    link = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members.append((of_type(link, tarfile.SYMTYPE, "../" * 16), b""))
    members.append((of_type("escape", tarfile.SYMTYPE, f"{link}/../../.ssh"), b""))
    return archive(*members, ("escape/authorized_keys", b"evil"))


def recursive() -> bytes:
    """Headers in headers, deeper than Python recurses."""
    plain = archive((of_type("x", tarfile.XHDTYPE), b""), packed=False)[:512] * 3000
    return gzip.compress(plain + bytes(1024))


def sparse() -> bytes:
    """Small in the archive, and as large as allowed on the disk."""
    member = tarfile.TarInfo("metrics/rank0.jsonl")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(64 << 20)}
    holes = b"1\n0\n1\n".ljust(512, b"\0") + b"{"
    member.size = len(holes)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(holes))
    return out.getvalue()


EVIL_ARCHIVES = {
    "no archive": b"nonsense",
    "cut off": archive(("run.json", b"{}" * 5000))[:-40],
    "a link": archive((of_type("run.json", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "a hard link": archive((of_type("run.json", tarfile.LNKTYPE, "/etc/passwd"), b"")),
    "a device": archive((of_type("run.json", tarfile.CHRTYPE), b"")),
    "a pipe": archive((of_type("metrics/rank0.jsonl", tarfile.FIFOTYPE), b"")),
    "a folder": archive((of_type("metrics", tarfile.DIRTYPE), b"")),
    "a path upwards": archive(("../../evil", b"evil")),
    "an absolute path": archive(("/tmp/deeplearning-evil", b"evil")),
    "a path within": archive(("metrics/../../evil", b"evil")),
    "another file": archive(("metrics/tasks/main.yml", b"evil")),
    "a rank that is none": archive(("metrics/rank../../../x.jsonl", b"evil")),
    "a chain of links": beyond_path_max(),
    "headers without end": recursive(),
    "a file with holes": sparse(),
    "a file twice": archive(("run.json", b"{}"), ("run.json", b"{}")),
}


@pytest.mark.parametrize("evil", EVIL_ARCHIVES)
def test_an_archive_brings_nothing_but_the_files_that_were_named(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: str
) -> None:
    monkeypatch.setattr(node_program, "read_bytes", lambda *_, **__: EVIL_ARCHIVES[evil])
    result, action = report("mine")
    assert result["msg"].startswith("What deeplearning-master sends as run mine"), result
    refused(tmp_path, result, action)
    assert not Path("/tmp/deeplearning-evil").exists() and not (tmp_path / "evil").exists()


def zeros(parts: int, size: int, written: int) -> bytes:
    """Small when packed. Each part's header says its size."""
    out = io.BytesIO()
    with gzip.open(out, "wb", compresslevel=1) as packed:
        for part in range(parts):
            member = tarfile.TarInfo(f"metrics/rank{part}.jsonl")
            member.size = size
            packed.write(member.tobuf() + bytes(written))
    return out.getvalue()


@pytest.mark.parametrize(("parts", "size", "written"), [(1, 1 << 31, 0), (300, 1 << 20, 1 << 20)])
def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, size: int, written: int
) -> None:
    monkeypatch.setattr(report_files, "MOST_UNPACKED", 64 << 20)
    with pytest.raises(InvalidValue, match="MiB"):
        report_files.unpack(zeros(parts, size, written), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_node_that_never_ends_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="sends more than 1 MiB"):
        node_program.read_bytes(Connection(), "cat /dev/zero", "n", 1 << 20)
    # With its output closed, too. What it starts is one process, so that it ends with this.
    for command in ("", "exec 1>&-; "):
        with pytest.raises(UserError, match="sends more than 16 MiB"):
            node_program.read_bytes(Connection(), f"{command}head -c 17M /dev/zero >&2; exec sleep 600", "n", 1 << 20)
    program = tmp_path / "deeplearning"
    program.write_text("#!/bin/sh\nexec cat /dev/zero\n")
    program.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(program))
    with (
        pytest.raises(UserError, match="sends more than 16 MiB"),
        node_program.stream(Connection(), ["run", "follow", "mine"], "n") as lines,
    ):
        assert not list(lines)


def test_the_costs_are_at_the_prices_of_today(report: Any, master: Path, tmp_path: Path, aws: Account) -> None:
    times = {"started": "2026-11-23T10:00:00Z", "ended": "2026-11-23T12:00:00Z"}
    result = {"state": "finished", "attempts": [{**times, "machines": {"c5.large": 3}}]}
    (master / "mine/result.json").write_text(json.dumps(result))
    answer, _action = report("mine")
    assert not answer.get("failed"), answer
    page = (tmp_path / "here/reports/mine/report.html").read_text()
    assert "<td>0.51</td>" in page and "Prices: AWS&#x27;s Price List API, 20" in page
    assert "pricing:GetProducts" in aws.calls()
