"""What the master writes for Prometheus and shows on the status page. A run's folder may hold anything."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import paths, problems, run_request
from deeplearning.contract.errors import UserError
from deeplearning.deadline import DeadlineExceeded
from deeplearning.members import load
from deeplearning.runs import units, views
from deeplearning.runs.folder import Folder
from deeplearning.runs.run_log import RunLog
from deeplearning.views import curves, metrics, snapshot

from tests.unit.node.monitoring_kit import NOW, loaded, point, run_with
from tests.unit.node.runs_kit import CONFIG, members


def events(path: Path, *lines: str) -> str:
    file = path / "events.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


def progress(number: int, **more: Any) -> str:
    return json.dumps({"n": number, "event": "progress", **point(number), "ranks": 2, **more})


# Curves


def test_points_are_the_progress_of_a_run(tmp_path: Path) -> None:
    path = events(tmp_path, '{"n": 1, "time": 1.0, "event": "state"}', progress(1), progress(2))
    assert curves.curve(path) == curves.newest(path) == [point(1), point(2)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[1]",
        '{"event": "progress"}',
        '{"event": "progress", "time": "now"}',
        '{"event": "progress", "time": NaN}',
        '{"event": "progress", "time": true}',
    ],
)
def test_other_lines_are_left_out(tmp_path: Path, line: str) -> None:
    assert curves.curve(events(tmp_path, line, progress(1))) == [point(1)]


@pytest.mark.parametrize("value", ["0.5", True, [1], None, float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_unknown(tmp_path: Path, value: Any) -> None:
    assert curves.curve(events(tmp_path, progress(1, loss=value))) == [{**point(1), "loss": None}]


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    path = events(tmp_path, progress(1))
    with open(path, "a", encoding="utf-8") as file:
        file.write(progress(2)[:40])
    assert curves.newest(path) == [point(1)]


def test_of_a_long_run_some_points_are_read_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    path = events(tmp_path, *map(progress, range(20_000)))
    assert os.path.getsize(path) > 3 * 2**20
    points = curves.curve(path)
    assert len(points) == curves.WINDOWS
    times = [each["time"] for each in points]
    assert times == sorted(set(times))
    assert points[0]["step"] < 500 and points[-1] == point(19_999)
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert max(gaps) < 2 * 60_000 / curves.WINDOWS
    newest = curves.newest(path)
    assert newest[-1] == point(19_999) and len(newest) > 100


@pytest.mark.parametrize(("more", "count"), [(-1, 4), (0, 5), (1, 5), (399, 5), (400, 6)])
def test_the_newest_points_are_those_whose_lines_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, count: int
) -> None:
    path = events(tmp_path, *(progress(number).ljust(399) for number in range(10, 20)))
    monkeypatch.setattr(curves, "TAIL_BYTES", 5 * 400 + more)
    assert os.path.getsize(path) == 10 * 400 and curves.newest(path) == [
        point(number) for number in range(20 - count, 20)
    ]


@pytest.mark.parametrize(("lines", "numbers"), [(7, range(7)), (8, range(8)), (9, (1, 4, 8)), (20, (1, 10, 19))])
def test_a_file_of_few_windows_is_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, numbers: Iterable[int]
) -> None:
    monkeypatch.setattr(curves, "WINDOWS", 3)
    monkeypatch.setattr(curves, "WINDOW_BYTES", 800)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{progress(number).ljust(399)}\n" for number in range(lines)))
    assert path.stat().st_size == 400 * lines
    assert curves.curve(str(path)) == [point(number) for number in numbers]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events.jsonl"
    if kind == "link":
        (tmp_path / "other").write_text(f"{progress(1)}\n")
        path.symlink_to("other")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UserError, match="has to be a file"):
        curves.newest(str(path))


def test_the_time_of_a_step_is_that_of_the_last_minute() -> None:
    assert curves.step_seconds([point(number) for number in range(100)]) == pytest.approx(0.3)
    slow = [{**point(0), "time": NOW + at, "step": step} for at, step in ((0, 0), (10, 100), (3000, 110), (3050, 120))]
    assert curves.step_seconds(slow) == pytest.approx(5)


@pytest.mark.parametrize(("at", "expected"), [(60, 0.6), (61, None)])
def test_points_of_a_minute_count(at: float, expected: float | None) -> None:
    points = [{**point(0), "time": NOW + seconds, "step": step} for seconds, step in ((0, 0), (at, 100))]
    assert curves.step_seconds(points) == expected
    # Points without a step are no obstacle.
    assert curves.step_seconds([*points, {**point(0), "time": NOW + 900, "step": None}]) == expected


@pytest.mark.parametrize("points", [[], [point(1)], [point(2), point(2)], [{**point(1), "step": None}]])
def test_the_time_of_a_step_may_be_unknown(points: list[dict[str, Any]]) -> None:
    assert curves.step_seconds(points) is None


# Prometheus


def test_figures_of_members_and_runs_for_prometheus() -> None:
    faulty = replace(members(2), desired=3)
    faulty = replace(faulty, members=(faulty.members[0], replace(faulty.members[1], state="faulty")))
    runs = [run_with("lenet-1", 30, "running"), run_with("waits", 0, "waiting", framework="")]
    lines = metrics.render([*metrics.of_members(faulty), *metrics.of_runs(runs)]).splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert samples["deeplearning_members"] == "2" and samples["deeplearning_members_desired"] == "3"
    assert samples['deeplearning_member_ready{member="deeplearning-worker2",state="faulty"}'] == "0"
    assert samples['deeplearning_run_state{run="lenet-1",framework="pytorch",state="running"}'] == "1"
    assert samples['deeplearning_run_state{run="waits",framework="",state="waiting"}'] == "1"
    assert float(samples['deeplearning_run_step_seconds{run="lenet-1"}']) == pytest.approx(0.3)
    assert float(samples['deeplearning_run_samples_per_second{run="lenet-1"}']) > 3000
    assert abs(float(samples['deeplearning_run_progress_timestamp_seconds{run="lenet-1"}']) - time.time()) < 60
    # No rank has written these.
    assert not {'deeplearning_run_val_accuracy{run="lenet-1"}', 'deeplearning_run_loss{run="waits"}'} & set(samples)
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert named == {sample.partition("{")[0] for sample in samples} and named <= set(metrics.HELP)


@pytest.mark.parametrize("state", run_request.STATES)
def test_a_run_has_a_state_while_it_is_active(state: str) -> None:
    text = metrics.render(metrics.of_runs([run_with("r1", 0, state, nodes=3)]))
    sample = f'deeplearning_run_state{{run="r1",framework="pytorch",state="{state}"}} 1\n'
    assert (sample in text) is (state in run_request.ACTIVE_STATES)
    assert 'deeplearning_run_nodes{run="r1"} 3\n' in text


def test_a_figure_of_zero_is_known_and_figures_are_exact() -> None:
    figures = {"loss": 0.0, "step": 123456789.0, "val_accuracy": 0.5, "seconds_left": 0.25}
    points = [{**dict.fromkeys(curves.FIGURES), "time": NOW + 0.5, **figures}]
    lines = metrics.render(metrics.of_runs([{**run_with("r1", 0, "running"), "points": points}])).splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    del samples['deeplearning_run_state{run="r1",framework="pytorch",state="running"}']
    assert samples == {
        'deeplearning_run_nodes{run="r1"}': "2",
        'deeplearning_run_step{run="r1"}': "123456789",
        'deeplearning_run_loss{run="r1"}': "0",
        'deeplearning_run_val_accuracy{run="r1"}': "0.5",
        'deeplearning_run_seconds_left{run="r1"}': "0.25",
        'deeplearning_run_progress_timestamp_seconds{run="r1"}': "1800000000",
    }
    help_, kind, sample = lines[:3]
    assert help_ == "# HELP deeplearning_run_state 1 for the state that an active run is in."
    assert kind == "# TYPE deeplearning_run_state gauge" and sample.startswith("deeplearning_run_state{")


@pytest.fixture
def started(run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run that goes on, on a master whose files are in a folder of the test."""
    monkeypatch.setattr(units, "active_runs", lambda: ["r1"])
    monkeypatch.setattr(units, "may_continue", lambda run_id: True)
    monkeypatch.setattr(snapshot, "read_applied", lambda: members(2))
    monkeypatch.setattr(metrics, "read_applied", lambda: members(2))
    monkeypatch.setattr(paths, "METRICS", str(tmp_path / "deeplearning.prom"))
    log = RunLog(run)
    log.enter("running")
    figures = point(1)
    del figures["time"]
    log.event("progress", **figures)
    return run


def test_the_master_writes_the_figures_of_active_runs(started: Folder, tmp_path: Path) -> None:
    metrics.write(replace(CONFIG, efs_mount=str(tmp_path)))
    text = Path(paths.METRICS).read_text()
    assert 'deeplearning_run_state{run="r1",framework="tensorflow",state="running"} 1\n' in text
    assert 'deeplearning_run_loss{run="r1"} 2.09' in text
    before = os.stat(paths.METRICS)
    metrics.write(replace(CONFIG, efs_mount=str(tmp_path)))
    assert os.stat(paths.METRICS).st_ino != before.st_ino, "its age shows that it is written"


def test_if_the_file_system_does_not_answer_nothing_is_written(
    started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def within(seconds: float, action: Any) -> Any:
        raise DeadlineExceeded

    monkeypatch.setattr(metrics, "within", within)
    with pytest.raises(UserError, match="does not answer within 20 s"):
        metrics.write(replace(CONFIG, efs_mount=str(tmp_path)))
    assert not Path(paths.METRICS).exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "framework": []}'])
def test_a_run_that_cannot_be_read_is_left_out(started: Folder, tmp_path: Path, content: str) -> None:
    Path(started.file("run.json")).write_text(content)
    assert snapshot.active_runs(replace(CONFIG, efs_mount=str(tmp_path))) == []


# The snapshot


def test_a_snapshot_has_members_with_their_load_and_runs_with_their_curves(
    started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [loaded(1), loaded(2)])
    taken = snapshot.take(replace(CONFIG, efs_mount=str(tmp_path)))
    # It comes from a child process, as JSON.
    assert json.loads(json.dumps(taken))["cluster"] == "c"
    assert [member["load"]["load"] for member in taken["members"]] == [1.5, 1.5]
    (shown,) = taken["runs"]
    assert (shown["run_id"], shown["state"], len(shown["points"])) == ("r1", "running", 1)
    assert taken["problems"] == []


def test_problems_are_named(started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "read_applied", lambda: replace(members(3), desired=4))
    full = loaded(2, disk_percent=93, errors=["nvidia-smi does not end within 15 s"])
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [loaded(1), full])
    with open(started.file("events.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps({"n": 9, "event": "progress", "time": time.time() - 1000, "loss": 1}) + "\n")
    assert snapshot.take(replace(CONFIG, efs_mount=str(tmp_path)))["problems"] == [
        problems.MEMBERS_MISSING.sentence(desired=4, count=3),
        problems.MEMBER_SILENT.sentence(subject="deeplearning-worker3", minutes=3),
        problems.DRIVER_FAULT.sentence(subject="deeplearning-worker2", error="nvidia-smi does not end within 15 s"),
        problems.DISK_ALMOST_FULL.sentence(subject="deeplearning-worker2", path="/", percent=93),
    ]


@pytest.mark.parametrize(("disk", "full"), [(89, False), (90, True)])
def test_a_disk_is_full_at_a_limit(
    started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: int, full: bool
) -> None:
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [loaded(1), loaded(2, disk_percent=disk)])
    problem = problems.DISK_ALMOST_FULL.sentence(subject="deeplearning-worker2", path="/", percent=disk)
    assert snapshot.take(replace(CONFIG, efs_mount=str(tmp_path)))["problems"] == ([problem] if full else [])


def test_a_stalled_run_is_named_by_page_and_figures(
    started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own unit decides; the time of the last progress does not count."""
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [loaded(1), loaded(2)])
    line = {"n": 1, "event": "progress", "time": time.time() - 86400, "loss": 1}
    Path(started.file("events.jsonl")).write_text(json.dumps(line) + "\n")
    config = replace(CONFIG, efs_mount=str(tmp_path))
    assert snapshot.take(config)["problems"] == []
    silent = {"node": "deeplearning-worker2", "role": "worker", "rank": 1, "what": "stopped by a signal"}
    stall: dict[str, Any] = {"since": "2026-01-01T00:00:00Z", "silent": [silent], "hourly": 2.012}
    started.write("state.json", {**started.state(), "state": "stalled", "reason": "nothing comes.", "stall": stall})
    taken = snapshot.take(config)
    words = (
        "Run r1 is stalled: nothing comes. Meanwhile its machines cost {}; to end it: ansible-playbook "
        "deeplearning.aws.stop -e "
    )
    assert taken["problems"] == [f"{words.format('2.01 USD an hour')}run_id=r1"]
    text = metrics.render(metrics.of_runs(taken["runs"]))
    labels = 'run="r1",node="deeplearning-worker2",role="worker",process_rank="1"'
    assert f"deeplearning_run_silent{{{labels}}} 1\n" in text and 'state="stalled"} 1\n' in text
    assert 'deeplearning_run_stall_usd_per_hour{run="r1"} 2.012\n' in text
    started.write("state.json", {**started.state(), "stall": {**stall, "hourly": None}})
    taken = snapshot.take(config)
    assert taken["problems"] == [f"{words.format('an amount that is not known')}run_id=r1"]
    assert "usd_per_hour" not in metrics.render(metrics.of_runs(taken["runs"]))
    # Training code can write the state, and a label that it makes up could break the file.
    bad = {**stall, "silent": [{**silent, "node": 'x"} 1\nfoo'}]}
    started.write("state.json", {**started.state(), "stall": bad})
    assert "deeplearning_run_silent" not in metrics.render(metrics.of_runs(snapshot.take(config)["runs"]))


def test_a_run_is_described_by_its_files(started: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [])
    started.write("state.json", {**started.state(), "reason": "lost x", "nodes": ["a", "b", "c"]})
    expected = {"run_id": "r1", "framework": "tensorflow", "distribution": "parameter_server", "state": "running"}
    expected |= {"reason": "lost x", "nodes": 3, "requested_at": "2026-01-01T00:00:00Z"}
    config = replace(CONFIG, efs_mount=str(tmp_path))
    for (described,) in (snapshot.active_runs(config), snapshot.take(config)["runs"]):
        assert {key: described[key] for key in expected} == expected and len(described["points"]) == 1
    # Whatever training code writes there becomes text, and a framework that does not exist none.
    started.write("run.json", {"framework": "caffe", "distribution": 7, "requested_at": None})
    os.unlink(started.file("events.jsonl"))
    (described,) = snapshot.active_runs(config)
    values = [described[key] for key in ("framework", "distribution", "requested_at", "points")]
    assert values == ["", "7", "None", []]


def test_ended_runs_show_how_they_ended_and_the_newest_are_shown(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "read_applied", lambda: members(1))
    monkeypatch.setattr(load, "read_all", lambda mount, cluster: [])
    monkeypatch.setattr(views, "units", units)
    run.write("result.json", {"state": "failed", "exit_code": 7, "sentence": "run r1 ended with 7"})
    for number in range(snapshot.SHOWN_RUNS):
        other = Folder(str(tmp_path / f"runs/c/other{number}"))
        os.mkdir(other.path)
        other.write("run.json", run.run())
        other.write("result.json", {"state": "finished", "exit_code": 0, "sentence": ""})
        os.utime(other.path, (number, number))
    shown = snapshot.take(replace(CONFIG, efs_mount=str(tmp_path)))["runs"]
    assert [each["run_id"] for each in shown] == ["r1", *(f"other{number}" for number in range(9, 0, -1))]
    assert (shown[0]["state"], shown[0]["reason"]) == ("failed", "run r1 ended with 7")
