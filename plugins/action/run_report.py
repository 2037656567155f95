# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Write a report on runs. Its documentation is in plugins/modules/run_report.py."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import ENDED_STATES, run_id
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import current_prices
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program, report, report_files
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue

MOST_RUNS = 100
"""In a report on all runs: a page with more is hard to read, and takes long to write."""
MOST_TYPES = 20
"""Instance types whose prices are requested: a node may have written down any number of them."""
PAGE = "report.html"


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        self._way = Way.of_connection(self._connection, str(task_vars.get("inventory_hostname", "the master")))
        runs = self._runs(options["runs"])
        if not runs:
            raise UserError("No run has ended yet, so there is nothing to report on.")
        if self.check_mode:
            return {"changed": True, "runs": runs}
        name = runs[0] if len(runs) == 1 else f"{runs[0]}-and-{len(runs) - 1}-more"
        page = Path(options["folder"], name, PAGE)
        try:
            lines = self._write(runs, options, page)
        except OSError as error:
            raise UserError(f"{error.filename} cannot be written: {error.strerror}.") from None
        except ArithmeticError as error:
            raise UserError(f"The figures of {', '.join(runs)} cannot be plotted: {error}.") from None
        node_folder = f"{options['root']}/reports/{name}"
        self._send(page, node_folder)
        places = [f"The report: {page}", f"on the nodes: {node_folder}"]
        self.show([*lines, "", *places])
        return {"changed": True, "page": str(page), "node_folder": node_folder, "runs": runs}

    def _runs(self, run_ids: list[str]) -> list[str]:
        """Return the requested runs, or the last ones that have ended.

        A sweep requests the ids that the master has answered, so all ids are checked.
        """
        if not run_ids:
            answer = node_program.ask(self._way, ["run", "list", "--json"])
            return [run["run_id"] for run in answer["runs"] if run["state"] in ENDED_STATES][-MOST_RUNS:]
        try:
            return [run_id(run) for run in run_ids]
        except InvalidValue as malformed:
            raise UserError(f"runs is {run_ids!r:.200}; each of them must be {malformed}.") from None

    def _write(self, runs: list[str], options: Mapping[str, Any], page: Path) -> list[str]:
        # No run has such a name. The files stay there, for people who want to look into the figures.
        fetched = page.parents[1] / ".runs"
        command = report_files.collect_command(options["root"], runs)
        try:
            with node_program.output(
                self._way, command, limit=report_files.MOST_PACKED, seconds=report_files.SECONDS
            ) as chunks:
                report_files.write(node_program.lines(chunks, self._way.host), runs, fetched)
        except InvalidValue as malformed:
            raise UserError(f"What {self._way.host} sends of {', '.join(runs):.200} is {malformed}.") from None
        reported = report.read_all(fetched / run for run in runs)
        types = sorted({kind for run in reported for kind in run.machine_hours})[:MOST_TYPES]
        current = current_prices(Aws.from_options(options), types) if types else {}
        page.parent.mkdir(parents=True, exist_ok=True)
        return report.write(reported, PriceList(options["region"], current), page)

    def _send(self, page: Path, node_folder: str) -> None:
        """Copy the page to the shared file system, next to the runs."""
        folder = shlex.quote(node_folder)
        command = f"umask 022 && mkdir -p {folder} && cd {folder} && cat > .{PAGE} && mv .{PAGE} {PAGE}"
        with page.open("rb") as content:
            node_program.run(self._way, command, content)
