# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: contract
short_description: Read a name or a number that operator and nodes agree on
version_added: 1.0.0
description:
  - Returns a constant of this collection's Python, such as the key of a tag or a port, so that roles and playbooks do
    not write it again.
options:
  _input:
    description: The module and the constant in it, such as V(names.CLUSTER_TAG).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Print the key of the tag that all resources of a cluster have
  ansible.builtin.debug:
    msg: "{{ 'names.CLUSTER_TAG' | deeplearning.aws.contract }}"
"""

RETURN = r"""
_value:
  description: The constant.
  type: raw
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, names, ports

MODULES = {"boot": boot, "names": names, "ports": ports}


def contract(constant: str) -> Any:
    module, _dot, name = constant.partition(".")
    if not name.isupper() or not hasattr(MODULES.get(module), name):
        raise AnsibleFilterError(f"{constant} is no constant of the contract.")
    return getattr(MODULES[module], name)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"contract": contract}
