#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_for_nfs
short_description: Wait until a file system can be reached over NFS, or report why it cannot
version_added: 1.0.0
description:
  - Runs on the machine that mounts the file system. Waits until its name is resolved and its mount target answers on
    port 2049. A name that did not exist yet, because the mount target is new, is not remembered by systemd-resolved.
  - After the timeout it reports the cause. Either the machine's zone has no mount target, or a security group is in the
    way, or DNS of the VPC does not work.
  - A file system that is mounted already must respond in that time as well. A process that uses a stalled one is
    blocked.
  - It also returns where the collection has mounted another file system before, or the same one at another path or with
    other options.
options:
  name:
    description: The DNS name of the file system.
    type: str
    required: true
  own_name:
    description:
      - The machine's own private DNS name. If that cannot be resolved either, DNS does not work.
      - If empty, the machine's host name.
    type: str
    default: ""
  path:
    description: The mount point.
    type: path
    required: true
  source:
    description:
      - The source in C(/etc/fstab), which with TLS differs from the one without.
    type: str
    required: true
  mark:
    description: The mount option that marks the lines of the collection in C(/etc/fstab).
    type: str
    required: true
  node:
    description: The name of the machine in messages.
    type: str
    required: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 120
extends_documentation_fragment: [deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Wait for the file system
  deeplearning.aws.wait_for_nfs:
    name: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com
    own_name: ip-10-0-0-4.ec2.internal
    path: /efs
    source: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com:/
    mark: x-deeplearning.efs
    node: deeplearning-worker2
"""

RETURN = r"""
cause:
  description: Why the file system cannot be reached, C(mount_target), C(security_group), C(dns) or C(stalled).
  returned: failure
  type: str
  sample: security_group
former_mounts:
  description:
    - Mounts of the collection in C(/etc/fstab), except that of O(source) at O(path). C(mounted) is
      whether it is mounted now, C(taken) whether another file system is mounted there.
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
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.node.nfs import (
    DNS,
    FSTAB,
    NO_TARGET,
    find_obstacle,
    find_stall,
    forget_names,
    former_mounts,
    mounted_at,
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
    params = module.params
    name, path = params["name"], params["path"]
    own_name = params["own_name"] or socket.getfqdn()
    deadline = time.monotonic() + params["timeout"]
    while True:
        obstacle = find_obstacle(name, own_name, deadline - time.monotonic())
        mounts = MOUNTS.read_text()
        if obstacle is None and mounted_at(mounts, path):
            obstacle = find_stall(name, path, max(1.0, deadline - time.monotonic()))
        if obstacle is None:
            fstab = Path(FSTAB).read_text() if Path(FSTAB).exists() else ""
            module.exit_json(
                changed=False,
                former_mounts=former_mounts(fstab, mounts, params["mark"], params["source"], path),
                systemd_follows=systemd_follows(fstab, params["source"], path),
            )
            return
        if time.monotonic() >= deadline:
            module.fail_json(
                msg=f"{params['node']}, after {params['timeout']} s: {obstacle.message}", cause=obstacle.cause
            )
        if obstacle.cause in (DNS, NO_TARGET):
            forget_names()
        time.sleep(1)


if __name__ == "__main__":
    main()
