"""What layers of tests are made of: commands, results, Pythons and costs."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.layers import catalogue, commands
from tests.layers import pythons as interpreters
from tests.layers.commands import Ended, command
from tests.layers.results import Result, counted

ROOT = Path(__file__).resolve().parents[3]


REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


@pytest.mark.parametrize(
    ("code", "numbers", "ok", "detail"),
    [
        (0, (5, 0, 0, 0), True, "5 passed"),
        (0, (5, 0, 0, 1), True, "4 passed, 1 expected to fail"),
        (1, (5, 2, 1, 0), False, "2 passed, 2 failed, 1 errors"),
        (5, (0, 0, 0, 0), False, "0 passed"),
        (0, (0, 0, 0, 0), False, "0 passed"),
        (2, (3, 0, 0, 0), False, "3 passed"),
    ],
)
def test_pytest_is_counted_by_its_report(
    tmp_path: Path, code: int, numbers: tuple[int, ...], ok: bool, detail: str
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(*numbers))
    assert counted(code, report) == Result(ok, detail)


CASES = """<testsuites><testsuite tests="2" failures="0" errors="0" skipped="0">
<testcase classname="tests.unit.test_a" name="test_quick" time="0.2"/>
<testcase classname="tests.unit.test_a" name="test_slow[a-b]" time="31.5"/></testsuite></testsuites>"""


def test_the_slowest_tests_come_first(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(CASES)
    result = counted(0, report, 7.5)
    assert result.command_seconds == 7.5
    assert result.slowest == ((31.5, "tests/unit/test_a.py::test_slow[a-b]"), (0.2, "tests/unit/test_a.py::test_quick"))


def test_results_of_one_layer_add_up() -> None:
    many = tuple((float(number), "test_a") for number in range(20))
    both = Result(True, "1 passed", 2, many) + Result(False, "1 failed", 3, many)
    assert (both.ok, both.detail, both.command_seconds) == (False, "1 passed, 1 failed", 5)
    assert [seconds for seconds, _ in both.slowest[:4]] == [19, 19, 18, 18] and len(both.slowest) == 25


def test_a_run_without_a_report_has_failed(tmp_path: Path) -> None:
    assert counted(139, tmp_path / "none") == Result(False, "ended with 139 before its end")


VENV = Path(sys.prefix)


VENV = Path(sys.prefix)


def test_a_silent_command_is_ended_and_may_clean_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "cleaned"
    script = f"""
import signal, sys
def clean(*_):
    open({str(mark)!r}, "x")
    print("cleaned")
    sys.exit()
signal.signal(signal.SIGINT, clean)
print("begun")
while True: signal.pause()
"""
    assert command("python", "-c", script, venv=VENV, silence=6).code == 124
    assert mark.exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == ["begun", "python has printed nothing for 0.1 minutes: ended", "cleaned"]


def test_a_slow_command_that_prints_is_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """It takes longer than it may be silent."""
    script = "for n in 1 2 3; do echo $n; sleep 3; done; echo done >&2; exit 3"
    assert command("bash", "-c", script, venv=VENV, silence=8).code == 3
    assert capsys.readouterr().out.splitlines()[1:] == [*"123", "done"]


def test_the_cpu_time_of_a_command_is_that_of_its_children_too() -> None:
    work = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.5: pass'"
    assert 0.9 <= command("bash", "-c", f"{work}; {work}; true", venv=VENV).cpu_seconds < 10


def test_what_a_command_leaves_running_does_not_hold_up_the_runner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "DRAIN_SECONDS", 0.2)
    pid = tmp_path / "pid"
    try:
        started = time.monotonic()
        ended = command("bash", "-c", f"sleep 600 & echo $! > {pid}; exit 0", venv=VENV)
        assert ended.code == 0
        assert time.monotonic() - started < 60
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_has_a_terminal_if_the_runner_has_one(terminal: bool) -> None:
    """Tools choose by it whether their output has colours."""
    words = [sys.executable, str(ROOT / "tests/unit/project/run_in.py")]
    reading, writing = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(words, cwd=ROOT, stdout=writing, stderr=writing, stdin=subprocess.DEVNULL) as child:
        os.close(writing)
        output = b""
        with contextlib.suppress(OSError):
            while part := os.read(reading, 4096):
                output += part
        os.close(reading)
        assert child.wait() == 0, output
    assert output.decode().splitlines()[-1] == f"terminal: {terminal}"


def test_a_deprecation_of_ours_fails_a_command_that_succeeds() -> None:
    text = f"{ROOT}/plugins/modules/plan.py:1: DeprecationWarning: old"
    assert command("echo", "fine", venv=VENV).ok
    ended = command("echo", text, venv=VENV)
    assert (ended.code, ended.deprecations, ended.ok) == (0, [text], False)


HANGING = """
import time

def test_before():
    pass

def test_hanging():
    time.sleep(900)  # it hangs

def test_after():
    pass
"""


def test_a_test_that_hangs_is_ended_with_its_stack_and_the_others_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(HANGING)
    result = catalogue.run_and_count(VENV, "-n", "1", str(file), hang=6)
    assert (result.ok, result.detail) == (False, "2 passed, 1 errors")
    output = capsys.readouterr().out
    assert "line 8 in test_hanging" in output and "crashed while running" in output


def test_the_lane_that_works_gives_way_also_by_its_sessions() -> None:
    niceness = catalogue.LANE_NICENESS[catalogue.PROCESSOR]
    assert niceness > catalogue.LANE_NICENESS[catalogue.MACHINES]
    # A kernel without groups has no such file.
    group = f"[ ! -e /proc/self/autogroup ] || grep -q 'nice {niceness}$' /proc/self/autogroup"
    gives_way = f'until [ "$(nice)" = {niceness} ] && {{ {group}; }}; do :; done'
    token = commands.NICENESS.set(niceness)
    try:
        assert command("timeout", "20", "sh", "-c", gives_way, venv=VENV).code == 0
    finally:
        commands.NICENESS.reset(token)


def test_the_tests_on_debian_13_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def command(*words: str, venv: Path, silence: float) -> object:
        started.append(list(words))
        return Ended(0)

    monkeypatch.setattr(catalogue, "command", command)
    catalogue.on_debian("trixie", *catalogue.DEBIAN_13)(VENV)
    assert started[0][:2] == ["env", "LOCALCLOUD_SUITE=trixie"] and "pytest" in started[0]
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *catalogue.DEBIAN_13]
    collected = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout


def test_a_folder_without_tests_has_failed() -> None:
    """pytest would run the unit tests in its place."""
    assert catalogue.pytest("tests/nothing")(VENV) == Result(False, "no tests in tests/nothing")


def interpreter(path: Path, version: str, works: bool = True) -> Path:
    """A stand-in for an interpreter; pyenv's own stand-ins fail for versions that are off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n" if works else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose only interpreters are those that a test puts into this folder."""
    monkeypatch.setattr(interpreters, "PYTHONS", ("3.11", "8.12", "8.13"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_an_interpreter_is_found_in_path_and_among_pyenvs(pythons: Path) -> None:
    assert interpreters.find_python("8.12") == ""
    interpreter(pythons / "bin/python8.13", "8.13", works=False)
    kept = interpreter(pythons / "pyenv/versions/8.13.0/bin/python", "8.13")
    assert interpreters.find_python("8.13") == str(kept)
    first = interpreter(pythons / "bin/python8.13", "8.13")
    assert interpreters.find_python("8.13") == str(first)


def test_the_newest_python_is_the_highest_that_is_installed(pythons: Path) -> None:
    with pytest.raises(interpreters.UserError, match=r"need Python 8.13 or 8.12: none is installed"):
        interpreters.newest_python()
    interpreter(pythons / "bin/python8.12", "8.12")
    assert interpreters.newest_python() == "8.12"
    interpreter(pythons / "bin/python8.13", "8.13")
    assert interpreters.newest_python() == "8.13"


def test_the_chosen_python_has_an_environment_from_the_same_recipe(
    monkeypatch: pytest.MonkeyPatch, pythons: Path
) -> None:
    python = interpreter(pythons / "bin/python8.12", "8.12")
    made: list[list[str]] = []

    def make(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        made.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(interpreters, "version_of", lambda path: "8.12" if str(path) == str(python) else "3.11")
    monkeypatch.setattr(interpreters.subprocess, "run", make)
    assert interpreters.venv_of("8.12") == ROOT / ".venv-8.12"
    assert made == [["make", "-s", "-C", str(ROOT), "venv", "VENV=.venv-8.12", f"python={python}"]]
    assert interpreters.venv_of("3.11") == interpreters.venv_of("") == ROOT / ".venv"


def test_layers_cannot_reach_the_account_of_whoever_runs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    environment = commands.environment(VENV)
    assert not {"AWS_PROFILE", "AWS_ACCESS_KEY_ID"} & environment.keys()
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull


def started_by(monkeypatch: pytest.MonkeyPatch, code: int = 0) -> list[tuple[float, list[str]]]:
    """Note what layers start, and how long it may be silent, instead of starting it."""
    started: list[tuple[float, list[str]]] = []

    def command(*words: str | Path, venv: Path, silence: float = 0) -> Ended:
        started.append((silence, list(map(str, words))))
        return Ended(code)

    monkeypatch.setattr(catalogue, "command", command)
    return started


@pytest.mark.parametrize(
    ("marker", "hang"),
    [("gate and not long", 600), ("not long", 600), ("long", 2400)],
)
def test_the_marker_chooses_tests_and_their_limit(monkeypatch: pytest.MonkeyPatch, marker: str, hang: int) -> None:
    started = started_by(monkeypatch)
    catalogue.pytest("tests/unit", marker=marker)(VENV)
    ((silence, words),) = started
    assert words[words.index("-m") + 1] == marker
    assert f"faulthandler_timeout={hang}" in words
    assert silence > hang, "the runner leaves pytest the time for a report"


def test_a_project_with_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    started = started_by(monkeypatch)
    catalogue.pytest("localcloud/tests/unit", project="localcloud")(VENV)
    ((_, words),) = started
    assert words[words.index("-c") + 1] == "localcloud/pyproject.toml"
    assert words[words.index("--rootdir") + 1] == "localcloud"


@pytest.mark.parametrize("ok", [True, False])
def test_all_scenarios_are_one_call_of_molecule(monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    started = started_by(monkeypatch, code=0 if ok else 1)
    result = catalogue.molecule(lambda: ["a", "b"])(VENV)
    ((_, words),) = started
    assert words[words.index("molecule") :] == ["molecule", "test", "-s", "a", "-s", "b"]
    assert result == Result(ok, "2 scenarios passed" if ok else "a scenario failed")


def test_all_checks_run_and_those_that_fail_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def command(*words: str, venv: Path, silence: float) -> Ended:
        ran.append(words[0])
        return Ended(1 if words[0] == "b" else 0, cpu_seconds=2)

    monkeypatch.setattr(catalogue, "command", command)
    layer = catalogue.checks(lambda _venv: {name: [name] for name in "abc"})
    assert layer(VENV) == Result(False, "failed: b", 6)
    assert ran == ["a", "b", "c"]


def test_places_of_layers_exist() -> None:
    places = [place for group in catalogue.MARKED_LONG.values() for place in group]
    assert catalogue.existing(*places) == places
    assert catalogue.existing("tests/nothing", "tests/nothing.py") == []
    assert set(catalogue.MARKED_LONG) <= set(catalogue.ALL)


def test_each_long_test_belongs_to_a_part() -> None:
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("localcloud/tests/**/test_*.py")]
    long = {str(file.relative_to(ROOT)) for file in files if "\n@pytest.mark.long" in file.read_text()}
    places = tuple(place for group in catalogue.MARKED_LONG.values() for place in group)
    assert [path for path in long if not path.startswith(places)] == []


def test_each_molecule_scenario_belongs_to_one_tier() -> None:
    every = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}
    assert {*catalogue.scenarios(), *catalogue.LONG_SCENARIOS} == every
    assert not set(catalogue.scenarios()) & set(catalogue.LONG_SCENARIOS)
    assert catalogue.GATE_SCENARIO in catalogue.scenarios()
