"""Frameworks' environments: when one is ready, which Python creates it, what is not changed, and Horovod's wheel."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
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
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import framework_probe
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import FRAMEWORKS, RECORDS
from ansible_collections.deeplearning.aws.plugins.module_utils.node import horovod, python_env
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import Environment
from ansible_collections.deeplearning.aws.plugins.modules import framework_env

from localcloud.testing.images import feature_hash, use_recipes
from tests import framework_recipes
from tests.unit.modules import run_node_module
from tests.unit.roles.roles_kit import value

ROOT = Path(__file__).resolve().parents[4]
HASH = f"--hash=sha256:{'0' * 64}"
PINS = {"cpu": f"# Made.\nnumpy==1.0 \\\n    {HASH}\n", "gpu": f"numpy==1.0 {HASH}\nnvidia-nccl-cu12==2.16.5 {HASH}\n"}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", ""),
        ("one\ntwo\n\n", "one\ntwo"),
        ("\n".join(map(str, range(20))), "\n".join(map(str, range(12, 20)))),
        ("an Error\nnoise\nERROR: x\nnoise", "an Error\nERROR: x"),
        ("\n".join(f"error {number}" for number in range(10)), "\n".join(f"error {number}" for number in range(2, 10))),
    ],
)
def test_the_last_lines_that_name_an_error_are_shown(output: str, expected: str) -> None:
    assert python_env.last_errors(output) == expected


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment on a machine without GPUs whose system has only Python 3.11."""
    monkeypatch.setattr(python_env, "DRIVER", tmp_path / "no-driver")
    monkeypatch.setattr(python_env, "SYSTEM_FOLDERS", (tmp_path / "bin",))
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin/python3", "echo 3.11")
    return Environment("pytorch", PINS, ["3.10", "3.11"], ["numpy"], folder=tmp_path / "env")


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Commands:
    """A stand-in for `run`: it creates an environment, and notes what pip installs."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.ran: list[str] = []
        self.installed = {"numpy": "1.0"}
        self.refused: list[tuple[str, UserError]] = []
        """by the package that pip is asked for"""
        self.version = ""
        self.pins: list[str] = []

    def __call__(self, command: Sequence[str], may_fail: bool = False) -> str:
        line = " ".join(command)
        self.ran.append(line)
        site = self.environment.path / "lib/python3.11/site-packages"
        if " -m venv " in line:
            (self.environment.path / "bin").mkdir(parents=True)
            self.environment.python.write_text("")
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
            self.installed["horovod"] = horovod.VERSION
        if "importlib.metadata" in line:
            return json.dumps(self.installed)
        if "__version__" in line:
            return f"some words first\n{self.version}\n"
        return "3.11.2\n" if "python_version" in line else ""

    def pip(self) -> list[str]:
        return [line.split(" install ")[1] for line in self.ran if " -m pip install " in line]


@pytest.fixture
def commands(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Commands:
    stand_in = Commands(environment)
    monkeypatch.setattr(python_env, "run", stand_in)
    return stand_in


def test_a_new_environment_records_its_pins_and_versions(environment: Environment, commands: Commands) -> None:
    marker = python_env.install(environment)
    assert marker == json.loads((environment.path / ".deeplearning.json").read_text())
    assert marker == {
        "schema": 1,
        "framework": "pytorch",
        "python": "3.11.2",
        "requirements_sha256": environment.digest,
        "versions": {"numpy": "1.0"},
    }
    assert not (environment.path / python_env.UNFINISHED).exists()


def test_an_environment_that_is_ready_is_not_changed(environment: Environment, commands: Commands) -> None:
    python_env.install(environment)
    commands.ran.clear()
    assert python_env.install(environment) == python_env.read_complete_marker(environment)
    assert commands.ran == []


def test_changed_pins_replace_it(environment: Environment, commands: Commands) -> None:
    python_env.install(environment)
    changed = Environment(**{**vars(environment), "requirements": {**PINS, "cpu": f"numpy==2.0 {HASH}\n"}})
    assert python_env.read_complete_marker(changed) == {}
    (environment.path / "old").write_text("")
    python_env.install(changed)
    assert python_env.read_complete_marker(changed) and not (environment.path / "old").exists()


def test_a_folder_that_cannot_be_renamed_is_replaced_in_its_place(
    environment: Environment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of an image, in a container. The rename of a new folder into its place works."""
    python_env.install(environment)
    changed = Environment(**{**vars(environment), "requirements": {**PINS, "cpu": f"numpy==2.0 {HASH}\n"}})
    (environment.path / "lib64").symlink_to("lib")
    rename, rmtree = Path.rename, shutil.rmtree

    def refuse(self: Path, target: Path) -> Path:
        if self == environment.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    def interrupt(path: Path, **options: Any) -> None:
        if path == environment.path / "lib":
            raise KeyboardInterrupt
        rmtree(path, **options)

    monkeypatch.setattr(Path, "rename", refuse)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(shutil, "rmtree", interrupt)
        python_env.install(changed)
    assert python_env.is_ours(changed) and not python_env.read_usable_marker(changed)
    assert python_env.install(changed)["requirements_sha256"] == changed.digest
    assert not (environment.path / "lib64").exists() and python_env.read_complete_marker(changed)


def test_an_interrupted_installation_is_recognized_and_replaced(environment: Environment, commands: Commands) -> None:
    commands.refused = [("numpy", UserError("the index does not answer"))]
    with pytest.raises(UserError, match="does not answer"):
        python_env.install(environment)
    assert python_env.read_complete_marker(environment) == {} and python_env.is_ours(environment)
    assert python_env.install(environment)["versions"] == {"numpy": "1.0"}


def test_a_folder_that_the_role_did_not_create_stays(environment: Environment, commands: Commands) -> None:
    (environment.path / "bin").mkdir(parents=True)
    with pytest.raises(UserError, match=f"{environment.path} was not created by deeplearning.aws, and stays as it is"):
        python_env.install(environment)
    assert commands.ran == [] and not python_env.is_ours(environment)


def test_a_machine_with_a_driver_gets_the_packages_for_gpus(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (environment.variant, environment.pins) == ("cpu", PINS["cpu"])
    monkeypatch.setattr(python_env, "DRIVER", tmp_path / "bin")
    assert (environment.variant, environment.pins) == ("gpu", PINS["gpu"])
    on_processors = Environment(**{**vars(environment), "processor": True})
    assert (on_processors.variant, on_processors.pins) == ("cpu", PINS["cpu"])


@pytest.fixture
def gpu_machine(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with GPUs, whose Python can open the driver's library."""
    monkeypatch.setattr(python_env, "DRIVER", tmp_path / "bin")
    program(tmp_path / "bin/python3", 'case "$*" in *libcuda.so.1*) echo yes ;; *) echo 3.11 ;; esac')


@pytest.mark.usefixtures("gpu_machine")
def test_a_machine_with_gpus_gets_its_environment(environment: Environment, commands: Commands) -> None:
    python_env.install(environment)
    assert "nvidia-nccl-cu12==2.16.5" in commands.pins[0]


@pytest.mark.usefixtures("gpu_machine")
def test_a_driver_without_its_library_is_one_sentence_and_removes_nothing(
    environment: Environment, commands: Commands, tmp_path: Path
) -> None:
    python_env.install(environment)
    changed = Environment(**{**vars(environment), "requirements": {**PINS, "gpu": f"numpy==2.0 {HASH}\n"}})
    program(tmp_path / "bin/python3", "echo 3.11")
    with pytest.raises(UserError, match=r"^NVIDIA's driver is loaded, and its library libcuda.so.1 cannot be opened: "):
        python_env.install(changed)
    assert python_env.read_complete_marker(environment)


def test_the_systems_python_opens_the_library_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library of this name is on the test's machine; libc.so.6 is."""
    with pytest.raises(UserError, match="cannot be opened"):
        python_env._require_driver_library(sys.executable)
    monkeypatch.setattr(framework_probe, "LIBRARY", "libc.so.6")
    python_env._require_driver_library(sys.executable)


@pytest.mark.parametrize(("variant", "needed"), [("cpu", 3), ("gpu", 10)])
def test_a_disk_that_would_be_full_is_one_sentence(
    environment: Environment,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    needed: int,
    request: pytest.FixtureRequest,
) -> None:
    if variant == "gpu":
        request.getfixturevalue("gpu_machine")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, int(needed * 2**30) - 1))
    with pytest.raises(UserError) as refused:
        python_env.install(environment)
    assert commands.ran == [] and str(refused.value) == (
        f"{environment.folder} has {needed}.0 GiB free, and pytorch needs {needed} GiB there while it is installed: "
        "remove what is not needed, or take a larger root volume. Example: -e cluster_root_volume_gib=200"
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**39, needed * 2**30))
    assert python_env.install(environment)


NEEDED_BY_MXNET = {
    "libcublas.so.11": "nvidia-cublas-cu11",
    "libcudart.so.11.0": "nvidia-cuda-runtime-cu11",
    "libcudnn.so.8": "nvidia-cudnn-cu11",
    "libcufft.so.10": "nvidia-cufft-cu11",
    "libcurand.so.10": "nvidia-curand-cu11",
    "libcusolver.so.11": "nvidia-cusolver-cu11",
    "libnccl.so.2": "nvidia-nccl-cu11",
    "libnvToolsExt.so.1": "nvidia-nvtx-cu11",
    "libnvrtc.so.11.2": "nvidia-cuda-nvrtc-cu11",
}
"""The package of each library of CUDA that libmxnet.so of the pinned wheel needs (readelf -d)."""

OF_WHEELS = {
    "nvidia-cublas-cu11==11.11.3.6": ("libcublas.so.11", "libcublasLt.so.11", "libnvblas.so.11"),
    "nvidia-cuda-nvrtc-cu11==11.8.89": ("libnvrtc-builtins.so.11.8", "libnvrtc.so.11.2"),
    "nvidia-cuda-runtime-cu11==11.8.89": ("libOpenCL.so.1", "libcudart.so.11.0"),
    "nvidia-cudnn-cu11==8.9.6.50": ("libcudnn.so.8",),
    "nvidia-cufft-cu11==10.9.0.58": ("libcufft.so.10", "libcufftw.so.10"),
    "nvidia-curand-cu11==10.3.0.86": ("libcurand.so.10",),
    "nvidia-cusolver-cu11==11.4.1.48": ("libcusolver.so.11", "libcusolverMg.so.11"),
    "nvidia-cusparse-cu11==11.7.5.86": ("libcusparse.so.11",),
    "nvidia-nccl-cu11==2.21.5": ("libnccl.so.2",),
    "nvidia-nvtx-cu11==11.8.86": ("libnvToolsExt.so.1",),
}
"""The libraries in NVIDIA's wheels (unzip -l). Look again when a pin changes."""


def test_the_wheels_that_are_pinned_have_every_library_that_mxnet_needs() -> None:
    """libcusolver needs libcusparse. libcuda.so.1 is the driver's own."""
    pins = python_env.split_pins((ROOT / "roles/framework/files/mxnet/requirements-gpu.txt").read_text())
    versions = {pin.split()[0] for pin in pins if pin.startswith("nvidia-")}
    assert versions == set(OF_WHEELS)
    installed = {library: wheel.partition("==")[0] for wheel, libraries in OF_WHEELS.items() for library in libraries}
    assert {library: installed.get(library) for library in NEEDED_BY_MXNET} == NEEDED_BY_MXNET
    assert "mxnet-cu112==1.9.1" in {pin.split()[0] for pin in pins}


def test_mxnet_finds_the_libraries_of_cuda_in_its_own_folder(environment: Environment) -> None:
    mxnet = Environment(**{**vars(environment), "framework": "mxnet"})
    for framework in (mxnet, environment):
        packages = framework.path / "lib/python3.11/site-packages"
        library = packages / "nvidia/cublas/lib/libcublas.so.11"
        library.parent.mkdir(parents=True)
        library.write_text("cublas")
        for package in ("torch", "mxnet"):
            (packages / package).mkdir()
        python_env.link_cuda_libraries(framework)
    link = mxnet.path / "lib/python3.11/site-packages/mxnet/libcublas.so.11"
    assert os.readlink(link) == "../nvidia/cublas/lib/libcublas.so.11" and link.read_text() == "cublas"
    links = [path for path in environment.folder.rglob("*") if path.is_symlink()]
    assert links == [link]


def test_staged_wheels_replace_the_index(environment: Environment, commands: Commands, tmp_path: Path) -> None:
    staged = Environment(**{**vars(environment), "wheels": str(tmp_path)})
    python_env.install(staged)
    assert [line.split(" -r ")[0].split("--no-compile ")[1] for line in commands.pip()] == [
        f"--no-index --find-links {tmp_path} --require-hashes --only-binary :all:"
    ]


@pytest.mark.usefixtures("commands")
def test_a_missing_folder_of_wheels_is_refused(environment: Environment, tmp_path: Path) -> None:
    absent = Environment(**{**vars(environment), "wheels": str(tmp_path / "none")})
    with pytest.raises(UserError, match=f"{tmp_path}/none is no folder"):
        python_env.install(absent)


def with_torch(environment: Environment) -> Environment:
    pins = {"cpu": f"{PINS['cpu']}torch==2.13.0+cpu {HASH}\n"}
    return Environment(**{**vars(environment), "requirements": pins, "index": {"cpu": {"torch": "https://else"}}})


NO_TORCH = ("torch", python_env.NotInIndex("torch cannot be found"))


def test_a_package_comes_from_its_own_index_alone_when_pip_does_not_find_it(
    environment: Environment, commands: Commands
) -> None:
    """What one index has and what another has never compete."""
    commands.refused = [NO_TORCH]
    python_env.install(with_torch(environment))
    assert commands.pins == [f"numpy==1.0 {HASH}", *[f"torch==2.13.0+cpu {HASH}"] * 2]
    assert ["https://else" in line for line in commands.pip()] == [False, False, True]
    assert "--index-url https://else --require-hashes --only-binary :all:" in commands.pip()[2]
    assert not any("--extra-index-url" in line for line in commands.pip())


def test_a_package_that_no_index_has_is_one_sentence(environment: Environment, commands: Commands) -> None:
    commands.refused = [NO_TORCH, NO_TORCH]
    with pytest.raises(UserError) as refused:
        python_env.install(with_torch(environment))
    assert str(refused.value) == (
        "torch==2.13.0+cpu is neither where pip on this machine looks nor in https://else: make that index reachable, "
        "or name a folder with its wheel. Example: -e framework_wheels=/efs/data/wheels"
    )


# What pip itself does with a package that is not the pinned one


@pytest.fixture
def real(environment: Environment, tmp_path: Path) -> Environment:
    """An environment whose Python is this one, and installs into tmp_path/site from tmp_path/wheels."""
    for folder in ("wheels", "env/pytorch/bin", "site"):
        (tmp_path / folder).mkdir(parents=True)
    program(environment.python, f'PIP_TARGET={tmp_path}/site exec {sys.executable} "$@"')
    return Environment(**{**vars(environment), "wheels": str(tmp_path / "wheels")})


def archive(folder: Path, name: str, version: str, trace: Path) -> None:
    """A source archive that leaves a trace as soon as any of it runs."""
    source = folder / f"{name}-{version}"
    source.mkdir()
    setup = f"open({str(trace)!r}, 'w'); import setuptools; setuptools.setup(name={name!r}, version={version!r})"
    (source / "setup.py").write_text(setup)
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as file:
        file.add(source, source.name)


def wheel(folder: Path, name: str, version: str) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def test_a_wheel_with_a_pinned_checksum_is_installed(real: Environment, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel(tmp_path / "wheels", "numpy", "1.0").read_bytes()).hexdigest()
    python_env.install_pins(real, [f"numpy==1.0 {HASH} --hash=sha256:{digest}"])
    assert (tmp_path / "site/numpy/__init__.py").exists()


def test_a_foreign_wheel_is_not_installed(real: Environment, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel(tmp_path / "wheels", "numpy", "1.0").read_bytes()).hexdigest()
    with pytest.raises(UserError, match=rf"^numpy==1.0 is not what was published.* its SHA-256 is {digest}, which "):
        python_env.install_pins(real, python_env.split_pins(PINS["cpu"]))
    assert not list((tmp_path / "site").iterdir())


def test_a_source_archive_in_place_of_a_wheel_leaves_no_trace(real: Environment, tmp_path: Path) -> None:
    archive(tmp_path / "wheels", "numpy", "1.0", tmp_path / "trace")
    with pytest.raises(python_env.NotInIndex, match="^numpy==1.0 cannot be found as a wheel for this machine: "):
        python_env.install_pins(real, python_env.split_pins(PINS["cpu"]))
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("processor", "advice"),
    [
        ("x86_64", "pip reaches no package index that has it"),
        ("aarch64", "its processor is aarch64, and some packages exist for x86_64 alone. Choose an instance type with"),
    ],
)
def test_a_package_that_does_not_exist_for_the_processor(
    monkeypatch: pytest.MonkeyPatch, processor: str, advice: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    error = python_env.pip_error("ERROR: No matching distribution found for mxnet-cu112==1.9.1\n")
    assert isinstance(error, python_env.NotInIndex)
    assert f"mxnet-cu112==1.9.1 cannot be found as a wheel for this machine: {advice}" in str(error)


def test_a_foreign_archive_of_horovod_leaves_no_trace(real: Environment, tmp_path: Path) -> None:
    archive(tmp_path / "wheels", "horovod", "0.28.1", tmp_path / "trace")
    with pytest.raises(UserError, match="^horovod==0.28.1 is not what was published, and was not installed: "):
        horovod._download_source(real, tmp_path, Path(sysconfig.get_path("purelib")))
    assert not (tmp_path / "trace").exists()


def test_a_foreign_build_tool_is_not_installed(real: Environment, tmp_path: Path) -> None:
    for tool in ("cmake-3.27.9", "packaging-24.0", "setuptools-69.5.1", "wheel-0.43.0"):
        wheel(tmp_path / "wheels", *tool.split("-"))
    with pytest.raises(UserError, match="is not what was published"):
        horovod._install_tools(real, tmp_path)
    assert not list(tmp_path.glob("tools/*"))


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.11"}, "python3"),
        ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.9", "python3.10": "3.10", "python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.12"}, ""),
        ({}, ""),
    ],
)
def test_the_python_that_creates_it(
    pythons: dict[str, str], chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12, Amazon Linux 2023 with its package, Ubuntu 24.04."""
    monkeypatch.setattr(python_env, "SYSTEM_FOLDERS", (tmp_path,))
    for name, version in pythons.items():
        program(tmp_path / name, f"echo {version}")
    mxnet = Environment("mxnet", PINS, ["3.10", "3.11"], ["mxnet"])
    assert python_env.find_python(mxnet) == (str(tmp_path / chosen) if chosen else "")


def test_a_system_without_a_suitable_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_env, "system", lambda: ("ubuntu", "Ubuntu 24.04.1 LTS"))
    assert python_env.no_python_message(Environment("mxnet", PINS, ["3.10", "3.11"], [])) == (
        "mxnet needs Python 3.10 to 3.11, and Ubuntu 24.04.1 LTS here has none of these: use an image that has one, "
        "such as Debian 12 or Ubuntu 22.04, or another framework."
    )


def test_the_name_of_the_system(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nID=debian\n')
    assert python_env.system(release) == ("debian", "Debian GNU/Linux 12")


# Sources


@pytest.fixture
def sources(tmp_path: Path) -> str:
    (tmp_path / "sources/pytorch").mkdir(parents=True)
    (tmp_path / "sources/pytorch/__init__.py").write_text("")
    return str(tmp_path / "sources")


@pytest.fixture
def released(environment: Environment, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment that has the release which is pinned."""
    pinned = Environment(**{**vars(environment), "requirements": {"cpu": f"{PINS['cpu']}pytorch==0.11 \\\n {HASH}\n"}})
    python_env.install(pinned)
    commands.ran.clear()
    commands.version = "0.11"
    return pinned


def present(environment: Environment, source: str, check: bool = False) -> dict[str, Any]:
    return framework_env.present(environment, {"source": source}, check)


def test_sources_are_used_in_place_of_the_release(released: Environment, commands: Commands, sources: str) -> None:
    assert present(released, sources, check=True)["changed"] and commands.ran == []
    done = present(released, sources)
    assert done["changed"] and done["ready"]
    assert python_env.read_complete_marker(released)["versions"]["pytorch"] == f"0.11 from {sources}"
    pth = released.path / "lib/python3.11/site-packages/deeplearning-sources.pth"
    assert pth.read_text() == f"{sources}\n"
    assert any(line.endswith("-m pip uninstall --quiet --yes pytorch") for line in commands.ran)
    commands.ran.clear()
    assert not present(released, sources)["changed"] and commands.ran == []


def test_the_release_replaces_the_sources(released: Environment, commands: Commands, sources: str) -> None:
    present(released, sources)
    commands.ran.clear()
    planned = present(released, "", check=True)
    assert planned["usable"] and not planned["ready"]
    done = present(released, "")
    assert done["changed"] and done["ready"] and done["versions"]["pytorch"] == "0.11"
    assert len(commands.pip()) == 1 and commands.pins[-1] == f"pytorch==0.11 {HASH}"


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(
    environment: Environment,
    commands: Commands,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run the module, with environments in the test's folder."""

    def inside(framework: str, requirements: dict[str, str], **options: Any) -> Environment:
        return Environment(framework, requirements, ["3.11"], ["numpy"], folder=environment.folder, **options)

    monkeypatch.setattr(framework_env, "environment_of", inside)
    created = {"requirements": {"gpu": PINS["gpu"], "cpu": PINS["cpu"]}}

    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        least = {"framework": "pytorch", **(created if options.get("state") != "absent" else {})}
        arguments = {name: value for name, value in {**least, **options}.items() if value is not None}
        return run_node_module(capsys, "framework_env", check, **arguments)

    return call


def test_the_module_creates_and_removes_an_environment(
    run: Run, environment: Environment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_env, "can_create_environments", lambda python: python.endswith("bin/python3"))
    planned = run(check=True)
    state = {key: planned[key] for key in ("changed", "ready", "installed", "versions", "built", "problem")}
    empty = {"changed": True, "ready": False, "installed": False, "versions": {}, "built": {}, "problem": ""}
    assert state == empty and planned["can_create_environments"] is True and planned["system"] == python_env.system()[0]
    assert not environment.path.exists() and not [line for line in commands.ran if "venv" in line]

    created = run()
    assert created["changed"] and created["ready"] and created["installed"] and created["versions"] == {"numpy": "1.0"}
    assert "problem" not in created and "can_create_environments" not in created
    commands.ran.clear()
    for check in (True, False):
        again = run(check)
        assert not again["changed"] and again["ready"] and again["built"] == {}
    assert commands.ran == []

    assert run(check=True, state="absent")["changed"] and environment.path.exists()
    assert run(state="absent")["changed"] and not environment.path.exists()
    for check in (True, False):
        assert not run(check, state="absent")["changed"]


def test_the_module_removes_what_an_attempt_has_left(run: Run, environment: Environment) -> None:
    left = environment.folder / ".pytorch.new"
    left.mkdir(parents=True)
    assert run(check=True, state="absent")["changed"] and left.exists()
    assert run(state="absent")["changed"] and not left.exists()


def test_an_environment_with_other_pins_is_not_installed(run: Run, commands: Commands) -> None:
    run()
    newer = {"cpu": f"numpy==2.0 {HASH}\n", "gpu": PINS["gpu"]}
    planned = run(check=True, requirements=newer)
    assert planned["usable"] and run(check=True)["ready"]
    assert planned["changed"] and not planned["ready"] and not planned["installed"] and planned["problem"] == ""
    assert planned["versions"] == {}
    commands.installed = {"numpy": "2.0"}
    assert run(requirements=newer)["versions"] == {"numpy": "2.0"}


def test_a_system_without_a_python_has_a_problem(run: Run, commands: Commands, tmp_path: Path) -> None:
    program(tmp_path / "bin/python3", "echo 3.9")
    planned = run(check=True)
    assert planned["problem"].startswith("pytorch needs Python 3.11, and ")
    assert planned["can_create_environments"] is False
    refused = run()
    assert refused["failed"] and refused["msg"] == planned["problem"]


def test_wheels_and_indexes_reach_pip(run: Run, commands: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    run(wheels=str(folder))
    assert f"--no-index --find-links {folder}" in commands.pip()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"requirements": None}, "state is present but all of the following are missing: requirements"),
        ({"framework": "caffe"}, "framework is caffe: give one of tensorflow, mxnet, pytorch, tensorpack."),
        ({"state": "gone"}, "value of state must be one of"),
        ({"requirements": {"cpu": "x"}}, "missing required arguments: gpu"),
    ],
)
def test_what_the_module_needs(run: Run, options: dict[str, Any], words: str) -> None:
    refused = run(**options)
    assert refused["failed"] and words in refused["msg"]


def test_the_module_uses_the_sources_of_a_checkout(
    run: Run, released: Environment, commands: Commands, sources: str
) -> None:
    pins = {"cpu": released.requirements["cpu"], "gpu": "x"}
    planned = run(check=True, requirements=pins, source=sources)
    assert planned["changed"] and planned["installed"] and not planned["ready"]
    assert run(requirements=pins, source=sources)["versions"]["pytorch"] == f"0.11 from {sources}"
    assert run(requirements=pins)["versions"]["pytorch"] == "0.11"


def test_a_folder_without_the_sources_is_refused(released: Environment, commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no pytorch/__init__.py: give the folder with the sources of pytorch"):
        present(released, str(tmp_path / "none"))
    assert commands.ran == [] and python_env.read_complete_marker(released)


# Interruptions


class Killed(BaseException):
    pass


class Steps:
    """Counts changes of an environment, and raises Killed before a certain one."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        for owner, name in ((python_env, "run"), (python_env, "_write"), (shutil, "rmtree"), (Path, "rename")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if real is REAL_RMTREE:
                    # It may have removed the markers already.
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
    ids=["created", "replaced", "to sources", "from sources", "removed"],
)
def test_killed_at_any_step_and_run_again_it_is_complete(
    environment: Environment, commands: Commands, sources: str, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any
) -> None:
    def converge(state: Any) -> dict[str, Any]:
        pins = state if isinstance(state, dict) else RELEASE
        commands.environment = Environment(**{**vars(environment), "folder": folder, "requirements": pins})
        if state is None:
            return framework_env.absent(commands.environment, {}, False)
        return present(commands.environment, sources if state == "sources" else "")

    for steps in range(100):
        folder = environment.folder / str(steps)
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
            assert done["ready"] and python_env.read_complete_marker(commands.environment)
            site = place / "lib/python3.11/site-packages"
            release = {"numpy.installed", *({"pytorch.installed"} if after != "sources" else ())}
            assert {file.name for file in site.glob("*.installed")} == release
            assert (site / "deeplearning-sources.pth").exists() == (after == "sources")
            assert not converge(after)["changed"]
        assert not list(folder.glob(".*.new")) and not list(folder.glob(".*.old")), "leftovers are removed"
    assert steps > 1


def test_it_waits_for_another_process_that_creates_the_environment(
    environment: Environment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module may outlive the playbook that started it."""
    real, second = python_env._versions, []

    def versions(of: Environment) -> dict[str, str]:
        if not second:
            second.append(threading.Thread(target=lambda: second.append(present(environment, ""))))
            second[0].start()
            waits = f":{(environment.folder / '.pytorch.lock').stat().st_ino} "
            while not any("->" in line and waits in line for line in Path("/proc/locks").read_text().splitlines()):
                assert second[0].is_alive(), "it did not wait"
        return real(of)

    monkeypatch.setattr(python_env, "_versions", versions)
    assert present(environment, "")["changed"]
    second[0].join()
    assert second[1]["ready"]
    assert sum(" -m venv " in line for line in commands.ran) == 1


# Horovod


def test_without_its_wheel_an_environment_that_needs_one_is_incomplete(
    environment: Environment, commands: Commands
) -> None:
    marker = python_env.install(environment, horovod.SPEC)
    assert marker["versions"] == {"numpy": "1.0"}
    assert python_env.read_complete_marker(environment) == {} and python_env.read_marker(environment) == marker
    commands.ran.clear()
    python_env.install(environment, horovod.SPEC, "/wheels/horovod-0.28.1-cp311.whl")
    assert [line.split()[-1] for line in commands.pip()] == ["/wheels/horovod-0.28.1-cp311.whl"]
    assert python_env.is_installed(python_env.read_complete_marker(environment), horovod.SPEC)


def test_horovod_is_installed_into_an_existing_environment(environment: Environment, commands: Commands) -> None:
    python_env.install(environment)
    commands.ran.clear()
    python_env.install(environment, horovod.SPEC, "/wheels/horovod-0.28.1-cp311.whl")
    assert len(commands.pip()) == 1
    assert python_env.read_complete_marker(environment)["versions"]["horovod"] == "0.28.1"


def nvcc(folder: Path, version: str) -> None:
    (folder / f"cuda-{version}/bin").mkdir(parents=True, exist_ok=True)
    program(folder / f"cuda-{version}/bin/nvcc", f"echo 'Cuda compilation tools, release {version}, V{version}.93'")


@pytest.fixture
def tensorpack(environment: Environment) -> Environment:
    """The only one that has Horovod."""
    return Environment(**{**vars(environment), "framework": "tensorpack"})


@pytest.fixture
def machine(tensorpack: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Open MPI, CUDA, and an environment with a stand-in for Python."""
    for folder in ("mpi", "cuda-12.8/bin", "env/tensorpack/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "mpi/mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    nvcc(tmp_path, "12.8")
    program(tensorpack.python, "echo 3.11")
    monkeypatch.setattr(horovod.open_mpi, "FOLDERS", (str(tmp_path / "mpi"),))
    monkeypatch.setattr(horovod.cuda_toolkits, "FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def nccl(tensorpack: Environment, machine: Path) -> Path:
    """The folder of the framework's NCCL."""
    folder = tensorpack.path / "lib/python3.11/site-packages/nvidia/nccl"
    (folder / "lib").mkdir(parents=True)
    return folder


@pytest.fixture
def gpus(machine: Path, nccl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_env, "DRIVER", machine)


VERSIONS = {
    "tensorflow-cpu": "2.15.1",
    "nvidia-cuda-runtime-cu12": "12.2.140",
    "nvidia-nccl-cu12": "2.16.5",
}


def test_the_key_of_a_wheel_has_all_that_it_fits(tensorpack: Environment, machine: Path) -> None:
    arch = os.uname().machine
    assert horovod.wheel_key(tensorpack, VERSIONS) == f"horovod-0.28.1_tensorflow-2.15.1_cp311_openmpi-4.1.4_{arch}"


@pytest.mark.usefixtures("gpus")
def test_on_gpus_the_key_has_cuda_and_nccl(tensorpack: Environment, machine: Path) -> None:
    assert "_openmpi-4.1.4_cuda-12.8_nccl-2.16.5_" in horovod.wheel_key(tensorpack, VERSIONS)
    for package in ("nvidia-nccl-cu12", "nvidia-cuda-runtime-cu12"):
        lacking = {name: version for name, version in VERSIONS.items() if name != package}
        with pytest.raises(UserError, match=f"has no {package.removesuffix('-cu12')}, which Horovod needs"):
            horovod.wheel_key(tensorpack, lacking)


@pytest.mark.parametrize(
    ("toolkits", "link", "needed", "version"),
    [
        # AWS's image of autumn 2026, for TensorFlow 2.15, for another CUDA 12, and for CUDA 13.
        (["12.8", "12.9", "13.0", "13.2"], "13.2", "12.2.140", "12.8"),
        (["12.8", "12.9", "13.0", "13.2"], "13.2", "12.9.37", "12.9"),
        (["12.8", "12.9", "13.0", "13.2"], "13.2", "13.0.96", "13.0"),
        (["11.8", "12.1", "12.4"], "12.4", "12.2.140", "12.1"),
        (["12.4"], "", "12.2.140", "12.4"),
    ],
)
def test_the_toolkit_is_that_of_the_frameworks_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolkits: list[str], link: str, needed: str, version: str
) -> None:
    monkeypatch.setattr(horovod.cuda_toolkits, "FOLDER", tmp_path)
    for toolkit in toolkits:
        nvcc(tmp_path, toolkit)
    if link:
        (tmp_path / "cuda").symlink_to(f"cuda-{link}")
    chosen = horovod.find_toolkit({"nvidia-cuda-runtime-cu12": needed})
    assert chosen.version == version and chosen.folder.resolve() == tmp_path / f"cuda-{version}"


@pytest.mark.parametrize(("toolkits", "present"), [([], "none"), (["13.2", "13.0", "11.8"], "11.8, 13.0, 13.2")])
def test_without_a_toolkit_of_that_cuda_one_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolkits: list[str], present: str
) -> None:
    monkeypatch.setattr(horovod.cuda_toolkits, "FOLDER", tmp_path)
    for toolkit in toolkits:
        nvcc(tmp_path, toolkit)
    with pytest.raises(UserError) as refused:
        horovod.find_toolkit(VERSIONS)
    assert str(refused.value) == (
        f"Horovod needs a toolkit of CUDA 12, as the framework's packages are for 12.2, and {tmp_path} has these: "
        f"{present}. Install one, such as NVIDIA's package cuda-toolkit-12-9, or use an image that has one."
    )


def test_without_open_mpi_nothing_is_built(tensorpack: Environment, machine: Path) -> None:
    (machine / "mpi/mpirun").unlink()
    with pytest.raises(UserError, match="install Open MPI"):
        horovod.wheel_key(tensorpack, VERSIONS)


class Build:
    """A stand-in for an environment's Python: it downloads a source, builds a wheel and reports what is in it."""

    def __init__(
        self,
        machine: Path,
        python: Path,
        mpi: bool = True,
        nccl: bool = False,
        fails: bool = False,
        loads: Sequence[str] = (),
    ) -> None:
        source = machine / "source/horovod-0.28.1"
        (source / "horovod/tensorflow").mkdir(parents=True)
        (source / "horovod/tensorflow/CMakeLists.txt").write_text('"mpi_ops.cc")\n"xla_mpi_ops.cc")\n')
        with tarfile.open(machine / "horovod-0.28.1.tar.gz", "w:gz") as archive:
            archive.add(source, "horovod-0.28.1")
        program(
            python,
            f"""case "$*" in
            *"version_info"*) echo 3.11 ;;
            *" download "*) cp {machine}/horovod-0.28.1.tar.gz "$(echo "$*" | sed 's/.* -d \\([^ ]*\\) .*/\\1/')" ;;
            *"setup.py"*)
                env > {machine}/environment; cp horovod/tensorflow/CMakeLists.txt {machine}/sources
                {"echo 'x.cc:1: error: no such type'; exit 1" if fails else ""}
                mkdir -p "${{*##* -d }}"; echo wheel > "${{*##* -d }}/horovod-0.28.1-cp311-linux_x86_64.whl" ;;
            *"nccl_built"*) echo '{json.dumps([mpi, nccl, list(loads)])}' ;;
            esac""",
        )


def make(machine: Path, environment: Environment, **build: Any) -> horovod.Wheel:
    Build(machine, environment.python, **build)
    return horovod.build(environment, VERSIONS, str(machine / "wheels"))


def test_the_wheel_is_built_for_mpi_in_the_shared_folder(tensorpack: Environment, machine: Path) -> None:
    built = make(machine, tensorpack)
    key = horovod.wheel_key(tensorpack, VERSIONS)
    assert built == horovod.find_wheel(str(machine / "wheels"), key, {built.name: built.sha256})
    assert built.sha256 == hashlib.sha256((machine / "wheels" / built.name).read_bytes()).hexdigest()
    variables = dict(line.split("=", 1) for line in (machine / "environment").read_text().splitlines() if "=" in line)
    assert {name: value for name, value in variables.items() if name.startswith("HOROVOD_WITH")} == {
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_GLOO": "1",
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
    }
    assert "xla_mpi_ops" not in (machine / "sources").read_text()


@pytest.mark.usefixtures("gpus")
def test_on_gpus_a_build_without_nccl_is_an_error(tensorpack: Environment, machine: Path) -> None:
    with pytest.raises(UserError, match="built without NCCL: it is not used"):
        make(machine, tensorpack)
    assert not list((machine / "wheels").rglob("*.whl"))


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("again", [False, True])
def test_it_is_built_with_the_toolkit_and_the_nccl_of_the_framework(
    tensorpack: Environment, machine: Path, nccl: Path, again: bool
) -> None:
    nvcc(machine, "13.2")
    (machine / "cuda").symlink_to("cuda-13.2")
    if again:
        (nccl / "lib/libnccl.so").symlink_to("libnccl.so.2")
    make(machine, tensorpack, nccl=True, loads=[f"{nccl}/lib/libnccl.so.2", f"{machine}/lib/libmpi.so.40"])
    variables = dict(line.split("=", 1) for line in (machine / "environment").read_text().splitlines() if "=" in line)
    assert variables["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert variables["HOROVOD_CUDA_HOME"] == str(machine / "cuda-12.8")
    assert variables["PATH"].startswith(f"{machine}/cuda-12.8/bin:")
    # The linker records this folder, which every node has. The link's target is what the library is called.
    assert variables["HOROVOD_NCCL_HOME"] == str(nccl) and os.readlink(nccl / "lib/libnccl.so") == "libnccl.so.2"


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("library", ["/usr/lib64/libnccl.so.2", "/opt/other/openmpi/lib/libmpi.so.40"])
def test_a_wheel_that_loads_another_nccl_or_open_mpi_is_an_error(
    tensorpack: Environment, machine: Path, nccl: Path, library: str
) -> None:
    with pytest.raises(UserError, match=rf"^horovod==0.28.1 loads {library}, and runs use the lib.*\.so in {machine}"):
        make(machine, tensorpack, nccl=True, loads=[f"{nccl}/lib/libnccl.so.2", f"{machine}/lib/libmpi.so.40", library])
    assert not list((machine / "wheels").rglob("*.whl"))


def test_a_build_without_mpi_is_an_error(tensorpack: Environment, machine: Path) -> None:
    with pytest.raises(UserError, match="built without MPI"):
        make(machine, tensorpack, mpi=False)


def test_a_failed_build_reports_the_errors(tensorpack: Environment, machine: Path) -> None:
    with pytest.raises(UserError, match=r"could not be built for horovod-0.28.1_tensorflow.*: x.cc:1: error: no such"):
        make(machine, tensorpack, fails=True)


NUMBERED = "horovod-0.28.1_tensorflow-2.15.1_cp311_openmpi-4.1.4_x86_64"


def test_a_wheel_of_this_play_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / NUMBERED).mkdir()
    known = f"{NUMBERED}/horovod-0.28.1-cp311.whl"
    (tmp_path / known).write_text("")
    sums = {known: "0" * 64}
    assert horovod.find_wheel(str(tmp_path), NUMBERED, sums) == (known, "0" * 64)
    assert horovod.find_wheel(str(tmp_path), NUMBERED.replace("2.15", "2.16"), sums) is None


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that an earlier play has built; root is the user of this process."""
    monkeypatch.setattr(horovod, "OWNER", os.getuid())
    (tmp_path / NUMBERED).mkdir()
    tmp_path.chmod(0o755)
    wheel = tmp_path / NUMBERED / "horovod-0.28.1-cp311.whl"
    wheel.write_bytes(b"wheel")
    return wheel


def test_a_wheel_that_root_has_built_before_is_installed_again(stored: Path) -> None:
    folder = str(stored.parents[1])
    (stored.parent / "horovod-0.28.1-notes.txt").write_text("")
    expected = (f"{NUMBERED}/{stored.name}", hashlib.sha256(b"wheel").hexdigest())
    assert horovod.find_wheel(folder, NUMBERED, {}) == expected
    other = {f"{NUMBERED}/../horovod-0.28.1.whl": "0" * 64, f"{NUMBERED}/horovod-0.28.1-cp312.whl": "0" * 64}
    assert horovod.find_wheel(folder, NUMBERED, other) == expected
    assert horovod.find_wheel(folder, NUMBERED.replace("2.15", "2.16"), {}) is None


@pytest.mark.parametrize("planted", ["another user", "file", "folder", "folder of all", "link", "linked folder"])
def test_a_wheel_that_others_can_have_put_there_does_not_count(
    stored: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """Any user can write to the file system."""
    folder = stored.parents[1]
    if planted == "another user":
        monkeypatch.setattr(horovod, "OWNER", os.getuid() + 1)
    elif planted == "link":
        stored.rename(folder / "wheel")
        stored.symlink_to(folder / "wheel")
    elif planted == "linked folder":
        stored.parent.rename(folder / "theirs")
        stored.parent.symlink_to("theirs")
    else:
        {"file": stored, "folder": stored.parent, "folder of all": folder}[planted].chmod(0o777)
    assert horovod.find_wheel(str(folder), NUMBERED, {}) is None


@pytest.fixture
def lacking(
    environment: Environment, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The arguments for an environment that lacks Horovod, whose wheel exists."""
    monkeypatch.setattr(horovod, "extra_package", lambda _framework: horovod.SPEC)
    python_env.install(environment, horovod.SPEC)
    commands.ran.clear()
    monkeypatch.setattr(horovod, "wheel_key", lambda *_: NUMBERED)
    (tmp_path / "wheels" / NUMBERED).mkdir(parents=True)
    name = f"{NUMBERED}/horovod-0.28.1-cp311.whl"
    (tmp_path / "wheels" / name).write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    return {
        "source": "",
        "horovod_build": False,
        "horovod_wheels": str(tmp_path / "wheels"),
        "horovod_checksums": {name: digest},
    }


def test_a_wheel_is_compared_before_it_is_installed(
    environment: Environment, commands: Commands, lacking: dict[str, Any], tmp_path: Path
) -> None:
    done = framework_env.present(environment, lacking, check=False)
    assert done["changed"] and done["ready"]
    # A private copy, which no other node can change between the two.
    (installed,) = (Path(line.split()[-1]) for line in commands.pip())
    assert installed.name == "horovod-0.28.1-cp311.whl" and tmp_path / "wheels" not in installed.parents


def test_the_module_completes_an_environment_with_horovod(
    run: Run, commands: Commands, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has the rest, so neither Python nor packages of the system are needed.
    planned = run(check=True, **lacking)
    assert planned["changed"] and planned["installed"] and not planned["ready"] and "problem" not in planned
    # A run that needs it does not use the environment, so it may change.
    assert not planned["usable"]
    unknown = run()
    assert not unknown["changed"] and not unknown["ready"] and unknown["installed"]
    done = run(**lacking)
    assert done["changed"] and done["ready"] and done["versions"]["horovod"] == horovod.VERSION
    monkeypatch.setattr(horovod, "extra_package", lambda _framework: "")
    assert run(check=True)["ready"], "it may have more than it needs"


def test_a_framework_that_does_not_train_with_horovod_is_used_without_it(
    run: Run, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(check=True)["usable"]
    monkeypatch.setattr(horovod, "extra_package", lambda _framework: "")
    assert run(check=True)["usable"]


def test_a_wheel_that_another_node_changed_is_refused(
    environment: Environment, commands: Commands, lacking: dict[str, Any], tmp_path: Path
) -> None:
    (name,) = lacking["horovod_checksums"]
    (tmp_path / "wheels" / name).write_bytes(b"another")
    with pytest.raises(UserError, match=rf"{re.escape(name)} is not the wheel that was built, and was not installed"):
        framework_env.present(environment, lacking, check=False)
    assert commands.pip() == []


def test_a_wheel_that_is_not_roots_is_built_again(
    environment: Environment, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horovod, "OWNER", os.getuid() + 1)
    (name,), (digest,) = lacking["horovod_checksums"], lacking["horovod_checksums"].values()
    builds = []
    monkeypatch.setattr(horovod, "build", lambda *_: builds.append(name) or horovod.Wheel(name, digest))
    unknown = {**lacking, "horovod_checksums": {}}
    assert not framework_env.present(environment, unknown, check=False)["ready"] and builds == []
    builder = {**unknown, "horovod_build": True}
    assert framework_env.present(environment, builder, check=True)["changed"] and builds == []
    done = framework_env.present(environment, builder, check=False)
    assert done["ready"] and done["built"] == {name: digest} and builds == [name]


def test_a_wheel_with_a_known_checksum_is_not_built_again(
    environment: Environment, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(horovod, "build")
    done = framework_env.present(environment, {**lacking, "horovod_build": True}, check=False)
    assert done["ready"] and done["built"] == {}


def test_a_failed_build_is_reported_with_the_alternatives(
    environment: Environment, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise UserError(
            "horovod==0.28.1 could not be built for horovod-0.28.1_tensorflow-9: x.h: error: C++26 is needed"
        )

    monkeypatch.setattr(horovod, "build", fail)
    monkeypatch.setattr(horovod, "OWNER", os.getuid() + 1)
    builder = {**lacking, "horovod_checksums": {}, "horovod_build": True}
    with pytest.raises(UserError, match="error: C.* is needed\nUse the pins that it was built with before, or"):
        framework_env.present(environment, builder, check=False)
    assert framework_env.present(environment, builder, check=True)["changed"]


# What the role installs on each system, most of which were never booted


@pytest.mark.parametrize(
    ("framework", "system", "problem", "makes", "packages"),
    [
        ("pytorch", "debian", "", True, []),
        ("pytorch", "debian", "", False, ["python3.11-venv"]),
        ("mxnet", "ubuntu", "", True, ["libgomp1", "libquadmath0"]),
        ("tensorflow", "amzn", "its Python is 3.9", False, ["python3.11"]),
        ("mxnet", "amzn", "its Python is 3.9", False, ["libgomp", "libquadmath", "python3.11"]),
        ("pytorch", "rocky", "", True, []),
    ],
)
def test_packages_that_an_environment_needs(
    framework: str, system: str, problem: str, makes: bool, packages: list[str]
) -> None:
    python = "" if problem else "3.11"
    libraries = list(RECORDS[framework].libraries.get(system, ()))
    inspected = {"system": system, "problem": problem, "python": python, "can_create_environments": makes}
    variables = {"framework_name": framework, "__framework_inspected": {**inspected, "libraries": libraries}}
    assert value("framework", "__framework_packages", "", **variables) == packages


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_environments_that_have_horovod_are_those_of_frameworks_that_train_with_it(framework: str) -> None:
    has_horovod = "horovod" in RECORDS[framework].distributions
    assert (horovod.extra_package(framework) == horovod.SPEC) is has_horovod is (framework == "tensorpack")
    assert RECORDS[framework].package in horovod.SWITCHES


HOROVOD_PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: framework
        tasks_from: horovod.yml
      when: inventory_hostname in ['three', 'four']
      vars:
        framework_name: tensorpack
        __framework_inspected: {system: debian, python: "3.11"}
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} has {{ framework_result }}"
"""
ENVIRONMENT_STUB = """
- ansible.builtin.debug:
    msg: "{{ inventory_hostname }} {{ 'builds' if __framework_horovod_build | default(false) else 'installs' }}"
- ansible.builtin.set_fact:
    __framework_environment: {built: {wheel: "of {{ inventory_hostname }}"}}
"""


def test_the_first_node_that_lacks_horovod_builds_it_and_all_nodes_get_its_checksum(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "roles/framework", tmp_path / "roles/framework", ignore=shutil.ignore_patterns("README.md"))
    (tmp_path / "roles/framework/tasks/environment.yml").write_text(ENVIRONMENT_STUB)
    (tmp_path / "play.yml").write_text(HOROVOD_PLAY)
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\ncollections_path={ROOT / 'collections'}\n")
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", "one,two,three,four,", "play.yml", "--check"]
    variables = os.environ | {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    done = re.findall(r"\w+ (?:builds|installs)", ran.stdout)
    assert done[0] == "three builds" and sorted(done[1:]) == ["four installs", "three installs"]
    for node in ("one", "two", "three", "four"):
        assert f"{node} has {{'horovod_wheels': {{'wheel': 'of three'}}}}" in ran.stdout


def test_a_wheel_that_was_built_in_this_play_may_be_installed() -> None:
    assert value("framework", "__framework_checksums", "") == {}
    variables = {"framework_result": {"horovod_wheels": {"wheel": "sum"}}}
    assert value("framework", "__framework_checksums", "", **variables) == {"wheel": "sum"}


# Pins


@pytest.mark.parametrize("build", ["cpu", "gpu"])
@pytest.mark.parametrize("role", FRAMEWORKS)
def test_all_packages_are_pinned_including_those_of_the_in_file(role: str, build: str) -> None:
    files = ROOT / "roles/framework/files" / role
    lines = python_env.split_pins((files / f"requirements-{build}.txt").read_text())
    assert all(re.search(r"^\S+ .*--hash=sha256:[0-9a-f]{64}$", line) for line in lines)
    pins = [line.split()[0] for line in lines]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9a-z.+]+", pin) for pin in pins)
    named = [
        re.split(r"[\[=<>]", line)[0].lower().replace("_", "-")
        for line in (files / f"requirements-{build}.in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert set(named) <= {pin.partition("==")[0] for pin in pins}
    cuda = [pin for pin in pins if pin.startswith(("nvidia-", "cuda-", "triton"))]
    assert bool(cuda) == (build == "gpu")


def test_packages_with_their_own_index_have_a_local_version() -> None:
    for role in FRAMEWORKS:
        for build, pins in framework_recipes.needs(role)["requirements"].items():
            local = {python_env.package_of(pin) for pin in python_env.split_pins(pins) if "+" in pin.split()[0]}
            assert local == set(RECORDS[role].index.get(build, {}))


@pytest.mark.parametrize("role", FRAMEWORKS)
def test_an_image_is_created_from_the_pins_of_the_role(role: str) -> None:
    """The same pins give the same marker, so the role finds the environment ready."""
    needs = framework_recipes.needs(role)
    settings = yaml.safe_load((ROOT / "roles/framework/vars/main.yml").read_text())
    for build in ("cpu", "gpu"):
        pins = (ROOT / "roles/framework/files" / role / f"requirements-{build}.txt").read_text()
        assert needs["requirements"][build] == pins
        source = f"framework_name ~ '/requirements-{build}.txt', rstrip=false"
        assert source in settings["__framework_requirements"][build]
    record = framework_recipes.RECORDS[role]
    environment = python_env.environment_of(**needs)
    assert (environment.pythons, environment.imports) == (record.pythons, record.imports)


def test_another_pin_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    use_recipes(framework_recipes.RECIPES)
    before = feature_hash(["mxnet"])
    assert before == feature_hash(["mxnet"]) != feature_hash(["pytorch"])
    needs = framework_recipes.needs
    monkeypatch.setattr(framework_recipes, "needs", lambda name: {**needs(name), "requirements": PINS})
    use_recipes(framework_recipes.recipes())
    assert feature_hash(["mxnet"]) != before
