"""A run's own packages: pip installs them for real, in an environment of the test, from wheels of the test."""

from __future__ import annotations

import base64
import fcntl
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning import programs
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import RECORDS
from deeplearning.runs import packages, units
from deeplearning.runs.folder import Folder, runs_root
from deeplearning.runs.units import Preparing, Unfit

from tests.unit.node.runs_kit import CONFIG, record

FRAMEWORK = "core"


def wheel(folder: Path, name: str, version: str, *metadata: str) -> None:
    """Write a wheel with one module, which has the version."""
    information = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{information}/METADATA": "\n".join(lines) + "\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{information}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{information}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("2.0", "3.0"):
        wheel(folder, FRAMEWORK, version, "Requires-Dist: base>=1")
    for version in ("0.5", "1.0", "1.5"):
        wheel(folder, "base", version)
    wheel(folder, "vision", "1.0", f"Requires-Dist: {FRAMEWORK}==2.0")
    wheel(folder, "newer", "1.0", f"Requires-Dist: {FRAMEWORK}>=3")
    return folder


@pytest.fixture(scope="module")
def python(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with a framework and what it needs."""
    environment = tmp_path_factory.mktemp("env") / "pytorch"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin/python")
    install = [python, *packages.PIP, "install", "-q", "--no-index", "--find-links", str(wheels)]
    subprocess.run([*install, f"{FRAMEWORK}==2.0", "base==1.0"], check=True)
    marker = {"requirements_sha256": "0", "python": "3.11.2", "versions": {FRAMEWORK: "2.0", "base": "1.0"}}
    (environment / paths.MARKER).write_text(json.dumps(marker))
    return python


@pytest.fixture
def run(
    tmp_path: Path, wheels: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[packages.Packages, str, Folder]]:
    """Return a function that returns what is to be installed for a run with these requirements."""
    monkeypatch.setattr(paths, "PACKAGES", str(tmp_path / "packages"))
    ours = replace(RECORDS["pytorch"], package=FRAMEWORK, imports=(FRAMEWORK, "base"))
    monkeypatch.setattr(packages, "RECORDS", {"pytorch": ours})
    (tmp_path / "packages").mkdir()
    (tmp_path / "run").mkdir()
    folder = Folder(str(tmp_path / "run"))
    folder.write(
        "run.json",
        record("pytorch", "ddp", python=python) | {"run_id": "r1", "requirements": "0", "requested_at": "now"},
    )

    def of(requirements: str) -> tuple[packages.Packages, str, Folder]:
        text = f"--no-index\n--find-links {wheels}\n{requirements}\n"
        Path(folder.file(packages.FILE)).write_text(text)
        made = packages.of_run(folder, "pytorch", python)
        return made, str(tmp_path / "archive" / f"{made.digest}.tar"), folder

    return of


Run = Callable[[str], tuple[packages.Packages, str, Folder]]


def seen(python: str, folder: str, *modules: str) -> list[str]:
    """Return the versions that a process with these packages imports."""
    code = f"import {', '.join(modules)}; print(*(each.version for each in ({', '.join(modules)},)))"
    done = subprocess.run([python, "-c", code], env={"PYTHONPATH": folder}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_they_are_added_to_the_environment_which_stays_as_it_is(run: Run, python: str) -> None:
    made, archive, folder = run("vision\nbase>=1.2")
    packages.install(made, archive, folder)
    assert sorted(os.listdir(made.folder)) == sorted(
        [*("base.py", "base-1.5.dist-info", "vision.py", "vision-1.0.dist-info"), *_caches(made.folder)]
    )
    assert seen(python, made.folder, "vision", "base", FRAMEWORK) == ["1.0", "1.5", "2.0"]
    assert seen(python, "", "base") == ["1.0"]


def _caches(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if name == "__pycache__"]


def test_extensions_for_gpus_find_the_toolkit_of_the_frameworks_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.cuda_toolkits, "FOLDER", tmp_path)
    for version in ("12.9", "13.0", "14.1"):
        nvcc = tmp_path / f"cuda-{version}/bin/nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n")
        nvcc.chmod(0o755)
    (tmp_path / "cuda").symlink_to("cuda-14.1")
    variables = packages.toolkit_variables({"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}, {"PATH": "/bin"})
    assert variables == {"CUDA_HOME": f"{tmp_path}/cuda-13.0", "PATH": f"{tmp_path}/cuda-13.0/bin:/bin"}
    variables = packages.toolkit_variables({"nvidia-cuda-runtime": "13.0.96"}, {"CUDA_HOME": "/mine", "PATH": "/bin"})
    assert variables == {"CUDA_HOME": "/mine", "PATH": "/mine/bin:/bin"}
    for versions in ({"nvidia-cuda-runtime-cu11": "11.8.89"}, {"torch": "2.13.0+cpu"}):
        assert packages.toolkit_variables(versions, {}) == {}


def test_packages_that_no_run_needs_are_removed_but_the_last_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, archives = tmp_path / "packages", tmp_path / "archives"
    monkeypatch.setattr(paths, "PACKAGES", str(folders))
    digests = [f"{number:032x}" for number in range(9)]
    archives.mkdir()
    for number, digest in enumerate(digests):
        (folders / digest / "module").mkdir(parents=True)
        (folders / f".lock-{digest}").touch()
        for name in (f"{digest}.tar", f"{digest}.lock"):
            (archives / name).touch()
        for path in (folders / digest, archives / f"{digest}.tar"):
            age = (8.5 - number) * packages.ARCHIVE_SECONDS / 4
            os.utime(path, (0, time.time() - age))
    (archives / f"{digests[1]}.tar.partial").touch()
    (folders / f".{digests[1]}.old").mkdir()
    needed = {digests[0], digests[3]}
    packages.remove_old(str(archives), needed)
    assert {path.name for path in folders.glob("[0-9a-f]*")} == needed | {*digests[-2:]}
    assert {path.name for path in archives.glob("*.tar*")} == {
        *(f"{digest}.tar" for digest in needed | {*digests[-4:]}),
        f"{digests[1]}.tar.partial",
    }
    assert not list(folders.glob(".*.old")) and len(list(archives.glob("*.lock"))) == 9
    before = sorted(tmp_path.rglob("*"))
    packages.remove_old(str(archives), needed)
    assert sorted(tmp_path.rglob("*")) == before


def test_packages_of_runs_without_a_result_are_needed(
    run: Run, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ENVIRONMENTS", str(Path(python).parents[2]))
    made, _archive, folder = run("vision")
    config = replace(CONFIG, efs_mount=str(tmp_path / "efs"))
    root = Path(runs_root(config))
    for name, request in (
        ("waiting", folder.run()),
        ("plain", folder.run() | {"requirements": ""}),
        ("elsewhere", folder.run() | {"python": "/usr/bin/python3"}),
        ("ended", folder.run() | {"framework": "mxnet"}),
    ):
        (root / name).mkdir(parents=True)
        (root / name / packages.FILE).write_text(Path(folder.file(packages.FILE)).read_text())
        Folder(str(root / name)).write("run.json", request)
    (root / "ended/result.json").write_text("{}")
    assert list(packages.needed_digests(config)) == [made.digest]
    # Training code can write there.
    (root / "waiting" / packages.FILE).unlink()
    os.mkfifo(root / "waiting" / packages.FILE)
    with pytest.raises(UserError, match="is a link, a pipe or a folder"):
        list(packages.needed_digests(config))


def test_another_node_unpacks_what_the_first_has_built(run: Run, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, archive, folder = run("vision")
    packages.install(made, archive, folder)
    os.rename(made.folder, f"{made.folder}.first")
    monkeypatch.setattr(packages, "Builder", None)
    os.utime(archive, (0, 0))
    packages.install(made, archive, folder)
    assert seen(python, made.folder, "vision") == ["1.0"]
    assert min(os.stat(path).st_mtime for path in (made.folder, archive)) > time.time() - 600


def test_nodes_that_begin_together_build_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made, archive, folder = run("vision")
    built = []
    resolve = packages.Builder.resolve
    monkeypatch.setattr(packages.Builder, "resolve", lambda self: built.append(1) or resolve(self))
    nodes = [threading.Thread(target=packages.build_for_all, args=(made, archive, folder)) for _unused in range(3)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    assert built == [1]


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        ("newer", f"environment: .*newer 1.0 depends on {FRAMEWORK}>=3; the environment has {FRAMEWORK}==2.0"),
        (f"{FRAMEWORK}==3.0", f"The user requested {FRAMEWORK}==3.0; the environment has {FRAMEWORK}==2.0"),
        ("base==0.5", f"contradict the environment of pytorch: {FRAMEWORK} 2.0 has requirement base>=1, but you have"),
        ("git+file:///nonexistent/x", "fatal: .*nonexistent"),
    ],
)
def test_what_contradicts_the_environment_is_named_with_both_sides(run: Run, requirements: str, problem: str) -> None:
    made, archive, folder = run(requirements)
    with pytest.raises(UserError, match=problem) as refused:
        packages.install(made, archive, folder)
    assert "\n" not in str(refused.value)
    assert os.listdir(paths.PACKAGES) == [f".lock-{made.digest}"] and not os.path.exists(archive)


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Folder], None]:
    """Return a function that does what the unit does."""
    monkeypatch.setattr(packages, "read_config", lambda: CONFIG)
    monkeypatch.setattr(packages, "create_root", lambda user: None)
    monkeypatch.setattr(packages, "become", lambda user: None)
    monkeypatch.setattr(packages, "runs_root", lambda config: str(tmp_path))
    return lambda folder: packages.main([folder.path])


def test_what_one_node_could_not_install_is_the_problem_of_all_until_the_run_is_started_again(
    run: Run, unit: Callable[[Folder], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, archive, folder = run("absent")
    # A unit that has failed would be the problem of the next start.
    unit(folder)
    started: list[str] = []
    monkeypatch.setattr(units, "prepare", lambda *words: started.append(words[0]))
    with pytest.raises(Unfit) as failed:
        packages.require(folder.run(), folder)
    assert str(failed.value).startswith("its packages cannot be installed: ERROR: No matching distribution")
    assert str(failed.value).endswith(f"({socket.gethostname()})")
    monkeypatch.setattr(packages, "Builder", None)
    with pytest.raises(UserError, match="No matching distribution"):
        packages.build_for_all(made, archive, folder)
    assert not started
    folder.write("run.json", folder.run() | {"requested_at": "later"})
    packages.require(folder.run(), folder)
    assert len(started) == 1
    with pytest.raises(TypeError):
        packages.build_for_all(made, archive, folder)


def test_old_packages_are_removed_when_others_are_installed_and_a_failure_of_that_is_no_problem(
    run: Run,
    unit: Callable[[Folder], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, _archive, folder = run("vision")
    old = [Path(paths.PACKAGES, f"{number:032x}") for number in range(4)]
    for place in old:
        place.mkdir()
    (tmp_path / ".packages").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", denied)
        unit(folder)
        assert os.path.isdir(made.folder)
    assert capsys.readouterr().err == "packages of earlier runs were not removed: not allowed\n"
    assert all(place.is_dir() for place in old) and packages.problem_of(folder.run(), folder) == ""
    unit(folder)
    assert sum(place.is_dir() for place in old) == packages.SPARE_FOLDERS and os.path.isdir(made.folder)


def denied(_path: Path, _target: Path) -> None:
    raise PermissionError("not allowed")


def test_a_process_of_a_run_that_was_stopped_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made, archive, folder = run("vision")
    monkeypatch.setattr(packages, "Builder", None)
    with open(f"{paths.PACKAGES}/.lock-{made.digest}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(target=packages.install, args=(made, archive, folder))
        other.start()
        os.mkdir(made.folder)
    other.join(30)
    assert not other.is_alive() and os.listdir(made.folder) == []


BACKEND = f"""
import os, zipfile
import {FRAMEWORK}, tool

METADATA = "Metadata-Version: 2.1\\nName: extension\\nVersion: 1.0\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
FOLDER = "extension-1.0.dist-info"

def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(os.path.join(folder, FOLDER))
    with open(os.path.join(folder, FOLDER, "METADATA"), "w") as file:
        file.write(METADATA)
    return FOLDER

def build_wheel(folder, settings=None, metadata=None):
    name = "extension-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("extension.py", "version = 'built with " + {FRAMEWORK}.version + " and " + tool.version + "'")
        for file, text in dict(METADATA=METADATA, WHEEL=WHEEL, RECORD="").items():
            wheel.writestr(FOLDER + "/" + file, text)
    return name
"""


@pytest.fixture
def extension(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that imports the framework while it is built, as flash-attn does."""
    wheel(wheels, "tool", "4.0")
    monkeypatch.setattr(packages, "BUILD_TOOLS", (FRAMEWORK, "tool"))
    folder = tmp_path / "extension"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (folder / "backend.py").write_text(BACKEND)
    return folder.as_uri()


@pytest.mark.program("c++")
def test_a_package_that_needs_the_framework_to_be_built_is_built_within_its_environment(
    run: Run, python: str, extension: str
) -> None:
    made, archive, folder = run(f"extension @ {extension}\nvision")
    packages.install(made, archive, folder)
    assert " ".join(seen(python, made.folder, "extension", "vision")) == "built with 2.0 and 4.0 1.0"
    assert not list(Path(made.folder).glob("tool*"))
    made, archive, folder = run(f"extension @ {extension}\ntool")
    packages.install(made, archive, folder)
    assert seen(python, made.folder, "tool") == ["4.0"], "a run may need a tool, too"


@pytest.mark.program("c++")
@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_a_package_that_requires_the_framework_to_be_built_is_built_for_the_environments(
    run: Run, python: str, extension: str, wheels: Path, tmp_path: Path, version: str
) -> None:
    """As torchsort does. `version`: the oldest of the index. There is always a newer one, which pip would choose."""
    (tmp_path / "extension/pyproject.toml").write_text(
        f'[build-system]\nrequires = ["{FRAMEWORK}", "tool"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    made, archive, folder = run(f"extension @ {extension}")
    index = tmp_path / "index"
    shutil.copytree(wheels, index)
    if version != "2.0":
        (index / f"{FRAMEWORK}-2.0-py3-none-any.whl").unlink()
    made = replace(made, requirements=made.requirements.replace(str(wheels), str(index)))
    packages.install(made, archive, folder)
    assert " ".join(seen(python, made.folder, "extension")) == "built with 2.0 and 4.0"
    log = Path(folder.file(packages.LOG)).read_text()
    assert bool(re.search("build dependencies.* did not run", log)) == (version != "2.0")


def test_constraints_of_pips_configuration_stay(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _archive, folder = run("vision")
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nconstraint =\n  /one.txt\n  /two.txt\n[wheel]\nconstraint = /other.txt\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    builder = packages.Builder(made, str(tmp_path), folder)
    builder.constrain("/ours.txt")
    names = builder.environment["PIP_CONSTRAINT"].split()
    assert names[0] == "/ours.txt" and names[-2:] == ["/one.txt", "/two.txt"] and "/other.txt" not in names
    assert builder.environment["PIP_BUILD_CONSTRAINT"] == "/ours.txt"


def test_a_package_that_fails_within_the_environment_as_well_says_so(
    run: Run, extension: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "BUILD_TOOLS", ("absent",))
    made, archive, folder = run(f"extension @ {extension}")
    problem = r"^built within the environment, for core: ModuleNotFoundError: No module named 'tool' \(all of it: "
    with pytest.raises(UserError, match=problem):
        packages.install(made, archive, folder)


def test_a_package_that_misses_another_module_is_refused(run: Run, extension: str, tmp_path: Path) -> None:
    (tmp_path / "extension/backend.py").write_text("import elsewhere")
    made, archive, folder = run(f"extension @ {extension}")
    with pytest.raises(UserError, match=r"^ModuleNotFoundError: No module named 'elsewhere' \(all of it: "):
        packages.install(made, archive, folder)
    assert "tool-4.0" not in Path(folder.file(packages.LOG)).read_text()


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "error: subprocess-exited-with-error\n  x.c:1:10: fatal error: a.h: No such file\nERROR: Failed building",
            "x.c:1:10: fatal error: a.h: No such file",
        ),
        (
            "error: subprocess-exited-with-error\n  OSError: CUDA_HOME is not set\nERROR: Could not build",
            "OSError: CUDA_HOME is not set",
        ),
        ("error: subprocess-exited-with-error\nERROR: Could not build wheels", "ERROR: Could not build wheels"),
        (
            "  error: backend-unavailable\n  × Cannot import it.\n  ╰─> ModuleNotFoundError: No module 'b'",
            "ModuleNotFoundError: No module 'b'",
        ),
    ],
)
def test_what_a_build_says_is_its_reason(printed: str, reason: str) -> None:
    assert packages.reason_of(printed) == reason


class Index(http.server.BaseHTTPRequestHandler):
    """A private index, and the server of a repository that does not know its user."""

    wheels: Path
    expected = "Basic " + base64.b64encode(b"me:sesame-open").decode()

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != self.expected or self.path.startswith("/git"):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        name = self.path.strip("/").rpartition("/")[2]
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if name.endswith(".whl"):
            self.wfile.write((self.wheels / name).read_bytes())
        else:
            links = (f'<a href="/files/{file.name}">{file.name}</a>' for file in self.wheels.glob(f"{name}-*"))
            self.wfile.write("".join(links).encode())

    def log_message(self, *_words: Any) -> None:
        """Tests print nothing."""


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Index, "wheels", wheels, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("login", ["me:${PASSWORD}", "${ME}:${PASSWORD}"])
def test_a_login_of_an_index_comes_from_the_runs_environment_and_stands_nowhere(
    run: Run, unit: Callable[[Folder], None], index: str, python: str, login: str
) -> None:
    made, _archive, folder = run("")
    requirements = f"--index-url http://{login}@{index}/simple\nvision\n"
    Path(folder.file(packages.FILE)).write_text(requirements)
    folder.write("environment.json", {"environment": {"ME": "me", "PASSWORD": "sesame-open"}})
    unit(folder)
    made = replace(made, requirements=requirements)
    assert packages.problem_of(folder.run(), folder) == "" and seen(python, made.folder, "vision") == ["1.0"]
    texts = [file.read_text() for file in Path(folder.path).rglob("*") if file.is_file()]
    assert sum("sesame" in text for text in texts) == 1, "environment.json, which is closed to others"


def test_a_token_that_is_refused_is_not_printed(run: Run, index: str) -> None:
    made, archive, folder = run(f"git+http://${{TOKEN}}@{index}/git/x")
    folder.write("environment.json", {"environment": {"TOKEN": "ghp_sesame"}})
    with pytest.raises(UserError, match="fatal: Authentication failed") as refused:
        packages.install(made, archive, folder)
    assert "sesame" not in str(refused.value) + Path(folder.file(packages.LOG)).read_text()


def test_what_does_not_end_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made, archive, folder = run("vision")
    monkeypatch.setattr(packages, "SECONDS", 0.01)
    with pytest.raises(UserError, match="pip has not ended within"):
        packages.install(made, archive, folder)


@pytest.mark.parametrize(
    ("manager", "release", "names"),
    [
        ("apt-get", "ID=debian", ["g++", "make", "python3.11-dev"]),
        ("dnf", 'ID="amzn"', ["gcc-c++", "make", "python3.11-devel"]),
    ],
)
def test_a_missing_compiler_is_installed_with_the_headers_of_the_environments_python(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, release: str, names: list[str]
) -> None:
    """Debian has python3.11-dev, and no python3.11.2-dev."""
    made, _archive, folder = run("vision")
    assert made.marker["python"] == "3.11.2"
    (tmp_path / "os-release").write_text(f"NAME=Linux\n{release}\n")
    monkeypatch.setattr(packages, "Path", lambda _path: tmp_path / "os-release")
    monkeypatch.setattr(packages.shutil, "which", lambda name: f"/usr/bin/{name}" if name == manager else None)
    commands: list[tuple[str, ...]] = []
    builder = packages.Builder(made, str(tmp_path), folder)
    monkeypatch.setattr(builder, "run", lambda *argv: commands.append(argv))
    builder.install_compiler()
    assert manager in commands[-1] and "install" in commands[-1]
    assert list(commands[-1][-4:]) == ["-y", *names]


def test_another_environment_has_other_packages(run: Run) -> None:
    made, *_unused = run("vision")
    digests = {made.digest, replace(made, marker={**made.marker, "requirements_sha256": "1"}).digest}
    assert len(digests | {replace(made, requirements="vision\n").digest}) == 3


def test_a_unit_installs_them_and_a_survey_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _unused, folder = run("vision")
    started, unit = list[Any](), {"state": "inactive"}

    def answer(*words: str, **_options: Any) -> subprocess.CompletedProcess[str]:
        started.extend([words[-7:]] if "systemd-run" in words else [])
        output = unit["state"] if "show" in words else "deeplearning: they contradict\n"
        return subprocess.CompletedProcess(words, 0, output, "")

    monkeypatch.setattr(programs, "run", answer)
    with pytest.raises(Preparing, match="^it installs its packages$"):
        packages.require(folder.run(), folder)
    unit["state"] = "failed"
    with pytest.raises(Unfit, match="^its packages cannot be installed: they contradict$"):
        packages.require(folder.run(), folder)
    name = f"--unit=deeplearning-packages-{folder.run()['run_id']}.service"
    assert started == [("--quiet", name, "--", paths.PROGRAM, "run", "packages", folder.path)]
    os.mkdir(made.folder)
    packages.require(folder.run(), folder)
    packages.require(folder.run() | {"requirements": None}, folder)
    assert len(started) == 1


def test_a_damaged_environment_is_a_problem_of_the_node(run: Run, tmp_path: Path) -> None:
    _unused, _unused, folder = run("vision")
    with pytest.raises(Unfit, match=r"^its packages cannot be named, as the environment or "):
        packages.require(folder.run() | {"python": f"{tmp_path}/gone/bin/python"}, folder)


def test_requirements_may_be_a_file_on_the_master(tmp_path: Path) -> None:
    (tmp_path / "deps.txt").write_text("einops\n")
    assert packages.text_of({"requirements": str(tmp_path / "deps.txt")}) == "einops\n"
    assert packages.text_of({"requirements": "einops"}) == "einops" and packages.text_of({}) == ""
    with pytest.raises(UserError, match="requirements is /none, which cannot be read on the master"):
        packages.text_of({"requirements": "/none"})
    assert packages.checksum("") is None


@pytest.mark.parametrize(
    ("answer", "pin"),
    [
        ({"url": "https://e.org/x.whl", "archive_info": {"hashes": {"sha256": "ab"}}}, "https://e.org/x.whl#sha256=ab"),
        (
            {"url": "https://e.org/x", "vcs_info": {"vcs": "git", "commit_id": "12"}, "subdirectory": "s"},
            "git+https://e.org/x@12#subdirectory=s",
        ),
        ({"url": "https://own.org/x.zip", "archive_info": {}}, "https://${T}@own.org/x.zip"),
    ],
)
def test_what_is_installed_is_what_was_resolved(answer: dict[str, Any], pin: str) -> None:
    assert packages.pin_of({"name": "x", **answer}, {"own.org": "${T}"}) == f"x @ {pin}"


def test_a_network_that_is_out_of_reach_is_said_in_a_sentence() -> None:
    printed = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\n"
    printed += "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n"
    assert packages.reason_of(printed).startswith("pip reaches no package index. Its own words: WARNING: Retrying")
