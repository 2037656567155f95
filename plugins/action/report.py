# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Makes the report of some runs. What it says is made in plugin_utils/_report.py."""

from __future__ import annotations

import shlex
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from tarfile import TarError
from tarfile import open as open_tar
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils._report import Unreportable, written

SPEC: dict[str, dict[str, Any]] = {
    "runs": {"type": "list", "elements": "str", "default": []},
    "root": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
}
PARTS = ("run.json", "result.json", "events.jsonl", "metrics", "attempts")
ENDED = ("finished", "failed", "stopped", "lost")


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        self._host = str((task_vars or {}).get("inventory_hostname", "the master"))
        try:
            runs = given["runs"] or self._ended()
            if not runs:
                return {"failed": True, "msg": "No run has ended yet, so there is nothing to report on."}
            if self._task.check_mode:
                return {"changed": True, "runs": runs}
            # What was fetched stays: a report can be looked into.
            fetched = Path(given["folder"], "runs")
            self._fetch(runs, given["root"], fetched)
            name = runs[0] if len(runs) == 1 else f"{runs[0]}-and-{len(runs) - 1}-more"
            made = Path(given["folder"], name)
            made.mkdir(parents=True, exist_ok=True)
            lines = written([fetched / run for run in runs], made)
            kept = f"{given['root']}/reports/{name}"
            self._keep(made, kept)
        except (_program.Trouble, Unreportable) as problem:
            return {"failed": True, "msg": str(problem)}
        page = str(made / "report.html")
        Display().display("\n" + "\n".join([*lines, "", f"The report: {page}", f"on the nodes: {kept}"]) + "\n")
        return {"changed": True, "page": page, "kept": kept, "runs": runs}

    def _ended(self) -> list[str]:
        listed = _program.event(self._shell(_program.command(["run", "list", "--json"])))
        return [run["run_id"] for run in listed.get("runs", []) if run["state"] in ENDED]

    def _fetch(self, runs: list[str], root: str, folder: Path) -> None:
        """In one piece. Of a run in another place there is a link, which is followed."""
        wanted = " ".join(shlex.quote(f"{run}/{part}") for run in runs for part in PARTS)
        there = '[ -e "$run/run.json" ] || { echo There is no run $run. >&2; exit 2; }'
        missing = f"for run in {shlex.join(runs)}; do {there}; done"
        packed = f"tar -chzf - --ignore-failed-read {wanted} 2>/dev/null | base64 -w0"
        said = self._shell(f"cd {shlex.quote(root)} && {missing} && {packed}")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with open_tar(fileobj=BytesIO(b64decode(said)), mode="r:gz") as archive:
                archive.extractall(folder, filter="data")
        except (TarError, ValueError, OSError) as error:
            raise _program.Trouble(f"What came of the runs from {self._host} cannot be unpacked: {error}") from error

    def _keep(self, made: Path, kept: str) -> None:
        """Beside the runs as well."""
        packed = BytesIO()
        with open_tar(fileobj=packed, mode="w:gz") as archive:
            archive.add(made, ".")
        folder = shlex.quote(kept)
        self._shell(f"mkdir -p {folder} && tar -xzf - --no-same-owner -C {folder}", packed.getvalue())

    def _shell(self, command: str, stdin: bytes | None = None) -> str:
        ran = self._low_level_execute_command(command, sudoable=False, in_data=stdin)
        if ran["rc"]:
            raise _program.trouble(self._host, ran["rc"], ran["stderr"])
        return str(ran["stdout"])
