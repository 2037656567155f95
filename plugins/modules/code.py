#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: code
short_description: Send a script to a node
version_added: 1.0.0
description:
  - Sends a script of the machine that Ansible runs on, and a folder with what it needs, to a new folder of a node.
  - What version control and Python keep for themselves (C(.git), C(__pycache__), C(.venv) and caches) stays here.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  script:
    description: The script.
    type: path
    required: true
  folder:
    description: A folder whose content goes along. A script within it keeps its place there, another lies beside it.
    type: path
  into:
    description:
      - Where the new folder is made, in the folder of the cluster's runs or another that runs are made in.
      - If need be it is made first. It has to belong to the user of the connection, and nobody else may write in it.
    type: str
    required: true
attributes:
  check_mode:
    description: In check mode it packs, and sends nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over the connection to the node.
    support: full
"""

EXAMPLES = r"""
- name: Send the script
  deeplearning.aws.code:
    script: train.py
    folder: src
    into: /efs/runs/red/.incoming
  register: sent
"""

RETURN = r"""
path:
  description: The new folder.
  returned: success
  type: str
  sample: /efs/runs/red/.incoming/0f3c
script:
  description: Where the script is in it.
  returned: success
  type: str
  sample: train.py
"""
