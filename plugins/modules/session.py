#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: session
short_description: Keys to work in a role for an hour
version_added: 1.0.0
description:
  - Assumes a role, and returns keys for modules that cannot do that by themselves, such as those of C(amazon.aws).
  - The keys end after an hour and are not replaced, unlike those that the modules of this collection use with
    O(role_arn).
  - What it returns is secret, so its task needs C(no_log).
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode; it never changes anything.
    support: full
"""

EXAMPLES = r"""
- name: Work in a role
  deeplearning.aws.session:
    region: us-east-1
    role_arn: arn:aws:iam::123456789012:role/operator
  register: session
  no_log: true
"""

RETURN = r"""
access_key:
  description: The access key.
  returned: always
  type: str
secret_key:
  description: The secret that belongs to it.
  returned: always
  type: str
session_token:
  description: The session's token.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        keys = Aws.of(module).keys()
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, **keys)


if __name__ == "__main__":
    main()
