#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: arguments
short_description: Check what train.yml and its like were given
version_added: 1.0.0
description:
  - Takes the variables that a playbook of training runs knows (and the settings of the cluster with them), gives each
    its type, and fails with a sentence for each that is wrong, all of them at once.
  - Names on the command line that the playbook does not know are refused, and so are words that the command line lost.
  - Nothing is asked of AWS or of the cluster.
  - The arguments are listed in the collection's F(docs/training.md).
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  playbook:
    description: Whose arguments they are.
    type: str
    required: true
    choices: [train, evaluate, stop, follow, tensorboard, status, report]
attributes:
  check_mode:
    description: Runs in check mode and changes nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Check what was asked for
  deeplearning.aws.arguments:
    playbook: train
  register: __asked
"""

RETURN = r"""
arguments:
  description:
    - The arguments by their names, each of its type. V(null) is what was not given and has no default.
    - C(env) is not among them, as it may hold what is secret.
  returned: success
  type: dict
  sample: {"framework": "pytorch", "nodes": 2, "script_args": ["--epochs", "2"]}
request:
  description: What the nodes' program is asked for. C(environment) is not in it, nor C(data) that is staged first.
  returned: for train
  type: dict
recipe_env:
  description: The environment variables of the recipe, if none were given.
  returned: for train
  type: dict
cluster:
  description: The cluster's settings, as M(deeplearning.aws.settings) returns them.
  returned: success
  type: dict
asked_by:
  description: Who asks, and from which machine.
  returned: success
  type: str
  sample: me@laptop
"""
