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
    description:
      - A command that must succeed when something was written, and before O(service) is reloaded. If it fails, all is
        put back as it was.
    type: str
  service:
    description:
      - A service that reads the files. It is reloaded if it runs and has not read them as they are now, also when an
        earlier run was killed before it could do that.
      - Once after each boot this is unknown, so that it is reloaded.
    type: str
    default: ""
  daemon_reload:
    description: Have systemd read its unit files again, if it goes by others of O(files) than there are now.
    type: bool
    default: false
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
    service: ssh
"""

RETURN = r"""
paths:
  description: What was written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/ssh/sshd_config.d/50-deeplearning.conf]
reloaded:
  description: What was reloaded, or would be in check mode. V(systemd) is systemd itself.
  returned: success
  type: list
  elements: str
  sample: [ssh]
"""

import contextlib
from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils import _services
from ansible_collections.deeplearning.aws.plugins.module_utils._files import Change, Unfit, alone, changes

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
        with contextlib.nullcontext() if module.check_mode else alone():
            needed = changes(module.params["files"])
            if needed and not module.check_mode:
                write(module, needed)
            reloaded = reload(module, needed)
    except (Unfit, _services.ServiceError) as problem:
        module.fail_json(msg=str(problem), invocation={})
    diff = [change.as_diff() for change in needed] if module._diff else []
    # Without what it was given: whole programs, which need not come back.
    module.exit_json(
        changed=bool(needed or reloaded),
        paths=[change.path for change in needed],
        reloaded=reloaded,
        diff=diff,
        invocation={},
    )


def write(module: AnsibleModule, needed: Sequence[Change]) -> None:
    if module.params["service"]:
        _services.forget(module.params["service"])
    for change in needed:
        change.apply()
    problem = refusal(module)
    if problem:
        for change in reversed(needed):
            change.undo()
        raise Unfit(f"{module.params['validate']} fails, so that all was put back as it was: {problem}")


def reload(module: AnsibleModule, needed: Sequence[Change]) -> list[str]:
    """Reload what does not follow the files, and return the names."""
    service, reloaded = module.params["service"], []
    if module.params["daemon_reload"] and not _services.units_follow(item["path"] for item in module.params["files"]):
        reloaded.append("systemd")
        if not module.check_mode:
            _services.reload_units()
    if service and ((needed and module.check_mode) or not _services.follows(service)):
        reloaded.append(service)
        if not module.check_mode:
            problem = "" if needed else refusal(module)
            if problem:
                raise Unfit(f"{module.params['validate']} fails, so that {service} is not reloaded: {problem}")
            _services.reload(service)
    return reloaded


def refusal(module: AnsibleModule) -> str:
    """Return what the validating command says if it fails."""
    if not module.params["validate"]:
        return ""
    code, output, errors = module.run_command(module.params["validate"])
    return (errors or output).strip() or f"it ended with {code}" if code else ""


if __name__ == "__main__":
    main()
