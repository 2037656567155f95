# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Says what a cluster is. Its words are made in plugin_utils/_summary.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import Reader
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _inventory, _looking, _summary, _trust

ARGUMENTS: dict[str, dict[str, Any]] = {
    **_looking.SPEC,
    "file": {"type": "str", "default": ""},
    "user": {"type": "str", "default": ""},
    "private_key_file": {"type": "str", "default": ""},
    "hourly": {"type": "dict", "default": {}},
    "next": {"type": "str", "default": ""},
    "failure": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]
        try:
            aws = _looking.aws_of(given)
            estate = Reader(aws, given["cluster"]).read()
            health = _looking.health(aws, estate)
        except AwsProblem as problem:
            return {"failed": True, "msg": str(problem)}
        name = given["file"] or _summary.default_file(given["cluster"])
        file = Path(name).expanduser()
        # Who only looks has no plan at hand: what it said when the cluster was made still holds.
        known = _summary.read(file)
        summary = _summary.summary_of(
            estate,
            health,
            _summary.Given(
                user=given["user"] or known.get("user", ""),
                private_key_file=given["private_key_file"] or known.get("private_key_file", ""),
                hourly=given["hourly"] or known.get("hourly", {}),
                next=given["next"],
                failure=given["failure"],
                again=_looking.again(),
                way=_inventory.way_of(_trust.JUMP, _trust.files(_folder(task_vars or {}), given["cluster"])[1]),
            ),
        )
        written = not self._task.check_mode and self._write(file, summary)
        lines = _summary.text_of(summary, estate, name if written or file.exists() else "")
        Display().display("\n" + "\n".join(lines) + "\n")
        # That a file about the cluster is new does not make the cluster a changed one.
        return {"changed": False, "summary": summary}

    def _write(self, file: Path, summary: dict[str, Any]) -> bool:
        try:
            _summary.write(file, summary)
        except OSError as error:
            Display().warning(f"The summary cannot be written to {file}: {error.strerror}.")
            return False
        return True


def _folder(task_vars: Mapping[str, Any]) -> Path:
    """Where `members` puts its files; the inventory hands it on."""
    return Path(str(task_vars.get("deeplearning_folder", ".deeplearning"))).absolute()
