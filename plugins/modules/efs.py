#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: efs
short_description: A shared file system (EFS) and its mount target in one zone
version_added: 1.0.0
description:
  - Makes a file system and a mount target in the zone of a subnet, or finds them again, by the creation token or by
    name and tags.
  - With O(file_system_id) the file system is somebody's own. Then only a mount target is seen to, one that exists in
    the zone is used, and nothing but our own mount target is ever deleted.
  - With O(state=absent) it deletes mount targets that have O(security_groups) and no others, or lie in a subnet with
    the cluster's tag, and the file system unless it is to be kept. From mount targets of others the groups are taken
    off again.
options:
  state:
    description: Whether it shall exist.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: The tag C(Name) of a new file system. Required unless O(file_system_id) is given.
    type: str
    default: ""
  creation_token:
    description: By which a repeated creation finds what the first one made. The O(name), if it is not given.
    type: str
    default: ""
  file_system_id:
    description: The id of a file system that exists and is to be used.
    type: str
    default: ""
  tags:
    description:
      - Tags of a new file system, in the call that creates it.
      - One that is found has to bear the same tag C(deeplearning:cluster), or it is refused.
    type: dict
    default: {}
  encrypted:
    description: Whether a new file system is encrypted at rest.
    type: bool
    default: true
  throughput_mode:
    description: How throughput is had and paid.
    type: str
    choices: [elastic, bursting]
    default: elastic
  performance_mode:
    description: The performance mode of a new file system.
    type: str
    choices: [generalPurpose, maxIO]
    default: generalPurpose
  subnet_id:
    description: The subnet of the mount target. Without one, no mount target is seen to.
    type: str
    default: ""
  security_groups:
    description: Our security groups of the mount target. They also tell ours from others when it is deleted.
    type: list
    elements: str
    default: []
  clients:
    description:
      - Security groups of those who will mount it. A mount target that exists, and whose own groups let these in, is
        left as it is.
    type: list
    elements: str
    default: []
  extend_security_groups:
    description:
      - Whether O(security_groups) may be added to a mount target that exists and does not let the O(clients) in.
    type: bool
    default: true
  require_tls:
    description:
      - Whether the file system refuses clients that do not use TLS. A policy of the file system does this. It requires
        nothing else, and is removed when this is false.
      - A policy that this collection did not make is never changed; if there is one, O(require_tls=true) is refused.
      - With O(file_system_id) no policy is read or changed.
    type: bool
    default: false
  keep:
    description: Whether the file system stays when O(state=absent).
    type: bool
    default: true
  wait:
    description:
      - Whether to wait until all is available, or gone. Without it, a second call or M(deeplearning.aws.efs_info) can
        wait.
    type: bool
    default: true
  wait_timeout:
    description: How many seconds to wait at most.
    type: int
    default: 600
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
- name: Start a file system with its mount target, and go on
  deeplearning.aws.efs:
    region: us-east-1
    name: deeplearning-efs
    creation_token: deeplearning
    tags: {"deeplearning:cluster": deeplearning}
    subnet_id: subnet-0123456789abcdef0
    security_groups: [sg-0123456789abcdef0]
    wait: false
  register: storage

- name: Wait for it
  deeplearning.aws.efs_info:
    region: us-east-1
    file_system_id: "{{ storage.file_system.id }}"
    wait: true

- name: Delete what this cluster has made, but not the files
  deeplearning.aws.efs:
    region: us-east-1
    state: absent
    name: deeplearning-efs
    creation_token: deeplearning
    tags: {"deeplearning:cluster": deeplearning}
    security_groups: [sg-0123456789abcdef0]
    keep: true
"""

RETURN = r"""
file_system:
  description: The file system; empty when there is none.
  returned: always
  type: dict
  contains:
    id: {description: Its id., type: str, returned: always, sample: fs-0123456789abcdef0}
    name: {description: Its tag C(Name)., type: str, returned: always}
    state: {description: Its life cycle state., type: str, returned: always, sample: available}
    encrypted: {description: Whether it is encrypted at rest., type: bool, returned: always}
    creation_token: {description: Its creation token., type: str, returned: always}
    throughput_mode: {description: Its throughput mode., type: str, returned: always}
    performance_mode: {description: Its performance mode., type: str, returned: always}
    tags: {description: Its tags., type: dict, returned: always}
mount_target:
  description: The mount target in the subnet's zone; empty when none was asked for.
  returned: O(state=present)
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
  returned: O(state=present)
  type: bool
reused:
  description: Whether the file system was there before.
  returned: O(state=present)
  type: bool
notes:
  description: What is not as it was asked for and cannot be changed; it is warned of as well.
  returned: always
  type: list
  elements: str
kept:
  description: Whether the file system still exists.
  returned: O(state=absent)
  type: bool
mount_targets_deleted:
  description: Ids of the mount targets that were deleted.
  returned: O(state=absent)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._efs import FileSystem, Wanted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "name": {"type": "str", "default": ""},
            "creation_token": {"type": "str", "default": "", "no_log": False},
            "file_system_id": {"type": "str", "default": ""},
            "tags": {"type": "dict", "default": {}},
            "encrypted": {"type": "bool", "default": True},
            "throughput_mode": {"type": "str", "choices": ["elastic", "bursting"], "default": "elastic"},
            "performance_mode": {
                "type": "str",
                "choices": ["generalPurpose", "maxIO"],
                "default": "generalPurpose",
            },
            "subnet_id": {"type": "str", "default": ""},
            "security_groups": {"type": "list", "elements": "str", "default": []},
            "clients": {"type": "list", "elements": "str", "default": []},
            "extend_security_groups": {"type": "bool", "default": True},
            "require_tls": {"type": "bool", "default": False},
            "keep": {"type": "bool", "default": True},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    given = module.params
    if not given["name"] and not given["file_system_id"]:
        module.fail_json(msg="The file system has neither name nor file_system_id: give one of them.")
    wanted = Wanted(
        name=given["name"],
        token=given["creation_token"] or given["name"],
        file_system_id=given["file_system_id"],
        tags={key: str(value) for key, value in given["tags"].items()},
        encrypted=given["encrypted"],
        throughput_mode=given["throughput_mode"],
        performance_mode=given["performance_mode"],
        subnet_id=given["subnet_id"],
        security_groups=tuple(given["security_groups"]),
        clients=tuple(given["clients"]),
        may_extend=given["extend_security_groups"],
        require_tls=given["require_tls"],
    )
    try:
        system = FileSystem(Aws.of(module), wanted, module.check_mode, given["wait_timeout"])
        if given["state"] == "present":
            result = system.present(given["wait"])
        else:
            result = system.absent(given["keep"], given["wait"])
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    for note in system.notes:
        module.warn(note)
    module.exit_json(
        changed=system.changed, notes=system.notes, diff={"before": system.before, "after": system.after}, **result
    )


if __name__ == "__main__":
    main()
