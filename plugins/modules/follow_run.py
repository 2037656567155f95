#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: follow_run
short_description: Follow a training run to its end
version_added: 1.0.0
description:
  - Shows the progress of a run, as a bar on a terminal and as a line every few seconds elsewhere, and returns when the
    run has ended. Fails if the run failed.
  - The run does not depend on it. It continues when this task ends, its terminal is closed or its connection is lost.
  - When the connection is lost it reconnects, for up to five minutes.
options:
  run_id:
    description: The id of the run.
    type: str
    required: true
  output:
    description: Whether to show what the processes print, each line with its role and rank. At most 64 processes.
    type: bool
    default: false
extends_documentation_fragment: [deeplearning.aws._attributes, deeplearning.aws._attributes.action]
attributes:
  action:
    details: Uses a connection to the master.
"""

EXAMPLES = r"""
- name: Follow the run
  deeplearning.aws.follow_run:
    run_id: lenet-1
"""

RETURN = r"""
end:
  description:
    - The last event of the run. Its state is V(finished), V(failed), V(stopped) or V(lost).
  returned: when the run has ended
  type: dict
  sample: {"state": "failed", "exit_code": 7, "sentence": "run lenet-1 ended with 7 (deeplearning-worker2, rank 1)"}
"""
