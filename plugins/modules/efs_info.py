#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: efs_info
short_description: File systems (EFS) with their mount targets
version_added: 1.0.0
description:
  - Lists file systems with their mount targets, and can wait until they are available.
options:
  file_system_id:
    description: The one file system that is asked for.
    type: str
    default: ""
  name:
    description: Only those with this tag C(Name).
    type: str
    default: ""
  tags:
    description: Only those with these tags.
    type: dict
    default: {}
  wait:
    description: Whether to wait until they and their mount targets are available.
    type: bool
    default: false
  wait_timeout:
    description: How many seconds to wait at most.
    type: int
    default: 600
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode; it never changes anything.
    support: full
"""

EXAMPLES = r"""
- name: Find the file systems of a cluster
  deeplearning.aws.efs_info:
    region: us-east-1
    tags: {"deeplearning:cluster": deeplearning}
"""

RETURN = r"""
file_systems:
  description: The file systems, oldest first.
  returned: always
  type: list
  elements: dict
  contains:
    id: {description: Its id., type: str, returned: always, sample: fs-0123456789abcdef0}
    name: {description: Its tag C(Name)., type: str, returned: always}
    state: {description: Its life cycle state., type: str, returned: always, sample: available}
    encrypted: {description: Whether it is encrypted at rest., type: bool, returned: always}
    creation_token: {description: Its creation token., type: str, returned: always}
    throughput_mode: {description: Its throughput mode., type: str, returned: always}
    performance_mode: {description: Its performance mode., type: str, returned: always}
    tags: {description: Its tags., type: dict, returned: always}
    mount_targets:
      description: Its mount targets, as M(deeplearning.aws.efs) returns them.
      type: list
      elements: dict
      returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._efs import listed_with_targets
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until


def _ready(found: list[dict[str, Any]]) -> bool:
    states = [one["state"] for one in found] + [t["state"] for one in found for t in one["mount_targets"]]
    return all(state == "available" for state in states)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "file_system_id": {"type": "str", "default": ""},
            "name": {"type": "str", "default": ""},
            "tags": {"type": "dict", "default": {}},
            "wait": {"type": "bool", "default": False},
            "wait_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    given = module.params
    found: list[dict[str, Any]] = []

    def look() -> bool | None:
        found[:] = listed_with_targets(aws, given["file_system_id"], given["name"], given["tags"])
        return True if not given["wait"] or _ready(found) else None

    try:
        aws = Aws.of(module)
        if until(look, given["wait_timeout"]) is None:
            names = ", ".join(one["id"] for one in found)
            module.fail_json(msg=f"{names} is not available after {given['wait_timeout']} s: run it again later.")
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, file_systems=found)


if __name__ == "__main__":
    main()
