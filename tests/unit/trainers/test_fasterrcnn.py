"""The front of TensorPack's FasterRCNN example: its command line for any number of processes, and after a restart."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import example_stats
import fasterrcnn
import pytest

FRONT = fasterrcnn.__file__
CONFIG = ["MODE_MASK=True", "TRAIN.EVAL_PERIOD=1"]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A stand-in for the example: it says how it was called."""
    folder = tmp_path / "FasterRCNN"
    folder.mkdir()
    (folder / "train.py").write_text("import json, os, sys\nprint(json.dumps([os.getcwd(), *sys.argv[1:]]))\n")
    return folder


def words(example: Path, run: Path, world: int = 8, rank: int = 0, config: list[str] = CONFIG) -> list[str]:
    argv = [*trainer_arguments(example, run), *config]
    attempt = fasterrcnn.attempt(fasterrcnn.parsed(argv), world)
    if rank == 0:
        fasterrcnn.note(run / "checkpoints", attempt)
    return attempt.argv[1:]


def trainer_arguments(example: Path, run: Path) -> list[str]:
    return ["--data-dir", "/efs/data/coco2017", "--run-dir", str(run), "--example", str(example)]


def saved(run: Path, folder: str, step: int) -> None:
    """As TensorPack leaves it."""
    attempt = run / "checkpoints" / folder
    attempt.mkdir(parents=True, exist_ok=True)
    (attempt / f"model-{step}.index").touch()
    (attempt / "checkpoint").write_text(f'model_checkpoint_path: "model-{step}"\nall_model_checkpoint_paths: "x"\n')


@pytest.mark.parametrize(("world", "steps"), [(1, 120000), (2, 60000), (4, 30000), (8, 15000), (32, 3750)])
def test_an_epoch_is_as_many_images_for_any_number_of_processes(
    world: int, steps: int, example: Path, tmp_path: Path
) -> None:
    assert f"TRAIN.STEPS_PER_EPOCH={steps}" in words(example, tmp_path, world)


def test_a_first_attempt_is_the_documented_command(example: Path, tmp_path: Path) -> None:
    assert words(example, tmp_path) == [
        *("--logdir", f"{tmp_path}/checkpoints/from-epoch-0", "--config"),
        *("MODE_MASK=True", "TRAIN.EVAL_PERIOD=1", "DATA.BASEDIR=/efs/data/coco2017"),
        *("TRAINER=horovod", "TRAIN.STEPS_PER_EPOCH=15000"),
    ]


def test_an_attempt_resumes_from_the_newest_checkpoint_in_its_own_folder(example: Path, tmp_path: Path) -> None:
    words(example, tmp_path)
    saved(tmp_path, "from-epoch-0", 45000)
    second = words(example, tmp_path)
    assert second[:4] == [
        "--logdir",
        f"{tmp_path}/checkpoints/from-epoch-3",
        "--load",
        f"{tmp_path}/checkpoints/from-epoch-0/model-45000",
    ]
    assert second[-1] == "TRAIN.STARTING_EPOCH=4"


def test_with_fewer_processes_it_resumes_with_the_same_epoch(example: Path, tmp_path: Path) -> None:
    words(example, tmp_path, world=8)
    saved(tmp_path, "from-epoch-0", 45000)
    words(example, tmp_path, world=4)
    saved(tmp_path, "from-epoch-3", 45000 + 30000)
    third = words(example, tmp_path, world=4)
    assert "TRAIN.STARTING_EPOCH=5" in third and f"{tmp_path}/checkpoints/from-epoch-4" in third


def test_an_attempt_without_a_complete_checkpoint_begins_again(example: Path, tmp_path: Path) -> None:
    first = words(example, tmp_path)
    saved(tmp_path, "from-epoch-0", 15000)
    (tmp_path / "checkpoints/from-epoch-0/model-15000.index").unlink()
    assert words(example, tmp_path) == first


def test_only_the_first_rank_writes_and_all_have_the_same_command(example: Path, tmp_path: Path) -> None:
    other = words(example, tmp_path, rank=3)
    assert not (tmp_path / "checkpoints").exists()
    assert words(example, tmp_path, rank=0) == other


def test_notes_of_attempts_are_no_checkpoints_and_their_curves_are_linked(example: Path, tmp_path: Path) -> None:
    words(example, tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if not path.name.startswith(".")] == []
    saved(tmp_path, "from-epoch-0", 15000)
    words(example, tmp_path)
    assert (tmp_path / "tensorboard/from-epoch-0/checkpoint").exists()


@pytest.mark.parametrize(
    ("world", "config", "says"),
    [
        (3, CONFIG, "3 processes: this example trains with"),
        (8, ["TRAIN.EVAL_PERIOD=0"], "TRAIN.EVAL_PERIOD is 0"),
        (8, ["TRAIN.STEPS_PER_EPOCH=5"], "TRAIN.STEPS_PER_EPOCH: this follows from the run"),
        (8, ["DATA.BASEDIR=/efs/mine"], "DATA.BASEDIR: this follows from the run"),
    ],
)
def test_mistakes_that_would_fail_hours_later_are_refused(
    world: int, config: list[str], says: str, example: Path, tmp_path: Path
) -> None:
    with pytest.raises(fasterrcnn.UsageError, match=says):
        words(example, tmp_path, world, config=config)


def started(example: Path, run: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, FRONT, *trainer_arguments(example, run), *CONFIG, *more]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


# As the example's monitors write it. Before the first epoch has ended there is no loss.
STATS = [
    {"epoch_num": 0, "global_step": 0, "learning_rate": 0.003},
    {"epoch_num": 1, "global_step": 15000, "total_cost": 1.5, "Throughput (samples/sec)": 80.0, "learning_rate": 0.01},
    {"epoch_num": 2, "global_step": 30000, "total_cost": 1.2, "coco_val2017-mAP(bbox)/IoU=0.5:0.95": 0.25},
    {"epoch_num": 3, "global_step": 45000, "total_cost": float("nan"), "coco_val2017-mAP(segm)/IoU=0.5:0.95": 0.2},
]
STATS_OF_TRAIN = """
import json, os, sys
logs = sys.argv[sys.argv.index("--logdir") + 1]
os.makedirs(logs)
json.dump(STATS, open(f"{logs}/stats.json", "w"))
"""


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics/rank0.jsonl").read_text().splitlines()]


def test_loss_precision_and_images_per_second_are_copied_from_the_examples_own_file(
    example: Path, tmp_path: Path
) -> None:
    (example / "train.py").write_text(f"nan = float('nan')\nSTATS = {STATS}\n{STATS_OF_TRAIN}")
    schedule = "TRAIN.LR_SCHEDULE=[240000,320000,360000]"
    ran = started(example, tmp_path, schedule, DEEPLEARNING_WORLD="8")
    assert ran.returncode == 0, ran.stderr
    names = ("epoch", "step", "loss", "average_precision", "samples_per_second", "steps", "ranks")
    assert [tuple(line[name] for name in names) for line in metrics(tmp_path)] == [
        (1, 15000, 1.5, None, 80.0, 360000, 8),
        (2, 30000, 1.2, 0.25, None, 360000, 8),
    ]


def test_a_resumed_run_repeats_the_lines_of_the_epochs_that_it_repeats(example: Path, tmp_path: Path) -> None:
    (example / "train.py").write_text(f"nan = float('nan')\nSTATS = {STATS[:3]}\n{STATS_OF_TRAIN}")
    assert started(example, tmp_path, DEEPLEARNING_WORLD="8").returncode == 0
    saved(tmp_path, "from-epoch-0", 15000)
    (example / "train.py").write_text(f"STATS = {STATS[2:3]}\n{STATS_OF_TRAIN}")
    assert started(example, tmp_path, DEEPLEARNING_WORLD="8").returncode == 0
    assert [line["epoch"] for line in metrics(tmp_path)] == [1, 2]


def test_records_are_copied_while_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_stats, "SECONDS_BETWEEN_READS", 0.01)
    stats = tmp_path / "stats.json"
    with example_stats.StatsCopier(stats, tmp_path / "metrics/rank0.jsonl", 1, 0.0, None):
        stats.write_text(json.dumps(STATS[1:2]))
        deadline = time.monotonic() + 20
        while not (tmp_path / "metrics/rank0.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stats.write_text("[{")
    assert [line["epoch"] for line in metrics(tmp_path)] == [1]


def test_the_chosen_or_newest_checkpoint_is_evaluated_by_the_examples_predict(example: Path, tmp_path: Path) -> None:
    (example / "predict.py").touch()
    words(example, tmp_path)
    argv = [*trainer_arguments(example, tmp_path), *CONFIG, "--evaluate"]
    with pytest.raises(fasterrcnn.UsageError, match="has no checkpoint to evaluate"):
        fasterrcnn.evaluation(fasterrcnn.parsed(argv))
    saved(tmp_path, "from-epoch-0", 15000)
    saved(tmp_path, "from-epoch-0", 45000)
    for more, step, epoch in (([], 45000, 3), (["--checkpoint", "model-15000"], 15000, 1)):
        chosen = [word.replace("model-", f"{tmp_path}/checkpoints/from-epoch-0/model-") for word in more]
        line, point, file = fasterrcnn.evaluation(fasterrcnn.parsed([*argv, *chosen]))
        assert line == [
            *(f"{example}/predict.py", "--load", f"{tmp_path}/checkpoints/from-epoch-0/model-{step}"),
            *("--evaluate", str(file), "--config", *CONFIG, "DATA.BASEDIR=/efs/data/coco2017"),
        ]
        assert (point.epochs, file.name) == (epoch, f"epoch-000{epoch}.json")
    with pytest.raises(fasterrcnn.UsageError, match="other is no checkpoint of this run"):
        fasterrcnn.evaluation(fasterrcnn.parsed([*argv, "--checkpoint", f"{tmp_path}/other"]))


def test_only_the_first_rank_evaluates(example: Path, tmp_path: Path) -> None:
    (example / "predict.py").write_text("raise SystemExit(3)\n")
    words(example, tmp_path)
    saved(tmp_path, "from-epoch-0", 15000)
    assert started(example, tmp_path, "--evaluate", DEEPLEARNING_RANK="1").returncode == 0
    assert started(example, tmp_path, "--evaluate", DEEPLEARNING_RANK="0").returncode == 3


def test_the_example_is_started_in_its_own_folder_as_by_python_itself(example: Path, tmp_path: Path) -> None:
    """With modules of its own, which may be called as one of ours."""
    (example / "common.py").write_text("whose = 'its own'\n")
    (example / "train.py").write_text(
        "import json, os, sys\nimport common\n"
        "print(json.dumps([__name__, __file__, os.getcwd(), common.whose, sys.argv]))\n"
    )
    shown, printed = started(example, tmp_path).stdout.splitlines()
    assert shown.startswith(f"+ {sys.executable} {example}/train.py --logdir")
    program = f"{example}/train.py"
    name, file, folder, whose, argv = json.loads(printed)
    assert (name, file, folder, whose) == ("__main__", program, str(example), "its own")
    assert argv[:2] == [program, "--logdir"] and shown == f"+ {sys.executable} {shlex.join(argv)}"


def test_the_old_names_that_tensorpack_needs_are_added(example: Path, tmp_path: Path) -> None:
    (example / "train.py").write_text("import tensorflow\nprint(tensorflow.global_variables())\n")
    functions = "".join(f"        {name} = lambda: 'all'\n" for name in fasterrcnn.OLD_NAMES)
    (tmp_path / "tensorflow.py").write_text(
        f"class nn:\n    moments = None\nclass compat:\n    class v1:\n        nn = nn\n{functions}"
    )
    ran = started(example, tmp_path, PYTHONPATH=str(tmp_path))
    assert ran.stdout.splitlines()[-1] == "all", ran.stderr


def test_the_exit_code_is_the_examples(example: Path, tmp_path: Path) -> None:
    (example / "train.py").write_text("import sys\nsys.exit(7)\n")
    assert started(example, tmp_path).returncode == 7


def test_missing_sources_are_reported(tmp_path: Path) -> None:
    ran = started(tmp_path, tmp_path)
    assert ran.returncode == 1 and f"{tmp_path} has no train.py" in ran.stderr
