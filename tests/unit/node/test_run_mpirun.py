"""The command that starts a plan: each flag of it that a run counts on."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import open_mpi as shared
from ansible_collections.deeplearning.aws.plugins.module_utils.node import horovod
from deeplearning.config import Config
from deeplearning.runs import mpirun
from deeplearning.runs import plan as plans
from deeplearning.runs.plan import Node

from tests.open_mpi import PARAMETERS
from tests.unit.node.runs_kit import record

CONFIG = Config(
    "c", "sg", "r", "b", ("10.0.0.0/16", "10.9.0.0/16"), "me", "master", "AROA", True, "/efs", "fs", None, 8, ""
)


@pytest.mark.parametrize(
    ("program", "started"), [("/usr/bin/mpirun", "/usr/bin/env mpirun"), ("/x/mpirun", "/x/mpirun")]
)
def test_one_process_a_gpu_rank_by_rank_unbound_and_by_the_members_network(
    program: str, started: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: program)
    nodes = [Node(f"deeplearning-worker{n}", f"10.0.0.{n}", 8) for n in range(1, 5)]
    plan = plans.make(record("tensorpack", "horovod"), nodes)
    line = " ".join(mpirun.command(plan, "r1", 0, CONFIG, "/efs/a"))
    assert f" -- {started} --hostfile /efs/a/hostfile -np 32 --map-by slot --bind-to none " in line
    for setting in (
        "plm_rsh_no_tree_spawn 1",
        # The name of it in Open MPI 4 and in 5, which takes the other names of 4.
        "orte_keep_fqdn_hostnames 1",
        "prte_keep_fqdn_hostnames 1",
        "prte_do_not_resolve 0",
        "pml ob1",
        "btl ^openib",
        "btl_vader_single_copy_mechanism none",
        "btl_tcp_if_include 10.0.0.0/16",
        "oob_tcp_if_include 10.0.0.0/16",
    ):
        assert f" --mca {setting} " in line


def test_members_outside_the_known_networks_leave_the_choice_to_open_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: "/usr/bin/mpirun")
    plan = plans.make(record("pytorch", "ddp"), [Node("deeplearning-worker1", "192.168.0.1", 1)])
    words = mpirun.command(plan, "r1", 0, CONFIG, "/efs/a")
    assert "pml" in words and not {"btl_tcp_if_include", "oob_tcp_if_include"} & {*words}


def test_runs_set_what_is_known_of_open_mpi_4_and_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/integration/test_launcher.py compares the table with the Open MPI of its machines."""
    monkeypatch.setattr(shutil, "which", lambda name, path: "/usr/bin/mpirun")
    plan = plans.make(record("pytorch", "ddp"), [Node("deeplearning-worker1", "10.0.0.1", 1)])
    words = list(mpirun.command(plan, "r1", 0, CONFIG, "/efs/a"))
    names = [name for word, name in zip(words, words[1:], strict=False) if word == "--mca"]
    assert sorted(names) == sorted(PARAMETERS)
    of_one_version = {name for name, called in PARAMETERS.items() if not all(called)}
    hostnames = {"orte_keep_fqdn_hostnames", "prte_keep_fqdn_hostnames", "prte_do_not_resolve"}
    assert of_one_version == hostnames | {"btl_vader_single_copy_mechanism", "plm_ssh_num_concurrent"}


@pytest.mark.parametrize(("nodes", "daemons"), [(2, "128"), (128, "128"), (129, "129"), (1023, "1023")])
def test_all_daemons_may_start_at_once(nodes: int, daemons: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: "/usr/bin/mpirun")
    plan = plans.make(
        record("pytorch", "ddp"),
        [Node(f"deeplearning-worker{n}", f"10.0.{n // 250}.{n % 250 + 1}", 1) for n in range(1, nodes + 1)],
    )
    line = " ".join(mpirun.command(plan, "r1", 0, CONFIG, "/efs/a"))
    assert f"--mca plm_rsh_num_concurrent {daemons} --mca plm_ssh_num_concurrent {daemons} " in line


@pytest.mark.parametrize("folders", [shared.FOLDERS, shared.FOLDERS[1:], shared.FOLDERS[2:], shared.FOLDERS[-2:]])
def test_a_run_starts_with_the_open_mpi_that_horovod_is_built_against(
    folders: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with several of them."""
    for folder in folders:
        program = Path(f"{tmp_path}{folder}/mpirun")
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    for module in (horovod, mpirun):
        monkeypatch.setattr(module.open_mpi, "FOLDERS", [f"{tmp_path}{folder}" for folder in module.open_mpi.FOLDERS])
    plan = plans.make(record("tensorpack", "horovod"), [Node("deeplearning-worker1", "10.0.0.1", 8)])
    words = mpirun.command(plan, "r1", 0, CONFIG, "/efs/a")
    assert f"{horovod.mpi_folder()}/mpirun" in words


def test_a_daemon_runs_in_the_same_unit_on_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master starts mpirun itself in that unit, and the daemons of other nodes over ssh."""
    monkeypatch.setattr(shutil, "which", lambda name, path: "/x/mpirun")
    plan = plans.make(record("pytorch", "ddp"), [Node("deeplearning-worker1", "10.0.0.1", 1)])
    command = list(mpirun.command(plan, "r1", 2, CONFIG, "/efs/a"))
    here = command[command.index("systemd-run") : command.index("--")]
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n')
    ssh.chmod(0o755)
    agent = command[command.index("plm_rsh_agent") + 1].split()
    # mpirun separates agents by colons.
    assert not any(":" in word for word in agent)
    started = subprocess.run(
        [*agent, "deeplearning-worker2", "orted", "-mca", "x", "'a b'"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    *_options, host, line = started.stdout.splitlines()
    assert host == "deeplearning-worker2"
    assert shlex.split(line) == ["exec", "sudo", "-n", *here, "/bin/sh", "-c", "orted -mca x 'a b'"]
