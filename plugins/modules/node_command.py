#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: node_command
short_description: Run the program on a node
version_added: 1.0.0
description:
  - Runs C(deeplearning ...) on a node that is a member of a cluster, and returns its answer.
  - If the program refuses, the task fails with the sentence that the program printed.
  - Nothing is copied to the node and no Python interpreter is searched for, so it takes a fraction of the time that a
    module takes.
  - A node may be hostile, so what it prints has a limit of 16 MiB, and without O(stream) it has 15 minutes. Ansible's
    own connection has no limit.
  - With C(become) the command is run by C(sudo -n).
options:
  words:
    description: The words of the command after C(deeplearning).
    type: list
    elements: str
    required: true
  request:
    description: Sent to the program's input as JSON. It never appears in the process list or in logs.
    type: dict
  code:
    description:
      - A script of the machine that Ansible runs on, or of a repository that is cloned there. It is sent after
        O(request), as a tar.gz, and O(request) gets its path in the archive as C(script).
      - What version control and Python keep for themselves (C(.git), C(__pycache__), C(.venv) and caches) is left out,
        and so are files that usually hold secrets, such as C(.env), C(credentials.json) and private keys. A warning
        names these.
    type: dict
    suboptions:
      script:
        description:
          - The script's path, or C(git+URL@ref:path). A repository is cloned with the git and the credentials of the
            user who runs Ansible, and all its files are sent; O(request) gets its URL, ref and commit as
            C(repository).
        type: str
        required: true
      folder:
        description:
          - A folder whose content is sent as well. A script in this folder keeps its path; another one is put at the
            top.
        type: path
      requirements:
        description:
          - The path of a file with requirements in the repository. O(request) gets their text as C(requirements).
        type: str
        default: ""
      include:
        description:
          - Paths of files and folders to send although they may hold secrets, in the folder or in the repository.
        type: list
        elements: str
        default: []
      announced:
        description:
          - Paths of files and folders that were named before as left out. The warning does not repeat them.
        type: list
        elements: str
        default: []
  stdin_file:
    description: A file of the machine that Ansible runs on, sent to the program's input instead of O(request).
    type: path
  stdin_offset:
    description: The position in O(stdin_file) to start from.
    type: int
    default: 0
  stream:
    description:
      - Show the program's progress and notes as they come. A bar if this is the only node on a terminal, else a line
        every few seconds.
    type: bool
    default: false
  raw:
    description:
      - Return what the command prints as it is, instead of an answer, and do not fail at any exit code. A
        filter that knows the text has to parse it. Not with O(stream).
      - A node that cannot be reached is unreachable, as for a module.
    type: bool
    default: false
  writes:
    description: Whether the command may change something. Such a command is not run in check mode.
    type: bool
    default: false
extends_documentation_fragment: [deeplearning.aws._attributes, deeplearning.aws._attributes.action]
attributes:
  check_mode:
    details: Commands that write are not run in check mode.
  action:
    details: Uses the connection to the node.
"""

EXAMPLES = r"""
- name: List the runs
  deeplearning.aws.node_command:
    words: [run, list, --json]
  register: runs

- name: Unpack the archives of a staged data set that this node is dealt
  deeplearning.aws.node_command:
    words: [unpack, share, coco2017, --from, "s3://123456789012-us-east-1-deeplearning-data/coco2017", --share, 2/4]
    stream: true
    writes: true

- name: Create a run with a script of this machine
  deeplearning.aws.node_command:
    words: [run, create, --code, "-"]
    request: {framework: pytorch, requested_by: me}
    code:
      script: src/train.py
      folder: src
    writes: true
"""

RETURN = r"""
answer:
  description:
    - What the program answered. Values have the types that the collection expects of this command; a node that answers
      otherwise fails the task. Text for people is returned as C(text), without control characters.
    - With O(stream), the last line that the program prints.
    - Empty in check mode if the command writes.
  returned: success, without O(raw)
  type: dict
rc:
  description: The exit code.
  returned: with O(raw)
  type: int
stdout:
  description: The lines that the command has printed, without one that was cut.
  returned: with O(raw)
  type: str
stderr:
  description: Why the command failed, in one line.
  returned: with O(raw)
  type: str
msg:
  description: The same, for a task with C(failed_when).
  returned: with O(raw)
  type: str
"""
