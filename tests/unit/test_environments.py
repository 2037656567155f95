"""Frameworks' environments: when one is ready, which Python makes it, what is left alone, and Horovod's wheel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.deeplearning.aws.plugins.module_utils import _environment, _horovod
from ansible_collections.deeplearning.aws.plugins.module_utils._environment import Unfit, Wanted
from ansible_collections.deeplearning.aws.plugins.modules import framework_env

from localcloud.image import features

from .test_node_roles import value

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("tensorflow", "mxnet", "pytorch", "tensorpack")
HASH = f"--hash=sha256:{'0' * 64}"
PINS = {"cpu": f"# Made.\nnumpy==1.0 \\\n    {HASH}\n", "gpu": f"numpy==1.0 {HASH}\nnvidia-nccl-cu12==2.16.5 {HASH}\n"}


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    """On a machine without GPUs whose system has Python 3.11 alone."""
    monkeypatch.setattr(_environment, "DRIVER", tmp_path / "no-driver")
    monkeypatch.setattr(_environment, "SYSTEM_FOLDERS", (tmp_path / "bin",))
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin/python3", "echo 3.11")
    return Wanted("pytorch", PINS, ["3.10", "3.11"], ["numpy"], folder=tmp_path / "env")


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Commands:
    """Stands in for what is run: an environment appears, pip installs by writing down."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.ran: list[str] = []
        self.installed = {"numpy": "1.0"}
        self.refused: list[tuple[str, Unfit]] = []
        """by the package that pip is asked for"""
        self.version = ""
        self.pins: list[str] = []

    def __call__(self, command: Sequence[str], may_fail: bool = False) -> str:
        line = " ".join(command)
        self.ran.append(line)
        site = self.wanted.place / "lib/python3.11/site-packages"
        if " -m venv " in line:
            (self.wanted.place / "bin").mkdir(parents=True)
            self.wanted.python.write_text("")
            site.mkdir(parents=True)
        if " -r " in line:
            self.pins.append(" ".join(Path(command[-1]).read_text().split()))
            if self.refused and self.pins[-1].startswith(self.refused[0][0]):
                raise self.refused.pop(0)[1]
            for name in re.findall(r"(\w+)==", self.pins[-1]):
                (site / f"{name}.installed").touch()
        if " uninstall " in line:
            (site / f"{command[-1]}.installed").unlink(missing_ok=True)
        if "horovod-" in line:
            self.installed["horovod"] = _horovod.VERSION
        if "importlib.metadata" in line:
            return json.dumps(self.installed)
        if "__version__" in line:
            return f"some words first\n{self.version}\n"
        return "3.11.2\n" if "python_version" in line else ""

    def pip(self) -> list[str]:
        return [line.split(" install ")[1] for line in self.ran if " -m pip install " in line]


@pytest.fixture
def commands(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands(wanted)
    monkeypatch.setattr(_environment, "_run", made)
    return made


def test_a_new_environment_says_what_it_was_made_from(wanted: Wanted, commands: Commands) -> None:
    said = _environment.install(wanted)
    assert said == json.loads((wanted.place / ".deeplearning.json").read_text())
    assert said == {
        "schema": 1,
        "framework": "pytorch",
        "python": "3.11.2",
        "requirements_sha256": wanted.digest,
        "versions": {"numpy": "1.0"},
    }
    assert not (wanted.place / _environment.UNFINISHED).exists()


def test_what_is_ready_is_not_touched_again(wanted: Wanted, commands: Commands) -> None:
    _environment.install(wanted)
    commands.ran.clear()
    assert _environment.install(wanted) == _environment.marker(wanted)
    assert commands.ran == []


def test_changed_pins_make_it_anew(wanted: Wanted, commands: Commands) -> None:
    _environment.install(wanted)
    changed = Wanted(
        "pytorch", {**PINS, "cpu": f"numpy==2.0 {HASH}\n"}, wanted.pythons, wanted.imports, folder=wanted.folder
    )
    assert _environment.marker(changed) == {}
    (wanted.place / "old").write_text("")
    _environment.install(changed)
    assert _environment.marker(changed) and not (wanted.place / "old").exists()


def test_what_broke_off_is_ours_and_made_anew(wanted: Wanted, commands: Commands) -> None:
    commands.refused = [("numpy", Unfit("the index does not answer"))]
    with pytest.raises(Unfit, match="does not answer"):
        _environment.install(wanted)
    assert _environment.marker(wanted) == {} and _environment.is_ours(wanted)
    assert _environment.install(wanted)["versions"] == {"numpy": "1.0"}


def test_a_folder_of_somebody_else_is_left_alone(wanted: Wanted, commands: Commands) -> None:
    (wanted.place / "bin").mkdir(parents=True)
    with pytest.raises(Unfit, match=f"{wanted.place} was made by somebody else, and stays as it is"):
        _environment.install(wanted)
    assert commands.ran == [] and not _environment.is_ours(wanted)


def test_a_machine_with_a_driver_gets_the_build_for_gpus(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (_environment.build(), wanted.pins) == ("cpu", PINS["cpu"])
    monkeypatch.setattr(_environment, "DRIVER", tmp_path / "bin")
    assert (_environment.build(), wanted.pins) == ("gpu", PINS["gpu"])


def test_staged_wheels_stand_in_for_the_index(wanted: Wanted, commands: Commands, tmp_path: Path) -> None:
    staged = Wanted(**{**vars(wanted), "wheels": str(tmp_path)})
    _environment.install(staged)
    assert [line.split(" -r ")[0].split("--no-compile ")[1] for line in commands.pip()] == [
        f"--no-index --find-links {tmp_path} --require-hashes --only-binary :all:"
    ]


def test_a_folder_of_wheels_that_is_none_is_refused(wanted: Wanted, commands: Commands, tmp_path: Path) -> None:
    absent = Wanted(**{**vars(wanted), "wheels": str(tmp_path / "none")})
    with pytest.raises(Unfit, match=f"{tmp_path}/none is no folder"):
        _environment.install(absent)


def with_torch(wanted: Wanted) -> Wanted:
    pins = {"cpu": f"{PINS['cpu']}torch==2.13.0+cpu {HASH}\n"}
    return Wanted(**{**vars(wanted), "requirements": pins, "index": {"cpu": {"torch": "https://else"}}})


NO_TORCH = ("torch", _environment.NotInIndex("torch cannot be found"))


def test_a_package_comes_from_its_own_index_alone_when_pip_does_not_find_it(wanted: Wanted, commands: Commands) -> None:
    """What one index has and what another has never compete."""
    commands.refused = [NO_TORCH]
    _environment.install(with_torch(wanted))
    assert commands.pins == [f"numpy==1.0 {HASH}", *[f"torch==2.13.0+cpu {HASH}"] * 2]
    assert ["https://else" in line for line in commands.pip()] == [False, False, True]
    assert "--index-url https://else --require-hashes --only-binary :all:" in commands.pip()[2]
    assert not any("--extra-index-url" in line for line in commands.pip())


def test_a_package_that_no_index_has_is_a_sentence(wanted: Wanted, commands: Commands) -> None:
    commands.refused = [NO_TORCH, NO_TORCH]
    with pytest.raises(Unfit) as refused:
        _environment.install(with_torch(wanted))
    assert str(refused.value) == (
        "torch==2.13.0+cpu is neither where pip on this machine looks nor in https://else: make that index reachable, "
        "or name a folder with its wheel. Example: -e pytorch_wheels=/efs/data/wheels"
    )


# What pip itself does with a package that is not the pinned one


@pytest.fixture
def real(wanted: Wanted, tmp_path: Path) -> Wanted:
    """An environment whose Python is this one, and installs into tmp_path/site from tmp_path/wheels."""
    for folder in ("wheels", "env/pytorch/bin", "site"):
        (tmp_path / folder).mkdir(parents=True)
    program(wanted.python, f'PIP_TARGET={tmp_path}/site exec {sys.executable} "$@"')
    return Wanted(**{**vars(wanted), "wheels": str(tmp_path / "wheels")})


def archive(folder: Path, name: str, version: str, trace: Path) -> None:
    """A source archive that leaves a trace as soon as any of it runs."""
    source = folder / f"{name}-{version}"
    source.mkdir()
    setup = f"open({str(trace)!r}, 'w'); import setuptools; setuptools.setup(name={name!r}, version={version!r})"
    (source / "setup.py").write_text(setup)
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as made:
        made.add(source, source.name)


def wheel(folder: Path, name: str, version: str) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}/__init__.py", "")
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")
    return path


def test_a_wheel_with_a_pinned_checksum_is_installed(real: Wanted, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel(tmp_path / "wheels", "numpy", "1.0").read_bytes()).hexdigest()
    _environment.install_pins(real, [f"numpy==1.0 {HASH} --hash=sha256:{digest}"])
    assert (tmp_path / "site/numpy/__init__.py").exists()


def test_a_foreign_wheel_is_not_installed(real: Wanted, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel(tmp_path / "wheels", "numpy", "1.0").read_bytes()).hexdigest()
    with pytest.raises(Unfit, match=rf"^numpy==1.0 is not what was published.* its SHA-256 is {digest}, which is none"):
        _environment.install_pins(real, _environment.split_pins(PINS["cpu"]))
    assert not list((tmp_path / "site").iterdir())


def test_a_source_archive_in_place_of_a_wheel_leaves_no_trace(real: Wanted, tmp_path: Path) -> None:
    archive(tmp_path / "wheels", "numpy", "1.0", tmp_path / "trace")
    with pytest.raises(_environment.NotInIndex, match="^numpy==1.0 cannot be found as a wheel for this machine: "):
        _environment.install_pins(real, _environment.split_pins(PINS["cpu"]))
    assert not (tmp_path / "trace").exists()


def test_a_foreign_archive_of_horovod_leaves_no_trace(real: Wanted, tmp_path: Path) -> None:
    archive(tmp_path / "wheels", "horovod", "0.28.1", tmp_path / "trace")
    with pytest.raises(Unfit, match="^horovod==0.28.1 is not what was published, and was not installed: "):
        _horovod._source(real, tmp_path, Path(sysconfig.get_path("purelib")))
    assert not (tmp_path / "trace").exists()


def test_a_foreign_build_tool_is_not_installed(real: Wanted, tmp_path: Path) -> None:
    for tool in ("cmake-3.27.9", "packaging-24.0", "setuptools-69.5.1", "wheel-0.43.0"):
        wheel(tmp_path / "wheels", *tool.split("-"))
    with pytest.raises(Unfit, match="is not what was published"):
        _horovod._tools(real, tmp_path)
    assert not list(tmp_path.glob("tools/*"))


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({"python3": "3.11"}, "python3"),
        ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.9", "python3.10": "3.10", "python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.12"}, ""),
        ({}, ""),
    ],
)
def test_the_python_that_makes_it(
    there: dict[str, str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12, Amazon Linux 2023 with its package, Ubuntu 24.04."""
    monkeypatch.setattr(_environment, "SYSTEM_FOLDERS", (tmp_path,))
    for name, version in there.items():
        program(tmp_path / name, f"echo {version}")
    mxnet = Wanted("mxnet", PINS, ["3.10", "3.11"], ["mxnet"])
    assert _environment.find_python(mxnet) == (str(tmp_path / found) if found else "")


def test_what_a_system_cannot_run_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_environment, "system", lambda: ("ubuntu", "Ubuntu 24.04.1 LTS"))
    assert _environment.no_python(Wanted("mxnet", PINS, ["3.10", "3.11"], [])) == (
        "mxnet needs Python 3.10 to 3.11, and Ubuntu 24.04.1 LTS here has none of these: take an image that has, such "
        "as Debian 12 or Ubuntu 22.04, or another framework."
    )


def test_the_system_tells_its_name(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nID=debian\n')
    assert _environment.system(release) == ("debian", "Debian GNU/Linux 12")


# Sources


SOURCED = {"framework": "pytorch", "horovod": False, "horovod_wheels": ""}


@pytest.fixture
def sources(tmp_path: Path) -> str:
    (tmp_path / "sources/pytorch").mkdir(parents=True)
    (tmp_path / "sources/pytorch/__init__.py").write_text("")
    return str(tmp_path / "sources")


@pytest.fixture
def released(wanted: Wanted, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    """An environment that has the release which is pinned."""
    pinned = Wanted(**{**vars(wanted), "requirements": {"cpu": f"{PINS['cpu']}pytorch==0.11 \\\n {HASH}\n"}})
    _environment.install(pinned)
    commands.ran.clear()
    commands.version = "0.11"
    return pinned


def present(wanted: Wanted, source: str, check: bool = False) -> dict[str, Any]:
    return framework_env.present(wanted, {**SOURCED, "source": source}, check)


def test_sources_are_used_in_place_of_the_release(released: Wanted, commands: Commands, sources: str) -> None:
    assert present(released, sources, check=True)["changed"] and commands.ran == []
    done = present(released, sources)
    assert done["changed"] and done["ready"]
    assert _environment.marker(released)["versions"]["pytorch"] == f"0.11 from {sources}"
    pth = released.place / "lib/python3.11/site-packages/deeplearning-sources.pth"
    assert pth.read_text() == f"{sources}\n"
    assert any(line.endswith("-m pip uninstall --quiet --yes pytorch") for line in commands.ran)
    commands.ran.clear()
    assert not present(released, sources)["changed"] and commands.ran == []


def test_the_release_comes_back(released: Wanted, commands: Commands, sources: str) -> None:
    present(released, sources)
    commands.ran.clear()
    done = present(released, "")
    assert done["changed"] and done["ready"] and done["versions"]["pytorch"] == "0.11"
    assert len(commands.pip()) == 1 and commands.pins[-1] == f"pytorch==0.11 {HASH}"


def test_a_folder_without_the_sources_is_refused(released: Wanted, commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="has no pytorch/__init__.py: give the folder with the sources of pytorch"):
        present(released, str(tmp_path / "none"))
    assert commands.ran == [] and _environment.marker(released)


# Killed


class Killed(BaseException):
    pass


class Steps:
    """Counts what changes an environment, and kills whoever does it before a certain step."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        for owner, name in ((_environment, "_run"), (_environment, "_write"), (shutil, "rmtree"), (Path, "rename")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if real is REAL_RMTREE:
                    # It may have come to the markers.
                    for file in Path(arguments[0]).glob(".*"):
                        file.unlink()
                raise Killed
            return real(*arguments, **more)

        return step


REAL_RMTREE = shutil.rmtree
RELEASE = {"cpu": f"numpy==1.0 {HASH}\npytorch==0.11 {HASH}\n"}
NEWER = {"cpu": f"numpy==2.0 {HASH}\npytorch==0.12 {HASH}\n"}


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, RELEASE), (RELEASE, NEWER), (RELEASE, "sources"), ("sources", RELEASE), (RELEASE, None)],
    ids=["made", "renewed", "to sources", "from sources", "removed"],
)
def test_killed_at_any_step_and_run_again_all_is_as_it_shall_be(
    wanted: Wanted, commands: Commands, sources: str, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any
) -> None:
    def converge(state: Any) -> dict[str, Any]:
        pins = state if isinstance(state, dict) else RELEASE
        commands.wanted = Wanted(**{**vars(wanted), "folder": folder, "requirements": pins})
        if state is None:
            return framework_env.absent(commands.wanted, {}, False)
        return present(commands.wanted, sources if state == "sources" else "")

    for steps in range(100):
        folder = wanted.folder / str(steps)
        if before is not None:
            converge(before)
        with monkeypatch.context() as patch:
            Steps(patch, steps)
            try:
                converge(after)
                break
            except Killed:
                pass
        done = converge(after)
        place = folder / "pytorch"
        if after is None:
            assert not place.exists()
        else:
            assert done["ready"] and _environment.marker(commands.wanted)
            site = place / "lib/python3.11/site-packages"
            release = {"numpy.installed", *({"pytorch.installed"} if after != "sources" else ())}
            assert {file.name for file in site.glob("*.installed")} == release
            assert (site / "deeplearning-sources.pth").exists() == (after == "sources")
            assert not converge(after)["changed"]
        assert not list(folder.glob(".*.new")) and not list(folder.glob(".*.old")), "what was left is gone"
    assert steps > 1


def test_another_process_that_makes_it_is_waited_for(
    wanted: Wanted, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module may outlive the playbook that started it."""
    real, second = _environment._versions, []

    def versions(of: Wanted) -> dict[str, str]:
        if not second:
            second.append(threading.Thread(target=lambda: second.append(present(wanted, ""))))
            second[0].start()
            waits = f":{(wanted.folder / '.pytorch.lock').stat().st_ino} "
            while not any("->" in line and waits in line for line in Path("/proc/locks").read_text().splitlines()):
                assert second[0].is_alive(), "it did not wait"
        return real(of)

    monkeypatch.setattr(_environment, "_versions", versions)
    assert present(wanted, "")["changed"]
    second[0].join()
    assert second[1]["ready"]
    assert sum(" -m venv " in line for line in commands.ran) == 1


# Horovod


def test_without_its_wheel_an_environment_that_needs_one_is_not_whole(wanted: Wanted, commands: Commands) -> None:
    said = _environment.install(wanted, _horovod.SPEC)
    assert said["versions"] == {"numpy": "1.0"}
    assert _environment.marker(wanted) == {} and _environment.finished_or_not(wanted) == said
    commands.ran.clear()
    _environment.install(wanted, _horovod.SPEC, "/wheels/horovod-0.28.1-cp311.whl")
    assert [line.split()[-1] for line in commands.pip()] == ["/wheels/horovod-0.28.1-cp311.whl"]
    assert _environment.has(_environment.marker(wanted), _horovod.SPEC)


def test_it_is_brought_into_an_environment_that_is_there(wanted: Wanted, commands: Commands) -> None:
    _environment.install(wanted)
    commands.ran.clear()
    _environment.install(wanted, _horovod.SPEC, "/wheels/horovod-0.28.1-cp311.whl")
    assert len(commands.pip()) == 1
    assert _environment.marker(wanted)["versions"]["horovod"] == "0.28.1"


@pytest.fixture
def machine(wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With Open MPI, CUDA, and an environment whose Python says what it is asked to."""
    for folder in ("mpi", "cuda/bin", "env/pytorch/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "mpi/mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    program(tmp_path / "cuda/bin/nvcc", "echo 'Cuda compilation tools, release 12.8, V12.8.93'")
    program(wanted.python, "echo 3 11")
    monkeypatch.setattr(_horovod, "MPI_FOLDERS", (str(tmp_path / "mpi"),))
    monkeypatch.setattr(_horovod, "CUDA", tmp_path / "cuda")
    return tmp_path


@pytest.fixture
def gpus(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_environment, "DRIVER", machine)


VERSIONS = {"torch": "2.13.0+cpu", "tensorflow-cpu": "2.15.1", "nvidia-nccl-cu12": "2.16.5"}


def test_a_wheel_is_known_by_all_that_it_fits(wanted: Wanted, machine: Path) -> None:
    arch = os.uname().machine
    assert _horovod.key(wanted, VERSIONS) == f"horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_{arch}"
    tensorpack = Wanted(**{**vars(wanted), "framework": "tensorpack"})
    shutil.copytree(wanted.place, tensorpack.place)
    assert _horovod.key(tensorpack, VERSIONS) == f"horovod-0.28.1_tensorflow-2.15.1_cp311_openmpi-4.1.4_{arch}"


@pytest.mark.usefixtures("gpus")
def test_on_gpus_it_is_known_by_cuda_and_nccl_too(wanted: Wanted, machine: Path) -> None:
    assert "_openmpi-4.1.4_cuda-12.8_nccl-2.16.5_" in _horovod.key(wanted, VERSIONS)
    with pytest.raises(Unfit, match="has no NCCL"):
        _horovod.key(wanted, {"torch": "2.13.0"})
    (machine / "cuda/bin/nvcc").unlink()
    with pytest.raises(Unfit, match="install CUDA's toolkit"):
        _horovod.key(wanted, VERSIONS)


def test_without_open_mpi_nothing_is_built(wanted: Wanted, machine: Path) -> None:
    (machine / "mpi/mpirun").unlink()
    with pytest.raises(Unfit, match="install Open MPI"):
        _horovod.key(wanted, VERSIONS)


class Build:
    """An environment's Python that downloads a source, builds a wheel and tells what is in it."""

    def __init__(self, machine: Path, python: Path, mpi: bool = True, nccl: bool = False, fails: bool = False) -> None:
        source = machine / "source/horovod-0.28.1"
        (source / "horovod/tensorflow").mkdir(parents=True)
        (source / "horovod/tensorflow/CMakeLists.txt").write_text('"mpi_ops.cc")\n"xla_mpi_ops.cc")\n')
        with tarfile.open(machine / "horovod-0.28.1.tar.gz", "w:gz") as archive:
            archive.add(source, "horovod-0.28.1")
        program(
            python,
            f"""case "$*" in
            *"version_info"*) echo 3 11 ;;
            *" download "*) cp {machine}/horovod-0.28.1.tar.gz "$(echo "$*" | sed 's/.* -d \\([^ ]*\\) .*/\\1/')" ;;
            *"setup.py"*)
                env > {machine}/environment; cp horovod/tensorflow/CMakeLists.txt {machine}/sources
                {"echo 'x.cc:1: error: no such type'; exit 1" if fails else ""}
                mkdir -p "${{*##* -d }}"; echo wheel > "${{*##* -d }}/horovod-0.28.1-cp311-linux_x86_64.whl" ;;
            *"nccl_built"*) echo '[{json.dumps(mpi)}, {json.dumps(nccl)}]' ;;
            esac""",
        )


def make(machine: Path, wanted: Wanted, **build: Any) -> _horovod.Wheel:
    Build(machine, wanted.python, **build)
    return _horovod.make(wanted, VERSIONS, str(machine / "wheels"))


def test_the_wheel_is_built_for_mpi_and_put_where_all_find_it(wanted: Wanted, machine: Path) -> None:
    built = make(machine, wanted)
    key = _horovod.key(wanted, VERSIONS)
    assert built.name == _horovod.known_wheel(str(machine / "wheels"), key, {built.name: built.sha256})
    assert built.sha256 == hashlib.sha256((machine / "wheels" / built.name).read_bytes()).hexdigest()
    said = dict(line.split("=", 1) for line in (machine / "environment").read_text().splitlines() if "=" in line)
    assert {name: value for name, value in said.items() if name.startswith("HOROVOD_WITH")} == {
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_GLOO": "1",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
    }
    assert "xla_mpi_ops" not in (machine / "sources").read_text()


@pytest.mark.usefixtures("gpus")
def test_on_gpus_a_build_without_nccl_is_an_error(wanted: Wanted, machine: Path) -> None:
    (wanted.place / "lib/python3.11/site-packages/nvidia/nccl").mkdir(parents=True)
    with pytest.raises(Unfit, match="built without NCCL: it is not used"):
        make(machine, wanted)
    assert not list((machine / "wheels").rglob("*.whl"))
    assert "HOROVOD_GPU_OPERATIONS=NCCL" in (machine / "environment").read_text()


def test_a_build_without_mpi_is_an_error(wanted: Wanted, machine: Path) -> None:
    with pytest.raises(Unfit, match="built without MPI"):
        make(machine, wanted, mpi=False)


def test_a_build_that_fails_tells_its_errors(wanted: Wanted, machine: Path) -> None:
    with pytest.raises(Unfit, match=r"could not be built for horovod-0.28.1_torch.*: x.cc:1: error: no such type"):
        make(machine, wanted, fails=True)


def test_a_framework_that_it_cannot_be_built_for_is_said_with_what_else_to_do(
    wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> str:
        raise Unfit("horovod==0.28.1 could not be built for horovod-0.28.1_torch-9: x.h:1: error: C++26 is needed")

    monkeypatch.setattr(_horovod, "make", make)
    monkeypatch.setattr(_environment, "finished_or_not", lambda _: {"versions": VERSIONS})
    given = {"horovod_wheels": str(machine / "wheels"), "horovod_checksums": {}}
    with pytest.raises(Unfit, match="error: C.* is needed\nTrain without Horovod, or take the pins"):
        framework_env.built(wanted, given, check=False)
    assert framework_env.built(wanted, given, check=True)["changed"]


NUMBERED = "horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_x86_64"


def test_only_a_wheel_with_a_known_checksum_counts(tmp_path: Path) -> None:
    """Any node can write to the folder."""
    (tmp_path / NUMBERED).mkdir()
    for name in ("horovod-0-planted.whl", "horovod-0.28.1-cp311.whl"):
        (tmp_path / NUMBERED / name).write_text("")
    known = f"{NUMBERED}/horovod-0.28.1-cp311.whl"
    assert _horovod.known_wheel(str(tmp_path), NUMBERED, {}) == ""
    assert _horovod.known_wheel(str(tmp_path), NUMBERED, {known: "0" * 64}) == known
    assert _horovod.known_wheel(str(tmp_path), NUMBERED.replace("2.13", "2.14"), {known: "0" * 64}) == ""
    assert _horovod.known_wheel(str(tmp_path), NUMBERED, {f"{NUMBERED}/horovod-0.28.1-cp312.whl": "0" * 64}) == ""
    assert _horovod.known_wheel(str(tmp_path), NUMBERED, {f"{NUMBERED}/../horovod-0.28.1.whl": "0" * 64}) == ""


@pytest.fixture
def lacking(wanted: Wanted, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments on a machine whose environment lacks Horovod, and where its wheel is."""
    _environment.install(wanted, _horovod.SPEC)
    commands.ran.clear()
    monkeypatch.setattr(_horovod, "key", lambda *_: NUMBERED)
    (tmp_path / "wheels" / NUMBERED).mkdir(parents=True)
    name = f"{NUMBERED}/horovod-0.28.1-cp311.whl"
    (tmp_path / "wheels" / name).write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    return {
        "source": "",
        "horovod": True,
        "horovod_wheels": str(tmp_path / "wheels"),
        "horovod_checksums": {name: digest},
    }


def test_a_wheel_is_compared_before_it_is_installed(
    wanted: Wanted, commands: Commands, lacking: dict[str, Any], tmp_path: Path
) -> None:
    done = framework_env.present(wanted, lacking, check=False)
    assert done["changed"] and done["ready"]
    # A copy, which nobody can change between the two.
    (installed,) = (Path(line.split()[-1]) for line in commands.pip())
    assert installed.name == "horovod-0.28.1-cp311.whl" and tmp_path / "wheels" not in installed.parents


def test_a_wheel_that_another_has_changed_is_refused(
    wanted: Wanted, commands: Commands, lacking: dict[str, Any], tmp_path: Path
) -> None:
    (name,) = lacking["horovod_checksums"]
    (tmp_path / "wheels" / name).write_bytes(b"another")
    with pytest.raises(Unfit, match=rf"{re.escape(name)} is not the wheel that was built, and was not installed"):
        framework_env.present(wanted, lacking, check=False)
    assert commands.pip() == []


def test_a_wheel_without_a_known_checksum_is_built_again(
    wanted: Wanted, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _horovod.Wheel(f"{NUMBERED}/horovod-0.28.1-cp311.whl", "1" * 64)
    monkeypatch.setattr(_horovod, "make", lambda *_: built)
    assert framework_env.built(wanted, lacking, check=False) == {"changed": False, "built": {}}
    unknown = {**lacking, "horovod_checksums": {}}
    assert not framework_env.present(wanted, unknown, check=False)["ready"]
    assert framework_env.built(wanted, unknown, check=False) == {"changed": True, "built": {built.name: built.sha256}}


# What the roles take for each system, most of which no machine here runs


@pytest.mark.parametrize(
    ("framework", "system", "problem", "makes", "packages"),
    [
        ("pytorch", "debian", "", True, []),
        ("pytorch", "debian", "", False, ["python3-venv"]),
        ("mxnet", "ubuntu", "", True, ["libgomp1", "libquadmath0"]),
        ("tensorflow", "amzn", "its Python is 3.9", False, ["python3.11"]),
        ("mxnet", "amzn", "its Python is 3.9", False, ["libgomp", "libquadmath", "python3.11"]),
        ("pytorch", "rocky", "", True, []),
    ],
)
def test_what_an_environment_needs_before_it_is_made(
    framework: str, system: str, problem: str, makes: bool, packages: list[str]
) -> None:
    found = {"system": system, "problem": problem, "makes_environments": makes}
    given = {"framework_env_name": framework, "__framework_env_found": found}
    assert value("framework_env", "__framework_env_first", "", **given) == packages


@pytest.mark.parametrize(
    ("framework", "asked", "gets"),
    [("tensorpack", False, True), ("mxnet", True, False), ("pytorch", False, False), ("tensorflow", True, True)],
)
def test_who_gets_horovod(framework: str, asked: bool, gets: bool) -> None:
    given = {"framework_env_name": framework, "framework_env_horovod": asked}
    assert value("framework_env", "__framework_env_horovod", "", **given) is gets


def test_the_first_node_that_lacks_horovod_builds_it() -> None:
    nodes = {
        "one": {"inventory_hostname": "one"},
        "two": {"inventory_hostname": "two", "__framework_env_made": {"ready": True}},
        "three": {"inventory_hostname": "three", "__framework_env_made": {"ready": False}},
        "four": {"inventory_hostname": "four", "__framework_env_made": {"ready": False}},
    }
    given = {"ansible_play_hosts": list(nodes), "hostvars": nodes}
    assert value("framework_env", "__framework_env_builder", "", **given) == "three"


def test_all_nodes_are_handed_the_checksum_of_what_was_built() -> None:
    tasks = yaml.safe_load((ROOT / "roles/framework_env/tasks/horovod.yml").read_text())
    (fact,) = (task["ansible.builtin.set_fact"] for task in tasks if "ansible.builtin.set_fact" in task)
    nodes = {
        "one": {"__framework_env_build": {"skipped": True}},
        "two": {"__framework_env_build": {"built": {"wheel": "sum"}}},
        "three": {},
    }
    template = Templar(DataLoader(), variables={"ansible_play_hosts": list(nodes), "hostvars": nodes})
    assert template.template(trust_as_template(fact["framework_env_built"])) == {"wheel": "sum"}
    given = {"framework_env_horovod_checksums": {"other": "sum"}, "framework_env_built": {"wheel": "sum"}}
    assert value("framework_env", "__framework_env_checksums", "", **given) == {"other": "sum", "wheel": "sum"}


# Pins


@pytest.mark.parametrize("build", ["cpu", "gpu"])
@pytest.mark.parametrize("role", ROLES)
def test_all_is_pinned_and_what_is_named_is_among_it(role: str, build: str) -> None:
    files = ROOT / "roles" / role / "files"
    lines = _environment.split_pins((files / f"requirements-{build}.txt").read_text())
    assert all(re.search(r"^\S+ .*--hash=sha256:[0-9a-f]{64}$", line) for line in lines)
    pins = [line.split()[0] for line in lines]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9a-z.+]+", pin) for pin in pins)
    named = [
        re.split(r"[\[=<]", line)[0].lower().replace("_", "-")
        for line in (files / f"requirements-{build}.in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert set(named) <= {pin.partition("==")[0] for pin in pins}
    cuda = [pin for pin in pins if pin.startswith(("nvidia-", "cuda-", "triton"))]
    assert bool(cuda) == (build == "gpu" and role != "mxnet")


def test_what_has_an_index_of_its_own_is_marked_as_no_package_of_the_usual_one() -> None:
    for role in ROLES:
        needs = features.needs(role)
        for build, pins in needs["requirements"].items():
            local = {_environment.package_of(pin) for pin in _environment.split_pins(pins) if "+" in pin.split()[0]}
            assert local == set(needs.get("index", {}).get(build, {}))


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_made_from_what_the_role_installs(role: str) -> None:
    """So that the role finds it ready: the same pins, and so the same marker."""
    needs = features.needs(role)
    settings = yaml.safe_load((ROOT / "roles/framework_env/vars/main.yml").read_text())
    assert settings["__framework_env_files"] == "{{ role_path }}/../{{ framework_env_name }}/files"
    for build in ("cpu", "gpu"):
        pins = (ROOT / "roles" / role / "files" / f"requirements-{build}.txt").read_text()
        assert needs["requirements"][build] == pins
        assert f"/requirements-{build}.txt', rstrip=false" in settings["__framework_env_requirements"][build]
    assert set(needs) - {"libraries", "horovod"} <= set(Wanted.__dataclass_fields__)
    assert needs["horovod"] in ("always", "never", "on request")


def test_another_pin_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = features.feature_hash(["mxnet"])
    assert before == features.feature_hash(["mxnet"]) != features.feature_hash(["pytorch"])
    needs = features.needs
    monkeypatch.setattr(features, "needs", lambda name: {**needs(name), "requirements": PINS})
    assert features.feature_hash(["mxnet"]) != before
