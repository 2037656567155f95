#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: file_system
short_description: Create a shared file system (EFS) and its mount target in one zone
version_added: 1.0.0
description:
  - Creates an encrypted file system and a mount target in the zone of a subnet, or reuses existing ones. The file
    system is looked up by its creation token, or by its name and tags.
  - With O(file_system_id) the file system is the user's own. Then only its mount target is managed, and an existing
    one in the zone is reused.
  - It deletes nothing. M(deeplearning.aws.teardown) does.
options:
  name:
    description: The tag C(Name) of a new file system. Required unless O(file_system_id) is set.
    type: str
    default: ""
  creation_token:
    description: A repeated creation with this token returns the file system of the first one. By default, the O(name).
    type: str
    default: ""
  file_system_id:
    description: The id of an existing file system to use.
    type: str
    default: ""
  tags:
    description:
      - Tags of a new file system, in the call that creates it.
      - An existing file system must have the same tag C(deeplearning:cluster), or it is refused.
    type: dict
    default: {}
  subnet_id:
    description: The subnet of the mount target. Without it, no mount target is managed.
    type: str
    default: ""
  security_groups:
    description:
      - The security groups of a new mount target. They are added to an existing one, if it does not let the O(clients)
        in.
    type: list
    elements: str
    default: []
  clients:
    description: Security groups of the machines that mount the file system.
    type: list
    elements: str
    default: []
  require_tls:
    description:
      - Whether the file system refuses clients that do not use TLS. A policy of the file system does this. It requires
        nothing else, and is removed when this is false.
      - A policy that this collection did not make is never changed; if there is one, O(require_tls=true) is refused.
      - With O(file_system_id) no policy is read or changed.
    type: bool
    default: false
  throughput_mode:
    description:
      - The throughput mode. Empty means V(elastic) for a new file system, and no change of an existing one.
      - With O(file_system_id) the mode is never changed.
    type: str
    choices: ["", elastic, bursting]
    default: ""
  wait:
    description: Whether to wait until the file system and the mount target are available.
    type: bool
    default: true
  wait_timeout:
    description: Seconds to wait at most.
    type: int
    default: 600
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
attributes:
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Create a file system and its mount target, without waiting for them
  deeplearning.aws.file_system:
    region: us-east-1
    name: deeplearning-efs
    creation_token: deeplearning
    tags: {"deeplearning:cluster": deeplearning}
    subnet_id: subnet-0123456789abcdef0
    security_groups: [sg-0123456789abcdef0]
    wait: false

- name: Wait for them
  deeplearning.aws.file_system:
    region: us-east-1
    name: deeplearning-efs
    creation_token: deeplearning
    tags: {"deeplearning:cluster": deeplearning}
    subnet_id: subnet-0123456789abcdef0
    security_groups: [sg-0123456789abcdef0]
"""

RETURN = r"""
file_system:
  description: The file system.
  returned: always
  type: dict
  contains:
    id: {description: Its id; empty if it would be created., type: str, returned: always, sample: fs-0123456789abcdef0}
    name: {description: Its tag C(Name)., type: str, returned: always}
    state: {description: Its life cycle state., type: str, returned: always, sample: available}
    encrypted: {description: Whether it is encrypted at rest., type: bool, returned: always}
    creation_token: {description: Its creation token., type: str, returned: always}
    throughput_mode: {description: Its throughput mode., type: str, returned: always}
    performance_mode: {description: Its performance mode., type: str, returned: always}
    tags: {description: Its tags., type: dict, returned: always}
mount_target:
  description: The mount target in the subnet's zone; empty without O(subnet_id).
  returned: always
  type: dict
  contains:
    id: {description: Its id., type: str, returned: always, sample: fsmt-0123456789abcdef0}
    ip: {description: Its address., type: str, returned: always, sample: 10.0.128.10}
    state: {description: Its life cycle state., type: str, returned: always, sample: creating}
    subnet_id: {description: Its subnet., type: str, returned: always}
    vpc_id: {description: Its VPC., type: str, returned: always}
    zone: {description: Its zone., type: str, returned: always}
    security_groups: {description: Its security groups., type: list, elements: str, returned: always}
created:
  description: Whether the file system is a new one.
  returned: always
  type: bool
notes:
  description: What differs from the options and cannot be changed. Each is a warning as well.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.file_system import converge


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    options = module.params
    if not options["name"] and not options["file_system_id"]:
        raise UserError("The file system has neither name nor file_system_id: give one of them.")
    options["creation_token"] = options["creation_token"] or options["name"]
    options["tags"] = {key: str(value) for key, value in options["tags"].items()}
    result = converge(aws, options, module.check_mode)
    for note in result["notes"]:
        module.warn(note)
    return result


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
