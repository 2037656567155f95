#!/usr/bin/env python3
"""Run layers of tests, each to its end, and close with a line for each.

`make test` runs all layers; `make test-long` runs all parts of the long size and records them in
bench/results/test-long.md. A layer that fails does not keep the next from running; one failure fails the whole.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.deprecations import our_deprecations  # noqa: E402

COLLECTION = "collections/ansible_collections/deeplearning/aws"
TYPED = ("localcloud", f"{COLLECTION}/plugins", "files/node")
"""mypy is strict there. Plugins are reached through the link, by which they have full names."""

SILENCE_SECONDS = 30 * 60
"""A command that prints nothing for this long is ended. Slowness alone never fails a layer."""

PYTHONS = ("3.11", "3.12", "3.13")
LONG_SCENARIOS = ("framework", "monitoring", "tensorpack", "training_run")
"""Molecule scenarios of the long size; `make test` runs the others."""
RESULTS = ROOT / "bench/results/test-long.md"


class UserError(Exception):
    """A sentence for the person who runs the tests."""


@dataclass(frozen=True)
class Result:
    ok: bool
    detail: str


@dataclass(frozen=True)
class Layer:
    name: str
    minutes: float
    """What it usually takes on two cores with nothing cached."""
    run: Callable[[Path], Result]
    """It gets the virtual environment to use."""
    root: bool = False
    """It boots machines."""
    newest: bool = False
    """It runs on the newest Python that is installed."""


@dataclass
class Ended:
    """A command that has ended."""

    code: int
    deprecations: list[str] = field(default_factory=list)
    """warnings in its output that our own code or content causes"""

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.deprecations


class Relay(threading.Thread):
    """Pass on a command's output as it comes, and remember when the last of it came."""

    def __init__(self, source: int) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.last_output = time.monotonic()
        self.output = bytearray()

    def run(self) -> None:
        # A terminal answers with an error when the last process has closed it.
        with contextlib.suppress(OSError):
            while part := os.read(self.source, 65536):
                self.last_output = time.monotonic()
                self.output += part
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()


def command(*words: str | Path, venv: Path, silence: float = SILENCE_SECONDS) -> Ended:
    """Run a command and show its output. After `silence` seconds without output it may clean up, and is then killed."""
    print(f"$ {shlex.join(map(str, words))}", flush=True)
    with _output_channel() as (reading, writing):
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(venv),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    relay = Relay(reading)
    relay.start()
    code = _wait(child, relay, silence)
    if code is None:
        print(f"{words[0]} has printed nothing for {silence / 60:g} minutes: ended", flush=True)
        end(child)
    # Whatever it has left running may hold the channel open.
    relay.join(timeout=5)
    deprecations = our_deprecations(relay.output.decode(errors="replace"))
    for warning in deprecations:
        print(f"caused by our own code or content: {warning}", flush=True)
    return Ended(124 if code is None else code, deprecations)


@contextlib.contextmanager
def _output_channel() -> Iterator[tuple[int, int]]:
    """A terminal like ours, so that colours stay, or a pipe; the writing end is closed here when the child has it."""
    if sys.stdout.isatty():
        reading, writing = pty.openpty()
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writing, termios.TIOCSWINSZ, size)
        # Our own terminal turns ends of lines into what it needs; twice would be too often.
        modes = termios.tcgetattr(writing)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(writing, termios.TCSANOW, modes)
    else:
        reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(writing)


def _wait(child: subprocess.Popen[bytes], relay: Relay, silence: float) -> int | None:
    """Return the exit code, or None once there was no output for this long."""
    try:
        while (rest := relay.last_output + silence - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=rest)
    except KeyboardInterrupt:
        end(child)
        raise
    return None


def end(child: subprocess.Popen[bytes]) -> None:
    for sign, grace in ((signal.SIGINT, 60), (signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=grace)
            return


def environment(venv: Path) -> dict[str, str]:
    """Ours, with the tools of the virtual environment first, and no way to the AWS account of whoever runs this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") or name == "AWS_CA_BUNDLE"}
    if not sys.stdout.isatty():
        kept["NO_COLOR"] = "1"
    return kept | {
        "PATH": f"{venv / 'bin'}:{kept.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "VIRTUAL_ENV": str(venv),
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def existing(*places: str) -> list[str]:
    """Those that hold any Python."""
    return [place for place in places if next((ROOT / place).rglob("*.py"), None)]


def lint(venv: Path) -> Result:
    checks: dict[str, list[str | Path]] = {
        "ansible-lint": ["ansible-lint", "--offline"],
        "yamllint": ["yamllint", "--strict", "."],
        "ruff": ["ruff", "check"],
        "mypy": [
            *("mypy", "tests/run.py", "tests/deprecations.py", "conftest.py", "tests/lint"),
            *existing(*TYPED),
        ],
        "policies": ["python", "-m", "tests.lint.policies"],
        "packaging": ["python", "-m", "tests.lint.packaging"],
        "docs": ["make", "-s", "docs", f"VENV={venv.relative_to(ROOT)}"],
    }
    failed = [name for name, words in checks.items() if not command(*words, venv=venv).ok]
    return Result(not failed, f"failed: {', '.join(failed)}" if failed else f"{len(checks)} checks passed")


def sanity(venv: Path) -> Result:
    return Result(command("tests/sanity/run", venv=venv).ok, "ansible-test")


def pytest(
    *places: str, processes: int = 1, long: bool = False, options: Sequence[str] = ()
) -> Callable[[Path], Result]:
    """Choose tests by the marker `long`. More than one process is for tests that share nothing outside their file."""
    several = ["-n", str(processes), "--dist", "loadfile"] if processes > 1 else []

    def run(venv: Path) -> Result:
        found = existing(*places)
        if not found:
            return Result(False, f"no tests in {', '.join(places)}")
        chosen = ["-m", "long" if long else "not long"]
        return run_and_count(venv, *chosen, *several, *found, *options)

    return run


def on_debian_13(venv: Path) -> Result:
    return run_and_count(venv, *DEBIAN_13, variables=["LOCALCLOUD_SUITE=trixie"])


def run_and_count(venv: Path, *arguments: str, variables: Sequence[str] = ()) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["env", *variables, "pytest", "-q", "--durations=5", f"--junit-xml={report}"]
        ended = command(*words, *arguments, venv=venv)
        return counted(ended.code or len(ended.deprecations), report)


def counted(code: int, report: Path) -> Result:
    """What pytest's report says. A run that ended without one, or that passed nothing, has failed."""
    if not report.exists():
        return Result(False, f"ended with {code} before its end")
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, errors, skipped = (
        sum(int(suite.get(key, "0")) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    passed = total - failed - errors - skipped
    numbers = {"passed": passed, "failed": failed, "errors": errors, "expected to fail": skipped}
    detail = ", ".join(f"{number} {what}" for what, number in numbers.items() if number or what == "passed")
    return Result(code == 0 and passed > 0, detail)


def scenarios() -> list[str]:
    """Return those that `make test` runs."""
    return sorted({place.parent.name for place in ROOT.glob("molecule/*/molecule.yml")} - set(LONG_SCENARIOS))


def molecule(names: Callable[[], Sequence[str]], *tests: str, long: bool = False) -> Callable[[Path], Result]:
    """One run for all scenarios, as they share the local cloud: the first that fails ends it."""

    def run(venv: Path) -> Result:
        chosen = [word for name in names() for word in ("-s", name)]
        passed = command("molecule", "test", *chosen, venv=venv).ok
        result = Result(passed, f"{len(names())} passed" if passed else "a scenario failed")
        left = pytest(*tests, long=long)(venv)
        return Result(result.ok and left.ok, f"{result.detail}, {left.detail}")

    return run


def chaos(*parts: str) -> Callable[[Path], Result]:
    def run(venv: Path) -> Result:
        return Result(command("python", "bench/chaos", *parts, venv=venv).ok, "bench/results/chaos.md")

    return run


def mutations(venv: Path) -> Result:
    return Result(command("python", "tools/mutate.py", "--check", venv=venv).ok, "bench/results/mutations.md")


UNIT = ("tests/unit", "localcloud/tests/unit")
ACCOUNT = ("tests/account",)
INTEGRATION = ("localcloud/tests/integration", "tests/integration")
MOLECULE = ("tests/molecule",)
DEBIAN_13 = (
    *(f"tests/integration/test_{name}.py" for name in ("launcher", "training")),
    *(
        f"tests/integration/test_{name}]"
        for name in (
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[mpirun",
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[tensorflow",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[generate_trainer",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[run.sh",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[health",
        )
    ),
    # Last: it leaves a worker less.
    "tests/integration/test_training_recovery.py",
)

LAYERS = {
    layer.name: layer
    for layer in (
        Layer("lint", 3, lint),
        Layer("sanity", 1.5, sanity),
        Layer("unit", 3, pytest(*UNIT, processes=2)),
        Layer("account", 6, pytest(*ACCOUNT, processes=2)),
        Layer("integration", 16, pytest(*INTEGRATION), root=True),
        Layer("molecule", 4, molecule(scenarios, *MOLECULE), root=True),
    )
}
"""What `make test` runs."""

PARTS = {
    part.name: part
    for part in (
        Layer("newest-lint", 3, lint, newest=True),
        Layer("newest-sanity", 1.5, sanity, newest=True),
        Layer("newest-unit", 4, pytest(*UNIT, processes=2), newest=True),
        Layer("newest-account", 7, pytest(*ACCOUNT, processes=2), newest=True),
        Layer("chaos-calls", 60, chaos("task", "write", "emr")),
        Layer("chaos-machines", 60, chaos("machines"), root=True),
        Layer("chaos-soak", 40, chaos("soak"), root=True),
        Layer("account", 20, pytest(*ACCOUNT, long=True)),
        Layer("late-reads", 8, pytest(*ACCOUNT, processes=2, options=("--late-reads", "2"))),
        Layer("integration", 40, pytest(*INTEGRATION, long=True), root=True),
        Layer("debian-13", 15, on_debian_13, root=True),
        Layer("molecule", 25, molecule(lambda: LONG_SCENARIOS, *MOLECULE, long=True), root=True),
        Layer("mutations", 30, mutations),
    )
}
"""What `make test-long` runs."""


def tables() -> str:
    """Describe both sizes."""
    lines = []
    for title, layers in (("make test", LAYERS), ("make test-long", PARTS)):
        lines += [f"{title}: {sum(layer.minutes for layer in layers.values()):g} min and the setup"]
        for layer in layers.values():
            remarks = ["root"] * layer.root + ["newest Python"] * layer.newest
            lines.append(f"  {layer.name:<15} {layer.minutes:>4g} min  {', '.join(remarks)}".rstrip())
    return "\n".join(lines)


def version_of(python: Path | str) -> str:
    """Return the version of an interpreter that can make virtual environments, or nothing."""
    words = [python, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    with contextlib.suppress(OSError):
        return str(subprocess.run(words, capture_output=True, text=True, check=False).stdout).strip()
    return ""


def find_python(version: str) -> str:
    """Return the path of an interpreter of this version. pyenv has commands in PATH for versions that are off, too."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        *(shutil.which(name) or "" for name in (f"python{version}", "python3")),
        f"/usr/bin/python{version}",
        *sorted(map(str, pyenv.glob(f"versions/{version}*/bin/python"))),
    ]
    return next((path for path in candidates if path and version_of(path) == version), "")


def venv_of(version: str) -> Path:
    """Return the virtual environment of a Python version, and make it if needed; with no version, the usual one."""
    usual = ROOT / ".venv"
    if not version or version_of(usual / "bin/python") == version:
        return usual
    if version not in PYTHONS:
        raise UserError(f"Python {version} is not supported: choose {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}")
    python = find_python(version)
    if not python:
        raise UserError(
            f"Python {version} is in none of PATH, /usr/bin and pyenv's versions: install it, for example with "
            f"apt-get install python{version}-venv or pyenv install {version}"
        )
    venv = ROOT / f".venv-{version}"
    words = ["make", "-s", "-C", str(ROOT), "venv", f"VENV={venv.name}", f"python={python}"]
    if subprocess.run(words, check=False).returncode:
        raise UserError(f"{venv.name} could not be made: see above")
    return venv


def newest_python() -> str:
    """Return the newest version with the newer set of packages."""
    newer = sorted(PYTHONS[1:], reverse=True)
    version = next((version for version in newer if find_python(version)), "")
    if not version:
        raise UserError(f"The parts newest-… need Python {' or '.join(newer)}: none is installed")
    return version


def run(layer: Layer, venv: Path) -> tuple[Result, float]:
    print(f"\n==> {layer.name} (usually {layer.minutes:g} min)", flush=True)
    if layer.root and os.geteuid() != 0:
        return Result(False, "needs root: sudo make test"), 0.0
    started = time.monotonic()
    result = layer.run(venv)
    return result, (time.monotonic() - started) / 60


def closing_line(layer: Layer, result: Result, minutes: float) -> str:
    verdict = "ok" if result.ok else "FAILED"
    over = minutes - layer.minutes
    remark = f" ({over:.1f} min more than usual)" if over >= 0.05 else ""
    return f"{layer.name:<15} {verdict:<7} {minutes:5.1f} min  {result.detail}{remark}"


def commit() -> str:
    """Return what was tested. Results of measurements, which a part itself may write, do not count as changes."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
        return str(done.stdout).strip()

    changed = git("status", "--porcelain", "--", ".", ":!bench/results", ":!bench/results.json")
    return (git("rev-parse", "--short", "HEAD") or "no commit") + (" with changes" if changed else "")


HEAD = """# The latest run of `make test-long`

Each part was run on its own or with others: `tests/run.py --long [PART…]` replaces the rows of the parts that it runs.

| part | outcome | minutes | Python | commit | date | result |
| --- | --- | --- | --- | --- | --- | --- |
"""


def record(part: Layer, result: Result, minutes: float, version: str, file: Path | None = None) -> None:
    """Replace one row of the table of results, and keep the others."""
    file = file or RESULTS
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    rows = {row[1]: row[0] for row in re.finditer(r"^\| ([\w-]+) \| (?:ok|FAILED) \|.*$", text, re.MULTILINE)}
    outcome = "ok" if result.ok else "FAILED"
    cells = (part.name, outcome, f"{minutes:.1f}", version, commit(), date.today(), result.detail)
    rows[part.name] = f"| {' | '.join(map(str, cells))} |"
    file.write_text(HEAD + "".join(f"{rows[name]}\n" for name in PARTS if name in rows), encoding="utf-8")


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/run.py",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="LAYER", help="only these layers, or parts of the long size")
    parser.add_argument("--long", action="store_true", help="run the long size, and record it in bench/results")
    parser.add_argument("--python", default="", metavar="VERSION", help=f"one of {', '.join(PYTHONS)}")
    parser.add_argument("--list", action="store_true", help="print the layers of both sizes, with their minutes")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    options = parse(words)
    if options.list:
        print(tables())
        return 0
    size = PARTS if options.long else LAYERS
    unknown = [name for name in options.names if name not in size]
    if unknown:
        print(f"{', '.join(unknown)}: no such layer. There are: {', '.join(size)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    layers = [size[name] for name in options.names or size]

    needy = [layer.name for layer in layers if layer.root]
    if needy and os.geteuid() != 0:
        print(f"Not root: {' and '.join(needy)} boot machines, so they will fail. Run it as root (sudo make test).")

    results: dict[Layer, tuple[Result, float]] = {}
    for layer in layers:
        try:
            venv = venv_of(options.python or (newest_python() if layer.newest else ""))
        except UserError as error:
            if options.python:
                print(error, file=sys.stderr)
                return 2
            results[layer] = Result(False, str(error)), 0.0
            continue
        results[layer] = run(layer, venv)
        if options.long:
            record(layer, *results[layer], version_of(venv / "bin/python"))

    print()
    for layer, (result, minutes) in results.items():
        print(closing_line(layer, result, minutes))
    failures = sum(not result.ok for result, _ in results.values())
    print(f"{len(results) - failures} passed, {failures} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
