#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: ask
short_description: Ask the program on a node
version_added: 1.0.0
description:
  - Runs C(deeplearning ...) on a node that is a member of a cluster, and returns what it prints.
  - What the program refuses is the sentence that the task fails with.
  - Nothing is copied to the node and no Python is looked for, so it takes a fraction of what a module takes.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  words:
    description: What follows after C(deeplearning).
    type: list
    elements: str
    required: true
  request:
    description: Handed to it as JSON on its input. It is in no process list and in no log.
    type: dict
  writes:
    description: Whether it may change something. In check mode it is not asked then.
    type: bool
    default: false
  forward_agent:
    description:
      - Forward the operator's ssh agent to the node while it answers, over a connection of its own. Whoever is root on
        the node can use the agent meanwhile, so this is for cloning by ssh and for nothing else.
    type: bool
    default: false
attributes:
  check_mode:
    description: What writes is left out in check mode.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over the connection to the node.
    support: full
"""

EXAMPLES = r"""
- name: List the runs
  deeplearning.aws.ask:
    words: [run, list, --json]
  register: runs
"""

RETURN = r"""
answer:
  description:
    - What the program answered. Values have the types that the collection expects of this command; a node that answers
      otherwise fails the task. Words for people are returned as C(said), without control characters.
    - Empty for what writes in check mode.
  returned: success
  type: dict
"""
