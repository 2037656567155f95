"""The whole text, the plots and the page of a report on three runs; what is packed, sent and taken of a run."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive, report
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.plot import Series

from tests.unit.plugins.runs.report_kit import PRICES, a_run


@pytest.fixture
def runs(tmp_path: Path) -> list[report.ReportedRun]:
    other = {"framework": "tensorflow", "distribution": "parameter_server", "generated": False, "script_args": []}
    folders = [
        a_run(tmp_path, "ps", 1, 50, **other, data=None),
        a_run(tmp_path, "two", 2, 90),
        a_run(tmp_path, "one", 1, 100),
    ]
    return report.read_all(folders)


def test_the_text_is_a_table_in_the_order_of_frameworks_and_nodes(runs: list[report.ReportedRun]) -> None:
    lines = [line.replace("    average precision", "") for line in report.text(runs, PRICES)]
    assert [re.split(r"  +", line) for line in lines] == [
        [
            *("run", "nodes", "processes", "global batch", "time (s)", "samples/s of each", "samples/s in all"),
            *("accuracy", "average precision", "speed-up", "efficiency", "GPU busy (%)", "cost (USD)"),
        ],
        ["one", "1", "1", "64", "30.0", "100.0", "100.0", "0.875", "1.00", "1.00"],
        ["two", "2", "2", "128", "30.0", "90.0", "180.0", "0.875", "1.80", "0.90"],
        ["ps", "1", "1", "128", "30.0", "50.0", "50.0", "0.875", "1.00", "1.00"],
        ["The data was generated: its accuracies show that training works, and say nothing about real data."],
        [
            "Measured: pytorch: lenet, batches of 64 in each process, 32 bits; tensorflow: lenet, batches of 128 in "
            f"each process, 32 bits. {report.EXAMPLE}"
        ],
    ]
    assert lines[0].index("nodes") + len("nodes") == lines[1].index("1 ") + 1
    assert report.text(runs[2:], PRICES)[-2].startswith("ps ")


def test_the_plots_have_the_figures_of_each_run(runs: list[report.ReportedRun]) -> None:
    plots = report.plots(runs)
    assert list(plots) == ["accuracy", "accuracy-by-time", "loss", "throughput", "scaling"]
    labels = {name: (plot.title, plot.x_label, plot.y_label, list(plot.x_ticks)) for name, plot in plots.items()}
    assert labels == {
        "accuracy": ("Accuracy on the test set", "epoch", "accuracy", []),
        "accuracy-by-time": ("Accuracy by time", "seconds of training", "accuracy", []),
        "loss": ("Loss in training", "epoch", "loss", []),
        "throughput": ("Throughput", "nodes", "samples/s in all", [0.0, 1.0, 2.0]),
        "scaling": ("Scaling", "nodes", "speed-up", [0.0, 1.0, 2.0]),
    }
    names = ["pytorch ddp, 1 node", "pytorch ddp, 2 nodes", "tensorflow parameter_server, 1 node"]
    assert [series.name for series in plots["loss"].series] == names
    assert plots["accuracy"].series[0].points == [(1.0, 0.5), (2.0, 0.75), (3.0, 0.875)]
    assert plots["accuracy-by-time"].series[0].points == [(10.0, 0.5), (20.0, 0.75), (30.0, 0.875)]
    assert plots["loss"].series[0].points == [(1.0, 2.0), (2.0, 1.0), (3.0, pytest.approx(2 / 3))]
    assert plots["throughput"].series == [Series("pytorch", [(1.0, 100.0), (2.0, 180.0)])]
    assert plots["scaling"].series == [
        Series("pytorch", [(1.0, 1.0), (2.0, 1.8)]),
        Series("ideal", [(1, 1.0), (2, 2.0)], dashed=True),
    ]
    assert "scaling" not in report.plots(runs[1:])


def test_the_page_has_the_table_the_plots_and_the_requests(runs: list[report.ReportedRun], tmp_path: Path) -> None:
    lines = report.write(runs, PRICES, tmp_path / "report.html")
    assert lines == report.text(runs, PRICES)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == report.page(runs, PRICES)
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    assert len(rows) == 4 and rows[0].startswith("<th>run</th><th>nodes</th>") and rows[3].startswith("<td>ps</td>")
    assert page.count("<svg ") == 5 and page.count("<strong>The data was generated") == 1
    assert re.findall("<li>(.*)</li>", page) == [
        "one: pytorch ddp, 1 node, data /efs/data/generated, arguments <code>--batch-size 64</code>",
        "two: pytorch ddp, 2 nodes, data /efs/data/generated, arguments <code>--batch-size 64</code>",
        "ps: tensorflow parameter_server, 1 node, data none, arguments <code>none</code>",
    ]
    assert "Prices:" not in page and "generated:" not in report.page(runs[2:], PRICES)


def lines(*each: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in each)


def test_figures_are_of_all_ranks_and_of_the_later_epochs(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "one", 2, 10)
    first = [{"epoch": 1, "samples_per_second": 1, "val_accuracy": 0.1}, {"epoch": 2, "samples_per_second": 100}]
    later = [{"epoch": 2, "samples_per_second": speed, "val_accuracy": 0.5} for speed in (10, 30, 20)]
    (folder / "metrics/rank0.jsonl").write_text(lines(*first, *later, {"epoch": 3, "seconds": 9.5, "ranks": 3}))
    (folder / "metrics/rank1.jsonl").write_text(lines({"epoch": 1, "samples_per_second": 5}))
    run = report.read(folder)
    # Of the first rank the median of the evaluated epochs but the first, of the other its only one.
    assert (run.throughput, run.seconds, run.reporting) == (25, 9.5, 4)
    assert run.evaluated("val_accuracy") == 0.5 and run.evaluated("average_precision") is None
    for path in (folder / "metrics").iterdir():
        path.unlink()
    bare = report.read(folder)
    assert (bare.throughput, bare.seconds, bare.reporting, bare.epochs) == (None, None, 0, [])


def test_lines_of_metrics_have_a_most_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path, "one", 2, 10, epochs=1)
    other = a_run(tmp_path, "two", 1, 10, epochs=1)
    monkeypatch.setattr(report, "MOST_LINES", 6)
    assert [len(run.ranks) for run in report.read_all([folder, other])] == [1, 2]
    monkeypatch.setattr(report, "MOST_LINES", 5)
    assert len(report.read_all([folder])) == 1
    with pytest.raises(report.UserError, match="With .*/two/metrics the report has more than 5 lines"):
        report.read_all([folder, other])


@pytest.mark.parametrize(("epochs", "shown"), [(0, 0), (1, 1), (500, 500), (501, 251), (1000, 500), (100_000, 500)])
def test_a_curve_has_a_most_number_of_points_and_ends_with_the_last(tmp_path: Path, epochs: int, shown: int) -> None:
    run = report.read(a_run(tmp_path, "one", 1, 10))
    run.ranks[0] = [{"epoch": number, "loss": 1.0} for number in range(epochs)]
    points = report._points(run, "epoch", "loss")
    assert len(points) == shown and points == sorted(points)
    assert not points or points[-1][0] == epochs - 1


# What is sent of the operator's code


def test_code_is_packed_in_order_and_keeps_its_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "code"
    for name in ("b.py", "a/z.py", "a/__pycache__/z.pyc", ".git/config", ".venv/x", "train.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "b.py").chmod(0o700)
    (folder / "a/z.py").chmod(0o600)
    (folder / "train.py").chmod(0o644)
    (folder / "linked").symlink_to("a")
    packed = code_archive.pack(folder / "train.py", folder)
    assert packed.script == "train.py"
    with tarfile.open(fileobj=io.BytesIO(packed.archive)) as opened:
        members = opened.getmembers()
    assert [member.name for member in members] == ["a/z.py", "b.py", "linked", "train.py"]
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert {member.name: member.mode & 0o777 for member in members if member.isfile()} == {
        "a/z.py": 0o600,
        "b.py": 0o700,
        "train.py": 0o644,
    }
    monkeypatch.setattr(code_archive, "MOST_BYTES", 20)
    (tmp_path / "train.py").write_text("x" * 20)
    assert code_archive.pack(tmp_path / "train.py", None).script == "train.py"
    (tmp_path / "train.py").write_text("x" * 21)
    with pytest.raises(code_archive.UserError, match="train.py holds 0 MiB: that is more than code"):
        code_archive.pack(tmp_path / "train.py", None)
    with pytest.raises(code_archive.UserError, match="none.py cannot be read: No such file"):
        code_archive.pack(tmp_path / "none.py", None)
