"""Recipes: what they give for train.yml's arguments, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import fasterrcnn
import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.readers import InvalidOption
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.recipes import arguments, known
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import options_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_rules import check
from deeplearning.runs import plan as plans
from deeplearning.runs import script
from deeplearning.runs.mpirun import hostfile
from deeplearning.runs.variables import fill_in, variables

from tests.unit.node.runs_kit import record
from tools.recipe_docs import FOUR_NODES, ONE_NODE, documented

ALLOWED = options_of("train")


def written(folder: Path, text: str) -> str:
    file = folder / "mine.yml"
    file.write_text(text)
    return str(file)


def test_the_recipe_of_mask_rcnn_has_the_old_scripts_settings() -> None:
    options = arguments("maskrcnn", {}, ALLOWED)
    assert (options["framework"], options["distribution"], options["dataset"]) == ("tensorpack", "horovod", "coco2017")
    assert options["env"] == {"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_FUSION_THRESHOLD": "67108864"}
    assert options["script_args"][-9:] == [
        "MODE_MASK=True",
        "MODE_FPN=True",
        "DATA.TRAIN=['coco_train2017']",
        "DATA.VAL=['coco_val2017']",
        "TRAIN.EVAL_PERIOD=1",
        "TRAIN.CHECKPOINT_PERIOD=1",
        "TRAIN.LR_SCHEDULE=[240000,320000,360000]",
        "BACKBONE.WEIGHTS={data}/pretrained-models/ImageNet-R50-AlignPadding.npz",
        "BACKBONE.NORM=FreezeBN",
    ]


@pytest.mark.parametrize(("nodes", "column"), [(1, ONE_NODE), (4, FOUR_NODES)])
def test_every_rank_of_8_gpus_a_node_is_started_as_docs_say(
    nodes: int, column: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = check("train", {"recipe": "maskrcnn"}).values
    cluster = [plans.Node(f"deeplearning-worker{n}", f"10.0.0.{n}", 8, "ens5") for n in range(1, nodes + 1)]
    plan = plans.make(record(checked["framework"], checked["distribution"]), cluster)
    assert hostfile(plan).splitlines() == [f"deeplearning-worker{n} slots=8" for n in range(1, nodes + 1)]
    run, data = tmp_path / "run", tmp_path / "data/coco2017"
    example = tmp_path / "data/tensorpack/examples/FasterRCNN"
    for folder in (run, data, example):
        folder.mkdir(parents=True)
    (example / "train.py").touch()
    asked = {"script": checked["script"], "script_args": checked["script_args"]}
    started = []
    for process in plan.processes:
        start = {"run_id": "r", "run_dir": str(run), "data": str(data), "efs_mount": str(tmp_path), "attempt": 0}
        words = fill_in({**start, "arguments": script.arguments(asked)}, plan, process)
        environment = {**variables(start, plan, process), **checked["env"]}
        monkeypatch.setenv("EFS_MOUNT", environment["EFS_MOUNT"])
        options = fasterrcnn.parsed(words)
        program, *argv = fasterrcnn.attempt(options, int(environment["DEEPLEARNING_WORLD"])).argv
        assert options.example.resolve() == example and program == f"{options.example}/train.py"
        command = [word.replace(str(run), "$RUN").replace(str(data), "$DATA") for word in argv]
        started.append((command, {name: environment[name] for name in documented(column)[1]}))
    assert started == [documented(column)] * (8 * nodes)
    assert not {"TF_CONFIG", "TF_USE_LEGACY_KERAS"} & set(environment)


def test_any_value_of_a_recipe_can_be_changed_and_others_added() -> None:
    changed = arguments("maskrcnn", {"BACKBONE.NORM": "GN", "TRAIN.BASE_LR": 0.02}, ALLOWED)["script_args"]
    assert "BACKBONE.NORM=GN" in changed and "BACKBONE.NORM=FreezeBN" not in changed
    assert changed[-1] == "TRAIN.BASE_LR=0.02"


def test_every_recipe_of_ours_is_one() -> None:
    assert known() == ["maskrcnn"]
    assert all(arguments(name, {}, ALLOWED) for name in known())


def test_a_recipe_of_ones_own_is_a_file(tmp_path: Path) -> None:
    mine = written(tmp_path, "framework: pytorch\nscript: train.py\nscript_args: [--lr, '0.1']\n")
    assert arguments(mine, {}, ALLOWED) == {
        "framework": "pytorch",
        "script": "train.py",
        "script_args": ["--lr", "0.1"],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("framwork: pytorch\n", "unknown key framwork"),
        ("run_id: mine\n", "unknown key run_id"),
        ("- a\n", "no map of train.yml's arguments"),
        ("1: a\n", "no map of train.yml's arguments"),
        ("framework: pytorch\n1: a\n", "no map of train.yml's arguments"),
        ("a: [\n", "cannot be read"),
        ("config: 3\n", "its config is no map"),
        ("config: {A: 1}\nscript_args: --lr 1\n", "script_args are no list"),
    ],
)
def test_what_is_no_recipe_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=says):
        arguments(written(tmp_path, text), {}, ALLOWED)


def test_an_unknown_recipe_and_changes_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="there is no such recipe, give maskrcnn or"):
        arguments("maskcnn", {}, ALLOWED)
    with pytest.raises(InvalidOption, match="no config that recipe_config could change"):
        arguments(written(tmp_path, "framework: pytorch\n"), {"A": 1}, ALLOWED)


def test_options_of_the_command_line_override_the_recipe() -> None:
    checked = check("train", {"recipe": "maskrcnn", "env": {"A": "1"}, "recipe_config": {"BACKBONE.NORM": "GN"}})
    assert checked.problems == []
    assert checked.values["env"] == {"A": "1"} and checked.values["framework"] == "tensorpack"
    assert checked.values["script_args"][-1] == "BACKBONE.NORM=GN"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "maskcnn"}, "recipe is maskcnn: there is no such recipe, give maskrcnn or"),
        ({"framework": "mxnet", "recipe_config": {"A": 1}}, "recipe_config is .*: name the recipe that it changes"),
        ({"recipe": "maskrcnn", "recipe_config": "A"}, "recipe_config is A: give a map"),
    ],
)
def test_a_problem_with_a_recipe_is_reported_with_the_others(options: dict[str, object], message: str) -> None:
    problems = check("train", {**options, "max_restarts": "x"}).problems
    assert any(re.match(message, problem) for problem in problems) and any(
        "max_restarts" in problem for problem in problems
    )
