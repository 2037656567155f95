#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: fetch_results
short_description: Get the files of a training run
version_added: 1.0.0
description:
  - Copies the model, the checkpoints, the logs or TensorBoard's files of a run from the shared file system to a folder
    of the machine that Ansible runs on, or to S3.
  - It resumes where it was interrupted. Each file is compared with the master's by SHA-256. A file that is there
    already is not sent again if it is the same, and never replaced if it is another.
options:
  run_id:
    description: The id of the run.
    type: str
    required: true
  what:
    description: Which files.
    type: str
    choices: [model, checkpoints, logs, tensorboard]
    default: model
  to:
    description:
      - A folder, or V(s3://bucket/prefix). By default a folder with the run's name in the current one.
    type: str
    default: ""
  folder:
    description: A folder for files on their way to S3.
    type: path
    required: true
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: Lists in check mode what it would get.
  action:
    details: Uses the connection to the master. S3 gets the files from the machine that Ansible runs on.
"""

EXAMPLES = r"""
- name: Get the model
  deeplearning.aws.fetch_results:
    region: us-east-1
    run_id: lenet-1
    folder: .deeplearning/get/red
"""

RETURN = r"""
place:
  description: Where the files are.
  returned: success
  type: str
  sample: /home/anna/lenet-1
"""
