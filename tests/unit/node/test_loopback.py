"""Web servers for people on a node: their ports, their units, and what is reported when they do not come up."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.template import Templar, trust_as_template
from deeplearning import cli
from deeplearning.config import Config
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.views import loopback, page, tensorboard

from tests.unit.node.members_kit import Node, cluster_in
from tests.unit.node.systemd_kit import Systemd, systemd_of

UNIT = "deeplearning-test.service"
STATES = ("present", "absent")


class Handler(BaseHTTPRequestHandler):
    paths: list[str]
    statuses: list[int]

    def do_GET(self) -> None:  # noqa: N802
        self.paths.append(self.path)
        self.send_response(self.statuses.pop(0) if self.statuses else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


@dataclass
class Servers:
    """What systemd starts is a server of this process, at the port that its command ends with."""

    systemd: Systemd
    ports: range
    statuses: list[int] = field(default_factory=list)
    """Its first answers."""
    paths: list[str] = field(default_factory=list)
    listening: list[HTTPServer] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def listen(self, unit: str, command: tuple[str, ...]) -> None:
        handler = type("Own", (Handler,), {"paths": self.paths, "statuses": self.statuses})
        server = HTTPServer(("127.0.0.1", int(command[-1])), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.listening.append(server)

    def take(self, *ports: int) -> None:
        for port in ports:
            self.listen("", (str(port),))

    def close(self) -> None:
        for server in self.listening:
            server.shutdown()
            server.server_close()

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


def free_ports(count: int) -> range:
    """Return free ports in a row."""
    for first in range(20000 + os.getpid() % 10000, 60000, count):
        if all(map(loopback.is_free, range(first, first + count))):
            return range(first, first + count)
    raise AssertionError("no free ports")


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    with systemd_of(monkeypatch) as systemd:
        servers = Servers(systemd, free_ports(3))
        systemd.started = servers.listen
        monkeypatch.setattr(loopback, "time", servers)
        yield servers
        servers.close()


def server(servers: Servers) -> loopback.LoopbackServer:
    return loopback.LoopbackServer("The test", UNIT, "Test", servers.ports, "/ready")


def start(servers: Servers) -> tuple[int, bool]:
    answer = server(servers).start("me", lambda port: ("/bin/serve", str(port)))
    return answer["port"], answer["changed"]


def test_it_is_started_once_at_the_first_port(servers: Servers) -> None:
    first = servers.ports[0]
    assert server(servers).port() is None
    assert start(servers) == (first, True)
    assert server(servers).port() == first and servers.paths == ["/ready"]
    assert start(servers) == (first, False)
    assert servers.systemd.calls == [(UNIT, "me", "/bin/serve", str(first))]
    assert servers.systemd.units == {UNIT: f"Test on 127.0.0.1:{first}"}


def test_taken_ports_are_left_out(servers: Servers) -> None:
    servers.take(*servers.ports[:2])
    assert start(servers) == (servers.ports[2], True)


def test_if_all_ports_are_taken_their_range_is_named(servers: Servers) -> None:
    servers.take(*servers.ports)
    with pytest.raises(UserError, match=f"all ports from {servers.ports[0]} to {servers.ports[2]} are taken"):
        start(servers)
    assert servers.systemd.calls == []


def test_a_port_that_another_program_takes_in_between_is_left_to_it(servers: Servers) -> None:
    def lose(unit: str, command: tuple[str, ...]) -> None:
        servers.listen(unit, command)
        if int(command[-1]) == servers.ports[0]:
            del servers.systemd.units[unit]

    servers.systemd.started = lose
    assert start(servers) == (servers.ports[1], True)


def test_a_server_that_ends_at_its_start_is_reported(servers: Servers) -> None:
    servers.systemd.started = lambda unit, command: servers.systemd.units.clear()
    with pytest.raises(UserError, match=f"The test ended at its start: see journalctl -u {UNIT}"):
        start(servers)
    assert len(servers.systemd.calls) == 1


def test_a_server_that_cannot_be_started_is_reported_with_systemds_last_line(servers: Servers) -> None:
    servers.systemd.refusal = "no such user"
    with pytest.raises(UserError, match="^The test cannot be started: no such user$"):
        start(servers)


def test_a_server_that_is_not_ready_is_probed_again(servers: Servers) -> None:
    servers.statuses[:] = [503, 500]
    assert start(servers) == (servers.ports[0], True)
    assert len(servers.paths) == 3 and len(servers.slept) == 2


def test_a_server_that_never_answers_is_given_up(servers: Servers) -> None:
    servers.systemd.started = lambda unit, command: None
    with pytest.raises(UserError, match=f"The test does not answer after 90 s: see journalctl -u {UNIT}"):
        start(servers)
    assert 90 <= servers.monotonic() < 91


def test_a_unit_without_an_address_is_no_server(servers: Servers) -> None:
    servers.systemd.units[UNIT] = "Test of something else"
    assert server(servers).port() is None


def test_a_port_is_free_again_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert not loopback.is_free(port)
        with socket.create_connection(("127.0.0.1", port)) as _client:
            listening.accept()[0].close()
    # The connection is in TIME_WAIT.
    assert loopback.is_free(port)


# TensorBoard and the status page


@pytest.fixture
def master(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    master = cluster_in(tmp_path, monkeypatch).master()
    monkeypatch.setattr(tensorboard, "PORTS", servers.ports)
    monkeypatch.setattr(page, "SERVER", replace(page.SERVER, ports=servers.ports))
    runs = Path(paths.runs(master.config.efs_mount, "demo"))
    for name in ("lenet-1", "lenet-2"):
        (runs / name).mkdir(parents=True)
    return master


def install_tensorboard(master: Node, *environments: str) -> None:
    for name in environments:
        folder = Path(f"{master.root}{paths.ENVIRONMENTS}/{name}/bin")
        folder.mkdir(parents=True)
        (folder / "tensorboard").touch()


def call(master: Node, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    with master.here():
        assert cli.main([*words]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_tensorboards_of_runs_and_of_all(master: Node, servers: Servers, capsys: pytest.CaptureFixture[str]) -> None:
    install_tensorboard(master, "tensorflow", "mxnet", ".removed")
    runs, ports = paths.runs(master.config.efs_mount, "demo"), servers.ports
    program = f"{master.root}{paths.ENVIRONMENTS}/mxnet/bin/tensorboard"
    answer = {"changed": True, "run": "lenet-1", "address": "127.0.0.1", "port": ports[0]}
    answer["folder"] = f"{runs}/lenet-1/tensorboard"
    assert call(master, capsys, "tensorboard", "start", "lenet-1") == answer
    assert call(master, capsys, "tensorboard", "start", "lenet-1") == {**answer, "changed": False}
    assert servers.paths == ["/data/environment"]
    everything = {**answer, "run": "all", "port": ports[1], "folder": runs}
    assert call(master, capsys, "tensorboard", "start", "all") == everything
    arguments = ("--host", "127.0.0.1", "--port")
    units = [f"deeplearning-tensorboard-{run}.service" for run in ("lenet-1", "all")]
    assert servers.systemd.calls == [
        (units[0], "ubuntu", program, "--logdir", answer["folder"], *arguments, str(ports[0])),
        (units[1], "ubuntu", program, "--logdir", runs, *arguments, str(ports[1])),
    ]
    assert call(master, capsys, "tensorboard", "stop", "lenet-1") == {"changed": True, "stopped": units[:1]}
    assert call(master, capsys, "tensorboard", "stop", "lenet-1") == {"changed": False, "stopped": []}
    servers.systemd.units |= dict.fromkeys([units[0], "deeplearning-page.service"], "")
    assert set(call(master, capsys, "tensorboard", "stop", "all")["stopped"]) == set(units)
    assert list(servers.systemd.units) == ["deeplearning-page.service"]


def test_a_run_is_shown_by_the_environment_that_it_uses(
    master: Node, servers: Servers, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """So nothing is installed on the master while it trains."""
    run = Path(paths.runs(master.config.efs_mount, "demo"), "lenet-2", "run.json")
    own = tmp_path / "own/bin"
    own.mkdir(parents=True)
    run.write_text(json.dumps({"schema": 1, "python": str(own / "python")}))
    assert call(master, capsys, "tensorboard", "check", "lenet-2") == {"installed": False}
    (own / "tensorboard").touch()
    assert call(master, capsys, "tensorboard", "check", "lenet-2") == {"installed": True}
    assert call(master, capsys, "tensorboard", "check", "all") == {"installed": False}
    install_tensorboard(master, "mxnet", "pytorch")
    call(master, capsys, "tensorboard", "start", "lenet-2")
    pytorch = Path(f"{master.root}{paths.ENVIRONMENTS}/pytorch/bin")
    run.write_text(json.dumps({"schema": 1, "python": str(pytorch / "python")}))
    call(master, capsys, "tensorboard", "stop", "lenet-2")
    call(master, capsys, "tensorboard", "start", "lenet-2")
    # A run that cannot be read is shown all the same.
    run.write_text("[]")
    call(master, capsys, "tensorboard", "stop", "lenet-2")
    call(master, capsys, "tensorboard", "start", "lenet-2")
    programs = [Path(started[2]) for started in servers.systemd.calls if len(started) > 2]
    assert [program.parents[1].name for program in programs] == ["own", "pytorch", "mxnet"]


def test_the_playbook_installs_tensorboard_only_if_no_environment_has_it() -> None:
    (_check, play) = yaml.safe_load((Path(__file__).resolve().parents[3] / "playbooks/tensorboard.yml").read_text())
    check, install, start = play["tasks"][:3]
    assert check["deeplearning.aws.node_command"]["words"][:2] == ["tensorboard", "check"]
    condition = trust_as_template("{{ " + install["when"] + " }}")
    answers = {state: {"__options": {"state": state}, "tensorboard_checked": {"skipped": True}} for state in STATES}
    answers["present"] = {"__options": {"state": "present"}, "tensorboard_checked": {"answer": {"installed": True}}}
    assert [Templar(None, answers[state]).template(condition) for state in STATES] == [False, False]
    missing = {"__options": {"state": "present"}, "tensorboard_checked": {"answer": {"installed": False}}}
    assert Templar(None, missing).template(condition) is True
    assert start["deeplearning.aws.node_command"]["writes"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("lenet-3", "has no run lenet-3: deeplearning run list shows all."),
        ("../x", "'../x' is no run's id: deeplearning run list shows them."),
        ("lenet-1", "TensorBoard is not on this node: install an environment that has it"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(
    master: Node, servers: Servers, capsys: pytest.CaptureFixture[str], run: str, message: str
) -> None:
    install_tensorboard(master, ".removed")
    capsys.readouterr()
    with master.here():
        assert cli.main(["tensorboard", "start", run]) == 2
    assert message in capsys.readouterr().err and servers.systemd.calls == []


def test_the_status_page_is_started_and_stopped(
    master: Node, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"changed": True, "address": "127.0.0.1", "port": servers.ports[0]}
    assert call(master, capsys, "page", "start") == answer
    assert call(master, capsys, "page", "start") == {**answer, "changed": False}
    (started,) = servers.systemd.calls
    assert started[2:] == (f"{master.root}/usr/local/bin/deeplearning", "page", "serve", "--port", str(answer["port"]))
    assert servers.paths == ["/"]
    stopped = {"changed": True, "stopped": ["deeplearning-page.service"]}
    assert call(master, capsys, "page", "stop") == stopped
    assert call(master, capsys, "page", "stop") == {"changed": False, "stopped": []}


def test_the_page_is_served_at_the_port_that_is_asked_for(master: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[int, str, str]] = []
    shown: list[Config] = []

    def described(config: Config) -> str:
        shown.append(config)
        return "here"

    def serving(port: int, cluster: str, page: Callable[[], str]) -> Any:
        served.append((port, cluster, page()))
        return nullcontext(SimpleNamespace(serve_forever=lambda: None))

    monkeypatch.setattr(page, "page", described)
    monkeypatch.setattr(page, "PageServer", serving)
    # It serves in this process, and has no unit to stop.
    monkeypatch.delattr(page.loopback, "stop")
    with master.here():
        assert cli.main(["page", "serve", "--port", "6150"]) == cli.main(["page", "serve"]) == 0
    name = master.config.cluster
    assert served == [(6150, name, "here"), (6106, name, "here")] and shown == [master.config] * 2
