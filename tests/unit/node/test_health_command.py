"""`deeplearning health`: the answers of one node, with the programs that it calls replaced by scripts."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deeplearning import cli, machine
from deeplearning.contract import paths
from deeplearning.deadline import DeadlineExceeded
from deeplearning.gpus import held, kernel_log, nvml
from deeplearning.gpus.reading import Gpu, Reading
from deeplearning.health import bandwidth, checks, probes, training
from deeplearning.health.cli import MASTERS_TIMERS, TIMERS
from deeplearning.runs import efa

from tests.nvml import Gpus
from tests.unit.node.members_kit import Cluster, Node, cluster_in, instance
from tests.unit.node.programs_kit import install

SYSTEMCTL = """
[ "$1" = is-active ] || exit 0
shift
for unit; do [ -e {stopped}/$unit ] && echo inactive || echo active; done
"""
SSH = 'while [ "$1" = -o ]; do shift 2; done; [ -e {down}/$1 ] && {{ echo "$1 is down" >&2; exit 255; }}; exit 0'
XID = "NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus"


@dataclass
class Checked:
    """The master of a cluster whose nodes are all well, until a test breaks something."""

    cluster: Cluster
    node: Node
    folder: Path
    capsys: pytest.CaptureFixture[str]
    addresses: dict[str, str]
    """what names resolve to"""
    speeds: dict[str, float | OSError] = field(default_factory=dict)
    """by alias"""
    measured: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def health(self) -> Path:
        return Path(paths.health(self.cluster.config.efs_mount, "demo"))

    def call(self, *words: str) -> int:
        with self.node.here():
            return cli.main(["health", *words])

    def begin(self) -> None:
        """Let all nodes begin."""
        assert self.call("begin", "t") == 0
        for alias in self.addresses:
            (self.health / "t" / alias).write_text(alias)

    def check(self, *words: str) -> tuple[int, dict[str, Any]]:
        self.capsys.readouterr()
        code = self.call("check", "t", *words)
        return code, json.loads(self.capsys.readouterr().out)

    def failing(self, *words: str) -> list[tuple[str, str, str]]:
        """Return what fails: its name, its problem and its detail. The exit code says whether anything does."""
        code, answer = self.check(*words)
        failed = [(each["name"], each["problem"], each["detail"]) for each in answer["checks"] if not each["ok"]]
        assert code == (1 if failed else 0)
        return failed

    def file(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.touch()


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checked:
    monkeypatch.setattr(kernel_log, "KERNEL_LOG", str(tmp_path / "kmsg"))
    cluster = cluster_in(tmp_path, monkeypatch)
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    master.apply()
    install(
        tmp_path / "bin",
        monkeypatch,
        systemctl=SYSTEMCTL.format(stopped=tmp_path / "stopped"),
        runuser='[ "$1 $2 $3" = "-u ubuntu --" ] && shift 3; exec "$@"',
        ssh=SSH.format(down=tmp_path / "down"),
    )
    monkeypatch.setattr(os.path, "ismount", lambda path: path == cluster.config.efs_mount)
    # This machine may be smaller than those of a cluster.
    monkeypatch.setattr(probes, "disk", lambda: (50 * 2**30, 100 * 2**30))
    monkeypatch.setattr(machine, "memory", lambda: (2**22, 2**23))
    names = {alias: member["private_ip"] for member in cluster.list["members"] for alias in member["aliases"]}
    checked = Checked(cluster, master, tmp_path, capsys, names)

    def resolve(name: str) -> str:
        if name not in checked.addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return checked.addresses[name]

    def measure(ssh: list[str], alias: str, address: str, own: str) -> float:
        checked.measured.append((ssh[-len(probes.SSH_OPTIONS) - 1], alias, address, own))
        speed = checked.speeds.get(alias, 9.0)
        if isinstance(speed, OSError):
            raise speed
        return speed

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    monkeypatch.setattr(bandwidth, "measure", measure)
    checked.begin()
    return checked


def test_a_node_that_is_well_answers_with_all_checks(checked: Checked) -> None:
    code, answer = checked.check()
    assert code == 0
    assert {key: answer[key] for key in ("schema", "node", "generation", "environments")} == {
        "schema": 1,
        "node": "deeplearning-worker1",
        "generation": 1,
        "environments": {},
    }
    assert [(each["name"], each["detail"]) for each in answer["checks"]] == [
        ("disk", "51200 of 102400 MiB free on /"),
        ("memory", "4096 MiB available"),
        ("gpus", "8"),
        ("driver", "595.91.07"),
        ("faults", "none since boot"),
        ("member", "deeplearning-worker1, list 1"),
        ("efs", "read what 3 wrote"),
        ("clock", next(each["detail"] for each in answer["checks"] if each["name"] == "clock")),
        ("names", "all resolve"),
        ("ssh", "2 of 2 answer"),
        ("bandwidth", "9.00 Gbit/s to deeplearning-worker2, at least 2 is expected"),
    ]
    assert checked.measured == [("ssh", "deeplearning-worker2", "10.0.0.6", "10.0.0.5")]


def test_what_is_broken_fails_and_nothing_else(checked: Checked) -> None:
    (checked.folder / "kmsg").write_text(f"4,7,123,-;{XID}\n")
    checked.file(f"stopped/{TIMERS[0]}", "down/deeplearning-worker3")
    checked.addresses["deeplearning-worker3"] = "10.9.9.9"
    (checked.health / "t/deeplearning-worker2").unlink()
    assert checked.failing() == [
        ("faults", "reboot", "the GPU at 0000:00:1e fell off the bus (Xid 79)"),
        ("member", "timers", f"not running: {TIMERS[0]}"),
        ("efs", "other", "no file seen of deeplearning-worker2"),
        ("names", "", "deeplearning-worker3 resolves to 10.9.9.9"),
        ("ssh", "", "deeplearning-worker3: deeplearning-worker3 is down"),
    ]


def test_a_held_node_and_the_counters_of_efa_are_shown(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = checked.folder / "efa0"
    counters.mkdir()
    for name, count in {"rx_drops": 3, "retrans_pkts": 0, "tx_bytes": 9}.items():
        (counters / name).write_text(f"{count}\n")
    monkeypatch.setattr(efa.losses, "__defaults__", (str(counters),))
    with checked.node.here():
        held.hold("GPU 2 fell off the bus (Xid 79)")
    assert checked.failing() == [("held", "", "GPU 2 fell off the bus (Xid 79)")]
    shown = {each["name"]: each["detail"] for each in checked.check()[1]["checks"]}
    assert shown["efa"] == "rx_drops 3, retrans_pkts 0"
    checked.capsys.readouterr()
    assert checked.call("losses") == 0
    assert efa.parse_losses(checked.capsys.readouterr().out) == {"rx_drops": 3, "retrans_pkts": 0}


def test_a_lost_gpu_fails_with_the_drivers_words(checked: Checked) -> None:
    gpus = Gpus(checked.folder)
    gpus.set(count=8, gpu3_lost=1)
    assert checked.failing() == [
        ("gpus", "", "7 answer, the type has 8 (GPU 3: GPU is lost)"),
        ("faults", "reboot", "GPU 3 is lost: GPU is lost"),
    ]
    gpus.set(count=7, gpu3_lost=None)
    assert checked.failing() == [("gpus", "", "7 answer, the type has 8")]
    gpus.set(count=None)
    assert checked.failing() == [
        ("gpus", "", "0 answer, the type has 8"),
        ("driver", "", "NVIDIA's library cannot be used: Driver Not Loaded"),
    ]


@pytest.mark.parametrize(("gpus", "lists", "shown"), [(0, 8, True), (None, 8, True), (8, 0, True), (0, 0, False)])
def test_gpus_are_checked_where_some_are_present_or_expected(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, gpus: int | None, lists: int, shown: bool
) -> None:
    monkeypatch.setattr(nvml, "read", lambda: Reading("595", gpus=tuple(map(Gpu, range(lists)))))
    path = checked.node.root / "etc/deeplearning/cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gpus": gpus}))
    names = [each["name"] for each in checked.check()[1]["checks"]]
    assert names[2:5] == (["gpus", "driver", "faults"] if shown else ["member", "efs", "clock"])


@pytest.mark.parametrize(("role", "fails"), [("master", True), ("worker", False)])
def test_only_a_master_publishes(checked: Checked, role: str, fails: bool) -> None:
    checked.file(f"stopped/{MASTERS_TIMERS[0]}")
    path = checked.node.root / "etc/deeplearning/cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "role": role}))
    assert checked.failing() == ([("member", "timers", f"not running: {MASTERS_TIMERS[0]}")] if fails else [])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_node_measures_the_next_in_the_ring(checked: Checked, number: int) -> None:
    (checked.node.root / "run/deeplearning/instance-id").write_text(instance(number))
    assert checked.failing() == [] and checked.check()[1]["node"] == f"deeplearning-worker{number}"
    following = number % 3 + 1
    expected = (f"deeplearning-worker{following}", f"10.0.0.{following + 4}", f"10.0.0.{number + 4}")
    assert [measured[1:] for measured in checked.measured] == [expected] * 2


@pytest.mark.parametrize(
    ("speed", "words", "failed"),
    [
        (1.9, (), ("", "1.90 Gbit/s to deeplearning-worker2, at least 2 is expected")),
        (2.0, (), None),
        (0.6, ("--floor", "0.5"), None),
        (2.4, ("--floor", "2.5"), ("", "2.40 Gbit/s to deeplearning-worker2, at least 2.5 is expected")),
        (OSError(111, "Connection refused"), (), ("unreachable", "to deeplearning-worker2: Connection refused")),
    ],
)
def test_a_slow_connection_fails(
    checked: Checked, speed: float | OSError, words: tuple[str, ...], failed: tuple[str, str] | None
) -> None:
    checked.speeds["deeplearning-worker2"] = speed
    assert checked.failing(*words) == ([("bandwidth", *failed)] if failed else [])


@pytest.mark.parametrize(("types", "expected"), [(("g5.xlarge", "p4d.24xlarge"), 1.25), (("p4d.24xlarge",) * 2, 2)])
def test_the_slower_of_two_types_sets_the_floor(checked: Checked, types: tuple[str, str], expected: float) -> None:
    path = checked.node.root / "var/lib/deeplearning/members.json"
    applied = json.loads(path.read_text())
    for member, kind in zip(applied["members"], types, strict=False):
        member["instance_type"] = kind
    path.write_text(json.dumps(applied))
    assert checked.check()[1]["checks"][-1]["detail"].endswith(f"at least {expected:g} is expected")


def test_a_peer_that_ssh_does_not_reach_is_not_measured(checked: Checked) -> None:
    checked.file("down/deeplearning-worker2")
    reason = "not measured, as ssh to deeplearning-worker2 fails"
    assert checked.failing()[-1] == ("bandwidth", "ssh", reason) and checked.measured == []


def test_the_only_node_has_no_peers(checked: Checked) -> None:
    for number in (2, 3):
        checked.cluster.aws.end(number)
    checked.node.publish()
    checked.node.apply()
    names = [each["name"] for each in checked.check()[1]["checks"]]
    assert names[-2:] == ["clock", "names"] and checked.measured == []


@pytest.mark.parametrize("lost", ["list", "instance"])
def test_a_node_that_is_no_member_says_so_and_is_checked_as_a_machine(checked: Checked, lost: str) -> None:
    if lost == "list":
        (checked.node.root / "var/lib/deeplearning/members.json").unlink()
    else:
        (checked.node.root / "run/deeplearning/instance-id").write_text(instance(9))
    assert checked.failing() == [("member", "", "it has no member list yet")]
    answer = checked.check()[1]
    assert (answer["node"], answer["generation"]) == ("", 0)
    assert [each["name"] for each in answer["checks"]] == ["disk", "memory", "gpus", "driver", "faults", "member"]


def test_a_file_system_that_is_not_mounted_is_one_failure(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: False)
    mount = checked.cluster.config.efs_mount
    assert checked.failing() == [("efs", "", f"{mount}: nothing is mounted at {mount}")]
    checked.capsys.readouterr()
    assert checked.call("begin", "t2") == 2
    message = f"deeplearning: {mount} cannot be written to: nothing is mounted at {mount}.\n"
    assert checked.capsys.readouterr().err == message


def test_a_file_system_that_does_not_answer_is_silent(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    def within(seconds: float, action: Callable[[], Any]) -> Any:
        raise DeadlineExceeded

    monkeypatch.setattr(probes, "within", within)
    mount = checked.cluster.config.efs_mount
    assert checked.failing() == [("efs", "silent", f"{mount}: it does not answer within 20 s")]
    assert checked.call("begin", "t2") == 2


def test_the_clock_is_compared_with_the_file_systems(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "write_token_file", lambda mount, folder, name: 3.25)
    assert checked.failing() == [("clock", "", "3.2 s ahead of the shared file system")]


@pytest.mark.parametrize("token", ["", "../t", "a/b", "a.b", "x" * 41, "t\n"])
@pytest.mark.parametrize("action", ["begin", "check", "training"])
def test_a_token_that_is_a_path_is_refused(checked: Checked, action: str, token: str) -> None:
    with pytest.raises(SystemExit) as refusal:
        checked.call(action, token, *(("--framework", "mxnet") if action == "training" else ()))
    assert refusal.value.code == 2
    assert "a token is made of up to 40 letters, digits and dashes" in checked.capsys.readouterr().err


def test_begin_writes_this_nodes_name(checked: Checked) -> None:
    assert checked.call("begin", "x" * 40) == 0
    (file,) = (checked.health / ("x" * 40)).iterdir()
    assert file.name == file.read_text() == "deeplearning-worker1"


def test_send_answers_with_a_speed_for_each_node(checked: Checked) -> None:
    checked.speeds = {"deeplearning-worker2": 7.5, "deeplearning-worker3": OSError("no port")}
    checked.capsys.readouterr()
    assert checked.call("send", "deeplearning-worker3", "deeplearning-worker2") == 0
    assert json.loads(checked.capsys.readouterr().out) == {"deeplearning-worker3": 0.0, "deeplearning-worker2": 7.5}
    assert [measured[1:] for measured in checked.measured] == [
        ("deeplearning-worker3", "10.0.0.7", "10.0.0.5"),
        ("deeplearning-worker2", "10.0.0.6", "10.0.0.5"),
    ]


@pytest.mark.parametrize(("oks", "code"), [((True, True), 0), ((True, False), 1), ((), 0)])
@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], ("", (), False, False)),
        (
            ["--distribution=horovod", "--nodes=deeplearning-worker1,n3", "--processor", "--preflight"],
            ("horovod", ("deeplearning-worker1", "n3"), True, True),
        ),
    ],
)
def test_a_short_run_is_asked_for_and_answered(
    checked: Checked,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    arguments: tuple[Any, ...],
    oks: tuple[bool, ...],
    code: int,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def run_checks(
        members: Any, framework: str, distribution: str, token: str, user: str, nodes: Any, early: bool, processor: bool
    ) -> Any:
        asked.append((len(members.members), framework, token, user, distribution, tuple(nodes), early, processor))
        return [checks.Check(f"c{number}", ok, "d") for number, ok in enumerate(oks)]

    monkeypatch.setattr(training, "run_checks", run_checks)
    checked.capsys.readouterr()
    assert checked.call("training", "T1", "--framework", "pytorch", *words) == code
    assert asked == [(3, "pytorch", "T1", "ubuntu", *arguments)]
    answer = json.loads(checked.capsys.readouterr().out)
    assert (answer["schema"], answer["framework"]) == (1, "pytorch")
    assert [(each["name"], each["ok"]) for each in answer["checks"]] == [(f"c{n}", ok) for n, ok in enumerate(oks)]


# One stream


NODE = Path(__file__).parents[3] / "files/node"


def test_a_real_stream_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "SECONDS", 2)
    folder = install(
        tmp_path / "bin", monkeypatch, ssh=f'[ "$1" = b ] && cd {NODE} && shift 2 && exec python3 -m deeplearning "$@"'
    )
    assert bandwidth.measure([f"{folder}/ssh"], "b", "127.0.0.1", "127.0.0.1") > 0
    # It accepts no other sender.
    with pytest.raises(OSError):
        bandwidth.measure([f"{folder}/ssh"], "b", "127.0.0.1", "10.0.0.9")


FAR = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
stream = listening.accept()[0]
while stream.recv(1 << 20): pass
print(sys.argv[1], flush=True)
"""


@pytest.mark.parametrize(("received", "speed"), [("1000000000", 2.0), ("0", 0.0), ("", None), ("killed", None)])
def test_what_the_far_end_has_received_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: str, speed: float | None
) -> None:
    (tmp_path / "far.py").write_text(FAR)
    folder = install(tmp_path / "bin", monkeypatch, ssh=f"exec python3 {tmp_path}/far.py '{received}'")
    clock = iter([100.0, 100.0, 102.0, 104.0])
    monkeypatch.setattr(bandwidth, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    if speed is None:
        with pytest.raises(OSError, match="b received nothing"):
            bandwidth.measure([f"{folder}/ssh"], "b", "127.0.0.1", "127.0.0.1")
    else:
        assert bandwidth.measure([f"{folder}/ssh"], "b", "127.0.0.1", "127.0.0.1") == speed


# Probes


def test_ssh_runs_as_the_clusters_user_and_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words = probes.as_user("ubuntu")
    assert words[:5] == ["runuser", "-u", "ubuntu", "--", "ssh"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probes.as_user("ubuntu") == words[4:]
    options = [option for flag, option in zip(words[5::2], words[6::2], strict=True) if flag == "-o"]
    assert {"BatchMode=yes", "ConnectTimeout=10"} <= set(options)


def test_a_node_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install(tmp_path / "bin", monkeypatch, ssh='[ "$1" = a ] || exec sleep 60')
    monkeypatch.setattr(probes, "SSH_SECONDS", 3)
    assert probes.ssh_failures([f"{folder}/ssh"], ["a", "b"]) == {"b": "no answer"}


def test_a_login_that_prints_without_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install(tmp_path / "bin", monkeypatch, ssh='[ "$1" = a ] || exec cat /dev/zero')
    failures = probes.ssh_failures([f"{folder}/ssh"], ["a", "b"])
    assert failures == {"b": "its login printed more than 1 MiB, and was read no further"}


def test_this_machines_memory_and_disk_are_plausible() -> None:
    free, total = probes.disk()
    assert 0 < free <= total
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available, whole = machine.memory()
    assert 0 < available <= whole == int(fields["MemTotal"].split()[0])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("no port"), "no port"),
        (DeadlineExceeded(), "it does not answer within 20 s"),
    ],
)
def test_problems_are_named_shortly(error: Exception, text: str) -> None:
    assert probes.problem_of(error) == text


@pytest.mark.root
def test_a_young_token_of_another_check_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    other = tmp_path / "health/other"
    other.mkdir(parents=True)
    probes.write_token_file(str(tmp_path), tmp_path / "health/token", "deeplearning-worker2")
    assert other.exists()
