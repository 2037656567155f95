"""Recipes of the local cloud's images: framework environments, created from the same pins and by the same code as on
nodes, so that the role framework finds them complete.

localcloud.toml names this file for `localcloud image build --with …`.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from localcloud.testing.images import Feature, Recipes, Root, bind_mounts, connected, overlay, remove, run_in

ROOT = Path(__file__).resolve().parents[1]
MODULE_UTILS = ROOT / "plugins/module_utils"
RECORDS = runpy.run_path(str(MODULE_UTILS / "contract/frameworks.py"))["RECORDS"]
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


def needs(name: str) -> dict[str, Any]:
    """Return a framework and its pins, as the role framework has them."""
    files = ROOT / "roles/framework/files" / name
    pins = {build: (files / f"requirements-{build}.txt").read_text(encoding="utf-8") for build in ("cpu", "gpu")}
    return {"framework": name, "requirements": pins}


def contents(name: str) -> str:
    """Return what the environment of a framework depends on."""
    return json.dumps(needs(name), sort_keys=True)


def code_hash() -> str:
    """Return a hash of the code that creates environments."""
    return hashlib.sha256(b"\0".join((MODULE_UTILS / name).read_bytes() for name in SHARED)).hexdigest()[:12]


def install(root: Root, name: str) -> None:
    """Install a framework into a root folder. Wheels of Horovod are kept from one build to the next."""
    with _work_folder(root.path) as work:
        libraries = RECORDS[name].libraries.get("debian")
        if libraries:
            _install_packages(root.path, libraries)
        key = _run_in(root.path, work, name, "marker = python_env.install(environment, extra)")
        if key:
            wheel = _horovod(root, name, key)
            shutil.copy(wheel, work)
            _run_in(root.path, work, name, f"marker = python_env.install(environment, extra, '/{_WORK}/{wheel.name}')")


def _install_packages(root: Path, packages: Sequence[str]) -> None:
    script = f"apt-get update -q; apt-get install -q -y --no-install-recommends {' '.join(packages)}"
    run_in(root, "/bin/sh", "-ec", script)


def _horovod(root: Root, name: str, key: str) -> Path:
    """Return the wheel for the environments in a root, from an earlier build or built now in a copy of the base."""
    cached = root.cache / f"{key}-{code_hash()}"
    if not cached.is_dir():
        root.progress(f"building Horovod for {name}: some minutes")
        scratch = root.cache / f".building-{key}-{os.getpid()}"
        shared = "opt/deeplearning/env"
        try:
            with (
                overlay(root.base, scratch / "upper", prefix=str(scratch / "root")) as merged,
                _work_folder(merged) as work,
                bind_mounts({merged / shared: root.path / shared}),
            ):
                _install_packages(merged, COMPILER)
                _run_in(merged, work, name, f"horovod.build(environment, marker['versions'], '/{_WORK}/wheels')")
                shutil.copytree(work / "wheels" / key, scratch / "wheel")
            (scratch / "wheel").rename(cached)
        finally:
            remove(scratch)
    return kept_wheels(root.cache)[key]


def kept_wheels(wheels: Path) -> dict[str, Path]:
    """Return the wheels of Horovod that earlier builds made by the present code, by their keys."""
    ending = f"-{code_hash()}"
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
    output = run_in(root, "python3", "-c", program, variables={"PYTHONPATH": f"/{_WORK}"})
    return str(json.loads(output.splitlines()[-1]))


@contextmanager
def _work_folder(root: Path) -> Iterator[Path]:
    """Yield a folder in a connected root with the shared code."""
    work = root / _WORK
    package = work / "ansible_collections/deeplearning/aws/plugins/module_utils"
    for folder in ("contract", "node"):
        (package / folder).mkdir(parents=True)
    for name in SHARED:
        shutil.copy(MODULE_UTILS / name, package / name)
    try:
        with connected(root):
            yield work
    finally:
        shutil.rmtree(work)


def recipes() -> Recipes:
    """Return a recipe for each framework."""
    features = {name: Feature(contents(name), _installation(name)) for name in RECORDS}
    return Recipes(features, code_hash())


def _installation(name: str) -> Callable[[Root], None]:
    return partial(install, name=name)


RECIPES = recipes()
