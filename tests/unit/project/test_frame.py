"""The plain clone is the installed collection, it builds, and its pins agree with each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ansible_collections
import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import split_pins
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.layers import catalogue

ROOT = Path(__file__).resolve().parents[3]
LINK = ROOT / "collections/ansible_collections/deeplearning/aws"

OPERATORS = "meta/operator-requirements.txt"
NIGHTLY = ".github/workflows/nightly.yml"

SHIPPED = {
    *("FILES.json", "MANIFEST.json", "LICENSE", "requirements.yml"),
    *("CHANGELOG.rst", "CONTRIBUTING.md", "README.md", "SECURITY.md"),
    *("changelogs", "docs", "files", "meta", "playbooks", "plugins", "roles"),
    # A new project begins with them.
    *("ansible.cfg", "inventory"),
}
"""What a collection may hold at its top. Anything else in the root is named in galaxy.yml, build_ignore."""


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def ranges() -> dict[str, str]:
    """Return the versions of each collection that ours works with."""
    return {entry["name"]: entry["version"] for entry in load("requirements.yml")["collections"]}


def requested() -> dict[str, Requirement]:
    """Return what requirements.in asks for on this Python, by name."""
    lines = (ROOT / "requirements.in").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {entry.name: entry for entry in requirements if entry.marker is None or entry.marker.evaluate()}


def ansible(*words: str, folder: Path = ROOT, collections: Path | None = None) -> str:
    environment = os.environ | ({"ANSIBLE_COLLECTIONS_PATH": str(collections)} if collections else {})
    command = [str(Path(sys.executable).parent / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    ansible("ansible-galaxy", "collection", "build", "--output-path", str(folder))
    (built,) = folder.glob("deeplearning-aws-*.tar.gz")
    return built


def test_the_committed_link_leads_to_the_root() -> None:
    assert LINK.is_symlink()
    assert os.readlink(LINK) == "../../.."
    assert LINK.resolve() == ROOT


def test_the_link_is_committed_and_other_collections_beside_it_are_not() -> None:
    rules = (ROOT / ".gitignore").read_text().splitlines()
    assert "/collections/ansible_collections/*" in rules
    assert "!/collections/ansible_collections/deeplearning/aws" in rules


def test_the_clone_is_the_installed_collection() -> None:
    listed = json.loads(ansible("ansible-galaxy", "collection", "list", "deeplearning.aws", "--format", "json"))
    assert [collections["deeplearning.aws"]["version"] for collections in listed.values()] == [
        load("galaxy.yml")["version"]
    ]


def test_the_tarball_holds_the_collection_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
    names = {member.name for member in members} - {"."}
    # Pages link to them.
    results = {name for name in names if re.fullmatch(r"bench(/results(/[\w-]+\.md)?)?|localcloud(/README\.md)?", name)}
    foreign = {name.split("/")[0] for name in names - results} - SHIPPED
    assert not foreign, f"does not belong in the collection, so galaxy.yml's build_ignore must name it: {foreign}"
    links = {member.name: member.linkname for member in members if member.issym() or member.islnk()}
    contract = ROOT / "plugins/module_utils/contract"
    assert links == {
        f"files/node/deeplearning/contract/{path.name}": f"../../../../plugins/module_utils/contract/{path.name}"
        for path in contract.glob("*.py")
    }
    assert not [name for name in names if re.search(r"(^|/)(\.|__pycache__)", name)]


def test_the_tarball_works_when_it_is_installed_elsewhere(tarball: Path, tmp_path: Path) -> None:
    ansible("ansible-galaxy", "collection", "install", str(tarball), "--no-deps", "-p", str(tmp_path), folder=tmp_path)
    listed = ansible("ansible-galaxy", "collection", "list", "--format", "json", folder=tmp_path, collections=tmp_path)
    assert json.loads(listed)[str(tmp_path / "ansible_collections")]["deeplearning.aws"]


@pytest.mark.parametrize("name", ranges())
def test_the_installed_collection_is_in_the_supported_range(name: str) -> None:
    (folder,) = [folder for place in ansible_collections.__path__ if (folder := Path(place, *name.split("."))).is_dir()]
    installed = json.loads((folder / "MANIFEST.json").read_text())["collection_info"]["version"]
    supported = SpecifierSet(ranges()[name])
    assert installed in supported
    if sys.version_info < (3, 12):
        assert f">={installed}" in str(supported).split(","), "the oldest supported version is the tested one"


def test_the_execution_environment_has_the_newest_supported_ansible_core() -> None:
    pins = [
        Requirement(line.split("--hash")[0]) for line in split_pins((ROOT / "tests/lint/packaging.txt").read_text())
    ]
    newest = max(str(pin.specifier) for pin in pins if pin.name == "ansible-core")
    assert load("execution-environment.yml")["dependencies"]["ansible_core"] == {"package_pip": f"ansible-core{newest}"}


def steps_of(workflow: str) -> dict[str, list[dict[str, Any]]]:
    """Return the steps of each job of a workflow."""
    return {name: job["steps"] for name, job in load(f".github/workflows/{workflow}.yml")["jobs"].items()}


def commands_of(steps: list[dict[str, Any]]) -> list[str]:
    return [step["run"] for step in steps if "run" in step]


def test_the_public_ci_runs_what_each_change_must_pass() -> None:
    jobs = steps_of("test")
    assert "sudo --preserve-env=CI,CI_BASE .ci/run" in commands_of(jobs["booted"])
    goals = [command for command in commands_of(jobs["lint-and-unit"]) if command.startswith("make ")]
    assert goals == ["make venv", "make lint", "make unit"]


@pytest.mark.parametrize("workflow", ["test", "nightly"])
def test_actions_of_the_public_ci_are_pinned_by_commit(workflow: str) -> None:
    actions = [step["uses"] for steps in steps_of(workflow).values() for step in steps if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_caches_of_the_public_ci_are_keyed_by_files_that_exist() -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text()
    patterns = [
        name for call in re.findall(r"hashFiles\((.*?)\)", text, re.DOTALL) for name in re.findall("'(.*?)'", call)
    ]
    assert len(patterns) >= 7
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []


def test_the_nightly_run_has_all_layers_and_all_parts_whose_needs_can_be_met() -> None:
    jobs = load(NIGHTLY)["jobs"]
    (layers,) = [step["env"]["LAYERS"].split() for step in jobs["layers"]["steps"] if "LAYERS" in step.get("env", {})]
    assert sorted(layers) == sorted(catalogue.LAYERS)
    matrix = jobs["parts"]["strategy"]["matrix"]
    parts = [part for entry in matrix["include"] for part in entry["parts"].split()]
    others = catalogue.NIGHTLY | catalogue.ON_DEMAND
    assert sorted(parts) == sorted(part.name for part in others.values() if not part.needs)


def test_the_nightly_audit_reads_all_pins() -> None:
    commands = " ".join(commands_of(steps_of("nightly")["audit"]))
    patterns = re.findall(r"[\w./*-]+\.txt", commands)
    audited = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    tracked = subprocess.run(
        ["git", "grep", "-lE", "--", "--hash=sha256:[0-9a-f]{64}", "*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert audited == set(tracked.stdout.split())


def test_the_collection_depends_on_the_same_ranges() -> None:
    assert load("galaxy.yml")["dependencies"] == ranges()


def test_ansible_core_is_one_that_the_collection_supports() -> None:
    assert version("ansible-core") in SpecifierSet(load("meta/runtime.yml")["requires_ansible"])


@pytest.mark.parametrize(
    ("python", "ansible", "core"),
    [("3.11", "12.3.0", "2.19"), ("3.12", "14.5.0", "2.21"), ("3.13", "14.5.0", "2.21")],
)
def test_each_python_has_its_version_of_ansible(python: str, ansible: str, core: str) -> None:
    pins = [Requirement(line.split("--hash")[0]) for line in split_pins((ROOT / "requirements.txt").read_text())]
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    versions = {pin.name: str(pin.specifier) for pin in pins if pin.marker and pin.marker.evaluate(here)}
    assert versions["ansible"] == f"=={ansible}" and versions["ansible-core"].startswith(f"=={core}.")


def test_what_requirements_in_asks_for_is_locked_and_installed() -> None:
    lines = split_pins((ROOT / "requirements.txt").read_text())
    locked = {(pin.name, str(pin.specifier)) for pin in (Requirement(line.split("--hash")[0]) for line in lines)}
    assert {(name.lower(), str(entry.specifier)) for name, entry in requested().items()} <= locked
    assert {name: f"=={version(name)}" for name in requested()} == {
        name: str(entry.specifier) for name, entry in requested().items()
    }


def test_operators_install_the_versions_that_are_tested() -> None:
    tested, installed = (
        {" ".join(re.sub(";.*?(?=--hash)", "", line).split()) for line in split_pins((ROOT / name).read_text())}
        for name in ("requirements.txt", OPERATORS)
    )
    assert installed <= tested
    assert {"ansible", "boto3", "botocore"} <= {line.partition("==")[0] for line in installed}


def test_pages_install_operators_packages_with_their_checksums() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    commands = [
        line for page in pages for line in re.findall(r"pip install [^`\n]*requirements[^`\n]*", page.read_text())
    ]
    commands = [line for line in commands if "$EFS_MOUNT" not in line]
    assert len(commands) >= 4
    assert [line for line in commands if not line.startswith("pip install --require-hashes -r ")] == []


@pytest.mark.parametrize("name", ["requirements.txt", OPERATORS, "tests/lint/packaging.txt", ".ci/audit.txt"])
def test_each_locked_package_has_its_checksums(name: str) -> None:
    lines = split_pins((ROOT / name).read_text())
    assert lines
    assert [line for line in lines if not re.match(r"\S+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)] == []
