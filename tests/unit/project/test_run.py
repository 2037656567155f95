"""The runner of the layers counts right, hides no failure, keeps what layers took, and is documented as it is."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.layers import commands, records
from tests.layers import pythons as interpreters
from tests.layers.commands import Ended
from tools import minutes_docs

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """It writes into the test's own folder alone."""
    spec = importlib.util.spec_from_file_location("layers_runner", ROOT / "tests/run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for name in ("TIMES", "RECORDED", "REPORTS", "LONG"):
        monkeypatch.setattr(module, name, tmp_path / "kept" / name)
    (tmp_path / "kept").mkdir()
    monkeypatch.delenv("TEST_STARTED", raising=False)
    return module


def layers(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, *results: bool, root: bool = False, size: str = "LAYERS"
) -> list[str]:
    """As many layers with these results; gives the list in which they note that they ran."""
    ran: list[str] = []

    def make(name: str, ok: bool) -> object:
        return runner.Layer(name, lambda venv: ran.append(name) or runner.Result(ok, "7 passed"), root=root)

    monkeypatch.setattr(runner, size, {f"l{n}": make(f"l{n}", ok) for n, ok in enumerate(results)})
    return ran


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
    runner: ModuleType, tmp_path: Path, code: int, numbers: tuple[int, ...], ok: bool, detail: str
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(*numbers))
    assert runner.counted(code, report) == runner.Result(ok, detail)


CASES = """<testsuites><testsuite tests="2" failures="0" errors="0" skipped="0">
<testcase classname="tests.unit.test_a" name="test_quick" time="0.2"/>
<testcase classname="tests.unit.test_a" name="test_slow[a-b]" time="31.5"/></testsuite></testsuites>"""


def test_the_slowest_tests_come_first(runner: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(CASES)
    result = runner.counted(0, report, 7.5)
    assert result.processor_seconds == 7.5
    assert result.slowest == ((31.5, "tests/unit/test_a.py::test_slow[a-b]"), (0.2, "tests/unit/test_a.py::test_quick"))


def test_results_of_one_layer_add_up(runner: ModuleType) -> None:
    many = tuple((float(number), "test_a") for number in range(20))
    both = runner.Result(True, "1 passed", 2, many) + runner.Result(False, "1 failed", 3, many)
    assert (both.ok, both.detail, both.processor_seconds) == (False, "1 passed, 1 failed", 5)
    assert [seconds for seconds, _ in both.slowest[:4]] == [19, 19, 18, 18] and len(both.slowest) == 25


def test_a_run_without_a_report_has_failed(runner: ModuleType, tmp_path: Path) -> None:
    assert runner.counted(139, tmp_path / "none") == runner.Result(False, "ended with 139 before its end")


def test_a_failing_layer_does_not_hide_the_next(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = layers(runner, monkeypatch, True, False, True)
    assert runner.main([]) == 1
    assert ran == ["l0", "l1", "l2"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-4:-1]] == [["l0", "ok"], ["l1", "FAILED"], ["l2", "ok"]]
    assert lines[-1] == "2 passed, 1 failed"


def test_only_the_layers_that_are_named_run(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = layers(runner, monkeypatch, False, True)
    assert runner.main(["l1"]) == 0
    assert ran == ["l1"]


def test_an_unknown_layer_is_refused(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["units"]) == 2
    assert (
        "units: no such layer. There are: lint, sanity, unit, account, image, localcloud, molecule, integration"
        in capsys.readouterr().err
    )


def test_without_root_a_layer_that_needs_it_fails(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = layers(runner, monkeypatch, True, root=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert runner.main([]) == 1
    assert ran == []
    assert capsys.readouterr().out.startswith("Not root: l0")


VENV = Path(sys.prefix)


def test_a_silent_command_is_ended_and_may_clean_up(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    assert runner.command("python", "-c", script, venv=VENV, silence=6).code == 124
    assert mark.exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == ["begun", "python has printed nothing for 0.1 minutes: ended", "cleaned"]


def test_a_slow_command_that_prints_is_not_ended(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes longer than it may be silent."""
    script = "for n in 1 2 3; do echo $n; sleep 3; done; echo done >&2; exit 3"
    assert runner.command("bash", "-c", script, venv=VENV, silence=8).code == 3
    assert capsys.readouterr().out.splitlines()[1:] == [*"123", "done"]


def test_the_processor_time_of_a_command_is_that_of_its_children_too(runner: ModuleType) -> None:
    work = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.5: pass'"
    assert 0.9 <= runner.command("bash", "-c", f"{work}; {work}; true", venv=VENV).processor_seconds < 10


def test_what_a_command_leaves_running_does_not_hold_up_the_runner(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "DRAIN_SECONDS", 0.2)
    pid = tmp_path / "pid"
    try:
        started = time.monotonic()
        ended = runner.command("bash", "-c", f"sleep 600 & echo $! > {pid}; exit 0", venv=VENV)
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


def test_a_deprecation_of_ours_fails_a_command_that_succeeds(runner: ModuleType) -> None:
    text = f"{ROOT}/plugins/modules/plan.py:1: DeprecationWarning: old"
    assert runner.command("echo", "fine", venv=VENV).ok
    ended = runner.command("echo", text, venv=VENV)
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
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(HANGING)
    result = runner.run_and_count(VENV, "-n", "1", str(file), hang=6)
    assert (result.ok, result.detail) == (False, "2 passed, 1 errors")
    output = capsys.readouterr().out
    assert "line 8 in test_hanging" in output and "crashed while running" in output


def test_limits_of_ten_minutes_for_a_test_leave_time_for_the_report(runner: ModuleType) -> None:
    assert runner.HANG_SECONDS == 600
    started: list[tuple[float, tuple[str, ...]]] = []

    def command(*words: str, venv: Path, silence: float) -> object:
        started.append((silence, words))
        return Ended(0)

    runner.command = command
    for long in (False, True):
        runner.pytest("tests/unit", long=long)(VENV)
    for (silence, words), hang in zip(started, (600, 2400), strict=True):
        assert f"faulthandler_timeout={hang}" in words and silence > hang


def test_lanes_run_side_by_side_and_the_second_is_printed_at_the_end(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other to begin, and a layer for one of another lane to end."""
    begun = {name: threading.Event() for name in ("boots", "works")}
    ended: list[str] = []

    def meets(name: str, other: str) -> Callable[[Path], object]:
        def run(_venv: Path) -> object:
            begun[name].set()
            assert begun[other].wait(60)
            runner.command("echo", f"{name} prints", venv=VENV)
            ended.append(name)
            return runner.Result(True, "1 passed")

        return run

    def last(_venv: Path) -> object:
        assert "works" in ended
        return runner.Result(True, "1 passed")

    made = (
        runner.Layer("works", meets("works", "boots")),
        runner.Layer("boots", meets("boots", "works"), runner.MACHINES),
        runner.Layer("boots-later", last, runner.MACHINES, after="works"),
    )
    monkeypatch.setattr(runner, "LAYERS", {layer.name: layer for layer in made})
    assert runner.main([]) == 0
    output = capsys.readouterr().out
    places = [output.index(text) for text in ("boots prints", "=== the lane processor", "works prints", "3 passed, 0")]
    assert places == sorted(places)


def test_the_lane_that_works_gives_way_also_by_its_sessions(runner: ModuleType) -> None:
    niceness = runner.LANE_NICENESS[runner.PROCESSOR]
    assert niceness > runner.LANE_NICENESS[runner.MACHINES]
    # A kernel without groups has no such file.
    group = f"[ ! -e /proc/self/autogroup ] || grep -q 'nice {niceness}$' /proc/self/autogroup"
    gives_way = f'until [ "$(nice)" = {niceness} ] && {{ {group}; }}; do :; done'
    token = commands.NICENESS.set(niceness)
    try:
        assert runner.command("timeout", "20", "sh", "-c", gives_way, venv=VENV).code == 0
    finally:
        commands.NICENESS.reset(token)


def test_what_layers_took_is_kept_printed_and_recorded_if_all_ran(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = runner.Result(True, "2 passed", 90, ((31.5, "tests/unit/test_a.py::test_slow"),))
    monkeypatch.setattr(runner, "LAYERS", {"unit": runner.Layer("unit", lambda venv: result)})
    monkeypatch.setenv("TEST_STARTED", str(time.time() - 120))
    assert runner.main(["--record", "unit"]) == 0
    kept = json.loads(runner.TIMES.read_text())
    assert kept["layers"]["unit"]["processor_minutes"] == 1.5 and kept["processors"] == os.cpu_count()
    assert kept["layers"]["unit"]["slowest"] == [[31.5, "tests/unit/test_a.py::test_slow"]]
    assert kept["minutes"] >= 2
    output = capsys.readouterr().out
    assert "slowest tests of unit\n    31.5 s  tests/unit/test_a.py::test_slow\n" in output
    assert "unit            ok        0.0 min,   1.5 of processor" in output
    assert not runner.RECORDED.exists()
    assert runner.main(["--record"]) == 0
    assert json.loads(runner.RECORDED.read_text()).keys() == kept.keys()


def test_the_marker_chooses_the_size(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    ended = Ended(0)
    monkeypatch.setattr(runner, "command", lambda *words, venv, silence: started.append(list(words)) or ended)
    for long in (False, True):
        runner.pytest("tests/unit", long=long)(VENV)
    chosen = [words[words.index("-m") + 1] for words in started]
    assert chosen == ["not long", "long"]


def test_the_tests_on_debian_13_exist(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def command(*words: str, venv: Path, silence: float) -> object:
        started.append(list(words))
        return Ended(0)

    monkeypatch.setattr(runner, "command", command)
    runner.on_debian("trixie", *runner.DEBIAN_13)(VENV)
    assert started[0][:2] == ["env", "LOCALCLOUD_SUITE=trixie"] and started[0][4] == "pytest"
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *runner.DEBIAN_13]
    collected = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout


@pytest.mark.parametrize(("codes", "ok"), [((0, 0), True), ((1, 0), False), ((0, 1), False)])
def test_all_scenarios_are_one_call_of_molecule_and_its_tests_follow(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int], ok: bool
) -> None:
    started: list[str] = []

    def command(*words: str, venv: Path) -> object:
        started.append(" ".join(words))
        return Ended(codes[0])

    monkeypatch.setattr(runner, "command", command)
    monkeypatch.setattr(
        runner, "pytest", lambda *places, long: lambda venv: runner.Result(not codes[1], f"in {places}")
    )
    result = runner.molecule(lambda: ["a", "b"], "tests/molecule")(VENV)
    (words,) = started
    assert words.startswith("env LOCALCLOUD_FORMS=") and words.endswith(" molecule test -s a -s b")
    assert result.ok == ok and result.detail.endswith(", in ('tests/molecule',)")


def test_a_folder_without_tests_has_failed(runner: ModuleType) -> None:
    """pytest would run the unit tests in its place."""
    assert runner.pytest("tests/nothing")(VENV) == runner.Result(False, "no tests in tests/nothing")


def test_places_of_layers_and_parts_exist(runner: ModuleType) -> None:
    places = [each for group in (*runner.SHORT.values(), *runner.MARKED_LONG.values()) for each in group]
    whole = [place for place in places if "::" not in place]
    assert runner.existing(*whole) == whole and runner.existing("tests/nothing", "tests/nothing.py") == []


def test_each_marked_test_is_in_a_folder_of_the_long_size(runner: ModuleType) -> None:
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("localcloud/tests/**/test_*.py")]
    marked = {str(file.relative_to(ROOT)) for file in files if "pytest.mark.long" in file.read_text()}
    folders = tuple(place for places in runner.MARKED_LONG.values() for place in places)
    assert [path for path in marked - {"tests/unit/project/test_run.py"} if not path.startswith(folders)] == []
    assert set(runner.MARKED_LONG) <= set(runner.PARTS) and set(runner.SHORT) <= set(runner.LAYERS)


def test_each_molecule_scenario_belongs_to_one_size(runner: ModuleType) -> None:
    every = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}
    assert {*runner.scenarios(), *runner.LONG_SCENARIOS} == every
    assert not set(runner.scenarios()) & set(runner.LONG_SCENARIOS)


def row(text: str, name: str) -> list[str]:
    (cells,) = re.findall(rf"^\| ({name} \|.*) \|$", text, re.MULTILINE)
    return str(cells).split(" | ")


def test_a_part_replaces_its_own_row_only(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = runner.LONG
    layers(runner, monkeypatch, True, True, False, size="PARTS")
    assert runner.main(["--long", "l2"]) == 1
    monkeypatch.setattr(records, "commit", lambda: "0000001")
    assert runner.main(["--long", "l0"]) == 0
    before = file.read_text()
    assert [line.split()[1] for line in before.splitlines()[5:]] == ["---", "l0", "l2"]
    assert row(before, "l0")[1:5] == ["ok", "0.0", runner.version_of(ROOT / ".venv/bin/python"), "0000001"]
    assert row(before, "l0")[6] == "7 passed"
    assert row(before, "l2")[1] == "FAILED"
    monkeypatch.setattr(records, "commit", lambda: "0000002")
    assert runner.main(["--long", "l2"]) == 1
    after = file.read_text()
    assert row(after, "l0") == row(before, "l0")
    assert row(after, "l2")[4] == "0000002"


def test_layers_of_make_test_are_no_parts(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    layers(runner, monkeypatch, True)
    assert runner.main([]) == 0
    assert not runner.LONG.exists() and not runner.RECORDED.exists()


def test_the_recorded_parts_are_parts(runner: ModuleType) -> None:
    names = re.findall(r"^\| ([\w-]+) \| (?:ok|FAILED)", records.LONG.read_text(), re.MULTILINE)
    assert names == [name for name in runner.PARTS if name in names]


def interpreter(path: Path, version: str, works: bool = True) -> Path:
    """A stand-in for an interpreter; pyenv's own stand-ins fail for versions that are off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n" if works else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def pythons(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose only interpreters are those that a test puts into this folder."""
    monkeypatch.setattr(interpreters, "PYTHONS", ("3.11", "8.12", "8.13"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_an_interpreter_is_found_in_path_and_among_pyenvs(runner: ModuleType, pythons: Path) -> None:
    assert interpreters.find_python("8.12") == ""
    interpreter(pythons / "bin/python8.13", "8.13", works=False)
    kept = interpreter(pythons / "pyenv/versions/8.13.0/bin/python", "8.13")
    assert interpreters.find_python("8.13") == str(kept)
    first = interpreter(pythons / "bin/python8.13", "8.13")
    assert interpreters.find_python("8.13") == str(first)


def test_the_newest_python_is_the_highest_that_is_installed(runner: ModuleType, pythons: Path) -> None:
    with pytest.raises(runner.UserError, match=r"need Python 8.13 or 8.12: none is installed"):
        runner.newest_python()
    interpreter(pythons / "bin/python8.12", "8.12")
    assert runner.newest_python() == "8.12"
    interpreter(pythons / "bin/python8.13", "8.13")
    assert runner.newest_python() == "8.13"


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("8.12", "Python 8.12 is in none of PATH, /usr/bin and pyenv's versions: install it, for example with apt-get"),
        ("2.7", "Python 2.7 is not supported: choose 3.11, 8.12 or 8.13"),
    ],
)
def test_a_missing_python_is_one_sentence(
    runner: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    pythons: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    sentence: str,
) -> None:
    ran = layers(runner, monkeypatch, True)
    assert runner.main(["--python", version]) == 2
    assert ran == []
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_without_a_newer_python_only_its_parts_fail(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, pythons: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers(runner, monkeypatch, True, size="PARTS")
    newest = runner.Layer("newest-unit", lambda venv: runner.Result(True, ""), newest=True)
    monkeypatch.setattr(runner, "PARTS", {"newest-unit": newest} | runner.PARTS)
    assert runner.main(["--long"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "newest-unit" not in runner.LONG.read_text()
    assert lines[-3].startswith("newest-unit     FAILED") and "none is installed" in lines[-3]
    assert lines[-2].startswith("l0              ok")


def test_the_chosen_python_has_an_environment_from_the_same_recipe(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, pythons: Path
) -> None:
    python = interpreter(pythons / "bin/python8.12", "8.12")
    made: list[list[str]] = []

    def make(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        made.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(interpreters, "version_of", lambda path: "8.12" if str(path) == str(python) else "3.11")
    monkeypatch.setattr(interpreters.subprocess, "run", make)
    assert runner.venv_of("8.12") == ROOT / ".venv-8.12"
    assert made == [["make", "-s", "-C", str(ROOT), "venv", "VENV=.venv-8.12", f"python={python}"]]
    assert runner.venv_of("3.11") == runner.venv_of("") == ROOT / ".venv"


@pytest.mark.parametrize("goal", ["help", "venv", "test"])
def test_make_refuses_a_path_with_a_space_in_one_sentence(tmp_path: Path, goal: str) -> None:
    folder = tmp_path / "my checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    # `make test` hands its own flags down to the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", goal], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert f'The path of this checkout, "{folder}", has a space: move it to a path without spaces.' in done.stderr


@pytest.mark.parametrize("goal", ["docs", "packaging"])
def test_make_creates_the_first_environment_with_the_systems_python(tmp_path: Path, goal: str) -> None:
    """A variable of one target counts for its prerequisites too, and a fresh checkout has no .venv to take it from."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml", "tests/lint/packaging.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "-n", goal]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    creators = re.findall(r"(\S+) -m venv --clear (\S+?);", done.stdout)
    assert done.returncode == 0 and [folder for _python, folder in creators] == [".venv", ".venv-packaging"], (
        done.stderr
    )
    assert not creators[0][0].startswith(".venv") and creators[1][0] == ".venv/bin/python"


def test_make_installs_packages_where_systemd_is_not_installed(tmp_path: Path) -> None:
    """As in a container of Debian."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    for program, line in (("dpkg-query", "exit 1"), ("id", "echo 0"), ("tools/step", 'echo "$2"')):
        (tmp_path / program).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / program).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    words = ["make", "-s", "packages", f"python={sys.executable}"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["Debian packages (build/setup.log)"]), done


def test_layers_cannot_reach_the_account_of_whoever_runs_them(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    environment = runner.environment(VENV)
    assert not {"AWS_PROFILE", "AWS_ACCESS_KEY_ID"} & environment.keys()
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull


def test_a_part_without_what_it_needs_is_not_run_and_not_recorded(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PUBLISHED_SOURCES", raising=False)
    monkeypatch.setattr(runner, "LONG", tmp_path / "test-long.md")
    monkeypatch.setattr(runner.os, "geteuid", lambda: 0)
    assert runner.main(["--long", "published"]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("published "))
    assert line.endswith("not run: PUBLISHED_SOURCES names no folder; docs/testing.md says of what")
    assert not (tmp_path / "test-long.md").exists()


def test_both_sizes_are_listed_with_what_they_took(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [*runner.LAYERS, *runner.PARTS]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == names
    assert [line.split(":")[0] for line in lines if not line.startswith("  ")] == ["make test", "make test-long"]
    recorded = records.recorded_runs()["long debian-13"]
    assert f"  debian-13       {recorded.minutes:g} min, root" in lines


def test_the_documented_layers_are_the_runners_with_their_recorded_minutes(runner: ModuleType) -> None:
    page = (ROOT / "docs/testing.md").read_text()
    assert page == minutes_docs.renewed()
    names = re.findall(r"^\| ([\w-]+) \| (?:[\d.]+|–) \|", page, re.MULTILINE)
    assert names == [*runner.LAYERS, *runner.PARTS]


def test_the_recorded_run_took_no_longer_than_ci_may_take() -> None:
    assert json.loads(records.RECORDED.read_text())["minutes"] <= 60
