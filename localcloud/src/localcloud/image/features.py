"""Framework environments in an image, created from the same pins and by the same code as on nodes, so that the role
framework finds them complete."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcloud.image.mounting import bind_mounts, overlay, remove, run
from localcloud.image.recipe import base_hash
from localcloud.machines.host import pip_folders, write_host_settings

ROOT = Path(__file__).resolve().parents[4]
MODULE_UTILS = ROOT / "plugins/module_utils"
RECORDS = runpy.run_path(str(MODULE_UTILS / "contract/frameworks.py"))["RECORDS"]
FEATURES = tuple(RECORDS)
SHARED = (
    *(
        f"contract/{name}.py"
        for name in ("atomic_file", "boot", "cuda_toolkits", "errors", "framework_probe", "frameworks")
    ),
    *("contract/open_mpi.py", "contract/paths.py"),
    *("node/python_env.py", "node/horovod.py"),
)
"""The code of the module framework_env that runs without Ansible."""

# Not in the image: Horovod's wheel is built in a copy of its base.
COMPILER = ("g++", "libopenmpi-dev", "make", "python3-dev")

_WORK = "tmp/localcloud"


def feature_hash(names: Sequence[str]) -> str:
    digest = hashlib.sha256(base_hash().encode())
    for name in names:
        digest.update(json.dumps(needs(name), sort_keys=True).encode() + b"\0")
    digest.update(_code_hash().encode())
    return digest.hexdigest()[:12]


def needs(name: str) -> dict[str, Any]:
    """Return a framework and its pins, as the role framework has them."""
    files = ROOT / "roles/framework/files" / name
    pins = {build: (files / f"requirements-{build}.txt").read_text(encoding="utf-8") for build in ("cpu", "gpu")}
    return {"framework": name, "requirements": pins}


def _install(root: Path, packages: Sequence[str]) -> None:
    script = f"apt-get update -q; apt-get install -q -y --no-install-recommends {' '.join(packages)}"
    run(["chroot", str(root), "/bin/sh", "-ec", f"export DEBIAN_FRONTEND=noninteractive; {script}"])


def build(root: Path, base: Path, wheels: Path, names: Sequence[str], progress: Callable[[str], None]) -> None:
    """Install frameworks into a mounted root. `wheels` is the folder that keeps Horovod from one build to the next."""
    write_host_settings(root)
    with _work_folder(root) as work:
        for name in names:
            progress(f"installing {name}: a minute or two")
            libraries = RECORDS[name].libraries.get("debian")
            if libraries:
                _install(root, libraries)
            key = _run_in(root, work, name, "marker = python_env.install(environment, extra)")
            if key:
                wheel = _horovod(root, base, wheels, name, key, progress)
                shutil.copy(wheel, work)
                _run_in(root, work, name, f"marker = python_env.install(environment, extra, '/{_WORK}/{wheel.name}')")


def _horovod(root: Path, base: Path, wheels: Path, name: str, key: str, progress: Callable[[str], None]) -> Path:
    """Return the wheel for the environments in a root, from an earlier build or built now in a copy of the base."""
    cached = wheels / f"{key}-{_code_hash()}"
    if not cached.is_dir():
        progress(f"building Horovod for {name}: some minutes")
        scratch = wheels / f".building-{key}-{os.getpid()}"
        shared = "opt/deeplearning/env"
        try:
            with (
                overlay(base, scratch / "upper", prefix=str(scratch / "root")) as merged,
                _work_folder(merged) as work,
                bind_mounts({merged / shared: root / shared}),
            ):
                write_host_settings(merged)
                _install(merged, COMPILER)
                _run_in(merged, work, name, f"horovod.build(environment, marker['versions'], '/{_WORK}/wheels')")
                shutil.copytree(work / "wheels" / key, scratch / "wheel")
            (scratch / "wheel").rename(cached)
        finally:
            remove(scratch)
    return kept_wheels(wheels)[key]


def kept_wheels(wheels: Path) -> dict[str, Path]:
    """Return the wheels of Horovod that earlier builds made by the present code, by their keys."""
    ending = f"-{_code_hash()}"
    return {wheel.parent.name.removesuffix(ending): wheel for wheel in wheels.glob(f"[!.]*{ending}/*.whl")}


def _run_in(root: Path, work: Path, name: str, statement: str) -> str:
    """Run a statement in a root, and return the key of the wheel of Horovod that its environment still lacks."""
    request = work / "request.json"
    request.write_text(json.dumps(needs(name)), encoding="utf-8")
    program = f"""
import json
from ansible_collections.deeplearning.aws.plugins.module_utils.node import python_env
from ansible_collections.deeplearning.aws.plugins.module_utils.node import horovod
needs = json.load(open('/{_WORK}/request.json'))
extra = horovod.extra_package(needs['framework'])
environment = python_env.environment_of(**needs)
marker = python_env.read_marker(environment)
{statement}
lacks_extra = not python_env.is_installed(marker, extra)
print(json.dumps(horovod.wheel_key(environment, marker['versions']) if lacks_extra else ''))
"""
    variables = {"PYTHONPATH": f"/{_WORK}", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    output = run(["chroot", str(root), "python3", "-c", program], env={**os.environ, **variables})
    return str(json.loads(output.splitlines()[-1]))


def _code_hash() -> str:
    return hashlib.sha256(b"\0".join((MODULE_UTILS / name).read_bytes() for name in SHARED)).hexdigest()[:12]


@contextmanager
def _work_folder(root: Path) -> Iterator[Path]:
    """Yield a folder in the root with the shared code, and mount what pip needs of this machine: its devices, its
    resolver and its local package folders."""
    work = root / _WORK
    package = work / "ansible_collections/deeplearning/aws/plugins/module_utils"
    for folder in ("contract", "node"):
        (package / folder).mkdir(parents=True)
    for name in SHARED:
        shutil.copy(MODULE_UTILS / name, package / name)
    resolver = root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    sources = {root / folder.lstrip("/"): Path(folder) for folder in ("/dev", "/proc", *pip_folders())}
    try:
        with bind_mounts(sources):
            yield work
    finally:
        shutil.rmtree(work)
