# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: one_line
short_description: Make a text from a node safe to print
version_added: 1.0.0
description:
  - Replaces control characters and line breaks. Training code may be root on a node, so a text from a node may hold
    anything, and Ansible prints the message of a failed task as it is.
options:
  _input:
    description: The text.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Fail with what a node printed
  ansible.builtin.fail:
    msg: "The node says: {{ result['stderr'] | deeplearning.aws.one_line }}"
"""

RETURN = r"""
_value:
  description: The text, in one line and without control characters.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"one_line": untrusted.one_line}
