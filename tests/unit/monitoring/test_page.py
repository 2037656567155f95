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
from deeplearning import loopback, programs
from deeplearning.contract.errors import UserError
from deeplearning.deadline import DeadlineExceeded
from deeplearning.monitoring import page, page_html, snapshot
from deeplearning.run import units

from tests.browser import page_text, screenshot
from tests.unit.node.runs_kit import CONFIG, members
from tests.unit.node.test_monitoring import loaded, run_with

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
    problems = [
        "the disk of deeplearning-worker2 is 94 % full",
        "deeplearning-worker3 has written no load for 3 minutes",
    ]
    known = {"cluster": "demo", "region": "eu-west-1", "at": time.time(), "generation": 7, "desired": 3}
    return {**known, "members": rows, "runs": runs, "problems": problems, **changes}


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
    with page.PageServer(0, lambda: page_html.page(shown())) as server:
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


def test_a_curve_has_each_known_value_from_the_left_edge_to_the_right() -> None:
    run = run_with("r", 5, "running")
    run["points"][1]["accuracy"] = None
    paths = re.findall(r'd="M([^"]+)"', page_html.page(shown(runs=[run])))
    curves = [[tuple(map(float, place.split())) for place in path.split(" L")] for path in paths]
    assert [len(curve) for curve in curves] == [5, 4, 5]
    for curve in curves:
        assert (curve[0][0], curve[-1][0]) == (0, page_html.WIDTH)
        assert [x for x, _y in curve] == sorted({x for x, _y in curve})
        assert all(0 <= y <= page_html.HEIGHT for _x, y in curve)


@pytest.mark.parametrize(
    ("state", "kind"),
    [("running", "good"), ("finished", "good"), ("failed", "bad"), ("lost", "bad"), ("waiting", "soft")],
)
def test_the_colour_of_a_state(state: str, kind: str) -> None:
    assert f'<span class="{kind}">{state}</span>' in page_html.page(shown(runs=[run_with("r", 1, state)]))


# What is hostile


def test_every_value_is_escaped() -> None:
    texts = ("run_id", "framework", "distribution", "state", "reason", "asked_at", "nodes")
    run = {**run_with("r", 3, "running"), **dict.fromkeys(texts, EVIL)}
    keys = ("instance_id", "private_ip", "instance_type", "state")
    member = {**asdict(members(1).members[0]), **dict.fromkeys(keys, EVIL)}
    member |= {"aliases": (EVIL,), "load": loaded(1, logins=EVIL)}
    text = page_html.page(
        shown(cluster=EVIL, region=EVIL, generation=EVIL, desired=EVIL, problems=[EVIL], runs=[run], members=[member])
    )
    assert text.count(EVIL[:8]) == 0 and "evil.example" in text and "\x1b" not in text
    for found in (Elements(text), Elements(page_html.error_page(EVIL, EVIL))):
        assert not found.names & {"script", "img", "link", "iframe", "object", "base", "form", "a"}
        assert not {name for name in found.attributes if name.startswith("on")}
        assert not found.attributes & {"src", "href", "style"}


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
        # Its owner may have the name resolved to the loopback address.
        ("evil.example", "/", "GET", 403),
        ("localhost.evil.example:6106", "/", "GET", 403),
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


# How it is served


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DeadlineExceeded(), "/efs does not answer within 20 s."),
        (UserError("this node has no member list yet"), "this node has no member list yet"),
        (OSError(5, "Input/output error", "/efs/x"), "Input/output error"),
    ],
)
def test_what_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def within(seconds: float, action: Any) -> Any:
        raise error

    monkeypatch.setattr(page, "within", within)
    assert message in page.page(replace(CONFIG, efs_mount="/efs"))


def test_the_page_is_made_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "take", lambda config: shown(cluster=config.cluster))
    assert "<h1>c</h1>" in page.page(CONFIG)


def test_it_is_started_as_the_clusters_user_on_the_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    with page.PageServer(0, lambda: "here") as server:
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
    assert page.stop() == {"changed": True, "stopped": ["deeplearning-page.service"]}
    assert page.stop() == {"changed": False, "stopped": []}
    assert stopped == [("stop", "deeplearning-page.service")]


# In a browser


def test_a_browser_shows_it(address: int, tmp_path: Path) -> None:
    url = f"http://localhost:{address}/"
    text = page_text(url)
    assert "deeplearning-worker3" in text and "mnist-ddp-3" in text
    picture = tmp_path / "page.png"
    screenshot(url, picture, 1200, 980)
    header = picture.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", header[16:]) == (1200, 980)
    # A page without its styles, or one that is blank, is much smaller.
    assert picture.stat().st_size > 40_000
