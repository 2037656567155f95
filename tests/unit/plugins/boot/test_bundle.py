"""Which files are in the bundle, how its wheels are downloaded, and programs that get their parameters."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import COLLECTION
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError

BEGINNINGS = ["ansible_core-2.19.14-", "PyYAML-6.0-"]
# In these tests a wheel's content is its name.
DIGESTS = [hashlib.sha256(f"{beginning}py3-none-any.whl".encode()).hexdigest() for beginning in BEGINNINGS]
PINS = f"# Made.\n\nansible-core==2.19.14 --hash=sha256:{DIGESTS[0]}\nPyYAML==6.0 --hash=sha256:{DIGESTS[1]}\n"


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(PINS)
    return path


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def contents(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def test_what_python_editors_and_other_roles_leave_is_not_in_it(tmp_path: Path) -> None:
    own, posix = tmp_path / "own", tmp_path / "posix"
    write(own, "galaxy.yml", "meta/runtime.yml", "plugins/filter/a.py", "roles/cluster_env/tasks/main.yml")
    write(
        own, "plugins/filter/a.pyc", "plugins/filter/.a.py.swp", "plugins/.hidden/b.py", "roles/machines/tasks/main.yml"
    )
    write(own, "tests/unit/test_a.py", "plugins/inventory/c.py", "plugins/callback/short.py")
    write(posix, "MANIFEST.json", "plugins/modules/mount.py", "plugins/action/synchronize.py", "README.md")
    write(tmp_path, "x-1-py3.whl")
    files = contents(bundle.build({"b": 1, "a": [2]}, own, posix, [tmp_path / "x-1-py3.whl"]))
    of_posix = "collections/ansible_collections/ansible/posix"
    assert list(files) == sorted(files)
    assert files.pop("boot.json") == b'{"a": [2], "b": 1}'
    assert {name: body.decode() for name, body in files.items()} == {
        **{
            f"{COLLECTION}/{name}": name
            for name in ("galaxy.yml", "meta/runtime.yml", "plugins/filter/a.py", "roles/cluster_env/tasks/main.yml")
        },
        **{f"{of_posix}/{name}": name for name in ("MANIFEST.json", "plugins/modules/mount.py")},
        "wheels/x-1-py3.whl": "x-1-py3.whl",
    }


def test_posix_is_taken_where_ansible_finds_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "home/three"):
        (tmp_path / name / bundle.POSIX / "plugins/modules").mkdir(parents=True)
    (tmp_path / "incomplete" / bundle.POSIX).mkdir(parents=True)
    one, two, incomplete = (str(tmp_path / name) for name in ("one", "two", "incomplete"))
    assert bundle.find_posix([incomplete, two], [one]) == tmp_path / "two" / bundle.POSIX
    assert bundle.find_posix(["", incomplete], ["", one]) == tmp_path / "one" / bundle.POSIX
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert bundle.find_posix(["~/three"], []) == tmp_path / "home/three" / bundle.POSIX
    monkeypatch.setattr(sys, "path", [two])
    assert bundle.find_posix([]) == tmp_path / "two" / bundle.POSIX
    # None that is named means none, although Python has one.
    with pytest.raises(UserError, match="ansible-galaxy collection install -r requirements.yml"):
        bundle.find_posix([], [])


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose pip records its arguments and makes the wheels."""
    program = tmp_path / "python"
    program.write_text(
        f"""#!{sys.executable}
import json, pathlib, sys
arguments = sys.argv[1:]
with open({str(tmp_path / "calls")!r}, "a") as file:
    file.write(json.dumps(arguments) + "\\n")
folder = pathlib.Path(arguments[arguments.index("-d") + 1])
for name in {BEGINNINGS!r}:
    (folder / f"{{name}}py3-none-any.whl").write_text(f"{{name}}py3-none-any.whl")
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return tmp_path / "calls"


@pytest.mark.parametrize("existing", [[], BEGINNINGS[:1]])
def test_wheels_are_downloaded_if_one_is_missing(
    tmp_path: Path, requirements: Path, pip: Path, existing: list[str]
) -> None:
    folder = tmp_path / "new/wheels"
    for name in existing:
        write(folder, f"{name}py3-none-any.whl")
    for _time in range(2):
        wheels = bundle.download_wheels(requirements, folder)
        assert [path.name for path in wheels] == [f"{name}py3-none-any.whl" for name in BEGINNINGS]
    (call,) = [json.loads(line) for line in pip.read_text().splitlines()]
    assert call[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(call)
    options = dict(zip(call[:-1], call[1:], strict=True))
    assert (options["-d"], options["-r"]) == (str(folder), str(requirements))
    assert (options["--only-binary"], options["--python-version"]) == (":all:", "3.11")
    assert [call[place + 1] for place, word in enumerate(call) if word == "--platform"] == [
        "manylinux_2_28_x86_64",
        "manylinux2014_x86_64",
    ]


def test_wheels_of_other_versions_do_not_count(tmp_path: Path, requirements: Path, pip: Path) -> None:
    folder = tmp_path / "wheels"
    write(folder, "ansible_core-2.19.13-py3.whl", "PyYAML-6.0-py3.whl", "ansible_core-2.19.14-py3.tar.gz")
    names = [path.name for path in bundle.download_wheels(requirements, folder)]
    assert names == ["ansible_core-2.19.14-py3-none-any.whl", "PyYAML-6.0-py3-none-any.whl"] and pip.exists()


def test_what_is_not_the_pinned_wheel_does_not_count(tmp_path: Path, requirements: Path, pip: Path) -> None:
    """It would be run by root on all nodes. A name that sorts before the pinned one's is foreign as well."""
    folder = tmp_path / "wheels"
    write(folder, "ansible_core-2.19.14-0evil-py3-none-any.whl", "PyYAML-6.0-py3-none-any.whl")
    (folder / "ansible_core-2.19.14-py3-none-any.whl").write_text("exchanged")
    names = [path.name for path in bundle.download_wheels(requirements, folder)]
    assert names == [f"{name}py3-none-any.whl" for name in BEGINNINGS] and pip.exists()


def test_what_pip_leaves_is_compared_as_well(tmp_path: Path, requirements: Path, pip: Path) -> None:
    requirements.write_text(PINS.replace(DIGESTS[1], "0" * 64))
    with pytest.raises(
        UserError, match=r"wheels has no PyYAML-6.0-\*.whl with the SHA-256 in requirements.txt: remove"
    ):
        bundle.download_wheels(requirements, tmp_path / "wheels")


@pytest.mark.parametrize(("errors", "reason"), [("first\\nlast words", "last words"), ("", "no message")])
def test_why_pip_failed(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch, errors: str, reason: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nprintf '{errors}' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(UserError) as caught:
        bundle.download_wheels(requirements, tmp_path / "wheels")
    assert f"configure themselves ({reason}): check the connection and pip ({program} -m pip)" in str(caught.value)


PROGRAM = "import x\nPARAMETERS: dict[str, Any] = {}\nrun()\n"


def test_user_data_of_just_the_size_that_ec2_takes() -> None:
    least = len(bundle.user_data(PROGRAM, {"a": ""}))
    fits: dict[str, Any] = {"a": "x" * (16384 - least)}
    assert len(bundle.user_data(PROGRAM, fits)) == 16384
    with pytest.raises(ValueError, match="user data has 16385 bytes"):
        bundle.user_data(PROGRAM, {"a": fits["a"] + "x"})


def test_parameters_have_a_fixed_order() -> None:
    text = bundle.user_data(PROGRAM, {"b": 1, "a": 2})
    assert text == ('#!/usr/bin/env python3\nimport x\nPARAMETERS: dict[str, Any] = {"a": 2, "b": 1}\nrun()\n')


@pytest.mark.parametrize("program", ["run()\n", PROGRAM + PROGRAM, PROGRAM.replace("\nPAR", "\n  PAR")])
def test_a_program_has_the_line_for_its_parameters_once(program: str) -> None:
    with pytest.raises(ValueError, match="the program has no line 'PARAMETERS"):
        bundle.user_data(program, {})
