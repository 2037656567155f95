"""Published scripts on this machine, unchanged, in the files and variables of a node. What they start is a stand-in:
ssh and mpirun record how they are called, yarn and nslookup answer.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from deeplearning.contract import paths
from deeplearning.members import rendering

from tests.integration.old_scripts import GENERATE, own_program
from tests.published.conftest import Sources
from tests.published.programs import (
    CIFAR10_TRAIN,
    FIRST_RUN,
    GENERATE_TRAINER,
    HEALTH_CHECK,
    METADATA_SETUP,
    RUN,
    Program,
)
from tests.unit.node.members_kit import Cluster, Node
from tools.recipe_docs import documented
from tools.tensorflow_names import FILE

pytestmark = pytest.mark.long

RECORDS = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done >> "$RECORDS/$(basename "$0")"
printf '\\n' >> "$RECORDS/$(basename "$0")"
env -0 > "$RECORDS/$(basename "$0").environment"
"""
OLD = 1
"""The column of run.sh in docs/from-the-old-scripts.md."""


@pytest.fixture
def node(cluster: Cluster) -> Node:
    """The master of a published list."""
    master = cluster.master()
    master.publish()
    assert master.apply().changed
    return master


class Shell:
    """A login shell of a node, as far as its files and variables go."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.home, self.programs, self.records = (folder / name for name in ("home", "programs", "records"))
        for made in (self.home, self.programs, self.records):
            made.mkdir(parents=True)

    def stand_in(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECORDS)
        path.chmod(0o755)

    def run(self, line: str, **variables: str) -> str:
        """Run a line in the home, and return what it prints. The files of the node are below another root."""
        profile = self.node.root / rendering.PROFILE.lstrip("/")
        workers = self.node.root / paths.WORKERS.lstrip("/")
        path = f"{self.programs}:{os.environ['PATH']}"
        known = {"HOME": str(self.home), "PATH": path, "RECORDS": str(self.records), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["bash", "-c", f". {profile}; DEEPLEARNING_WORKERS_PATH={workers}; {line}"],
            cwd=self.home,
            env=known | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def calls(self, program: str) -> list[list[str]]:
        file = self.records / program
        lines = file.read_text().split("\0\n")[:-1] if file.exists() else []
        return [line.split("\0") for line in lines]

    def environment(self, program: str) -> dict[str, str]:
        entries = (self.records / f"{program}.environment").read_text().split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry)


@pytest.fixture
def shell(node: Node, tmp_path: Path) -> Shell:
    shell = Shell(node, tmp_path / "shell")
    shell.stand_in(shell.programs / "ssh")
    return shell


def commands(folder: Path) -> dict[str, list[list[str]]]:
    """Return the words of each command of each node's script."""
    return {
        file.name: [shlex.split(line) for line in file.read_text().splitlines() if line]
        for file in sorted(folder.glob("*.sh"))
    }


def test_generate_trainer_takes_its_six_options_from_a_nodes_variables(
    sources: Sources, shell: Shell, tmp_path: Path
) -> None:
    """Two servers and sixteen workers, as in the guide. The generator of our own tests writes the same."""
    own = tmp_path / "own_generator.py"
    own.write_text(own_program(GENERATE, "generate_trainer.py"))
    written = {}
    for name, generator in (("published", sources.file(GENERATE_TRAINER)), ("own", own)):
        folder = tmp_path / name
        folder.mkdir()
        shell.run(
            f"{sys.executable} {generator} --workers_file_path $DEEPLEARNING_WORKERS_PATH "
            "--worker_count $DEEPLEARNING_WORKERS_COUNT --worker_gpu_count $DEEPLEARNING_WORKER_GPU_COUNT "
            f"--trainer_script_dir {folder} --training_script /efs/train.py --batch_size 128 --data_dir=/efs/data "
            f"--train_dir=/efs/train --log_dir {tmp_path}/logs --max_steps 200000"
        )
        written[name] = commands(folder)
    assert written["published"] == written["own"]
    assert list(written["published"]) == ["deeplearning-worker1.sh", "deeplearning-worker2.sh"]
    words = [command for script in written["published"].values() for command in script[1:]]
    assert len(words) == 2 + 16 and sum("--job_name=ps" in command for command in words) == 2
    servers = "--ps_hosts=deeplearning-worker1:2222,deeplearning-worker2:2222"
    assert all(servers in command and "--max_steps" in command for command in words)


@pytest.mark.parametrize("program", [RUN, FIRST_RUN], ids=["2019", "2018"])
def test_run_sh_starts_mpirun_by_condas_path_with_what_the_page_says(
    sources: Sources, shell: Shell, program: Program
) -> None:
    shell.stand_in(shell.home / "anaconda3/envs/tensorflow_p36/bin/mpirun")
    data = shell.home / "efs"
    (data / "data").mkdir(parents=True)
    output = shell.run(f"EFS_MOUNT={data} bash {sources.file(program)}")
    assert "must be 1 or even" not in output
    assert (shell.home / "hostfile").read_text() == "".join(f"deeplearning-worker{n} slots=8\n" for n in (1, 2))
    (words,) = shell.calls("mpirun")
    assert words[:4] == ["-np", "16", "--hostfile", "./hostfile"]
    start = words.index("python3")
    assert words[start + 1] == f"{shell.home}/tensorpack/examples/FasterRCNN/train.py"
    example, environment = words[start + 2 :], shell.environment("mpirun")
    assert environment["HOROVOD_CYCLE_TIME"] == "0.5" and environment["HOROVOD_FUSION_THRESHOLD"] == "67108864"
    assert ["ubuntu@deeplearning-worker2", "bash -l /home/ubuntu/setup.sh 1>setup.log 2>&1"] in shell.calls("ssh")
    if program is FIRST_RUN:
        assert "TRAIN.STEPS_PER_EPOCH=1875" in example and "TRAIN.EVAL_PERIOD=4" in example
        return
    exported = {
        words[n + 1].partition("=")[0]: words[n + 1].partition("=")[2] for n in range(start) if words[n] == "-x"
    }
    arguments, variables = documented(OLD)
    for name, value in variables.items():
        assert (exported[name] or environment[name]) == value
    assert "/train_log/maskrcnn" in example[example.index("--logdir") + 1]
    passed = dict(word.split("=", 1) for word in example if "=" in word)
    for setting in arguments[arguments.index("--config") + 1 :]:
        key, value = setting.split("=", 1)
        if "not set" in value:
            assert key not in passed
        elif "…" in value:
            assert passed[key].endswith(value.partition("…")[2])
        elif key == "DATA.BASEDIR":
            assert passed[key] == f"{data}/data"
        elif key == "TRAIN.STEPS_PER_EPOCH":
            assert passed[key] == str(120000 // 16)
        else:
            assert passed[key].replace(" ", "") == value


def test_the_health_check_touches_a_file_on_each_node(sources: Sources, shell: Shell) -> None:
    shell.run(f"bash {sources.file(HEALTH_CHECK)}")
    assert [words[-2:] for words in shell.calls("ssh")] == [
        [f"deeplearning-worker{n}", f"touch /efs/deeplearning-worker{n}-health.check"] for n in (1, 2)
    ]


def test_metadata_setup_writes_the_file_that_every_node_of_emr_has(
    sources: Sources, shell: Shell, node: Node, tmp_path: Path
) -> None:
    """The path of its file is changed, and nothing else: this machine is no node of EMR."""
    own = tmp_path / "metadata_setup.sh"
    own.write_text(sources.file(METADATA_SETUP).read_text().replace("/home/hadoop/", f"{shell.home}/"))
    addresses = node.text(paths.ADDRESSES).split()
    for name, line in {
        "yarn": "echo 'ip-2:8041 RUNNING ip-2:8042 0'",
        "nslookup": f"printf 'Server: 10.0.0.2\\nAddress: 10.0.0.2#53\\nName: x\\nAddress: {addresses[1]}\\n'",
        "hostname": f"echo {addresses[0]}",
        "nvidia-smi": "for n in 0 1 2 3 4 5 6 7; do echo GPU $n: NVIDIA; done",
    }.items():
        (shell.programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (shell.programs / name).chmod(0o755)
    (shell.home / ".bashrc").write_text("")
    printed = shell.run(f"cd ~; . {own}").splitlines()
    assert printed[-4:-1] == ["2", f"{shell.home}/worker_ip_file", "8"]
    assert (shell.home / "worker_ip_file").read_text().split() == sorted(addresses)


def test_the_guides_trainer_names_what_tensorflow_2_does_not_have(sources: Sources) -> None:
    """So docs/from-deeplearning-cfn.md changes five lines."""
    exports = json.loads(FILE.read_text(encoding="utf-8"))["exports"]["tensorflow"].split()
    lines = sources.file(CIFAR10_TRAIN).read_text().splitlines()
    missing = {"tf.app.flags": 19, "tf.contrib.framework": 81}
    assert all(name in lines[number - 1] for name, number in missing.items())
    assert not {name.split(".")[1] for name in missing} & set(exports)
    assert "import cifar10" in lines[9]
