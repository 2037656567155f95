#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write and remove files and folders, all in one task
version_added: 1.0.0
description:
  - Writes files that differ. Each is written under another name and then renamed, so that no process reads a part of
    it.
  - It replaces one M(ansible.builtin.copy) or M(ansible.builtin.file) for each file or folder. By measurement, a task
    costs the operator's machine some 45 ms for each node, which is 45 seconds with 1,000 nodes.
  - Missing parent folders are created, with mode C(0755).
options:
  files:
    description: The files and folders.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: The path of the file or folder.
        type: path
        required: true
      content:
        description:
          - The text of the file. Without O(files[].content), O(files[].contents) and O(files[].source) the file has to
            exist, and only its mode is set.
        type: str
      contents:
        description: The texts of a folder's files, by their relative paths. Other files in the folder are removed.
        type: dict
      source:
        description:
          - A file or a folder on the machine that Ansible runs on, in place of O(files[].content) or
            O(files[].contents).
          - A relative path is resolved as by M(ansible.builtin.copy). Compiled Python and hidden files are not sent.
        type: path
      mode:
        description:
          - The permissions of the file, or of each file in the folder. In a folder, a file that begins with C(#!) is
            executable.
        type: str
        default: "0644"
      state:
        description:
          - Whether the file or folder exists. With V(absent) a folder is removed with all its files.
          - With V(absent) and O(files[].content), a file with another content is not removed.
        type: str
        choices: [present, absent]
        default: present
  validate:
    description:
      - A command that must succeed after files were written, and before O(service) is reloaded. If it fails, all
        changes are undone.
    type: str
  service:
    description:
      - A service that reads the files. It is reloaded if it runs and has not read the current files, also if an earlier
        run was killed before it reloaded the service.
      - After a boot or a restart of the service this is not known, so it is reloaded once.
    type: str
    default: ""
  daemon_reload:
    description: Reload systemd if it has not read the current unit files of O(files).
    type: bool
    default: false
extends_documentation_fragment: [deeplearning.aws._attributes, deeplearning.aws._attributes.action]
attributes:
  diff_mode:
    support: full
  action:
    details: Reads O(files[].source) on the machine that Ansible runs on.
"""

EXAMPLES = r"""
- name: Configure sshd
  deeplearning.aws.managed_files:
    files:
      - path: /etc/ssh/sshd_config.d/50-deeplearning.conf
        content: |
          AllowAgentForwarding yes
      - {path: /usr/local/lib/tools, source: tools}
      - {path: /usr/local/lib/old-tools, state: absent}
    validate: sshd -t
    service: ssh
"""

RETURN = r"""
paths:
  description: The files that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/ssh/sshd_config.d/50-deeplearning.conf]
reloaded:
  description: The services that were reloaded, or would be in check mode. V(systemd) is systemd itself.
  returned: success
  type: list
  elements: str
  sample: [ssh]
"""

import contextlib
from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import atomic_file
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.node import services
from ansible_collections.deeplearning.aws.plugins.module_utils.node.managed_files import FileChange, plan_changes

LOCK = "/run/deeplearning/files.lock"
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
            "service": {"type": "str", "default": ""},
            "daemon_reload": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        with contextlib.nullcontext() if module.check_mode else atomic_file.locked(LOCK):
            changes = plan_changes(module.params["files"])
            if changes and not module.check_mode:
                write(module, changes)
            reloaded = reload(module, changes)
    except UserError as error:
        module.fail_json(msg=str(error), invocation={})
    diff = [change.as_diff() for change in changes] if module._diff else []
    # Without the arguments, which contain whole programs.
    module.exit_json(
        changed=bool(changes or reloaded),
        paths=[change.path for change in changes],
        reloaded=reloaded,
        diff=diff,
        invocation={},
    )


def write(module: AnsibleModule, changes: Sequence[FileChange]) -> None:
    """Make the changes, or none if they are not valid."""
    if module.params["service"]:
        services.mark_stale(module.params["service"])
    for change in changes:
        change.apply()
    failure = validate(module)
    if failure:
        for change in reversed(changes):
            change.undo()
        raise UserError(f"{module.params['validate']} fails, so that all was put back as it was: {failure}")


def reload(module: AnsibleModule, changes: Sequence[FileChange]) -> list[str]:
    """Reload systemd and the service if they have not read the current files, and return what was reloaded."""
    service, reloaded = module.params["service"], []
    paths = [item["path"] for item in module.params["files"]]
    if module.params["daemon_reload"] and not services.units_are_current(paths):
        reloaded.append("systemd")
        if not module.check_mode:
            services.reload_units()
    if service and ((changes and module.check_mode) or not services.is_current(service)):
        reloaded.append(service)
        if not module.check_mode:
            failure = "" if changes else validate(module)
            if failure:
                raise UserError(f"{module.params['validate']} fails, so that {service} is not reloaded: {failure}")
            services.reload(service)
    return reloaded


def validate(module: AnsibleModule) -> str:
    """Return what the validating command prints if it fails."""
    if not module.params["validate"]:
        return ""
    code, output, errors = module.run_command(module.params["validate"])
    return (errors or output).strip() or f"exit code {code}" if code else ""


if __name__ == "__main__":
    main()
