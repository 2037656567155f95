# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The bundle by which machines configure themselves, and the user data that fetches it.

The same files give the same bytes: an unchanged cluster gets no other launch template.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..contract import boot
from ..contract.errors import UserError

# These functions have no module whose run_command they could call.
# pylint: disable=ansible-bad-function

POSIX = "ansible_collections/ansible/posix"
MAX_USER_DATA = 16 * 1024
"""EC2's limit, before the encoding."""

_OWN = (
    "galaxy.yml",
    "meta",
    "files/node",
    "files/trainers",
    "playbooks/bake.yml",
    "playbooks/node.yml",
    "playbooks/tasks/node",
    "plugins/action",
    "plugins/doc_fragments",
    "plugins/filter",
    "plugins/module_utils",
    "plugins/modules",
    "plugins/plugin_utils",
    "plugins/test",
    "roles/agent_forwarding",
    "roles/cluster_env",
    "roles/efs_mount",
    "roles/framework",
    "roles/monitoring",
    "roles/tensorpack",
)
"""What nodes need of this collection."""
_OF_POSIX = ("MANIFEST.json", "meta", "plugins/module_utils", "plugins/modules")
_INTERPRETER = "#!/usr/bin/env python3"
_PARAMETERS = "PARAMETERS: dict[str, Any] = {}\n"
_FIRST_STAGE = 'FIRST_STAGE = ""\n'


def build(content: Mapping[str, Any], own: Path, posix: Path, wheels: Sequence[Path]) -> bytes:
    """Return the archive. `content` is its boot.json; `own` and `posix` are folders of collections."""
    posix_name = f"collections/{POSIX}"
    files = {
        "boot.json": json.dumps(content, sort_keys=True).encode(),
        **{f"{boot.COLLECTION}/{name}": path.read_bytes() for name, path in _files(own, _OWN)},
        **{f"{posix_name}/{name}": path.read_bytes() for name, path in _files(posix, _OF_POSIX)},
        **{f"wheels/{path.name}": path.read_bytes() for path in wheels},
    }
    archive = io.BytesIO()
    # Not compressed: most of it is wheels, and compressed bytes depend on the version of zlib.
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), 0o644
            tar.addfile(entry, io.BytesIO(body))
    return archive.getvalue()


def _files(folder: Path, parts: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Return the files of these parts of a folder by name, without what Python and editors leave there."""
    for part in parts:
        top = folder / part
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = path.relative_to(folder)
            if path.is_file() and path.suffix != ".pyc" and not any(word.startswith(".") for word in name.parts):
                yield str(name), path


def find_posix(collection_paths: Iterable[str], python_paths: Iterable[str] | None = None) -> Path:
    """Return the folder of the collection ansible.posix where Ansible finds it."""
    python_paths = sys.path if python_paths is None else python_paths
    folders = [Path(path).expanduser() for path in (*collection_paths, *python_paths) if path]
    for folder in folders:
        if (folder / POSIX / "plugins/modules").is_dir():
            return folder / POSIX
    raise UserError(
        "The collection ansible.posix is not installed, and machines need it to configure themselves: run "
        "ansible-galaxy collection install -r requirements.yml."
    )


def download_wheels(requirements: Path, folder: Path) -> list[Path]:
    """Return the wheels of ansible-core for nodes, which run them as root. They are downloaded once into a folder.

    Files of the folder that are not what is pinned do not count.
    """
    pins = _pins(requirements)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    wheels = [_wheel(folder, *pin) for pin in pins]
    if None in wheels:
        _download(requirements, folder)
        wheels = [_wheel(folder, *pin) for pin in pins]
    foreign = [f"{beginning}*.whl" for (beginning, _sha256), path in zip(pins, wheels) if not path]
    if foreign:
        raise UserError(
            f"{folder} has no {foreign[0]} with the SHA-256 in {requirements.name}: remove the folder, and run the "
            f"same command again. Example: rm -r {folder}"
        )
    return [path for path in wheels if path]


def _pins(requirements: Path) -> list[tuple[str, str]]:
    """Return how the names of the wheels begin, and their SHA-256. Example: ansible_core-2.19.14-"""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    pins = [line.split() for line in lines if line and not line.startswith("#")]
    return [(f"{pin.replace('-', '_').replace('==', '-')}-", hash_.partition("sha256:")[2]) for pin, hash_ in pins]


def _wheel(folder: Path, beginning: str, sha256: str) -> Path | None:
    wheels = (path for path in sorted(folder.glob(f"{beginning}*.whl")) if path.is_file())
    return next((path for path in wheels if hashlib.sha256(path.read_bytes()).hexdigest() == sha256), None)


def _download(requirements: Path, folder: Path) -> None:
    argv: list[str | Path] = [
        *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"),
        *("--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"),
        *("--platform", "manylinux2014_x86_64", "-d", folder, "-r", requirements),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"pip cannot download what machines need to configure themselves ({reason}): check the connection and pip "
            f"({sys.executable} -m pip), or put the wheels that {requirements.name} names into {folder}."
        )


def user_data(program: str, parameters: Mapping[str, Any]) -> str:
    """Return the program of the first boot with its parameters."""
    text = f"{_INTERPRETER}\n{_fill(program, _PARAMETERS, '{}', parameters)}"
    if len(text.encode()) > MAX_USER_DATA:
        raise ValueError(f"user data has {len(text.encode())} bytes, and EC2 takes {MAX_USER_DATA}")
    return text


def bootstrap_action(wrapper: str, program: str, parameters: Mapping[str, Any]) -> str:
    """Return EMR's bootstrap action: the wrapper with the program of the first boot in it."""
    text = _fill(_fill(wrapper, _FIRST_STAGE, '""', program), _PARAMETERS, "{}", parameters)
    return f"{_INTERPRETER}\n{text}"


def _fill(program: str, line: str, empty: str, value: Any) -> str:
    """Return the program with the value in this line, which it has once."""
    if program.count(f"\n{line}") != 1:
        raise ValueError(f"the program has no line {line!r}")
    # A JSON text without control characters is a valid literal of Python if it has no true, false or null.
    return program.replace(f"\n{line}", f"\n{line.replace(empty, json.dumps(value, sort_keys=True))}")


def read_program(own: Path, name: str) -> str:
    return (own / "files/node/deeplearning/boot" / name).read_text(encoding="utf-8")
