"""A copy of the checkout, what its tests run, and one change at a time in it.

Every pytest is a fork of this process, in which all that the tests import is loaded already, but not what is changed.
As root it gets processes, mounts and devices of its own, so that a change that ends processes or writes files harms
nothing else.
"""

from __future__ import annotations

import ast
import compileall
import contextlib
import ctypes
import functools
import hashlib
import importlib
import inspect
import json
import os
import pickle
import pwd
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tools.mutation.changes import Change

OURS = ("plugins/", "files/node/")
COLLECTION = "collections/ansible_collections/deeplearning/aws/"
PRODUCT = ("deeplearning", "ansible_collections.deeplearning")
"""Modules that must not be loaded before a change is made."""
PRELOADED = (
    *("ansible.plugins.loader", "ansible.playbook", "ansible.template", "boto3", "yaml"),
    *(f"moto.{service}" for service in ("autoscaling", "ec2", "efs", "emr", "iam", "s3", "sqs", "ssm")),
    *("localcloud.core.cloud", "localcloud.endpoint.front", "localcloud.endpoint.server"),
)
MEMORY = 4 << 30
IMPORT_SECONDS = 90
FIRST_FILES = 3
MOST_SECONDS = 90.0
"""Seconds of processor time for the tests that run a changed line. The longest ones are left out if all take longer."""
NET_SECONDS = 15.0
"""The same for tests that do not run it, but are near."""

Trace = Callable[[FrameType, str, Any], Any]


class Unusable(Exception):
    """A sentence for the person who runs the sample."""


@dataclass
class Record:
    """What each test runs of the product."""

    seconds: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    """seconds of processor time, which other programs do not lengthen; child processes included"""
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    opened: dict[str, set[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    verdict: str
    """killed, timeout or survived"""
    by: str
    tests: int
    near: bool = False
    """None of the tests runs the line."""


class Recorder:
    """Note each test's lines, and the files of ours that it or its child processes open."""

    def __init__(self, copy: Path, output: Path) -> None:
        self.copy = copy
        self.output = output
        self.record = Record()
        self.names: dict[str, str] = {}
        self.running: dict[str, set[int]] = defaultdict(set)
        self.shared: dict[str, list[dict[str, set[int]]]] = defaultdict(list)
        self.of_file: dict[str, list[str]] = defaultdict(list)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.inotify = self.libc.inotify_init1(os.O_NONBLOCK)
        self.watched: dict[int, str] = {}
        for folder in [path for place in OURS for path in [copy / place, *(copy / place).rglob("*")] if path.is_dir()]:
            descriptor = self.libc.inotify_add_watch(self.inotify, os.fsencode(folder), 0x20)
            self.watched[descriptor] = os.path.relpath(folder, copy)

    def _name(self, file: str) -> str:
        if file not in self.names:
            path = os.path.relpath(os.path.realpath(file), self.copy)
            self.names[file] = path if path.startswith(OURS) else ""
        return self.names[file]

    def _call(self, frame: FrameType, event: str, _argument: Any) -> Any:
        name = self._name(frame.f_code.co_filename)
        if not name:
            return None
        seen = self.running[name]

        def line(inner: FrameType, _event: str, _argument: Any) -> Any:
            seen.add(inner.f_lineno)
            return line

        return line

    def _opened(self) -> set[str]:
        opened = set()
        while select.select([self.inotify], [], [], 0)[0]:
            data = os.read(self.inotify, 1 << 16)
            while data:
                descriptor, _mask, _cookie, length = struct.unpack_from("iIII", data)
                name = os.fsdecode(data[16 : 16 + length].rstrip(b"\0"))
                data = data[16 + length :]
                folder = self.watched.get(descriptor, "").removesuffix("/__pycache__")
                if name.endswith((".py", ".pyc")):
                    path = self.copy / folder / f"{name.partition('.')[0]}.py"
                    opened.add(os.path.relpath(path.resolve(), self.copy))
        return opened

    def _begin(self) -> dict[str, set[int]]:
        before, self.running = self.running, defaultdict(set)
        sys.settrace(self._call)
        threading.settrace(self._call)
        return before

    def pytest_sessionstart(self) -> None:
        # Children that fork and do not return to pytest leave what they have run in a file.
        parent, end = os.getpid(), os._exit

        def ended(code: int) -> None:
            if os.getpid() != parent:
                sys.settrace(None)
                with contextlib.suppress(Exception):
                    lines = {path: sorted(numbers) for path, numbers in self.running.items()}
                    part = self.output.with_name(f"part-{os.getpid()}")
                    part.write_text(json.dumps(lines))
                    part.rename(part.with_name(f"lines-{os.getpid()}"))
            end(code)

        os._exit = ended  # type: ignore[assignment]

    def _of_children(self) -> None:
        for file in self.output.parent.glob("lines-*"):
            for path, numbers in json.loads(file.read_text()).items():
                self.running[path].update(numbers)
            file.unlink()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._opened()
        self._begin()
        started, before = time.monotonic(), sum(os.times()[:4])
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.record.seconds[item.nodeid] = time.monotonic() - started
            self.record.processor[item.nodeid] = sum(os.times()[:4]) - before
            self.of_file[item.nodeid.partition("::")[0]].append(item.nodeid)
            self._of_children()
            self._keep(self.running, [item.nodeid])
            for path in self._opened():
                self.record.opened.setdefault(path, set()).add(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        # What it runs concerns each test of the file, and not only the first.
        outer = self._begin()
        try:
            return (yield)
        finally:
            self.shared[request.node.nodeid.partition("::")[0]].append(self.running)
            self.running = outer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.record.failed:
            self.record.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.record.failed.append(report.nodeid)

    def _keep(self, lines: dict[str, set[int]], tests: Iterable[str]) -> None:
        for path, numbers in lines.items():
            of_path = self.record.lines.setdefault(path, {})
            for number in numbers:
                of_path.setdefault(number, set()).update(tests)

    def pytest_sessionfinish(self) -> None:
        for file, parts in self.shared.items():
            for part in parts:
                self._keep(part, self.of_file[file])
        for module in list(sys.modules.values()):
            place = getattr(module, "__file__", None)
            if place and module.__name__.startswith(PRODUCT) and not os.path.realpath(place).startswith(str(self.copy)):
                self.record.failed.append(f"{module.__name__} is {place}, and not the copy's")
        self.output.write_bytes(pickle.dumps(self.record))


class Reporter:
    """Write each test's begin and the first failure to a pipe; run none but the chosen tests."""

    def __init__(self, pipe: int, chosen: set[str], known: dict[str, float]) -> None:
        self.pipe = pipe
        self.chosen = chosen
        self.known = known

    def say(self, *words: object) -> None:
        os.write(self.pipe, (json.dumps(words) + "\n").encode())

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.chosen or item.nodeid not in self.known]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.say("begin", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid or "collection")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.say("end", int(exitstatus))


def isolate(folder: Path, home: Path) -> None:
    """Give this process's children their own processes, and a root that they can read but not change.

    `/run` is empty, and Ansible's own folder in the home, which it finds without HOME, is in `home`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_processes = 0x00020000, 0x20000000
    if os.geteuid() or libc.unshare(new_mounts | new_processes):
        return
    recursive_private, bound, read_only_again = 0x4000 | 1 << 18, 4096, 4096 | 32 | 1
    libc.mount(b"none", b"/", None, recursive_private, None)
    ansible = Path(pwd.getpwuid(os.geteuid()).pw_dir, ".ansible")
    ansible.mkdir(exist_ok=True)
    for source, target in ((folder, folder), (home, ansible)):
        libc.mount(os.fsencode(source), os.fsencode(target), None, bound, None)
    libc.mount(b"none", b"/run", b"tmpfs", 0, None)
    libc.mount(b"none", b"/", None, read_only_again, None)


def own_proc() -> None:
    if not os.geteuid() and os.getpid() == 1:
        ctypes.CDLL(None).mount(b"proc", b"/proc", b"proc", 0, None)


class Trial:
    """The copy, in a folder of its own that goes in the end."""

    def __init__(self, root: Path, tests: list[str], ignored: list[str], patience: float = 20) -> None:
        self.root = root
        self.patience = patience
        self.tests = tests
        self.ignored = ignored
        self.folder = Path(tempfile.mkdtemp(prefix="mu-")).resolve()
        self.folder.chmod(0o755)
        self.copy = self.folder / "c"
        self.temporary = self.folder / "t"
        self.home = self.folder / "h"
        self.home.mkdir()
        self.key = self._make_copy()
        self.number = 0
        self.record = Record()

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_copy(self) -> str:
        """Copy what git knows or would add; return a checksum of it."""
        words = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, capture_output=True, check=True).stdout.decode()
        checksum = hashlib.sha256(f"{sys.version}{inspect.getsource(Recorder)}{self.ignored}".encode())
        for name in sorted(set(filter(None, listed.split("\0")))):
            source, target = self.root / name, self.copy / name
            if not os.path.lexists(source):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if not name.startswith(("docs/", "bench/", "tools/", "tests/unit/project/")):
                checksum.update(name.encode() + (b"" if source.is_symlink() else source.read_bytes()))
        if (self.root / ".venv").exists():
            (self.copy / ".venv").symlink_to((self.root / ".venv").resolve())
        subprocess.run(["git", "init", "-q"], cwd=self.copy, check=True)
        subprocess.run(["git", "add", "-A"], cwd=self.copy, check=True, capture_output=True)
        for place in ("plugins", "files", "localcloud", "tests"):
            if (self.copy / place).is_dir():
                compileall.compile_dir(self.copy / place, quiet=2, workers=1)
        return checksum.hexdigest()

    def prepare(self) -> None:
        """Become a process that forks quickly."""
        self._make_temporary()
        os.chdir(self.copy)
        # The names of the tests' own packages must lead into the copy.
        sys.path[:] = [str(self.copy), *(path for path in sys.path if Path(path or ".").resolve() != self.root)]
        tempfile.tempdir = None
        os.environ |= {"TMPDIR": str(self.temporary), "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        for name in PRELOADED if (self.copy / "localcloud").is_dir() else ():
            importlib.import_module(name)
        loaded = [name for name in sys.modules if name.startswith(PRODUCT)]
        if loaded:
            raise Unusable(f"{', '.join(loaded)} would be loaded before the change")

    def record_tests(self, cache: Path | None) -> None:
        """Run all tests once, or read what was recorded of the same files."""
        if cache and cache.exists():
            key, record = pickle.loads(cache.read_bytes())
            if key == self.key:
                self.record = record
                return
        output = self.temporary / "record"
        ignored = [f"--{'deselect' if '::' in place else 'ignore'}={place}" for place in self.ignored]
        recorder = Recorder(self.copy, output)
        sys.dont_write_bytecode = False
        arguments = ["-q", "--tb=short", *ignored, *self.tests]
        process = self._fork(lambda: pytest.main([*COMMON, *arguments], plugins=[recorder]), None)
        os.waitpid(process, 0)
        sys.dont_write_bytecode = True
        if not output.exists():
            raise Unusable(f"The tests could not be recorded:\n{self.log()}")
        self.record = pickle.loads(output.read_bytes())
        if not self.record.seconds or any("copy's" in line for line in self.record.failed):
            raise Unusable(f"The tests could not be recorded: {self.record.failed}\n{self.log()}")
        if cache:
            cache.parent.mkdir(exist_ok=True)
            cache.write_bytes(pickle.dumps((self.key, self.record)))

    def log(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-25:])

    def _fork(self, work: Callable[[], int], pipe: int | None) -> int:
        """Run it in a child of a child that is the first process of its own. Return the outer child."""
        sys.stdout.flush()
        outer = os.fork()
        if outer:
            return outer
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for number in (1, 2):
                os.dup2(log, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            isolate(self.folder, self.home)
            first = os.fork()
            if first:
                if pipe is not None:
                    os.close(pipe)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 255)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            own_proc()
            inner = os.fork()
            if inner:
                if pipe is not None:
                    os.close(pipe)
                while True:
                    ended, status = os.wait()
                    if ended == inner:
                        os._exit(os.waitstatus_to_exitcode(status) & 255)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            code = work()
        except BaseException as error:  # noqa: BLE001 - the child must end here
            print("mutate:", repr(error), flush=True)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def run(self, tests: list[str]) -> Outcome:
        """Run them until the first fails."""
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        reading, writing = os.pipe()
        reporter = Reporter(writing, set(tests), self.record.seconds)
        words = [*COMMON, "-q", "-x", "--tb=line", *files]
        outer = self._fork(lambda: pytest.main(words, plugins=[reporter]), writing)
        os.close(writing)
        try:
            return self._watch(reading)
        finally:
            os.close(reading)
            for send in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    send(outer, signal.SIGKILL)
            os.waitpid(outer, 0)

    def _watch(self, reading: int) -> Outcome:
        buffer, test, begun = b"", "import", 0
        deadline = time.monotonic() + IMPORT_SECONDS
        while True:
            if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return Outcome("timeout", test, begun)
            part = os.read(reading, 65536)
            if not part:
                return Outcome("killed", f"{test} (pytest died)", begun)
            *rows, buffer = (buffer + part).split(b"\n")
            for row in rows:
                what, value = json.loads(row)
                if what == "failed":
                    return Outcome("killed", value, begun)
                if what == "end":
                    ended = f"{test} (pytest ended with {value})" if value else ""
                    return Outcome("killed" if value else "survived", ended, begun)
                test = value
                begun += 1
                deadline = time.monotonic() + self.patience + 10 * self.record.seconds.get(test, 1.0)

    def try_change(self, change: Change, tests: list[str] | None = None) -> Outcome:
        """Make the change, run the tests that can notice it, and undo it."""
        outcome, ran = Outcome("survived", "", 0), 0
        with self._changed(change.path, change.apply((self.copy / change.path).read_bytes())):
            for stage in [tests] if tests else self.stages(change):
                outcome = self.run(stage)
                ran += outcome.tests
                if outcome.verdict != "survived":
                    break
        near = not (tests or change.at_import or self.running(change))
        return Outcome(outcome.verdict, outcome.by, ran, near)

    @contextlib.contextmanager
    def _changed(self, path: str, source: bytes) -> Iterator[None]:
        place = self.copy / path
        before, times = place.read_bytes(), place.stat()
        self.number += 1
        try:
            place.write_bytes(source)
            # Compiled files are recognized by time and size.
            os.utime(place, (times.st_atime, times.st_mtime + 10 * self.number))
            yield
        finally:
            place.write_bytes(before)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
            shutil.rmtree(self.temporary, ignore_errors=True)
            self._make_temporary()

    def prove(self, change: Change, tests: list[str] | None) -> bool:
        """Check that it is the copy that the tests test: without a change they pass, and with a fatal one they fail.

        Return false if no test runs the file.
        """
        stage = tests or next(iter(self.stages(change)), [])
        if not stage:
            return False
        if tests and (unchanged := self.run(stage)).verdict != "survived":
            raise Unusable(f"Without a change the tests fail: {unchanged.by}\n{self.log()}")
        source = (self.copy / change.path).read_bytes()
        with self._changed(change.path, source + b'\nraise AssertionError("the copy is tested")\n'):
            if self.run(stage).verdict != "killed":
                raise Unusable(f"The tests of {change.path} pass although it cannot be imported:\n{self.log()}")
        return True

    def _make_temporary(self) -> None:
        self.temporary.mkdir(exist_ok=True)
        self.temporary.chmod(0o1777)

    def stages(self, change: Change) -> list[list[str]]:
        """Return the tests that run the line, those in the nearest files first, and then those that are only near."""
        near = set(self._files_that_import(change.path))
        chosen = self.running(change)
        if change.at_import:
            for path in {change.path, *self._importers(change)}:
                chosen |= set().union(*self.record.lines.get(path, {}).values())
            chosen |= {test for test in self.record.seconds if test.partition("::")[0] in near}
        chosen -= set(self.record.failed)
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in self._cheapest(MOST_SECONDS, chosen):
            by_file[test.partition("::")[0]].append(test)
        order = sorted(by_file, key=lambda file: (-_nearness(file, change.path), self._processor(by_file[file])))
        parts = [
            [test for file in files for test in by_file[file]] for files in (order[:FIRST_FILES], order[FIRST_FILES:])
        ]
        left_out = chosen.union(self.record.failed)
        others = {test for test in self.record.seconds if test.partition("::")[0] in near} - left_out
        return [part for part in [*parts, self._cheapest(NET_SECONDS, others)] if part]

    def running(self, change: Change) -> set[str]:
        """Return the tests that run the line, or whose child processes open the file."""
        of_path = self.record.lines.get(change.path, {})
        lines = range(change.lines[0], change.lines[1] + 1)
        return set().union(self.record.opened.get(change.path, ()), *(of_path.get(line, ()) for line in lines))

    def _processor(self, tests: Iterable[str]) -> float:
        return sum(self.record.processor[test] for test in tests)

    def _cheapest(self, seconds: float, tests: Iterable[str]) -> list[str]:
        kept = []
        for test in sorted(tests, key=lambda test: (self.record.processor[test], test)):
            seconds -= self.record.processor[test]
            if seconds >= 0:
                kept.append(test)
        return kept

    @functools.cached_property
    def _imports(self) -> dict[str, set[str]]:
        """Return the files of ours that each file names in its imports."""
        paths = [path for place in (*OURS, "tests/") for path in (self.copy / place).rglob("*.py")]
        return {os.path.relpath(path, self.copy): imported(path, self.copy) for path in paths if path.is_file()}

    def _files_that_import(self, path: str) -> list[str]:
        """Return the files of tests that import it, themselves or through a kit."""
        kits = [file for file, names in self._imports.items() if file.startswith("tests/") and path in names]
        further = [file for file, names in self._imports.items() if file.startswith("tests/") and names & set(kits)]
        mirrored = f"test_{Path(path).stem}.py"
        return [file for file in self._imports if file in kits or file in further or file.endswith(mirrored)]

    def _importers(self, change: Change) -> Iterable[str]:
        """Return the files that may use what the changed line defines."""
        name = re.match(r"(?:class |def )?(\w+)", change.text)
        for file, names in self._imports.items():
            if change.path in names and file.startswith(OURS):
                text = (self.copy / file).read_text(encoding="utf-8")
                if not name or change.lines[0] != change.line or re.search(rf"\b{name[1]}\b", text):
                    yield os.path.relpath((self.copy / file).resolve(), self.copy)


COMMON = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "console_output_style=classic"]


def imported(file: Path, root: Path) -> set[str]:
    """Return the files below the root that an import in this file may read."""
    tree = ast.parse(file.read_bytes())
    names: set[str] = set()
    here = os.path.relpath(file, root).removesuffix(".py").split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.replace(".", "/") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "/".join(here[: -node.level]) if node.level else ""
            module = "/".join(filter(None, [base, (node.module or "").replace(".", "/")]))
            names |= {module, *(f"{module}/{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            # run_module(capsys, "name", …), and plugins by their names.
            names |= {f"plugins/{kind}/{node.value}" for kind in ("modules", "action", "filter")}
    opened = set()
    for name in names:
        name = name.removeprefix(COLLECTION.removeprefix("collections/"))
        for path in (f"{name}.py", f"{name}/__init__.py", f"files/node/{name}.py", f"files/node/{name}/__init__.py"):
            if (root / path).is_file():
                opened.add(os.path.relpath((root / path).resolve(), root))
    return opened


def _nearness(test: str, path: str) -> int:
    """Count the words that both paths have; the file's own name counts most."""
    words = set(re.split(r"[/_.]", test.removeprefix("tests/unit/")))
    stem = Path(path).stem
    own = 4 if stem in Path(test).stem else 0
    return own + len(words & set(re.split(r"[/_.]", path)) - {"py", "plugins"})
