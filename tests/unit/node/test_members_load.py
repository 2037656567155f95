"""How busy nodes are: what each writes, and what others read."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deeplearning import programs, safe_files
from deeplearning.config import Config
from deeplearning.contract import node_load, paths
from deeplearning.contract.errors import UserError
from deeplearning.gpus import nvml
from deeplearning.gpus.reading import Gpu, Reading
from deeplearning.members import load
from deeplearning.upkeep import cli, commands

from tests.unit.node.members_kit import Cluster, Node, cluster_in, instance


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A worker of a cluster whose master has published a list."""
    cluster: Cluster = cluster_in(tmp_path, monkeypatch)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    worker = cluster.node(2)
    driver_of(worker).parent.mkdir(parents=True)
    driver_of(worker).touch()
    answer(monkeypatch, gpu(0, 8, 100, 400))
    return worker


def driver_of(node: Node) -> Path:
    return Path(f"{node.root}{paths.NVIDIA_DRIVER}")


def gpu(index: int, busy: int | None, used: int | None, total: int | None, **more: Any) -> Gpu:
    return Gpu(index, busy_percent=busy, memory_used=used, memory_total=total, **more)


def answer(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, error: str | None = None) -> None:
    """Let NVIDIA's library answer this."""
    monkeypatch.setattr(nvml, "read", lambda seconds: Reading("595", gpus, error))


def files(node: Node) -> Path:
    return Path(paths.load(node.config.efs_mount, node.config.cluster))


def publish(node: Node) -> dict[str, Any]:
    with node.here():
        return load.publish(node.config.efs_mount, node.config.cluster, instance(node.number))


def read_all(node: Node) -> list[dict[str, Any]]:
    return load.read_all(node.config.efs_mount, node.config.cluster)


def test_each_node_writes_a_file_and_all_are_read(node: Node) -> None:
    publish(node)
    (read,) = read_all(node)
    assert read["instance_id"] == instance(2) and read["processors"] == os.cpu_count()
    assert read["gpus"] == [{"busy_percent": 8, "memory_percent": 25}] and read["errors"] == []
    assert 0 < read["memory_percent"] < 100 and 0 < read["disk_percent"] <= 100 and abs(read["at"] - time.time()) < 60
    assert stat.S_IMODE((files(node) / f"{instance(2)}.json").stat().st_mode) == 0o644


def test_a_terminal_is_a_login(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = "anna  pts/0  2026-11-23 03:00 (10.0.0.9)\nanna  pts/1  2026-11-23 03:00 (10.0.0.9)\n"
    monkeypatch.setattr(programs, "run", lambda *words: subprocess.CompletedProcess(words, 0, printed, ""))
    assert load.measure()["logins"] == 2


OURS = ("/usr/bin/python3", "-I", f"{paths.LIBRARY}/__main__.py")


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ((*OURS, "data", "stage", "cifar10"), 1),
        ((*OURS, "data", "receive", "--to", "x"), 1),
        ((*OURS, "unpack", "share", "coco2017"), 1),
        ((*OURS, "run", "create", "--json"), 1),
        ((f"{paths.ENVIRONMENTS}/pytorch/bin/python", "-m", "pip", "install", "-r", "/tmp/x.txt"), 1),
        ((*OURS, "members", "report"), 0),
        ((*OURS, "run", "unit", "lenet-1"), 0),
        ((f"{paths.ENVIRONMENTS}/pytorch/bin/python", "train.py"), 0),
        (("/usr/bin/python3", "data"), 0),
        ((), 0),
    ],
)
def test_staging_uploads_and_installations_are_jobs(
    node: Node, words: tuple[str, ...], jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "processes/17").mkdir(parents=True)
    (tmp_path / "processes/self").mkdir()
    (tmp_path / "processes/18").mkdir()  # it has ended meanwhile
    (tmp_path / "processes/17/cmdline").write_text("".join(f"{word}\0" for word in words))
    monkeypatch.setattr(load, "PROCESSES", str(tmp_path / "processes"))
    assert load.measure()["jobs"] == jobs


@pytest.mark.parametrize(
    ("reported", "gpus", "problems"),
    [
        ([gpu(0, 100, 39, 40), gpu(1, 0, 0, 40)], [(100, 98), (0, 0)], []),
        ([gpu(0, None, 39, 40, mig=True)], [], ["GPU 0 does not report its use, as MIG is on"]),
        ([gpu(0, 7, None, None), gpu(1, 7, 4, 40)], [(7, 10)], ["GPU 0 does not report its use"]),
        ([gpu(0, 7, 4, 40), Gpu(1, lost="GPU is lost\x1b[2J")], [(7, 10)], ["GPU 1: GPU is lost?[2J"]),
        ([Gpu(index, lost="x") for index in range(70)], [], [f"GPU {n}: x" for n in range(node_load.MAX_ERRORS)]),
    ],
)
def test_what_gpus_do_not_report_is_an_error(
    reported: list[Gpu],
    gpus: list[tuple[int, int]],
    problems: list[str],
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, *reported)
    record = publish(node)
    assert [(gpu["busy_percent"], gpu["memory_percent"]) for gpu in record["gpus"]] == gpus
    assert record["errors"] == problems and len(read_all(node)) == 1


def test_a_driver_that_is_missing_or_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, error="NVIDIA's library gives no answer within 15 s")
    record = publish(node)
    assert (record["gpus"], record["errors"]) == ([], ["NVIDIA's library gives no answer within 15 s"])
    # As on a machine without GPUs whose image has the library.
    driver_of(node).unlink()
    record = publish(node)
    assert (record["gpus"], record["errors"]) == ([], [])


def change(**values: Any) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return spoil


def link(file: Path) -> None:
    target = file.rename(file.with_suffix(".moved"))
    file.symlink_to(target)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "spoil",
    [
        change(load=float("nan")),
        change(load="1"),
        change(gpus=[{"busy_percent": 101, "memory_percent": 0}]),
        change(gpus=[{"busy_percent": 1}]),
        change(errors=["a\nb"]),
        change(extra=1),
        change(instance_id=instance(3)),
        change(at=0),
        change(at=int(time.time()) + 10**6),
        change(errors=["x" * 20] * node_load.MAX_BYTES),
        lambda file: file.write_text("[" * 10**5),
        lambda file: file.rename(file.with_name(f"{instance(9)}.json")),
        link,
        pipe,
    ],
)  # fmt: skip
def test_malformed_and_foreign_files_are_left_out(spoil: Callable[[Path], None], node: Node) -> None:
    publish(node)
    spoil(files(node) / f"{instance(2)}.json")
    assert read_all(node) == []


def test_files_of_another_user_are_left_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(node)
    monkeypatch.setattr(safe_files, "OWNER", os.getuid() + 1)
    assert read_all(node) == []


def test_files_of_machines_that_are_gone_are_removed_after_a_day(node: Node) -> None:
    publish(node)
    file = files(node) / f"{instance(2)}.json"
    os.utime(file, (0, time.time() - load.REMOVED_SECONDS - 1))
    assert read_all(node) == [] and not file.exists()


def test_a_link_in_the_folders_place_is_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    files(node).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        publish(node)
    assert not list((tmp_path / "elsewhere").iterdir()) and read_all(node) == []


def test_before_the_first_list_there_is_no_folder(node: Node) -> None:
    with node.here(), pytest.raises(UserError, match="has no folder of blue yet: the master creates it"):
        load.publish(node.config.efs_mount, "blue", instance(2))
    assert load.read_all(node.config.efs_mount, "blue") == []


def test_a_file_system_that_is_missing_or_hangs_is_one_sentence(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "EFS_SECONDS", 0.1)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="does not answer within 0.1 s"):
        patch.setattr(safe_files, "open_folder", lambda *_words, create: time.sleep(30))
        publish(node)
    (node.root / "etc/mounts").write_text("")
    with pytest.raises(UserError, match="nothing is mounted"):
        publish(node)


def test_the_timer_that_reports_writes_the_load_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[bool] = []

    def report(_config: Config, trust_cache: bool) -> tuple[bool, str]:
        reported.append(trust_cache)
        return False, "a fault"

    monkeypatch.setattr(commands, "report", report)
    with node.here():
        Path(paths.CONFIGURING).touch()
        cli.main(["report", "--repeated"])
        assert not read_all(node)
        Path(paths.CONFIGURING).unlink()
        cli.main(["report", "--repeated"])
    assert reported == [True] and len(read_all(node)) == 1
