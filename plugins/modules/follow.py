#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: follow
short_description: Follow a training run to its end
version_added: 1.0.0
description:
  - Tells how far a run is while it goes on, as a bar on a terminal and as a line every few seconds elsewhere, and ends
    when the run has ended. It fails if the run did.
  - The run does not depend on it. Without it, with its terminal closed or with its connection lost, the run goes on.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  run_id:
    description: The run's name.
    type: str
    required: true
  output:
    description: Whether to show what the first worker prints.
    type: bool
    default: false
attributes:
  check_mode:
    description: Follows in check mode as well, as it changes nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over a connection to the master.
    support: full
"""

EXAMPLES = r"""
- name: Follow the run
  deeplearning.aws.follow:
    run_id: lenet-1
"""

RETURN = r"""
end:
  description:
    - How the run has ended, as its last event tells. Its state is V(finished), V(failed), V(stopped) or V(lost).
  returned: when the run has ended
  type: dict
  sample: {"state": "failed", "exit_code": 7, "sentence": "run lenet-1 ended with 7 (deeplearning-worker2, rank 1)"}
"""
