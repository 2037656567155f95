"""The status page: what it shows, that nothing in it comes from elsewhere, and how a browser shows it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from deeplearning import programs
from deeplearning.contract import problems
from deeplearning.contract.errors import UserError
from deeplearning.runs import units
from deeplearning.views import curves, loopback, page, page_html, snapshot

from tests.browser import page_text, screenshot
from tests.unit.node.monitoring_kit import NOW, loaded, run_with
from tests.unit.node.runs_kit import CONFIG, members

EVIL = '<script>alert("x")</script><img src="http://evil.example/x.png">\x1b[2J'


def shown(**changes: Any) -> dict[str, Any]:
    """Return a snapshot of three members and three runs."""
    rows = [{**asdict(member), "load": loaded(member.rank)} for member in members(3).members]
    rows[1]["load"] = loaded(2, load=3.7, memory_percent=71, disk_percent=94)
    rows[2]["load"] = None
    failure = "run resnet-nightly ended with 1 (deeplearning-worker2, rank 1)"
    failure = "run resnet-nightly ended with 1 (deeplearning-worker2, rank 1)"
    runs = [
        run_with("mnist-ddp-3", 240, "running", nodes=3),
        run_with("resnet-nightly", 180, "failed", reason=failure),
        run_with("first-try", 0, "waiting", nodes=0, reason="all nodes are in use"),
    ]
    named = [
        problems.DISK_ALMOST_FULL.sentence(subject="deeplearning-worker2", path="/", percent=94),
        problems.MEMBER_SILENT.sentence(subject="deeplearning-worker3", minutes=3),
    ]
    known = {"cluster": "demo", "region": "eu-west-1", "at": time.time(), "generation": 7, "desired": 3}
    return {**known, "members": rows, "runs": runs, "problems": named, **changes}


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _value in attrs}


@pytest.fixture
def address() -> Iterator[int]:
    """The port of a server whose page is a snapshot of ours."""
    with page.PageServer(0, "red", lambda: page_html.page(shown())) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def get(port: int, path: str = "/", host: str = "localhost:6106", method: str = "GET") -> tuple[Any, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


# What it shows


def test_it_shows_members_with_their_load_and_runs_with_their_curves() -> None:
    text = page_html.page(shown())
    for value in ("demo", "eu-west-1", "3 of 3 machines", "deeplearning-worker2", "t3.micro", "94 % full", "first-try"):
        assert value in text
    row = re.search(r"<tr><td>deeplearning-worker2</td>.*?</tr>", text)
    assert row and "3.7 of 4" in row[0] and "71 %" in row[0] and "90 %" in row[0]
    assert text.count('<svg class="chart"') == 6
    assert "epoch 11, step 2390" in text and "10 min 0 s left" in text


def test_a_node_without_a_load_has_no_figures() -> None:
    row = re.search(r"<tr><td>deeplearning-worker3</td>.*?</tr>", page_html.page(shown()))
    assert row and row[0].count("<td>–</td>") == 6


def test_a_cluster_without_problems_and_runs() -> None:
    text = page_html.page(shown(problems=[], runs=[]))
    assert "All members and runs are well." in text and "There is no run yet." in text and "Problems" not in text


@pytest.mark.parametrize(("points", "charts"), [(0, 0), (1, 3), (2, 3)])
def test_few_points_are_no_error(points: int, charts: int) -> None:
    assert page_html.page(shown(runs=[run_with("r", points, "running")])).count("<path") == charts


def drawn(values: list[float | None], key: str = "loss") -> list[tuple[float, float]]:
    """Return the points of the only chart of a run whose figure has these values, a second apart."""
    known = [{**dict.fromkeys(curves.FIGURES), "time": NOW + at, key: value} for at, value in enumerate(values)]
    text = page_html.page(shown(runs=[{**run_with("r", 0, "running"), "points": known}]))
    (path,) = re.findall('<path d="M(.*?)"', text)
    points = [(float(x), float(y)) for x, y in (pair.split() for pair in path.split(" L"))]
    return [(round(x / page_html.WIDTH, 2), round(y / page_html.HEIGHT, 2)) for x, y in points]


@pytest.mark.parametrize(
    ("key", "values", "points"),
    [
        # From the left to the right, the lowest value at the bottom and the highest at the top, with a margin.
        ("loss", [2.0, 4.0, 3.0], [(0, 0.95), (0.5, 0.05), (1, 0.5)]),
        ("accuracy", [0.5, 0.5], [(0, 0.5), (1, 0.5)]),
        ("accuracy", [0.5], [(0.5, 0.5)]),
        # The axis of the speed begins at 0.
        ("samples_per_second", [100.0, 50.0], [(0, 0.05), (1, 0.5)]),
        ("samples_per_second", [0.0, 0.0], [(0, 0.5), (1, 0.5)]),
        # What is unknown is left out, and the axis goes from the first known value to the last.
        ("loss", [None, 1.0, None, 2.0, 1.5, None], [(0, 0.95), (0.67, 0.05), (1, 0.5)]),
    ],
)
def test_a_curve_goes_through_all_known_points(
    key: str, values: list[float | None], points: list[tuple[float, float]]
) -> None:
    assert drawn(values, key) == points


def test_a_chart_has_its_newest_value_and_its_range() -> None:
    points = [{**dict.fromkeys(curves.FIGURES), "time": NOW + at, "loss": loss} for at, loss in ((0, 9.5), (90, 2.25))]
    points = [{**point, "samples_per_second": 31.7} for point in points]
    text = page_html.page(shown(runs=[{**run_with("r", 0, "running"), "points": points}]))
    assert "loss <b>2.25</b>" in text and "<span>2.25 to 9.5</span><span>1 min 30 s</span>" in text
    assert "samples/s <b>32</b>" in text and "<span>0 to 32</span>" in text
    assert "accuracy <b>" not in text


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        *(("finished", "good"), ("running", "good"), ("failed", "bad"), ("lost", "bad")),
        *(("waiting", "soft"), ("recovering", "soft"), ("stopped", "soft"), ("created", "soft")),
    ],
)
def test_a_state_has_the_colour_of_its_kind(state: str, kind: str) -> None:
    assert f'r <span class="{kind}">{state}</span>' in page_html.page(shown(runs=[run_with("r", 1, state)]))


def test_a_faulty_member_is_marked() -> None:
    text = page_html.page(shown(members=[{**shown()["members"][0], "state": "faulty"}, shown()["members"][2]]))
    assert '<span class="bad">faulty</span>' in text and '<span class="good">ready</span>' in text


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        ({}, ""),
        ({"epoch": 0, "step": 7.0}, "epoch 0, step 7"),
        ({"val_accuracy": 0.98765, "seconds_left": 3599.0}, "validation accuracy 0.988, 59 min 59 s left"),
        ({"seconds_left": 3600.0}, "1 h 0 min left"),
        ({"seconds_left": 3725.0}, "1 h 2 min left"),
        ({"seconds_left": 59.9}, "0 min 59 s left"),
        ({"seconds_left": 0.0}, ""),
    ],
)
def test_the_progress_of_a_run_is_a_line(progress: dict[str, Any], line: str) -> None:
    points = [{**dict.fromkeys(curves.FIGURES), "time": NOW, **more} for more in ({"epoch": 5}, progress)]
    text = page_html.page(shown(runs=[{**run_with("r", 0, "running", reason="a reason"), "points": points}]))
    facts = "pytorch ddp, nodes: 2, requested at 2026-11-23T03:00:00Z"
    assert re.findall('<p class="soft">(.*?)</p>', text) == [facts, *([line] if line else []), "a reason"]


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({"load": 1.0, "processors": 4}, ["12.0 1.0 of 4", "14.4 30 %", "19.2 40 %", "43.2 90 %", "24.0 50 %", "1"]),
        ({"load": 9.0, "processors": 4}, ["48.0 9.0 of 4"]),
        ({"load": 0.0, "processors": 4}, ["0.0 0.0 of 4"]),
        ({"load": 0.0, "gpus": []}, ["0.0 0.0 of 4", "14.4 30 %", "19.2 40 %", "–", "–", "1"]),
        (
            {"gpus": [{"busy_percent": 100, "memory_percent": 10}, {"busy_percent": 51, "memory_percent": 20}]},
            ["18.0 1.5 of 4", "14.4 30 %", "19.2 40 %", "36.2 76 %", "7.2 15 %", "1"],
        ),
    ],
)
def test_the_load_of_a_node_is_shown_as_bars_and_numbers(changes: dict[str, Any], cells: list[str]) -> None:
    """Of 48: the width of a bar."""
    member = {**shown()["members"][0], "load": loaded(1, **changes)}
    text = page_html.page(shown(members=[member]))
    (row,) = re.findall("<tr><td>(.*?)</tr>", text)
    plain = [
        re.sub(r'<svg.*?class="fill" width="(.*?)".*?</svg>', r"\1 ", cell)
        for cell in row.removesuffix("</td>").split("</td><td>")
    ]
    assert plain[5 : 5 + len(cells)] == cells and len(plain) == len(page_html.MEMBER_COLUMNS)


# What is hostile


def test_every_value_is_escaped() -> None:
    texts = ("run_id", "framework", "distribution", "state", "reason", "requested_at", "nodes")
    run = {**run_with("r", 3, "running"), **dict.fromkeys(texts, EVIL)}
    keys = ("instance_id", "private_ip", "instance_type", "state")
    member = {**asdict(members(1).members[0]), **dict.fromkeys(keys, EVIL)}
    member |= {"aliases": (EVIL,), "load": loaded(1, logins=EVIL)}
    text = page_html.page(
        shown(cluster=EVIL, region=EVIL, generation=EVIL, desired=EVIL, problems=[EVIL], runs=[run], members=[member])
    )
    assert text.count(EVIL[:8]) == 0 and "evil.example" in text and "\x1b" not in text
    for elements in (Elements(text), Elements(page_html.error_page(EVIL, EVIL))):
        assert not elements.names & {"script", "img", "link", "iframe", "object", "base", "form", "a"}
        assert not {name for name in elements.attributes if name.startswith("on")}
        assert not elements.attributes & {"src", "href", "style"}


def test_the_policy_allows_its_own_styles_and_nothing_else(address: int) -> None:
    answer, text = get(address)
    policy = answer.headers["Content-Security-Policy"]
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{allowed}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "://" not in text


@pytest.mark.parametrize(
    ("host", "path", "method", "status"),
    [
        ("localhost:6106", "/", "GET", 200),
        ("127.0.0.1", "/", "GET", 200),
        ("red.localhost:6106", "/", "GET", 200),
        ("red.localhost", "/", "GET", 200),
        # Its owner may have the name resolved to the loopback address.
        ("evil.example", "/", "GET", 403),
        ("localhost.evil.example:6106", "/", "GET", 403),
        ("red.localhost.evil.example:6106", "/", "GET", 403),
        ("blue.localhost:6106", "/", "GET", 403),
        ("evilred.localhost:6106", "/", "GET", 403),
        ("localhost", "/etc/passwd", "GET", 404),
        ("localhost", "/../../etc/passwd", "GET", 404),
        ("localhost", "/", "POST", 501),
    ],
)
def test_it_answers_on_its_own_address_with_one_page(
    address: int, host: str, path: str, method: str, status: int
) -> None:
    answer, text = get(address, path, host, method)
    assert answer.status == status
    assert ("deeplearning-worker1" in text) is (status == 200)


def test_a_request_that_never_ends_hangs_no_other(address: int) -> None:
    silent = http.client.HTTPConnection("127.0.0.1", address, timeout=5)
    silent.connect()
    assert get(address)[0].status == 200
    silent.close()


def test_it_can_be_started_again_at_once() -> None:
    port = 0
    for _start in range(2):
        with page.PageServer(port, "red", lambda: "here") as server:
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            # The server closes the connection, so that the port stays in TIME_WAIT.
            assert get(port)[1] == "here"
            server.shutdown()
            # The process that has answered has the port too.
            while server.active_children:
                server.collect_children(blocking=True)


# How it is served


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("/efs/deeplearning is a link"), "runs: /efs/deeplearning is a link"),
        (OSError(5, "Input/output error", "/efs/x"), "Input/output error"),
        (None, "runs: no answer within 1 s"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_shown(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, message: str
) -> None:
    def newest_runs(_config: Any, _count: int) -> Any:
        if error:
            raise error
        time.sleep(60)  # a file system that does not answer: the limit of one second ends it

    monkeypatch.setattr(snapshot, "EFS_SECONDS", 1)
    monkeypatch.setattr(snapshot, "newest_runs", newest_runs)
    monkeypatch.setattr(snapshot, "read_applied", lambda: members(2))
    monkeypatch.setattr(snapshot.load, "read_all", lambda _mount, _cluster: [loaded(1), loaded(2)])
    text = page.page(CONFIG)
    assert message in text and "<td>deeplearning-worker2</td>" in text and "2 of 2 machines" in text


def test_a_master_without_a_member_list_shows_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_applied() -> Any:
        raise UserError("this node has no member list yet")

    monkeypatch.setattr(snapshot, "read_applied", read_applied)
    monkeypatch.setattr(snapshot.load, "read_all", lambda _mount, _cluster: [])
    monkeypatch.setattr(snapshot, "newest_runs", lambda _config, _count: [])
    text = page.page(CONFIG)
    assert "members: this node has no member list yet" in text and "0 of – machines" in text


def test_the_page_is_made_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "take", lambda config: shown(cluster=config.cluster))
    assert "<h1>c</h1>" in page.page(CONFIG)


def test_it_is_started_as_the_clusters_user_on_the_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    with page.PageServer(0, "red", lambda: "here") as server:
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        active = f"Description=Status page on 127.0.0.1:{port}\nActiveState=active\n"

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            calls.append(words)
            begun = any("systemd-run" in call for call in calls)
            return subprocess.CompletedProcess(words, 0, active if begun else "ActiveState=inactive\n", "")

        monkeypatch.setattr(programs, "run", run)
        monkeypatch.setattr(loopback, "is_free", lambda port: True)
        monkeypatch.setattr(page, "SERVER", replace(page.SERVER, ports=range(port, port + 1)))
        assert page.start(CONFIG) == {"changed": True, "address": "127.0.0.1", "port": port}
        assert page.start(CONFIG)["changed"] is False
        server.shutdown()
    (started,) = [call for call in calls if "systemd-run" in call]
    assert "--uid=me" in started and "--unit=deeplearning-page.service" in started
    assert started[-5:] == ("/usr/local/bin/deeplearning", "page", "serve", "--port", str(port))


def test_it_is_stopped_if_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[str, ...]] = []
    monkeypatch.setattr(units, "active_units", lambda pattern: [pattern][: 1 - len(stopped)])
    monkeypatch.setattr(units, "control", lambda *words: stopped.append(words))
    assert loopback.stop(page.SERVER.unit) == {"changed": True, "stopped": ["deeplearning-page.service"]}
    assert loopback.stop(page.SERVER.unit) == {"changed": False, "stopped": []}
    assert stopped == [("stop", "deeplearning-page.service")]


# In a browser


@pytest.mark.program("chromium", "google-chrome")
def test_a_browser_shows_it(address: int, tmp_path: Path) -> None:
    url = f"http://red.localhost:{address}/"
    text = page_text(url)
    assert "deeplearning-worker3" in text and "mnist-ddp-3" in text
    picture = tmp_path / "page.png"
    screenshot(url, picture, 1200, 980)
    header = picture.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", header[16:]) == (1200, 980)
    # A page without its styles, or one that is blank, is much smaller.
    assert picture.stat().st_size > 40_000
