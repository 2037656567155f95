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
positional: arguments
options:
  _input:
    description: The module and the constant in it, such as V(names.CLUSTER_TAG), or a function.
    type: str
    required: true
  arguments:
    description: The arguments of a function, one after the other.
    type: raw
"""

EXAMPLES = r"""
- name: Print the key of the tag that all resources of a cluster have
  ansible.builtin.debug:
    msg: "{{ 'names.CLUSTER_TAG' | deeplearning.aws.contract }}"

- name: Print the folder of the cluster's runs
  ansible.builtin.debug:
    msg: "{{ 'paths.runs' | deeplearning.aws.contract('/efs', 'red') }}"
"""

RETURN = r"""
_value:
  description: The constant, or what the function returns.
  type: raw
"""

from collections.abc import Callable
from inspect import isfunction
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, names, paths, ports

MODULES = {"boot": boot, "names": names, "paths": paths, "ports": ports}


def contract(name: str, *arguments: str) -> Any:
    module, _dot, attribute = name.partition(".")
    value = getattr(MODULES.get(module), attribute, None)
    if arguments and isfunction(value):
        return value(*arguments)
    if not attribute.isupper() or value is None or arguments:
        raise AnsibleFilterError(f"{name} is no constant of the contract.")
    return value


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"contract": contract}
