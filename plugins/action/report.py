# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Makes the report of some runs. What it says is made in plugin_utils/_report.py."""

from __future__ import annotations

import shlex
from io import BytesIO
from pathlib import Path
from tarfile import open as open_tar
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _answers, _program, _report_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils._code import nobodys
from ansible_collections.deeplearning.aws.plugins.plugin_utils._report import Unreportable, written
from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import Malformed

SPEC: dict[str, dict[str, Any]] = {
    "runs": {"type": "list", "elements": "str", "default": []},
    "root": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
}
MOST_RUNS = 100
"""In a report of all runs. A page of more says nothing, and takes long to make."""
ENDED = ("finished", "failed", "stopped", "lost")


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(argument_spec=SPEC)[1]
        self._host = str((task_vars or {}).get("inventory_hostname", "the master"))
        try:
            runs = self._runs(arguments["runs"])
            if not runs:
                return {"failed": True, "msg": "No run has ended yet, so there is nothing to report on."}
            if self._task.check_mode:
                return {"changed": True, "runs": runs}
            # What was fetched stays: a report can be looked into.
            # No run has such a name.
            fetched = Path(arguments["folder"], ".runs")
            for run in runs:
                self._fetch(run, arguments["root"], fetched / run)
            name = runs[0] if len(runs) == 1 else f"{runs[0]}-and-{len(runs) - 1}-more"
            folder = Path(arguments["folder"], name)
            folder.mkdir(parents=True, exist_ok=True)
            lines, files = written([fetched / run for run in runs], folder)
            kept = f"{arguments['root']}/reports/{name}"
            self._keep(files, kept)
        except (_program.Trouble, Unreportable) as problem:
            return {"failed": True, "msg": str(problem)}
        except OSError as error:
            return {"failed": True, "msg": f"{error.filename} cannot be written: {error.strerror}."}
        except ArithmeticError as error:
            return {"failed": True, "msg": f"The figures of {', '.join(runs)} cannot be plotted: {error}."}
        page = str(folder / "report.html")
        Display().display("\n" + "\n".join([*lines, "", f"The report: {page}", f"on the nodes: {kept}"]) + "\n")
        return {"changed": True, "page": page, "kept": kept, "runs": runs}

    def _runs(self, named: list[str]) -> list[str]:
        """Those that were named, or the last ones that have ended. A sweep names what the master answered, so all are
        checked."""
        if not named:
            answer = _program.ask(self, ["run", "list", "--json"], self._host)
            return [run["run_id"] for run in answer["runs"] if run["state"] in ENDED][-MOST_RUNS:]
        try:
            return [_answers.run_id(run) for run in named]
        except Malformed as malformed:
            raise Unreportable(f"{malformed} is what a report is made of, and this is none: {named!r:.200}") from None

    def _fetch(self, run: str, root: str, folder: Path) -> None:
        command = _report_files.packing(f"{root}/{run}")
        packed = _program.read_bytes(self._connection, command, self._host, _report_files.MOST_PACKED)
        try:
            _report_files.unpack(packed, folder)
        except Malformed as malformed:
            raise _program.Trouble(f"What {self._host} sends as run {run} is not one: {malformed}.") from None

    def _keep(self, files: list[Path], kept: str) -> None:
        """Next to the runs as well: the files that were made here, by name."""
        packed = BytesIO()
        with open_tar(fileobj=packed, mode="w:gz") as archive:
            for file in files:
                archive.add(file, file.name, recursive=False, filter=nobodys)
        folder = shlex.quote(kept)
        unpack = f"mkdir -p {folder} && tar -xzf - --no-same-owner -C {folder}"
        ran = _program.execute(self, unpack, stdin=packed.getvalue())
        if ran["rc"]:
            raise _program.trouble(self._host, ran["rc"], ran["stderr"])
