"""Runs as the operator has them, by playbooks, on a master and two workers: each framework from start to report, own
scripts with awkward arguments, what fails, what is stopped, and what is refused before anything starts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing.booted import command, wait_for
from tests.integration.machines import Cluster, Played
from tests.integration.runs import repository

MASTER = "deeplearning-master"
QUICK = ["--epochs", "1", "--num-examples", "1200"]
# oneDNN has a layout of its own for the weights of its wide convolutions.
RESIDUAL = ["--network", "resnet", "--num-layers", "8"]
TRAINED = [
    ("mxnet", "dist_sync", 3),
    pytest.param("mxnet", "dist_device_sync", 3, marks=pytest.mark.long),
    pytest.param("mxnet", "dist_async", 3, marks=pytest.mark.long),
    pytest.param("mxnet", "local", 1, marks=pytest.mark.long),
    pytest.param("mxnet", "device", 1, marks=pytest.mark.long),
    pytest.param("pytorch", "ddp", 3, marks=pytest.mark.gate),
    # On three nodes test_staging.py trains it.
    ("tensorflow", "multi_worker_mirrored", 2),
    pytest.param("tensorflow", "parameter_server", 3, marks=pytest.mark.long),
    ("tensorpack", "horovod", 3),
]
# 1000 samples on 2 nodes in batches of 50 are 10 steps of an epoch.
OPTIONS = [
    *(
        "--num-examples",
        "1000",
        "--batch-size",
        "50",
        "--max-steps",
        "14",
        "--checkpoint-steps",
        "4",
        "--log-steps",
        "2",
    ),
    *("--optimizer", "adam", "--lr", "0.002", "--lr-factor", "0.5", "--lr-step-epochs", "1", "--lr-steps", "12"),
    *("--weight-decay", "0.0001", "--crop", "--mirror"),
]
# Runs that several tests check.
SHARED: dict[str, dict[str, Any]] = {
    # As in tools/demo.
    "demo": {"framework": "pytorch", "script_args": ["--epochs", "2"]},
    "sweep": {"framework": "mxnet", "sweep": [1, 3], "script_args": QUICK},
    **{
        f"{framework}-options": {
            "framework": framework,
            "nodes": 2,
            # MXNet computes with 16 bits on GPUs only.
            "script_args": [*OPTIONS, *([] if framework == "mxnet" else ["--mixed-precision"])],
        }
        for framework in ("mxnet", "pytorch", "tensorflow", "tensorpack")
    },
}
SCRIPT = """
import json, os, sys, time
rank, folder = os.environ["DEEPLEARNING_RANK"], os.environ["DEEPLEARNING_RUN_DIR"]
open(f"{folder}/argv{rank}.json", "w").write(json.dumps([sys.argv[1:], os.environ.get("SECRET")]))
if "--fail" in sys.argv and rank == "1":
    print("this is what was wrong", file=sys.stderr)
    raise SystemExit(7)
if "--stay" in sys.argv:
    print("began to stay", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(training_cluster: Cluster) -> Cluster:
    return training_cluster


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "my script.py"
    file.write_text(SCRIPT)
    return str(file)


def train(cluster: Cluster, **extra: Any) -> Played:
    return cluster.play("train.yml", **extra)


def own(cluster: Cluster, script: str, **extra: Any) -> Played:
    return train(cluster, framework="pytorch", python="/usr/bin/python3", script=script, **extra)


def message(played: Played) -> str:
    """Without the ends of lines, which may be anywhere in a sentence."""
    return " ".join(played.output.split())


def result(cluster: Cluster, run: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/{run}/result.json"))
    return result


@pytest.fixture(scope="module")
def trained(cluster: Cluster) -> Callable[[str], str]:
    """Return a function that returns what the training of a shared run has printed. Each trains once."""

    @cache
    def output(run: str) -> str:
        ran = train(cluster, dataset="generated", run_id=run, **SHARED[run])
        assert ran.code == 0, ran.output[-6000:]
        return ran.output

    return output


DEMO = Path(__file__).resolve().parents[2] / "tools/demo"
REPEATED = 10


def test_all_that_make_demo_prints_is_at_most_60_lines_without_a_warning(
    cluster: Cluster, trained: Callable[[str], str]
) -> None:
    # Tests show the deprecations that installed packages cause, which ansible.cfg hides.
    # The recap is the tests' own.
    output = [played.partition("PLAY RECAP")[0] for played in (cluster.site, trained("demo"))]
    printed = [line for line in "".join(output).splitlines() if line and "eprecation" not in line.lower()]
    # The rest is in the script itself: two steps, and what follows at its end.
    closing = DEMO.read_text().partition("<<WORDS\n")[2].split("\n\n")[-1].splitlines()[:-1]
    # How often a wait is reported depends on how busy this machine is, and AWS may show a resource late, which repeats
    # its role: lines that begin alike count once, and REPEATED is how many of them an idle machine prints.
    alike = {re.sub(r"\bi-.*|\d.*", "", line) for line in printed}
    assert len(alike) + REPEATED + 2 + len(closing) <= 60, "\n".join(printed)
    for word in ("[WARNING]", "included: ", "skipping: "):
        assert not [line for line in printed if word in line], word
    assert "PLAY [Provision the cluster]" in printed
    assert [line for line in printed if re.fullmatch(r"  file system +1 created +\d+:\d\d", line)]


# The shared training and its run that have a framework's default distribution.
DEFAULTS = {
    ("pytorch", "ddp"): ("demo", "demo"),
    ("mxnet", "dist_sync"): ("sweep", "sweep-3"),
    ("tensorflow", "multi_worker_mirrored"): ("tensorflow-options", "tensorflow-options"),
}


@pytest.mark.parametrize(("framework", "distribution", "nodes"), TRAINED)
def test_each_framework_and_distribution_trains_and_leaves_its_folder_complete(
    cluster: Cluster, trained: Callable[[str], str], framework: str, distribution: str, nodes: int
) -> None:
    if (framework, distribution) in DEFAULTS:
        shared, run = DEFAULTS[framework, distribution]
        output = trained(shared)
    else:
        run = f"{framework}-{distribution}".replace("_", "-")
        asked: dict[str, Any] = {"framework": framework, "distribution": distribution, "nodes": nodes, "run_id": run}
        arguments = [*QUICK, *(RESIDUAL if distribution == "dist_device_sync" else ())]
        ran = train(cluster, **asked, dataset="generated", script_args=arguments)
        assert ran.code == 0, ran.output[-6000:]
        output = ran.output
    assert f"run {run} has finished" in output
    # A quick one may be in its last epoch when it is looked at first.
    progress = r"epoch \d+, step \d+, [0-9:]+ left, loss [0-9.]+, accuracy [0-9.]+ %"
    assert re.search(progress, output), output[-3000:]
    folder = f"/efs/runs/{cluster.name}/{run}"
    record = json.loads(cluster.says(MASTER, f"cat {folder}/run.json"))
    assert (record["framework"], record["distribution"]) == (framework, distribution)
    assert result(cluster, run)["state"] == "finished"
    # TensorFlow's parameter servers have one coordinator, which alone reports for all workers.
    assert result(cluster, run)["final"]["ranks"] == (1 if distribution == "parameter_server" else nodes)
    left = cluster.says(MASTER, f"cd {folder} && ls metrics checkpoints tensorboard logs")
    # TensorPack names its checkpoints itself.
    checkpoint = "model-" if framework == "tensorpack" else "epoch-0001"
    for what in ("rank0.jsonl", checkpoint, "events.out", "deeplearning-worker1.worker0.log"):
        assert what in left, (run, what, left)


def test_one_figure_of_all_ranks_is_said_of_the_newest_checkpoint_and_a_report_is_made(
    cluster: Cluster, trained: Callable[[str], str]
) -> None:
    trained("demo")
    accuracy = result(cluster, "demo")["final"]["val_accuracy"]
    evaluated = message(cluster.play("playbooks/evaluate.yml", run_id="demo"))
    figure = f"demo, after epoch 2: {accuracy * 1000:.0f} of 1000 right, accuracy {accuracy:.4f} on generated data"
    assert figure in evaluated, evaluated[-3000:]
    (page,) = re.findall(r"The report: (\S+)", trained("sweep"))
    assert "sweep-1" in Path(page).read_text() and "sweep-3" in Path(page).read_text()
    assert "<svg" in Path(page).read_text()
    assert "report.html" in cluster.says(MASTER, f"ls /efs/runs/{cluster.name}/reports/sweep-1-and-1-more")


# Each with the framework alone: 2 images of zeros get 10 scores.
LOADS = {
    "mxnet": """
import mxnet as mx
network = mx.gluon.SymbolBlock.imports("model-symbol.json", ["data"], "model-0000.params")
print(network(mx.nd.zeros((2, 3, 32, 32))).shape)
""",
    "pytorch": """
import torch
from torch import nn
layers = [nn.Conv2d(3, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AdaptiveMaxPool2d(7)]
network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2450, 256), nn.ReLU(), nn.Linear(256, 10))
network.load_state_dict(torch.load("model.pt", weights_only=True))
print(tuple(network(torch.zeros(2, 3, 32, 32)).shape))
""",
    "tensorflow": """
import tensorflow as tf
function = tf.saved_model.load(".").signatures["serving_default"]
(scores,) = function(tf.zeros((2, 32, 32, 3))).values()
print(tuple(scores.shape))
""",
    "tensorpack": """
import tensorflow as tf
function = tf.saved_model.load(".").signatures["prediction_pipeline"]
(scores,) = function(tf.zeros((2, 32, 32, 3), tf.uint8)).values()
print(tuple(scores.shape))
""",
}


@pytest.mark.parametrize(
    "framework",
    ["pytorch", "tensorflow", *(pytest.param(name, marks=pytest.mark.long) for name in ("mxnet", "tensorpack"))],
)
def test_all_trainers_take_the_same_options_and_leave_a_model_for_the_framework_alone(
    cluster: Cluster, trained: Callable[[str], str], framework: str
) -> None:
    run = f"{framework}-options"
    trained(run)
    folder = f"/efs/runs/{cluster.name}/{run}"
    lines = [json.loads(line) for line in cluster.says(MASTER, f"cat {folder}/metrics/rank1.jsonl").splitlines()]
    assert [line["step"] for line in lines if line["val_accuracy"] is None] == [2, 4, 6, 8, 10, 12, 14]
    assert [line["step"] for line in lines if line["val_accuracy"] is not None] == [10, 14]
    assert all(line["loss"] < 10 and line["steps"] == 14 for line in lines)
    saved = cluster.says(MASTER, f"ls {folder}/checkpoints")
    names = ("model-12", "model-14") if framework == "tensorpack" else ("epoch-0001-step-000002", "-step-000004")
    assert all(name in saved for name in names), saved
    python = f"cd {folder}/model && /opt/deeplearning/env/{framework}/bin/python -"
    loaded = cluster.ssh(MASTER, python, input=LOADS[framework])
    assert loaded.stdout.endswith("(2, 10)\n"), loaded


def test_the_files_of_a_run_come_to_this_machine_and_resume_after_an_interruption(
    cluster: Cluster, trained: Callable[[str], str], tmp_path: Path
) -> None:
    run, to, large = "pytorch-options", tmp_path / "got", 512 << 20
    folder, get = f"/efs/runs/{cluster.name}/{run}", {"run_id": run, "to": str(to)}
    ended = " ".join(trained(run).split())
    assert f"its model on the nodes: {folder}/model" in ended
    assert f"ansible-playbook deeplearning.aws.get -e run_id={run}" in ended
    cluster.says(MASTER, f"truncate -s {large} {folder}/model/large")
    try:
        preview = cluster.play("playbooks/get.yml", "--check", **get)
        assert preview.code == 0 and "512.0 MiB model/large" in message(preview), preview.output[-3000:]
        assert not to.exists()
        part = to / ".partial/model/model/large"
        with cluster.playing("playbooks/get.yml", **get):
            wait_for(lambda: part.exists() and part.stat().st_size > 1 << 20, 120, "the file begins to arrive")
        sending = ("pgrep", "-f", f"[r]un send {run}")
        wait_for(lambda: command(*sending).returncode == 1, 120, "the interrupted transfer has ended")
        assert 1 << 20 < part.stat().st_size < large
        got = cluster.play("playbooks/get.yml", **get)
        assert got.code == 0 and "All were compared by SHA-256." in message(got), got.output[-3000:]
        sums = cluster.says(MASTER, f"cd {folder} && find model -type f -exec sha256sum {{}} +")
        assert digests(to) == {name: digest for digest, name in (line.split() for line in sums.splitlines())}
        again = cluster.play("playbooks/get.yml", **get)
        assert again.code == 0 and again.changed == 0 and "had been there" in message(again), again.output[-3000:]
    finally:
        cluster.says(MASTER, f"rm {folder}/model/large")
    checkpoints = cluster.play("playbooks/get.yml", run_id=run, what="checkpoints", to=str(tmp_path / "checkpoints"))
    assert checkpoints.code == 0, checkpoints.output[-3000:]
    saved = cluster.says(MASTER, f"cd {folder} && ls -d checkpoints/*").splitlines()
    assert set(digests(tmp_path / "checkpoints")) == set(saved)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


ACTING = [
    "--optimizer adam",
    "--momentum 0.2",
    "--weight-decay 0.1",
    "--lr-factor 0.01 --lr-steps 2",
    "--lr-factor 0.01 --lr-step-epochs 1",
    "--crop",
    "--mirror",
    "--mixed-precision",
]


@pytest.mark.long
@pytest.mark.parametrize("framework", LOADS)
def test_each_option_of_each_trainer_changes_what_is_learned(cluster: Cluster, framework: str) -> None:
    data, run, trainers = "/tmp/few-images", "/tmp/few-steps", "/opt/deeplearning/trainers"
    cluster.says(MASTER, f"python3 {trainers}/generate.py {data} --train 64 --test 16")
    python = f"/opt/deeplearning/env/{framework}/bin/python {trainers}/cifar10_{framework}.py"
    # As runs have it.
    keras = "TF_USE_LEGACY_KERAS=1" if framework == "tensorflow" else ""
    arguments = f"--data-dir {data} --run-dir {run} --batch-size 16 --max-steps 8"

    def losses(option: str) -> list[float]:
        cluster.says(MASTER, f"rm -rf {run} && {keras} {python} {arguments} {option}")
        lines = map(json.loads, cluster.says(MASTER, f"cat {run}/metrics/rank0.jsonl").splitlines())
        return [line["loss"] for line in lines if line["val_accuracy"] is not None]

    plain = losses("")
    assert len(plain) == 2
    options = ACTING[:-1] if framework == "mxnet" else ACTING
    same = {option for option in options if losses(option) == plain}
    assert not same
    # Only the second epoch has another rate.
    assert losses("--lr-factor 0.01 --lr-step-epochs 1")[0] == pytest.approx(plain[0], abs=1e-3)


AWKWARD = ["--name", "a b", "$HOME \"q\" 'p' `x` \\", "{rank} of {world}", "", "ü"]


@pytest.fixture(scope="module")
def awkward(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Train with an own script, with arguments that a shell would change, on two nodes."""
    folder = tmp_path_factory.mktemp("awkward")
    script, beside = folder / "my script.py", folder / "src"
    script.write_text(SCRIPT)
    (beside / "package").mkdir(parents=True)
    (beside / "package/layers.py").write_text("")
    options = {"script_args": AWKWARD, "env": {"SECRET": "s3cr3t 'x'"}, "sync": str(beside)}
    ran = own(cluster, str(script), **options, run_id="awkward", nodes=2)
    assert ran.code == 0, ran.output[-3000:]
    return ran


def test_a_script_of_ones_own_is_evaluated_in_its_own_words(cluster: Cluster, awkward: Played) -> None:
    refused = cluster.play("playbooks/evaluate.yml", run_id="awkward")
    assert refused.code == 2 and "which has no checkpoint to evaluate: train it first" in refused.output
    folder = f"/efs/runs/{cluster.name}/awkward"
    for number in (1, 2):
        cluster.says(MASTER, f"touch -d @{number} {folder}/checkpoints/weights-{number}.bin")
    extra = {"run_id": "awkward", "evaluate_args": ["--test={checkpoint}"]}
    evaluated = message(cluster.play("playbooks/evaluate.yml", **extra))
    match = re.search(r"awkward was evaluated. What the script printed is on the nodes, in (\S+)/logs", evaluated)
    assert match, evaluated[-3000:]
    heard = json.loads(cluster.says(MASTER, f"cat {match[1]}/argv0.json"))[0]
    assert heard == [*AWKWARD[:3], "0 of 2", *AWKWARD[4:], f"--test={folder}/checkpoints/weights-2.bin"]


# As its idx files are, but few.
MNIST = """
import os, random, struct
os.makedirs("/efs/few-digits", exist_ok=True)
for which, count in (("train", 600), ("t10k", 100)):
    labels = bytes(random.randrange(10) for _ in range(count))
    images = b"".join(bytes([20 * label]) * 784 for label in labels)
    for kind, head, content in (
        ("images-idx3", struct.pack(">IIII", 2051, count, 28, 28), images),
        ("labels-idx1", struct.pack(">II", 2049, count), labels),
    ):
        with open(f"/efs/few-digits/{which}-{kind}-ubyte", "wb") as file:
            file.write(head + content)
"""


def test_a_trainer_takes_mnist_and_each_node_has_its_data_on_its_own_disk(cluster: Cluster) -> None:
    assert cluster.ssh(MASTER, "python3 -", input=MNIST).returncode == 0
    asked = {"framework": "mxnet", "nodes": 2, "dataset": "/efs/few-digits", "data_on": "node", "run_id": "digits"}
    ran = train(cluster, **asked, script_args=[*QUICK, "--batch-size", "50"])
    assert ran.code == 0, ran.output[-6000:]
    taken = json.loads(cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/digits/run.json"))["data"]
    assert taken.startswith("/opt/deeplearning/data/")
    for node in (MASTER, "deeplearning-worker2"):
        assert "train-images-idx3-ubyte" in cluster.says(node, f"ls {taken}")
    assert "600 + 100 samples" in cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/digits/logs/*.worker1.log")

    # A machine in the place of a lost one has no copy: it makes it before it takes part.
    for node in (MASTER, "deeplearning-worker2"):
        cluster.says(node, f"sudo rm -r {taken}")
    evaluated = cluster.play("playbooks/evaluate.yml", run_id="digits")
    assert evaluated.code == 0 and "digits, after epoch 1: " in evaluated.output, evaluated.output[-6000:]
    assert "train-images-idx3-ubyte" in cluster.says("deeplearning-worker2", f"ls {taken}")


def test_a_script_in_a_repository_is_sent_and_its_run_lies_where_it_is_wanted(cluster: Cluster, tmp_path: Path) -> None:
    train = 'import sys; sys.path.append("shared"); import word; print("the word is", word.WORD)'
    commit = repository(
        tmp_path, {"cifar/train.py": train, "shared/word.py": 'WORD = "shared"', ".env": "TOKEN=s3cret"}
    )
    script = f"git+file://{tmp_path}@main:cifar/train.py"
    ran = own(cluster, script, nodes=1, run_id="cloned", runs_dir="/efs/elsewhere")
    assert ran.code == 0, ran.output[-3000:]
    assert "may hold secrets: .env. " in message(ran)
    usual = f"/efs/runs/{cluster.name}/cloned"
    assert cluster.says(MASTER, f"readlink {usual}") == "/efs/elsewhere/cloned"
    assert json.loads(cluster.says(MASTER, f"cat {usual}/run.json"))["code"]["commit"] == commit
    assert "the word is shared" in cluster.says(MASTER, "cat /efs/elsewhere/cloned/logs/*.worker0.log")
    assert cluster.says(MASTER, f"ls -A {usual}/code") == "cifar\nshared"


def test_a_module_is_started_in_the_root_of_its_code_and_evaluated_there(cluster: Cluster, tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "word.py").write_text('WORD = "relative"')
    (package / "train.py").write_text("import os; from .word import WORD; print(__package__, WORD, os.getcwd())")
    options = {"framework": "pytorch", "python": "/usr/bin/python3", "module": "pkg.train", "sync": str(tmp_path)}
    ran = train(cluster, **options, nodes=1, run_id="module")
    assert ran.code == 0, ran.output[-3000:]
    run = f"/efs/runs/{cluster.name}/module"
    printed = f"pkg relative {run}/code"
    assert printed in cluster.says(MASTER, f"cat {run}/logs/*.worker0.log")
    cluster.says(MASTER, f"touch {run}/checkpoints/weights.bin")
    evaluated = message(cluster.play("playbooks/evaluate.yml", run_id="module"))
    match = re.search(r"What the script printed is on the nodes, in (\S+)/logs", evaluated)
    assert match, evaluated[-3000:]
    assert printed in cluster.says(MASTER, f"cat {match[1]}/logs/*.worker0.log")


@pytest.mark.gate
def test_a_script_of_ones_own_gets_its_arguments_and_environment_as_they_are(cluster: Cluster, awkward: Played) -> None:
    heard = json.loads(cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/awkward/argv1.json"))
    assert heard == [[*AWKWARD[:3], "1 of 2", *AWKWARD[4:]], "s3cr3t 'x'"]
    assert "s3cr3t" not in awkward.output
    sent = cluster.says(MASTER, f"cd /efs/runs/{cluster.name}/awkward/code && find . -type f")
    assert sorted(sent.splitlines()) == ["./my script.py", "./package/layers.py"]


NEEDS = """
import importlib.metadata, json, os
import einops, wrapt._wrappers
versions = {name: importlib.metadata.version(name) for name in ("einops", "wrapt", "torch")}
where = [os.path.dirname(os.path.dirname(module.__file__)) for module in (einops, wrapt._wrappers)]
seen = {"versions": versions, "where": where, "compiled": wrapt._wrappers.__file__.endswith(".so")}
open(f"{os.environ['DEEPLEARNING_RUN_DIR']}/seen{os.environ['DEEPLEARNING_RANK']}.json", "w").write(json.dumps(seen))
"""


def test_a_script_finds_what_its_requirements_add_on_each_node_and_a_second_run_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """wrapt has an extension in C, which is compiled on one node."""
    (tmp_path / "train.py").write_text(NEEDS)
    (tmp_path / "requirements.txt").write_text("einops\nwrapt\n--no-binary wrapt\n")
    options = {"framework": "pytorch", "script": f"{tmp_path}/train.py", "requirements": f"{tmp_path}/requirements.txt"}
    runs = f"/efs/runs/{cluster.name}"
    for run in ("needs-1", "needs-2"):
        ran = train(cluster, **options, run_id=run)
        assert ran.code == 0, ran.output[-6000:]
        each = [json.loads(cluster.says(MASTER, f"cat {runs}/{run}/seen{rank}.json")) for rank in range(3)]
        (folder,) = {where for seen in each for where in seen["where"]}
        assert folder.startswith("/opt/deeplearning/packages/")
        assert all(seen["compiled"] for seen in each)
        assert {seen["versions"]["torch"].partition("+")[0] for seen in each} == {"2.13.0"}
    assert "wrapt" in cluster.says(MASTER, f"cat {runs}/needs-1/logs/packages.log")
    assert cluster.ssh(MASTER, f"ls {runs}/needs-2/logs/packages.log").returncode == 2
    (tmp_path / "requirements.txt").write_text("torch==2.0.1\n")
    refused = train(cluster, **options, run_id="needs-3")
    assert refused.code == 2
    assert "The user requested torch==2.0.1; the environment has torch==2.13.0" in message(refused)


EXTENSION = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
""",
    "setup.py": """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
setup(name="twice", version="1", ext_modules=[CppExtension("twice", ["twice.cpp"])],
      cmdclass={"build_ext": BuildExtension})
""",
    "twice.cpp": """
#include <torch/extension.h>
torch::Tensor twice(torch::Tensor values) { return values * 2; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("twice", &twice); }
""",
}
USES_EXTENSION = """
import os, torch, twice
assert os.path.dirname(twice.__file__).startswith("/opt/deeplearning/packages/")
print("twice is", twice.twice(torch.ones(3)).sum().item())
"""


@pytest.mark.long
def test_an_extension_of_pytorch_is_compiled_on_one_node_and_used_by_all(cluster: Cluster, tmp_path: Path) -> None:
    """Its setup.py imports torch, as those of flash-attn and detectron2 do."""
    for name, text in {**EXTENSION, "requirements.txt": "twice @ file:///efs/twice"}.items():
        cluster.says(MASTER, f"mkdir -p /efs/twice && cat > /efs/twice/{name} <<'END'\n{text}\nEND")
    (tmp_path / "train.py").write_text(USES_EXTENSION)
    options = {"framework": "pytorch", "script": f"{tmp_path}/train.py", "requirements": "/efs/twice/requirements.txt"}
    ran = train(cluster, **options, run_id="extension")
    assert ran.code == 0, ran.output[-6000:]
    logs = f"/efs/runs/{cluster.name}/extension/logs"
    assert cluster.says(MASTER, f"grep -ho 'twice is .*' {logs}/*worker*.log").splitlines() == ["twice is 6.0"] * 3
    assert cluster.says(MASTER, f"grep -c 'Successfully installed twice' {logs}/packages.log") == "1"


@pytest.mark.long
def test_a_script_that_ends_with_7_on_rank_1_fails_the_playbook_with_that_sentence(
    cluster: Cluster, script: str
) -> None:
    ran = own(cluster, script, script_args=["--fail"], run_id="failing")
    assert ran.code == 2
    assert "run failing ended with 7 (deeplearning-worker2, rank 1)" in ran.output
    assert "The last lines of deeplearning-worker2, worker 1:\n  this is what was wrong" in ran.output
    assert result(cluster, "failing")["exit_code"] == 7
    assert cluster.ssh(MASTER, "deeplearning run wait failing").returncode == 7


def test_a_run_goes_on_alone_is_looked_at_and_stopped_and_nothing_of_it_is_left(cluster: Cluster, script: str) -> None:
    for run, node in (("first", 1), ("second", 2)):
        nodes = [MASTER] if node == 1 else ["deeplearning-worker2", "deeplearning-worker3"]
        ran = own(cluster, script, script_args=["--stay"], run_id=run, detach=True, nodes=nodes)
        assert ran.code == 0, ran.output[-3000:]
    look = "deeplearning run show second --json"
    wait_for(lambda: '"running"' in cluster.says(MASTER, look), 120, "the second run is under way")
    assert re.search(r"second +running", cluster.play("status.yml", run_id="all").output)
    refused = own(cluster, script, nodes=[MASTER], on_busy="refuse", run_id="third")
    assert refused.code == 2
    assert "in use: deeplearning-worker1 (run first): stop that run, or let this one wait" in message(refused)
    assert cluster.ssh(MASTER, "deeplearning run show third").returncode == 2
    used = {"deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3"}
    wait_for(lambda: cluster.used() == used, 120, "the nodes of both runs are tagged")
    stopped = cluster.play("stop.yml", run_id="second")
    assert stopped.code == 0 and "run second was stopped" in stopped.output
    for node in ("deeplearning-worker2", "deeplearning-worker3"):
        assert cluster.ssh(node, "pgrep -f '[m]y script'").returncode == 1
    assert cluster.ssh(MASTER, "pgrep -f '[m]y script'").returncode == 0
    assert "run first was stopped" in cluster.play("stop.yml", run_id="all").output
    again = cluster.play("follow.yml", run_id="first", output=True)
    assert again.code == 0 and "run first was stopped" in again.output
    assert "worker 0 | began to stay" in message(again), again.output[-3000:]
    wait_for(lambda: not cluster.used(), 120, "no node is in use any more")


def test_in_check_mode_nothing_starts(cluster: Cluster, script: str) -> None:
    asked = {"framework": "pytorch", "python": "/usr/bin/python3", "script": script, "run_id": "checked"}
    ran = cluster.play("train.yml", "--check", **asked)
    assert ran.code == 0, ran.output[-3000:]
    assert cluster.ssh(MASTER, "deeplearning run show checked").returncode == 2


def test_data_comes_from_the_operators_machine_and_a_wrong_file_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "cifar-10-binary.tar.gz"
    wrong.write_bytes(b"not cifar10" * 100_000)
    ran = train(cluster, framework="mxnet", dataset="cifar10", data_source=str(wrong))
    assert (
        ran.code == 2 and "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd is published" in ran.output
    ), ran.output[-3000:]
    assert cluster.says(MASTER, "ls -A /efs/data/.incoming") == ""
