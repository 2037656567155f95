"""The command that starts a plan: each flag of it that a run counts on."""

from __future__ import annotations

import shutil

import pytest
from deeplearning.config import Config
from deeplearning.run import mpirun
from deeplearning.run import plan as plans
from deeplearning.run.plan import Node, Options

CONFIG = Config(
    "c", "sg", "r", "b", ("10.0.0.0/16", "10.9.0.0/16"), "me", "master", "AROA", True, "/efs", "fs", None, 8
)


@pytest.mark.parametrize(
    ("program", "started"), [("/usr/bin/mpirun", "/usr/bin/env mpirun"), ("/x/mpirun", "/x/mpirun")]
)
def test_one_process_a_gpu_rank_by_rank_unbound_and_by_the_members_network(
    program: str, started: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: program)
    nodes = [Node(f"deeplearning-worker{n}", f"10.0.0.{n}", 8) for n in range(1, 5)]
    plan = plans.made(Options("tensorpack", "horovod"), nodes)
    line = " ".join(mpirun.command(plan, "r1", 0, CONFIG, "/efs/a"))
    assert f" -- {started} --hostfile /efs/a/hostfile -np 32 --map-by slot --bind-to none " in line
    for setting in (
        "plm_rsh_no_tree_spawn 1",
        "pml ob1",
        "btl ^openib",
        "btl_vader_single_copy_mechanism none",
        "btl_tcp_if_include 10.0.0.0/16",
        "oob_tcp_if_include 10.0.0.0/16",
    ):
        assert f" --mca {setting} " in line
