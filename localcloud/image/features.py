"""Framework environments that an image may bring along: made with what the roles themselves use, from the same pins, so
that the roles find them ready."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcloud.image.mounting import bound, overlay, remove, run
from localcloud.image.recipe import base_hash
from localcloud.machines.host import pip_folders, write_host_settings

ROOT = Path(__file__).resolve().parents[2]
FEATURES = ("tensorflow", "mxnet", "pytorch", "tensorpack")

THINKING = ROOT / "plugins/module_utils"
USED = ("_environment.py", "_horovod.py")
"""What of it works in an image: it imports nothing but these and the standard library."""

# Not in the image: Horovod's wheel is built beside it.
COMPILER = ("g++", "libopenmpi-dev", "make", "python3-dev")

_WORK = "tmp/localcloud"


def feature_hash(names: Sequence[str]) -> str:
    digest = hashlib.sha256(base_hash().encode())
    for name in names:
        digest.update(json.dumps(needs(name), sort_keys=True).encode() + b"\0")
    digest.update(_hash_of_thinking().encode())
    return digest.hexdigest()[:12]


def needs(name: str) -> dict[str, Any]:
    """What the role of that name says that its framework needs, as the thinking takes it."""
    files = ROOT / "roles" / name / "files"
    said = json.loads((files / "environment.json").read_text(encoding="utf-8"))
    pins = {build: (files / f"requirements-{build}.txt").read_text(encoding="utf-8") for build in ("cpu", "gpu")}
    return {"framework": name, "requirements": pins, **said}


def _install(root: Path, packages: Sequence[str]) -> None:
    script = f"apt-get update -q; apt-get install -q -y --no-install-recommends {' '.join(packages)}"
    run(["chroot", str(root), "/bin/sh", "-ec", f"export DEBIAN_FRONTEND=noninteractive; {script}"])


def build(root: Path, base: Path, wheels: Path, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Into a mounted root. `wheels` keeps Horovod from one build to the next."""
    write_host_settings(root)
    with _work_place(root) as work:
        for name in names:
            say(f"installing {name}: a minute or two")
            libraries = needs(name)["libraries"].get("debian")
            if libraries:
                _install(root, libraries)
            said = _in(root, work, name, "made = _environment.install(wanted, extra)")
            if said["wheel"]:
                wheel = _horovod(root, base, wheels, name, said["wheel"], say)
                shutil.copy(wheel, work)
                _in(root, work, name, f"made = _environment.install(wanted, extra, '/{_WORK}/{wheel.name}')")


def _horovod(root: Path, base: Path, wheels: Path, name: str, key: str, say: Callable[[str], None]) -> Path:
    """The wheel for what is in the root: kept, or built in the base with a compiler and that root's environments."""
    kept = wheels / f"{key}-{_hash_of_thinking()}"
    if not kept.is_dir():
        say(f"building Horovod for {name}: some minutes")
        scratch = wheels / f".building-{key}-{os.getpid()}"
        shared = "opt/deeplearning/env"
        try:
            with (
                overlay(base, scratch / "upper", beside=str(scratch / "root")) as merged,
                _work_place(merged) as work,
                bound({merged / shared: root / shared}),
            ):
                write_host_settings(merged)
                _install(merged, COMPILER)
                _in(merged, work, name, f"_horovod.make(wanted, made['versions'], '/{_WORK}/wheels')")
                shutil.copytree(work / "wheels" / key, scratch / "made")
            (scratch / "made").rename(kept)
        finally:
            remove(scratch)
    (wheel,) = kept.glob("*.whl")
    return wheel


def _in(root: Path, work: Path, name: str, act: str) -> dict[str, Any]:
    """Let the thinking act in a root; what it has made then, and which wheel of Horovod is still missing."""
    request = work / "request.json"
    request.write_text(json.dumps(needs(name)), encoding="utf-8")
    program = f"""
import json
from ansible_collections.deeplearning.aws.plugins.module_utils import _environment, _horovod
given = json.load(open('/{_WORK}/request.json'))
del given['libraries']
extra = _horovod.SPEC if given.pop('horovod') == 'always' else ''
wanted = _environment.Wanted(**given)
made = _environment.finished_or_not(wanted)
{act}
lacks = not _environment.has(made, extra)
print(json.dumps({{'wheel': _horovod.key(wanted, made['versions']) if lacks else ''}}))
"""
    environment = {"PYTHONPATH": f"/{_WORK}", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    said = run(["chroot", str(root), "python3", "-c", program], env={**os.environ, **environment})
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


def _hash_of_thinking() -> str:
    return hashlib.sha256(b"\0".join((THINKING / name).read_bytes() for name in USED)).hexdigest()[:12]


@contextmanager
def _work_place(root: Path) -> Iterator[Path]:
    """A folder in the root with the thinking in it, and what pip needs of the machine that builds: its devices, its
    resolver and its local package folders."""
    work = root / _WORK
    package = work / "ansible_collections/deeplearning/aws/plugins/module_utils"
    package.mkdir(parents=True)
    for name in USED:
        shutil.copy(THINKING / name, package)
    resolver = root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    own = {root / folder.lstrip("/"): Path(folder) for folder in ("/dev", "/proc", *pip_folders())}
    try:
        with bound(own):
            yield work
    finally:
        shutil.rmtree(work)
