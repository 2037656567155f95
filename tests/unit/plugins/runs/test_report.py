"""The report: what it reads of runs, its figures, its page and its plots."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import report
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.plot import WIDTH, Plot, Series, ticks

from tests.browser import page_text, screenshot
from tests.unit.plugins.runs.report_kit import PRICES, a_run


def cells(folders: Sequence[Path]) -> list[dict[str, str]]:
    return report.table([report.read(folder) for folder in folders], PRICES)


def test_speed_up_and_efficiency_are_against_the_run_on_the_fewest_nodes(tmp_path: Path) -> None:
    one, two, four = cells([a_run(tmp_path, f"on-{n}", n, speed) for n, speed in ((1, 100), (2, 90), (4, 75))])
    assert one == {
        "run": "on-1",
        "nodes": "1",
        "processes": "1",
        "global batch": "64",
        "time (s)": "30.0",
        "samples/s of each": "100.0",
        "samples/s in all": "100.0",
        "accuracy": "0.875",
        "average precision": "",
        "speed-up": "1.00",
        "efficiency": "1.00",
        "GPU busy (%)": "",
        "cost (USD)": "",
    }
    assert (two["samples/s in all"], two["global batch"], two["speed-up"], two["efficiency"]) == (
        "180.0",
        "128",
        "1.80",
        "0.90",
    )
    assert (four["samples/s in all"], four["speed-up"], four["efficiency"]) == ("300.0", "3.00", "0.75")


@pytest.mark.parametrize(
    ("more", "measured"),
    [
        ({"script_args": []}, "pytorch: lenet, batches of 128 in each process, 32 bits"),
        (
            {"script_args": ["--network=resnet", "--num-layers", "50", "--mixed-precision", "--batch-size", "512"]},
            "pytorch: resnet of 50 layers, batches of 512 in each process, 16 bits",
        ),
        ({"script_args": ["--network", "<b>"]}, "pytorch: lenet, batches of 128 in each process, 32 bits"),
        ({"script": "/efs/mine/train.py"}, ""),
    ],
)
def test_a_report_says_what_an_example_trainer_has_measured(
    tmp_path: Path, more: dict[str, Any], measured: str
) -> None:
    run = report.read(a_run(tmp_path, "one", 1, 10, **more))
    assert run.measured == measured
    for text in (report.page([run], PRICES), "\n".join(report.text([run], PRICES))):
        assert (f"Measured: {measured}. An example trainer" in text) is bool(measured)
        assert "GPU busy is the median" not in text


def test_how_busy_gpus_were_is_that_of_the_last_attempt_on_gpus(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "one", 1, 10)
    attempt = {"started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T01:00:00Z", "machines": None}
    attempts = [attempt | {"gpu_busy_percent": 90}, attempt | {"gpu_busy_percent": 7}, attempt]
    (folder / "result.json").write_text(json.dumps({"state": "finished", "attempts": attempts}))
    run = report.read(folder)
    assert report.table([run], PRICES)[0]["GPU busy (%)"] == "7"
    assert "GPU busy is the median" in "\n".join(report.text([run], PRICES))
    (folder / "result.json").write_text(
        json.dumps({"state": "finished", "attempts": [{**attempts[0], "gpu_busy_percent": 900}]})
    )
    with pytest.raises(UserError, match="is no folder of a run"):
        report.read(folder)


def test_a_run_with_other_arguments_is_compared_with_none(tmp_path: Path) -> None:
    other = a_run(tmp_path, "other", 2, 90, script_args=["--network", "resnet"])
    assert cells([a_run(tmp_path, "one", 1, 10), other])[1]["speed-up"] == "1.00"


@pytest.mark.parametrize(
    ("more", "batch"),
    [
        ({"script_args": []}, "256"),
        ({"script_args": ["--batch-size=32"]}, "64"),
        ({"distribution": "dist_async"}, "64"),
        ({"script_args": ["--no-exchange", "--batch-size", "8"]}, "8"),
        ({"script": "/efs/mine/train.py"}, ""),
        ({"script_args": ["--batch-size", "9" * 5000]}, "256"),
        ({"script_args": ["--batch-size=²"]}, "256"),
    ],
)
def test_global_batch(tmp_path: Path, more: dict[str, Any], batch: str) -> None:
    assert cells([a_run(tmp_path, "one", 2, 10, **more)])[0]["global batch"] == batch


def test_a_detectors_figures_of_all_ranks_are_in_the_lines_of_the_first(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "rcnn", 2, 10, epochs=0, script="/opt/deeplearning/trainers/fasterrcnn.py")
    line = {"epoch": 1, "step": 10, "seconds": 9.5, "loss": 1.5, "samples_per_second": 80.0, "ranks": 16}
    lines = [line, {"epoch": 1, "step": 10, "seconds": 9.5, "average_precision": 0.25, "ranks": 16}]
    (folder / "metrics/rank0.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    (row,) = cells([folder])
    assert (row["samples/s in all"], row["samples/s of each"]) == ("80.0", "5.0")
    assert (row["average precision"], row["accuracy"], row["global batch"]) == ("0.250", "", "")
    assert "Average precision on the validation set" in report.page([report.read(folder)], PRICES)


def test_a_script_that_wrote_no_metrics_is_a_row_without_figures(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "mine", 2, 10, epochs=0, script="/efs/train.py")
    (folder / "result.json").write_text('{"state": "failed"}')
    (row,) = cells([folder])
    assert (row["run"], row["nodes"], row["time (s)"], row["accuracy"]) == ("mine (failed)", "2", "", "")
    assert report.plots([report.read(folder)]) == {}


def attempt(start: str, end: str | None, **machines: Any) -> dict[str, Any]:
    times = {"started": f"2026-11-23T{start}Z", "ended": end and f"2026-11-23T{end}Z"}
    return {**times, "generation": 3, "exit_code": 0, "cause": "finished", **machines}


def test_the_cost_of_a_run_is_that_of_its_machines_while_its_attempts_ran(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "one", 2, 10)
    attempts = [
        attempt("10:00:00", "10:30:00", machines={"g5.xlarge": 2, "c5.large": 1}),
        attempt("11:00:00", "11:45:00", machines={"g5.xlarge": 1}),
        attempt("12:00:00", None, machines={"g5.xlarge": 1}),
        # By a master of an older version.
        attempt("13:00:00", "14:00:00"),
    ]
    (folder / "result.json").write_text(json.dumps({"state": "finished", "attempts": attempts}))
    run = report.read(folder)
    assert run.machine_hours == {"g5.xlarge": 1.75, "c5.large": 0.5}
    assert cells([folder])[0]["cost (USD)"] == f"{1.75 * 1.006 + 0.5 * 0.085:.2f}"
    lines = report.text([run], PRICES)
    assert "at on-demand prices" in lines[-1] and "AWS's Price List API, 2026-11-20" in lines[-1]
    assert lines[-1].replace("'", "&#x27;") in report.page([run], PRICES)
    assert not any("Cost is" in note for note in report.notes([run], PriceList("eu-west-3")))


@pytest.mark.parametrize("machines", [None, {"u7i-12tb.224xlarge": 1}])
def test_a_cost_that_is_not_known_is_left_out(tmp_path: Path, machines: Any) -> None:
    folder = a_run(tmp_path, "one", 2, 10)
    attempts = [attempt("10:00:00", "10:30:00", machines=machines)]
    (folder / "result.json").write_text(json.dumps({"state": "finished", "attempts": attempts}))
    assert cells([folder])[0]["cost (USD)"] == ""
    assert not any("Cost is" in note for note in report.notes([report.read(folder)], PRICES))


@pytest.mark.parametrize(
    "wrong",
    [
        attempt("25:00:00", "10:30:00"),
        attempt("10:00:00", "later"),
        attempt("10:00:00", "11:00:00", machines={"g5.xlarge": -1}),
        attempt("10:00:00", "11:00:00", machines={"<b>": 1}),
    ],
)
def test_attempts_that_a_node_has_made_up_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = a_run(tmp_path, "one", 2, 10)
    (folder / "result.json").write_text(json.dumps({"state": "finished", "attempts": [wrong]}))
    with pytest.raises(UserError, match=r"is no folder of a run \(attempts"):
        report.read(folder)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "one", 1, 10)
    with open(folder / "metrics/rank0.jsonl", "a", encoding="utf-8") as file:
        file.write('{"epoch": 4, "val_acc')
    assert report.read(folder).epochs[-1]["epoch"] == 3


def test_one_epoch_is_better_than_none(tmp_path: Path) -> None:
    assert cells([a_run(tmp_path, "short", 1, 90, epochs=1)])[0]["samples/s in all"] == "30.0"


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match="is no folder of a run"):
        report.read(tmp_path)


def test_a_folder_that_is_not_there_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder of a run"):
        report.read_all([tmp_path / "none"])


ODD = [10**400, float("nan"), 1e300, 5e-324, 1e-308, -(10**15), 10**15, "x", True, [], {}, "\x1b[2J"]


@pytest.mark.parametrize("odd", ODD)
def test_figures_that_are_none_make_a_report_that_lacks_them(tmp_path: Path, odd: Any) -> None:
    folder = a_run(tmp_path, "odd", 2, 10)
    keys = ("epoch", "step", "loss", "seconds", "samples_per_second", "val_accuracy")
    lines = [dict.fromkeys(keys, odd), {**dict.fromkeys(keys, odd), "epoch": 2, "val_accuracy": 0.5}]
    for rank in (0, 1):
        (folder / f"metrics/rank{rank}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    lines = report.write(report.read_all([folder]), PRICES, tmp_path / "report.html")
    assert not any(character in "".join(lines) for character in "\x1b\n")
    assert "odd" in lines[1] and "0.500" in lines[1]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_needs_no_other_file_and_marks_generated_data(tmp_path: Path) -> None:
    folders = [a_run(tmp_path, f"on-{n}", n, 100, script_args=["<b>&"]) for n in (1, 2)]
    lines = report.write(report.read_all(folders), PRICES, tmp_path / "report.html")
    reader = Reader()
    reader.feed((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not reader.links and not reader.open and "script" not in reader.tags and "b" not in reader.tags
    assert reader.tags.count("svg") == 5
    assert any("<b>&" in text for text in reader.texts)
    assert report.GENERATED in "".join(reader.texts) and report.GENERATED in lines
    assert len({len(line.split()) for line in lines[1:3]}) == 1


def test_data_that_is_real_is_not_called_generated(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "real", 1, 10, generated=False)
    assert report.GENERATED not in report.page([report.read(folder)], PRICES)


def test_runs_that_would_be_called_alike_are_called_by_their_ids(tmp_path: Path) -> None:
    runs = [report.read(a_run(tmp_path, name, nodes, 10)) for name, nodes in (("a", 1), ("b", 1), ("c", 2))]
    names = [series.name for series in report.plots(runs)["loss"].series]
    assert names == ["a", "b", "pytorch ddp, 2 nodes"]


@pytest.mark.parametrize(
    ("high", "marks"),
    [
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (4, [0, 1, 2, 3, 4]),
        (0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (730, [0, 200, 400, 600, 800]),
    ],
)
def test_axes_have_round_numbers_up_to_the_highest(high: float, marks: list[float]) -> None:
    assert ticks(0, high) == marks


@pytest.mark.parametrize("count", [1, 2, 9])
def test_every_point_is_within_the_picture_and_every_line_is_named(count: int) -> None:
    many = [Series(f"one & {number}", [(1, 5), (2, 7.3)]) for number in range(count)]
    plot = Plot("<t>", "x", "y", [*many, Series("ideal", [(0, 0), (2, 9)], dashed=True)])
    svg = plot.svg()
    assert all(f"one &amp; {number}" in svg for number in range(count))
    assert "&lt;t&gt;" in svg and "stroke-dasharray" in svg
    at = re.findall(r'c?x="([^"]+)" c?y="([^"]+)"', svg)
    lines = [point.split(",") for points in re.findall(r'points="([^"]+)"', svg) for point in points.split()]
    assert len(at) > count and len(lines) > 2 * count
    colours = re.findall(r'(?:fill|stroke)="([^"]*)"', svg)
    assert len(colours) > 2 * count and all(re.fullmatch("none|#[0-9a-f]{6}", colour) for colour in colours)
    assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= plot.height for x, y in [*at, *lines])


@pytest.mark.program("chromium", "google-chrome")
def test_a_browser_shows_the_page_with_its_plots(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, f"on-{n}", n, speed) for n, speed in ((1, 100), (2, 90))]
    report.write(report.read_all(runs), PRICES, tmp_path / "report.html")
    shown = page_text(f"file://{tmp_path}/report.html")
    assert "<svg" in shown and "on-1" in shown and "on-2" in shown
    screenshot(f"file://{tmp_path}/report.html", tmp_path / "report.png", 1000, 800)
    # A page that shows nothing compresses to a few kilobytes.
    assert (tmp_path / "report.png").stat().st_size > 20_000


def test_lines_that_are_none_are_skipped_and_the_others_count(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "one", 1, 10, epochs=1)
    with open(folder / "metrics/rank0.jsonl", "a", encoding="utf-8") as file:
        file.write('nonsense\n[]\n{"note": "no figure"}\n{"epoch": 2, "loss": 0.5}\n')
    (folder / "metrics/rankless.jsonl").write_text('{"epoch": 9}\n')
    read = report.read(folder)
    assert [line["epoch"] for line in read.epochs] == [1, 2] and len(read.ranks[0]) == 3
    assert list(read.ranks) == [0]
