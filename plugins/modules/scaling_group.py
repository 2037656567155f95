#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: scaling_group
short_description: An Auto Scaling group of machines of one kind
version_added: 1.0.0
description:
  - Keeps an Auto Scaling group at a size, with a numbered version of a launch template, and never waits for machines.
  - A new group is made empty and gets its size when the processes that shall be suspended are, so that none of them has
    ever run.
  - There is this module because M(amazon.aws.autoscaling_group) writes each time that it runs, and reports a change in
    check mode whatever it finds.
options:
  state:
    description: Whether it shall exist. With V(absent), its machines are terminated.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: Its name.
    type: str
    required: true
  launch_template_id:
    description: The launch template.
    type: str
  launch_template_version:
    description: The version's number.
    type: int
  size:
    description: How many machines it shall have. It is the greatest size too; the least is 0.
    type: int
  subnets:
    description: Ids of the subnets to start in.
    type: list
    elements: str
    default: []
  suspended:
    description: The processes that are suspended; all others run.
    type: list
    elements: str
    default: [AZRebalance]
  grace_seconds:
    description: How long after its start a machine's health does not count.
    type: int
    default: 300
  tags:
    description: Tags of the group alone, in the call that creates it.
    type: dict
    default: {}
  instance_tags:
    description: Tags that new instances get from the group.
    type: dict
    default: {}
  wait:
    description: Whether to wait until it is gone, when O(state=absent).
    type: bool
    default: true
  wait_timeout:
    description: How many seconds to wait at most.
    type: int
    default: 900
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode and say what it would change.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Four workers
  deeplearning.aws.scaling_group:
    region: us-east-1
    name: deeplearning-workers
    launch_template_id: lt-0123456789abcdef0
    launch_template_version: 1
    size: 4
    subnets: [subnet-0123456789abcdef0]
    tags: {"Name": deeplearning-workers, "deeplearning:cluster": deeplearning}
    instance_tags: {"deeplearning:role": worker}

- name: No workers, and no group
  deeplearning.aws.scaling_group:
    region: us-east-1
    name: deeplearning-workers
    state: absent
"""

RETURN = r"""
name:
  description: Its name.
  returned: always
  type: str
instances:
  description: Ids of the machines that it has.
  returned: O(state=present)
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._scaling import Group, Wanted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "name": {"type": "str", "required": True},
            "launch_template_id": {"type": "str"},
            "launch_template_version": {"type": "int"},
            "size": {"type": "int"},
            "subnets": {"type": "list", "elements": "str", "default": []},
            "suspended": {"type": "list", "elements": "str", "default": ["AZRebalance"]},
            "grace_seconds": {"type": "int", "default": 300},
            "tags": {"type": "dict", "default": {}},
            "instance_tags": {"type": "dict", "default": {}},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 900},
        },
        required_if=[("state", "present", ("launch_template_id", "launch_template_version", "size"))],
        supports_check_mode=True,
    )
    given = module.params
    result: dict[str, Any] = {"name": given["name"]}
    try:
        group = Group(Aws.of(module), given["name"], module.check_mode)
        if given["state"] == "present":
            result["instances"] = group.present(
                Wanted(
                    template_id=given["launch_template_id"],
                    version=given["launch_template_version"],
                    size=given["size"],
                    subnets=tuple(given["subnets"]),
                    suspended=tuple(given["suspended"]),
                    grace=given["grace_seconds"],
                    tags={key: str(value) for key, value in given["tags"].items()},
                    instance_tags={key: str(value) for key, value in given["instance_tags"].items()},
                )
            )
        else:
            group.absent(given["wait"], given["wait_timeout"])
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=group.changed, diff={"before": group.before, "after": group.after}, **result)


if __name__ == "__main__":
    main()
