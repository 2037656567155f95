#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: report
short_description: Report on training runs
version_added: 1.0.0
description:
  - Fetches what runs have left behind (not their checkpoints), and makes one page of it with a table and plots, which
    needs nothing beside itself, and the plots as PNG files.
  - The report is on the machine that Ansible runs on, and beside the runs on the shared file system.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  runs:
    description: The runs' names. By default all that have ended.
    type: list
    elements: str
    default: []
  root:
    description: The folder on the master that has the runs' folders.
    type: str
    required: true
  folder:
    description: Where the report is written on the machine that Ansible runs on.
    type: path
    required: true
attributes:
  check_mode:
    description: In check mode it says which runs it would be about.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over the connection to the master.
    support: full
"""

EXAMPLES = r"""
- name: Report on two runs
  deeplearning.aws.report:
    runs: [lenet-1, lenet-2]
    root: /efs/runs/red
    folder: .deeplearning/reports/red
"""

RETURN = r"""
page:
  description: The page.
  returned: success
  type: str
  sample: .deeplearning/reports/red/lenet-1-and-1-more/report.html
kept:
  description: Its folder on the nodes.
  returned: success
  type: str
runs:
  description: The runs that it is about.
  returned: success
  type: list
"""
