# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: answer
short_description: Parse what the program on a node printed
version_added: 1.0.0
description:
  - Turns JSON that a node has printed into values of the types that the collection expects.
  - Training code may be root on a node, so the text may hold anything. Text of another form fails the task. Control
    characters are removed.
positional: name
options:
  _input:
    description: What was printed.
    type: str
    required: true
  name:
    description: The first two words of the command that printed the text, such as V(members publish).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Print the generation of the member list
  ansible.builtin.debug:
    msg: "{{ (published['stdout'] | deeplearning.aws.answer('members publish'))['generation'] }}"
"""

RETURN = r"""
_value:
  description: The answer.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers


def answer(text: Any, name: str) -> dict[str, Any]:
    try:
        return answers.ANSWERS[name](untrusted.from_json(str(text)))
    except untrusted.InvalidValue as malformed:
        raise AnsibleFilterError(answers.unexpected("A node", name.split(), malformed)) from None


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"answer": answer}
