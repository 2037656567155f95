# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, frameworks, names, paths, ports

MODULES = {"boot": boot, "frameworks": frameworks, "names": names, "paths": paths, "ports": ports}


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
