"""Frameworks' environments: when one is ready, which Python makes it, what is left alone, and Horovod's wheel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.module_utils import _environment, _horovod
from ansible_collections.deeplearning.aws.plugins.module_utils._environment import Unfit, Wanted
from ansible_collections.deeplearning.aws.plugins.modules import framework_env

from localcloud.image import features

from .test_node_roles import value

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("tensorflow", "mxnet", "pytorch", "tensorpack")
PINS = {"cpu": "numpy==1.0\n", "gpu": "numpy==1.0\nnvidia-nccl-cu12==2.16.5\n"}


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
        self.refused: list[str] = []
        self.version = ""

    def __call__(self, command: Sequence[str], may_fail: bool = False) -> str:
        line = " ".join(command)
        self.ran.append(line)
        if " -m venv " in line:
            (self.wanted.place / "bin").mkdir(parents=True)
            self.wanted.python.write_text("")
        if " -m pip install " in line and self.refused:
            raise Unfit(self.refused.pop(0))
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
    changed = Wanted("pytorch", {**PINS, "cpu": "numpy==2.0\n"}, wanted.pythons, wanted.imports, folder=wanted.folder)
    assert _environment.marker(changed) == {}
    (wanted.place / "old").write_text("")
    _environment.install(changed)
    assert _environment.marker(changed) and not (wanted.place / "old").exists()


def test_what_broke_off_is_ours_and_made_anew(wanted: Wanted, commands: Commands) -> None:
    commands.refused = ["the index does not answer"]
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
        f"--no-index --find-links {tmp_path}"
    ]


def test_a_folder_of_wheels_that_is_none_is_refused(wanted: Wanted, commands: Commands, tmp_path: Path) -> None:
    absent = Wanted(**{**vars(wanted), "wheels": str(tmp_path / "none")})
    with pytest.raises(Unfit, match=f"{tmp_path}/none is no folder"):
        _environment.install(absent)


def test_another_index_is_asked_only_when_pip_does_not_find_all(wanted: Wanted, commands: Commands) -> None:
    indexed = Wanted(**{**vars(wanted), "index": {"cpu": "https://else"}})
    commands.refused = ["ERROR: No matching distribution found for torch==2.13.0+cpu"]
    _environment.install(indexed)
    first, second = commands.pip()
    assert "--extra-index-url" not in first and "--extra-index-url https://else" in second


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
    pinned = Wanted(**{**vars(wanted), "requirements": {"cpu": "numpy==1.0\npytorch==0.11\n"}})
    _environment.install(pinned)
    (pinned.place / "lib/python3.11/site-packages").mkdir(parents=True)
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
    assert [line.split(" -r ")[1] for line in commands.pip()] == [f"{released.place}/release.txt"]
    assert (released.place / "release.txt").read_text() == "pytorch==0.11\n"


def test_a_folder_without_the_sources_is_refused(released: Wanted, commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="has no pytorch/__init__.py: give the folder with the sources of pytorch"):
        present(released, str(tmp_path / "none"))
    assert commands.ran == [] and _environment.marker(released)


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


def test_a_wheel_that_is_there_is_found_and_no_other(tmp_path: Path) -> None:
    assert _horovod.wheel_in(str(tmp_path), "a+b") == ""
    (tmp_path / "a+b").mkdir()
    (tmp_path / "a+b/.horovod-0.28.1-cp311.whl.node").write_text("half")
    assert _horovod.wheel_in(str(tmp_path), "a+b") == ""
    (tmp_path / "a+b/horovod-0.28.1-cp311.whl").write_text("")
    assert _horovod.wheel_in(str(tmp_path), "a+b") == str(tmp_path / "a+b/horovod-0.28.1-cp311.whl")


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


def make(machine: Path, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, **build: Any) -> str:
    Build(machine, wanted.python, **build)
    monkeypatch.setattr(
        _horovod, "SHA256", hashlib.sha256((machine / "horovod-0.28.1.tar.gz").read_bytes()).hexdigest()
    )
    return _horovod.make(wanted, VERSIONS, str(machine / "wheels"))


def test_the_wheel_is_built_for_mpi_and_put_where_all_find_it(
    wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make(machine, wanted, monkeypatch)
    assert wheel == _horovod.wheel_in(str(machine / "wheels"), _horovod.key(wanted, VERSIONS))
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
def test_on_gpus_a_build_without_nccl_is_an_error(
    wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wanted.place / "lib/python3.11/site-packages/nvidia/nccl").mkdir(parents=True)
    with pytest.raises(Unfit, match="built without NCCL: it is not used"):
        make(machine, wanted, monkeypatch)
    assert not list((machine / "wheels").rglob("*.whl"))
    assert "HOROVOD_GPU_OPERATIONS=NCCL" in (machine / "environment").read_text()


def test_a_build_without_mpi_is_an_error(wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unfit, match="built without MPI"):
        make(machine, wanted, monkeypatch, mpi=False)


def test_a_build_that_fails_tells_its_errors(wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unfit, match=r"could not be built for horovod-0.28.1_torch.*: x.cc:1: error: no such type"):
        make(machine, wanted, monkeypatch, fails=True)


def test_a_framework_that_it_cannot_be_built_for_is_said_with_what_else_to_do(
    wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> str:
        raise Unfit("horovod==0.28.1 could not be built for horovod-0.28.1_torch-9: x.h:1: error: C++26 is needed")

    monkeypatch.setattr(_horovod, "make", make)
    monkeypatch.setattr(_environment, "finished_or_not", lambda _: {"versions": VERSIONS})
    given = {"horovod_wheels": str(machine / "wheels")}
    with pytest.raises(Unfit, match="error: C.* is needed\nTrain without Horovod, or take the pins"):
        framework_env.built(wanted, given, check=False)
    assert framework_env.built(wanted, given, check=True)["changed"]


def test_a_source_that_was_not_published_is_refused(
    wanted: Wanted, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Build(machine, wanted.python)
    with pytest.raises(Unfit, match="is not the one that was published"):
        _horovod.make(wanted, VERSIONS, str(machine / "wheels"))


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


# Pins


@pytest.mark.parametrize("build", ["cpu", "gpu"])
@pytest.mark.parametrize("role", ROLES)
def test_all_is_pinned_and_what_is_named_is_among_it(role: str, build: str) -> None:
    files = ROOT / "roles" / role / "files"
    pins = [
        line.partition(" ;")[0]
        for line in (files / f"requirements-{build}.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9a-z.+]+", pin) for pin in pins)
    named = [
        re.split(r"[\[=<]", line)[0].lower().replace("_", "-")
        for line in (files / f"requirements-{build}.in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert set(named) <= {pin.partition("==")[0] for pin in pins}
    cuda = [pin for pin in pins if pin.startswith(("nvidia-", "cuda-", "triton"))]
    assert bool(cuda) == (build == "gpu" and role != "mxnet")


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
