#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Make files and folders what they shall be, all in one task
version_added: 1.0.0
description:
  - Writes what differs, each file by another name that is then renamed, so that nobody reads half of one.
  - It takes the place of a task for each file, of which each costs time on each machine.
  - Folders that are missing on the way are made, with mode C(0755).
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
options:
  files:
    description: What there shall be, and what not.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where it is.
        type: path
        required: true
      content:
        description:
          - The file's text. Without it, O(files[].contents) and O(files[].source) the file has to exist, and gets its
            mode only.
        type: str
      contents:
        description: The texts of a folder's files by their relative paths. What else is in the folder is removed.
        type: dict
      source:
        description:
          - A file or a folder on the machine that Ansible runs on, as O(files[].content) or O(files[].contents).
          - A relative path is looked for as M(ansible.builtin.copy) does. Compiled Python and hidden files stay behind.
        type: path
      mode:
        description:
          - The permissions of the file, or of each file in the folder. In a folder, what begins with C(#!) can be run.
        type: str
        default: "0644"
      state:
        description:
          - Whether it shall exist. With V(absent) a folder goes with all that is in it.
          - With V(absent) and O(files[].content), what has another content is somebody else's and stays.
        type: str
        choices: [present, absent]
        default: present
  validate:
    description: A command that must succeed when something was written. If it fails, all is put back as it was.
    type: str
attributes:
  check_mode:
    description: Runs in check mode and changes nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: full
  action:
    description: Reads O(files[].source) on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Set what sshd does
  deeplearning.aws.files:
    files:
      - path: /etc/ssh/sshd_config.d/50-deeplearning.conf
        content: |
          AllowAgentForwarding yes
      - {path: /usr/local/lib/tools, source: tools}
      - {path: /usr/local/lib/old-tools, state: absent}
    validate: sshd -t
"""

RETURN = r"""
paths:
  description: What was written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/ssh/sshd_config.d/50-deeplearning.conf]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._files import Unfit, changes

ITEM = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "contents": {"type": "dict"},
    "source": {"type": "path"},
    "mode": {"type": "str", "default": "0644"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": ITEM,
                "mutually_exclusive": [["content", "contents", "source"]],
            },
            "validate": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        needed = changes(module.params["files"])
    except Unfit as unfit:
        module.fail_json(msg=str(unfit), invocation={})
    if needed and not module.check_mode:
        for change in needed:
            change.apply()
        command = module.params["validate"]
        if command:
            code, output, errors = module.run_command(command)
            if code != 0:
                for change in reversed(needed):
                    change.undo()
                said = (errors or output).strip()
                module.fail_json(msg=f"{command} fails, so that all was put back as it was: {said}", invocation={})
    diff = [change.as_diff() for change in needed] if module._diff else []
    # Without what it was given: whole programs, which need not come back.
    module.exit_json(changed=bool(needed), paths=[change.path for change in needed], diff=diff, invocation={})


if __name__ == "__main__":
    main()
