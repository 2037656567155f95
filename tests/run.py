#!/usr/bin/env python3
"""Runs the layers of tests, each to its end, and closes with a line for each: tests/run.py [LAYER…]

`make test` runs them all. A layer that fails does not keep the next from running; one failure fails the whole.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"

COLLECTION = "collections/ansible_collections/deeplearning/aws"
TYPED = ("localcloud", f"{COLLECTION}/plugins/module_utils", f"{COLLECTION}/plugins/plugin_utils", "files/node")
"""Where the thinking is: mypy is strict there. Plugins are reached through the link, by which they have full names."""


@dataclass(frozen=True)
class Result:
    ok: bool
    detail: str


@dataclass(frozen=True)
class Layer:
    name: str
    minutes: float
    """What it may take on two cores with nothing cached. At twice this it is ended, and has failed."""
    run: Callable[[float], Result]
    root: bool = False
    """It boots machines."""


def command(*words: str | Path, deadline: float) -> int:
    """The exit code; its output is ours. What runs into the deadline is asked to clean up before it is killed."""
    print(f"$ {shlex.join(map(str, words))}", flush=True)
    child = subprocess.Popen(words, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return child.wait(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        print(f"{words[0]} is far over its time: ended", flush=True)
    except KeyboardInterrupt:
        end(child)
        raise
    end(child)
    return 124


def end(child: subprocess.Popen[bytes]) -> None:
    for sign, grace in ((signal.SIGINT, 60), (signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=grace)
            return


def environment() -> dict[str, str]:
    """Ours, with the tools of the virtual environment first, and no way to the AWS account of whoever runs this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") or name == "AWS_CA_BUNDLE"}
    if not sys.stdout.isatty():
        kept["NO_COLOR"] = "1"
    return kept | {
        "PATH": f"{VENV / 'bin'}:{kept.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "VIRTUAL_ENV": str(VENV),
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def existing(*places: str) -> list[str]:
    """Those that hold any Python."""
    return [place for place in places if next((ROOT / place).rglob("*.py"), None)]


def lint(deadline: float) -> Result:
    checks: dict[str, list[str | Path]] = {
        "ansible-lint": ["ansible-lint", "--offline"],
        "yamllint": ["yamllint", "--strict", "."],
        "ruff": ["ruff", "check"],
        "mypy": ["mypy", "tests/run.py", "conftest.py", "tests/lint", *existing(*TYPED)],
        "policies": ["python", "-m", "tests.lint.policies"],
    }
    failed = [name for name, words in checks.items() if command(*words, deadline=deadline)]
    return Result(not failed, f"failed: {', '.join(failed)}" if failed else f"{len(checks)} checks passed")


def sanity(deadline: float) -> Result:
    return Result(command("tests/sanity/run", deadline=deadline) == 0, "ansible-test")


def pytest(*places: str, processes: int = 1) -> Callable[[float], Result]:
    """More than one, where tests share nothing but what is in their file."""
    several = ["-n", str(processes), "--dist", "loadfile"] if processes > 1 else []

    def run(deadline: float) -> Result:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            words = ["pytest", "-q", "--durations=5", f"--junit-xml={report}", *several]
            return counted(command(*words, *existing(*places), deadline=deadline), report)

    return run


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
    return sorted(place.parent.name for place in ROOT.glob("molecule/*/molecule.yml"))


def molecule(deadline: float) -> Result:
    failed = [name for name in scenarios() if command("molecule", "test", "-s", name, deadline=deadline)]
    passed = len(scenarios()) - len(failed)
    return Result(not failed, f"{passed} passed" + (f", {len(failed)} failed: {', '.join(failed)}" if failed else ""))


LAYERS = {
    layer.name: layer
    for layer in (
        Layer("lint", 1.5, lint),
        Layer("sanity", 1.5, sanity),
        Layer("unit", 3, pytest("tests/unit", "localcloud/tests/unit", processes=2)),
        Layer("account", 6, pytest("tests/account", processes=2)),
        Layer("integration", 24, pytest("localcloud/tests/integration", "tests/integration"), root=True),
        Layer("molecule", 5.5, molecule, root=True),
    )
}


def run(layer: Layer) -> tuple[Result, float]:
    print(f"\n==> {layer.name} (may take {layer.minutes:g} min)", flush=True)
    if layer.root and os.geteuid() != 0:
        return Result(False, "needs root: sudo make test"), 0.0
    started = time.monotonic()
    result = layer.run(started + layer.minutes * 60 * 2)
    return result, (time.monotonic() - started) / 60


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in LAYERS]
    if unknown:
        print(f"{', '.join(unknown)}: no such layer. There are: {', '.join(LAYERS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    layers = [LAYERS[name] for name in names or LAYERS]
    nothing = [layer for layer in layers if layer.name == "molecule" and not scenarios()]
    layers = [layer for layer in layers if layer not in nothing]

    needy = [layer.name for layer in layers if layer.root]
    if needy and os.geteuid() != 0:
        print(f"Not root: {' and '.join(needy)} boot machines, so they will fail. Run it as root (sudo make test).")

    results = {layer: run(layer) for layer in layers}

    print()
    for layer, (result, minutes) in results.items():
        verdict = "ok" if result.ok else "FAILED"
        print(f"{layer.name:<12} {verdict:<7} {minutes:5.1f} min of {layer.minutes:<4g} {result.detail}")
    for layer in nothing:
        print(f"{layer.name:<12} there is none yet")
    failures = sum(not result.ok for result, _ in results.values())
    print(f"{len(results) - failures} passed, {failures} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
