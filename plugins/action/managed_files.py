# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the source files. The rest, and the documentation, is in plugins/modules/managed_files.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.module_utils.node.managed_files import COMPILED


class ActionModule(ActionBase):  # type: ignore[misc]
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        arguments["files"] = [self._with_texts(item) for item in arguments.get("files") or []]
        # Whole programs would fill the node's journal.
        variables = {**(task_vars or {}), "ansible_no_target_syslog": True}
        result: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=variables)
        return result

    def _with_texts(self, item: dict[str, Any]) -> dict[str, Any]:
        if not item.get("source"):
            return item
        rest = {name: value for name, value in item.items() if name != "source"}
        if item.get("state") == "absent":
            return rest
        source = Path(self._find_needle("files", str(item["source"])))
        if source.is_file():
            return {**rest, "content": _text(source)}
        names = [name for name in _files(source) if not any(part == COMPILED or part[0] == "." for part in name.parts)]
        return {**rest, "contents": {str(name): _text(source / name) for name in names}}


def _files(folder: Path) -> list[Path]:
    """Return the relative paths of all files below a folder. Links to folders are followed."""
    walk = os.walk(folder, followlinks=True)
    return sorted(Path(parent, name).relative_to(folder) for parent, _folders, names in walk for name in names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise AnsibleActionFail(f"{path} is not UTF-8 text: managed_files sends only such files.") from None
