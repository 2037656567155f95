#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: tunnel
short_description: Reach a port of a node that listens on the node alone
version_added: 1.0.0
description:
  - Says the ssh command that makes a port of a node one of this machine, or runs it until it is interrupted.
  - If the port is taken on this machine, it is the next one that is free.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  port:
    description: The port on the node.
    type: int
    required: true
  open:
    description: Whether to open the tunnel. The task ends when it does.
    type: bool
    default: false
attributes:
  check_mode:
    description: In check mode it only says the command.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Say how to look at TensorBoard
  deeplearning.aws.tunnel:
    port: 6006
"""

RETURN = r"""
command:
  description: The command that opens the tunnel.
  returned: always
  type: str
url:
  description: What to open in a browser.
  returned: success
  type: str
  sample: http://localhost:6006
"""
