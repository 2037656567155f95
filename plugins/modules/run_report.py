#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: run_report
short_description: Report on training runs
version_added: 1.0.0
description:
  - Fetches the results and metrics of runs (not their checkpoints), and writes one page with a table and plots. The
    page needs no other file.
  - The costs are those of each run's machines, at the prices of the Price List API.
  - The page is on the machine that Ansible runs on, and next to the runs on the shared file system.
options:
  runs:
    description: The ids of the runs. By default, the last 100 that have ended.
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
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: Returns in check mode which runs it would report on.
  action:
    details: Uses the connection to the master.
"""

EXAMPLES = r"""
- name: Report on two runs
  deeplearning.aws.run_report:
    region: us-east-1
    runs: [lenet-1, lenet-2]
    root: /efs/runs/red
    folder: .deeplearning/reports/red
"""

RETURN = r"""
page:
  description: The page.
  returned: success, except in check mode
  type: str
  sample: .deeplearning/reports/red/lenet-1-and-1-more/report.html
node_folder:
  description: The folder of the page on the nodes.
  returned: success, except in check mode
  type: str
  sample: /efs/runs/red/reports/lenet-1-and-1-more
runs:
  description: The runs that it reports on.
  returned: success
  type: list
  elements: str
"""
