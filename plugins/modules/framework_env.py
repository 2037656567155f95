#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: framework_env
short_description: Create a framework's virtual environment on a node
version_added: 1.0.0
description:
  - Creates C(/opt/deeplearning/env/FRAMEWORK) from pinned requirements, those for GPUs if NVIDIA's driver is loaded.
  - The file C(.deeplearning.json) in it records its pins and versions, and is written last. An environment that has the
    current pins, such as one of an image, is left as it is. The system's own Python stays unchanged.
  - On a machine with GPUs a new environment proves that its framework sees all of them and computes on one. If not, the
    module fails with one sentence, and the environment stays.
  - A folder of that name without the file is not replaced and not removed.
  - Horovod is installed from a wheel in a folder that all nodes share. One node builds it, with O(horovod_build).
  - In check mode it inspects the environment. The module runs on the node and calls no AWS API.
options:
  state:
    description: Whether the environment exists.
    type: str
    choices: [present, absent]
    default: present
  framework:
    description: The framework, such as V(pytorch), which is also the name of the folder.
    type: str
    required: true
  requirements:
    description: The text of the pinned requirements, by variant. Required for O(state=present).
    type: dict
    suboptions:
      cpu: {description: For machines without GPUs., type: str, required: true}
      gpu: {description: For machines with GPUs., type: str, required: true}
  wheels:
    description: A folder of wheels to install from instead of an index.
    type: str
    default: ""
  processor:
    description: Install the packages for processors on a machine with GPUs as well.
    type: bool
    default: false
  source:
    description:
      - A folder with the framework's sources, used as they are in place of the pinned release. What the framework
        depends on is installed as pinned.
    type: str
    default: ""
  horovod_build:
    description:
      - Build the wheel of Horovod in O(horovod_wheels) if no wheel there fits. That needs a compiler and the headers of
        Open MPI. Without this, an environment for which no wheel fits stays incomplete.
    type: bool
    default: false
  horovod_wheels:
    description: The folder, shared by all nodes, that has the wheels of Horovod.
    type: str
    default: ""
  horovod_checksums:
    description:
      - The SHA-256 of the wheels of Horovod that were built in this play, by their path in O(horovod_wheels). One with
        another checksum is refused.
      - Of all others only those are installed that root owns and no other user can write.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Check whether PyTorch is installed
  deeplearning.aws.framework_env:
    framework: pytorch
    requirements: {cpu: "{{ lookup('file', 'cpu.txt') }}", gpu: "{{ lookup('file', 'gpu.txt') }}"}
  check_mode: true
"""

RETURN = r"""
ready:
  description: Whether the environment is complete, with Horovod and the sources that are required.
  returned: O(state=present)
  type: bool
installed:
  description: Whether the environment has everything but Horovod.
  returned: O(state=present)
  type: bool
usable:
  description:
    - Whether there is an environment that a run can use, be it with other packages than are required. A framework
      that trains with Horovod cannot be used without it.
  returned: O(state=present)
  type: bool
versions:
  description: The installed versions, by package.
  returned: O(state=present)
  type: dict
system:
  description: The operating system, such as V(debian).
  returned: O(state=present)
  type: str
libraries:
  description: The packages of the system that the framework needs.
  returned: O(state=present)
  type: list
  elements: str
amazons_mpi:
  description: Whether the machine has the Open MPI of AWS's images, which brings its own headers.
  returned: O(state=present)
  type: bool
python:
  description: The version of the environment's Python, such as V(3.11), or of the Python that would create it.
  returned: O(state=present); empty if no Python is suitable
  type: str
problem:
  description: Why the environment cannot be created with the system's Pythons, as a sentence; empty if it can.
  returned: O(state=present), if RV(installed) is false
  type: str
can_create_environments:
  description: Whether the system's Python has the modules that create environments.
  returned: O(state=present), if RV(installed) is false
  type: bool
built:
  description: The SHA-256 of the wheel that was built, by its path in O(horovod_wheels).
  returned: O(state=present)
  type: dict
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import gpu_proof
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.frameworks import RECORDS
from ansible_collections.deeplearning.aws.plugins.module_utils.node import horovod, python_env, sources
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import Environment, environment_of


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "framework": {"type": "str", "required": True},
            "requirements": {
                "type": "dict",
                "options": {"cpu": {"type": "str", "required": True}, "gpu": {"type": "str", "required": True}},
            },
            "wheels": {"type": "str", "default": ""},
            "processor": {"type": "bool", "default": False},
            "source": {"type": "str", "default": ""},
            "horovod_build": {"type": "bool", "default": False},
            "horovod_wheels": {"type": "str", "default": ""},
            "horovod_checksums": {"type": "dict", "default": {}},
        },
        required_if=[("state", "present", ["requirements"])],
        supports_check_mode=True,
    )
    params = module.params
    if params["framework"] not in RECORDS:
        module.fail_json(msg=f"framework is {params['framework']}: give one of {', '.join(RECORDS)}.")
    options = {name: params[name] for name in ("wheels", "processor")}
    environment = environment_of(params["framework"], params["requirements"], **options)
    ensure = {"present": present, "absent": absent}[params["state"]]
    try:
        module.exit_json(**ensure(environment, params, module.check_mode))
    except UserError as error:
        module.fail_json(msg=str(error))


def present(environment: Environment, params: dict[str, Any], check: bool) -> dict[str, Any]:
    before = inspect(environment, params)
    if before["ready"] or check:
        return {**before, "built": {}, "changed": not before["ready"]}
    with python_env.exclusive_lock(environment):
        built = install(environment, params)
    if not before["installed"]:
        prove_gpus(environment)
    after = inspect(environment, params)
    return {**after, "built": built, "changed": after != before}


def absent(environment: Environment, params: dict[str, Any], check: bool) -> dict[str, Any]:
    exists = python_env.is_ours(environment) or python_env.has_leftovers(environment)
    if exists and not check:
        with python_env.exclusive_lock(environment):
            python_env.remove(environment)
    return {"changed": exists}


def inspect(environment: Environment, params: dict[str, Any]) -> dict[str, Any]:
    complete = python_env.read_complete_marker(environment)
    marker = complete or python_env.read_marker(environment)
    extra = horovod.extra_package(environment.framework)
    has_extra = python_env.is_installed(complete, extra)
    has_sources = bool(complete) and sources.is_in_use(environment, params["source"], complete)
    usable = python_env.read_usable_marker(environment)
    lacks_horovod = extra and "horovod" not in usable.get("versions", {})
    system, _unused = python_env.system()
    state: dict[str, Any] = {
        "ready": bool(complete) and has_extra and has_sources,
        "installed": bool(marker),
        "usable": bool(usable) and not lacks_horovod,
        "versions": marker.get("versions", {}),
        "system": system,
        "libraries": list(RECORDS[environment.framework].libraries.get(system, ())),
        "amazons_mpi": horovod.has_amazons_mpi(),
        "python": ".".join(marker.get("python", "").split(".")[:2]),
    }
    if not marker:
        python = python_env.find_python(environment)
        state["python"] = python_env.python_version(Path(python)) if python else ""
        state["problem"] = "" if python else python_env.no_python_message(environment)
        state["can_create_environments"] = bool(python) and python_env.can_create_environments(python)
    return state


def install(environment: Environment, params: dict[str, Any]) -> dict[str, str]:
    """Create or complete the environment, and return the checksum of the wheel that was built, by its name."""
    extra = horovod.extra_package(environment.framework)
    built: dict[str, str] = {}
    marker = python_env.install(environment, extra)
    if not python_env.is_installed(marker, extra):
        key = horovod.wheel_key(environment, marker["versions"])
        folder, checksums = params["horovod_wheels"], params["horovod_checksums"]
        wheel = horovod.find_wheel(folder, key, checksums)
        if not wheel and params["horovod_build"]:
            wheel = build_wheel(environment, marker, folder)
            built = {wheel.name: wheel.sha256}
        if wheel:
            with horovod.verified_copy(Path(folder, wheel.name), wheel.sha256) as copy:
                marker = python_env.install(environment, extra, copy)
    if python_env.is_installed(marker, extra) and not sources.is_in_use(environment, params["source"], marker):
        if params["source"]:
            sources.switch_to_checkout(environment, params["source"], marker)
        else:
            sources.switch_to_release(environment, marker)
    return built


def prove_gpus(environment: Environment) -> None:
    """Raise UserError if the framework cannot use this machine's GPUs. Those that are in use now may be right."""
    gpus = gpu_proof.driver_gpus()
    if not gpus or environment.processor:
        return
    node = gpu_proof.NodeGpus(environment.framework, str(environment.python), gpus, gpu_proof.driver_version())
    # Another environment's variables would lead to its packages.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    answer = gpu_proof.prove(node, own)
    problem = gpu_proof.problem_of(node, answer)
    if problem and not gpu_proof.is_out_of_memory(answer):
        raise UserError(problem)


def build_wheel(environment: Environment, marker: dict[str, Any], folder: str) -> horovod.Wheel:
    try:
        return horovod.build(environment, marker["versions"], folder)
    except UserError as error:
        raise UserError(f"{error}\nUse the pins that it was built with before, or another framework.") from None


if __name__ == "__main__":
    main()
