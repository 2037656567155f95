#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: mount_target
short_description: Wait until a file system can be reached, and say what is in the way
version_added: 1.0.0
description:
  - Runs on the machine that is to mount it. Waits until the name of the file system is resolved and its mount target
    answers on port 2049.
  - If that has not come about in time, it says which of three things is wrong. There may be no mount target in the
    machine's zone, a security group may be in the way, or DNS of the VPC may not work.
  - Where the file system is mounted already, it must answer in that time as well. One that stands still would be waited
    for without end by whatever looks at it.
  - It also tells where the collection has mounted another file system before, or the same one elsewhere or in another
    way.
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
options:
  name:
    description: The DNS name of the file system.
    type: str
    required: true
  own_name:
    description:
      - The machine's own private DNS name. Where that cannot be resolved either, DNS is what is wrong.
      - Without it, what the machine calls itself.
    type: str
    default: ""
  path:
    description: Where it is mounted, or is to be.
    type: path
    required: true
  source:
    description:
      - What is mounted there, as C(/etc/fstab) names it. With TLS it is named otherwise than without.
    type: str
    required: true
  mark:
    description: The option by which lines of C(/etc/fstab) are known as those of the collection.
    type: str
    required: true
  node:
    description: What the machine is called in messages.
    type: str
    required: true
  timeout:
    description: How many seconds to wait at most.
    type: int
    default: 120
attributes:
  check_mode:
    description: Can run in check mode; it never changes anything.
    support: full
"""

EXAMPLES = r"""
- name: Wait for the file system
  deeplearning.aws.mount_target:
    name: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com
    own_name: ip-10-0-0-4.ec2.internal
    path: /efs
    source: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com:/
    mark: x-deeplearning.efs
    node: deeplearning-worker2
"""

RETURN = r"""
cause:
  description: What was in the way, C(mount_target), C(security_group), C(dns) or C(stalled).
  returned: failure
  type: str
  sample: security_group
former:
  description:
    - The places where the collection has mounted anything but O(source) at O(path) by C(/etc/fstab), whether it is
      mounted there now, and whether something else is.
  returned: success
  type: list
  elements: dict
  sample: [{"path": "/efs", "mounted": true, "taken": false}]
systemd_follows:
  description: Whether systemd has read C(/etc/fstab) since it was changed.
  returned: success
  type: bool
"""

import socket
import time
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._mount_target import (
    FSTAB,
    former,
    mounted_at,
    obstacle,
    stalled,
    systemd_follows,
)

MOUNTS = Path("/proc/self/mounts")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "own_name": {"type": "str", "default": ""},
            "path": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "mark": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    given = module.params
    name, path = given["name"], given["path"]
    own_name = given["own_name"] or socket.getfqdn()
    deadline = time.monotonic() + given["timeout"]
    while True:
        found = obstacle(name, own_name, deadline - time.monotonic())
        mounts = MOUNTS.read_text()
        if found is None and mounted_at(mounts, path):
            found = stalled(name, path, max(1.0, deadline - time.monotonic()))
        if found is None:
            fstab = Path(FSTAB).read_text() if Path(FSTAB).exists() else ""
            places = former(fstab, mounts, given["mark"], given["source"], path)
            module.exit_json(
                changed=False,
                former=[asdict(place) for place in places],
                systemd_follows=systemd_follows(fstab, given["source"], path),
            )
        if time.monotonic() >= deadline:
            module.fail_json(msg=f"{given['node']}, after {given['timeout']} s: {found.words}", cause=found.cause)
        time.sleep(1)


if __name__ == "__main__":
    main()
