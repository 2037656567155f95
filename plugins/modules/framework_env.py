#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: framework_env
short_description: A framework's virtual environment on a node
version_added: 1.0.0
description:
  - Makes C(/opt/deeplearning/env/FRAMEWORK) from pinned requirements, for GPUs if the machine has NVIDIA's driver, else
    for processors; or finds that it is there, as images may have it, and does nothing.
  - A file in it, C(.deeplearning.json), says what it was made from, and is written last. An environment that somebody
    else has made is left alone, and the system's own Python gets nothing.
  - Horovod is built into a wheel once, in a folder that all nodes share, and installed from there.
  - It runs on the node and knows nothing of AWS.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  state:
    description:
      - Whether the environment shall exist.
      - V(looked_at) says what there is and changes nothing.
      - V(built) builds the wheel of Horovod in O(horovod_wheels), unless O(horovod_checksums) has one that is there.
    type: str
    choices: [present, absent, looked_at, built]
    default: present
  framework:
    description: The framework, which is the folder's name too.
    type: str
    choices: [tensorflow, mxnet, pytorch, tensorpack]
    required: true
  requirements:
    description: The text of the pinned requirements, by build.
    type: dict
    required: true
    suboptions:
      cpu: {description: For processors., type: str, required: true}
      gpu: {description: For GPUs., type: str, required: true}
  pythons:
    description: The versions of Python that the framework has builds for.
    type: list
    elements: str
    required: true
  imports:
    description: What must be importable when it is made.
    type: list
    elements: str
    required: true
  index:
    description: By build and package, the package's own index, used alone when pip's own settings do not lead to it.
    type: dict
    default: {}
  wheels:
    description: A folder of wheels to install from instead of an index.
    type: str
    default: ""
  source:
    description:
      - A folder with the framework's own sources, used as they are there in place of the release that is pinned. All
        that they need is installed as pinned.
    type: str
    default: ""
  horovod:
    description: Whether the environment shall have Horovod.
    type: bool
    default: false
  horovod_wheels:
    description: The folder, shared by all nodes, in which wheels of Horovod are kept.
    type: str
    default: ""
  horovod_checksums:
    description:
      - The SHA-256 of the wheels of Horovod that may be installed, by their path in O(horovod_wheels).
      - Every node can write to that folder, so a wheel that is not named here does not count, and one with another
        checksum is refused.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode and say what it would change.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Look whether PyTorch is there
  deeplearning.aws.framework_env:
    state: looked_at
    framework: pytorch
    requirements: {cpu: "{{ lookup('file', 'cpu.txt') }}", gpu: "{{ lookup('file', 'gpu.txt') }}"}
    pythons: ["3.10", "3.11"]
    imports: [torch]
"""

RETURN = r"""
ready:
  description: Whether the environment is as it shall be, Horovod included if it was asked for.
  returned: O(state=present) or O(state=looked_at)
  type: bool
made:
  description: Whether the environment is as it shall be, apart from Horovod.
  returned: O(state=present) or O(state=looked_at)
  type: bool
makes_environments:
  description: Whether the system's Python has what makes environments.
  returned: O(state=looked_at), when it is not made
  type: bool
system:
  description: The operating system, such as V(debian).
  returned: O(state=looked_at)
  type: str
problem:
  description: Why it cannot be made with what the system has now, as a sentence; else empty.
  returned: O(state=looked_at), when it is not made
  type: str
versions:
  description: What is installed in it, by name.
  returned: O(state=present) or O(state=looked_at)
  type: dict
wheel:
  description: The wheel of Horovod that fits, of those in O(horovod_checksums); empty if there is none yet.
  returned: when O(horovod) is asked for and the environment is made
  type: str
built:
  description: The SHA-256 of the wheel that was built now, by its path in O(horovod_wheels).
  returned: O(state=built)
  type: dict
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils import _environment, _horovod, _sources
from ansible_collections.deeplearning.aws.plugins.module_utils._environment import Unfit, Wanted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "looked_at", "built"], "default": "present"},
            "framework": {"type": "str", "choices": ["tensorflow", "mxnet", "pytorch", "tensorpack"], "required": True},
            "requirements": {
                "type": "dict",
                "required": True,
                "options": {"cpu": {"type": "str", "required": True}, "gpu": {"type": "str", "required": True}},
            },
            "pythons": {"type": "list", "elements": "str", "required": True},
            "imports": {"type": "list", "elements": "str", "required": True},
            "index": {"type": "dict", "default": {}},
            "wheels": {"type": "str", "default": ""},
            "source": {"type": "str", "default": ""},
            "horovod": {"type": "bool", "default": False},
            "horovod_wheels": {"type": "str", "default": ""},
            "horovod_checksums": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    names = ("framework", "requirements", "pythons", "imports", "index", "wheels")
    wanted = Wanted(**{name: module.params[name] for name in names})
    act = {"present": present, "absent": absent, "looked_at": looked_at, "built": built}[module.params["state"]]
    try:
        module.exit_json(**act(wanted, module.params, module.check_mode))
    except Unfit as problem:
        module.fail_json(msg=str(problem))


def looked_at(wanted: Wanted, params: dict[str, Any], check: bool) -> dict[str, Any]:
    answer = {**_standing(wanted, params, _environment.marker(wanted)), "system": _environment.system()[0]}
    if not answer["made"]:
        python = _environment.find_python(wanted)
        answer["problem"] = "" if python else _environment.no_python(wanted)
        answer["makes_environments"] = bool(python) and _environment.makes_environments(python)
    return answer


def present(wanted: Wanted, params: dict[str, Any], check: bool) -> dict[str, Any]:
    before = _standing(wanted, params, _environment.marker(wanted))
    if before["ready"] or check:
        return {**before, "changed": not before["ready"]}
    with _environment.alone(wanted), _wheel(params, before.get("wheel", "")) as wheel:
        said = _environment.install(wanted, _extra(params), wheel)
        if not _sources.in_use(wanted, params["source"], said) and _environment.has(said, _extra(params)):
            _sources.use(wanted, params["source"], said)
    after = _standing(wanted, params, _environment.marker(wanted))
    return {**after, "changed": after != before}


def absent(wanted: Wanted, params: dict[str, Any], check: bool) -> dict[str, Any]:
    there = _environment.is_ours(wanted) or _environment.has_leftovers(wanted)
    if there and not check:
        with _environment.alone(wanted):
            _environment.remove(wanted)
    return {"changed": there}


def built(wanted: Wanted, params: dict[str, Any], check: bool) -> dict[str, Any]:
    said = _environment.finished_or_not(wanted)
    if check and not said:
        return {"changed": True, "built": {}}
    key = _horovod.key(wanted, said["versions"])
    known = _horovod.known_wheel(params["horovod_wheels"], key, params["horovod_checksums"])
    if known or check:
        return {"changed": not known, "built": {}}
    try:
        wheel = _horovod.make(wanted, said["versions"], params["horovod_wheels"])
        return {"changed": True, "built": {wheel.name: wheel.sha256}}
    except Unfit as problem:
        raise Unfit(f"{problem}\nTrain without Horovod, or take the pins that it was built with before.") from None


@contextmanager
def _wheel(params: dict[str, Any], name: str) -> Iterator[str]:
    """Yield the path of a verified copy of a wheel; of no wheel, nothing."""
    if not name:
        yield ""
        return
    with _horovod.verified(Path(params["horovod_wheels"], name), params["horovod_checksums"][name]) as wheel:
        yield wheel


def _extra(params: dict[str, Any]) -> str:
    return _horovod.SPEC if params["horovod"] else ""


def _standing(wanted: Wanted, params: dict[str, Any], marker: dict[str, Any]) -> dict[str, Any]:
    """`made` also when only Horovod is missing."""
    said = marker or _environment.finished_or_not(wanted)
    made = bool(said)
    whole = _environment.has(marker, _extra(params))
    answer: dict[str, Any] = {
        "made": made,
        "ready": bool(marker) and whole and _sources.in_use(wanted, params["source"], marker),
        "versions": said.get("versions", {}),
    }
    if made and params["horovod"] and not whole:
        key = _horovod.key(wanted, said["versions"])
        answer["wheel"] = _horovod.known_wheel(params["horovod_wheels"], key, params["horovod_checksums"])
    return answer


if __name__ == "__main__":
    main()
