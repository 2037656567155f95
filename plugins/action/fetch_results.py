# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Get the files of a run and show progress. Its documentation is in plugins/modules/fetch_results.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.bucket import Bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import results
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.left_out import MOST_NAMED, LeftOut
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.result_targets import (
    LocalFolder,
    ResultTarget,
    RunFile,
    S3Folder,
    Transfer,
)

S3 = "s3://"
RULES = "docs/getting-results-out.md lists what is never sent; to get such files, pack them on the master."
MOST_SHOWN = 100
"""Files that check mode names."""


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        run_id, what = options["run_id"], options["what"]
        way = Way.of_connection(self._connection, str(task_vars.get("inventory_hostname", "the master")))
        display = ProgressDisplay.of_ansible()
        listing = results.list_files(way, run_id, what)
        if not listing.files:
            raise UserError(_nothing(run_id, what, listing))
        folder = Path(options["folder"], run_id)
        try:
            target = _target(options, display.transfer)
            if self.check_mode:
                files, refused = results.choose_for(target, listing.files)
                missing = [file for file in files if not target.existing(file)]
                display.close()
                self._display.display("\n".join(_preview(missing, len(files) - len(missing), target.place)))
                warnings = _left_out(listing.left_out.with_refused(refused))
                return {"changed": bool(missing), "place": target.place, "warnings": warnings}
            if listing.is_active:
                are = "the checkpoints that are complete" if what == "checkpoints" else "its files as they are"
                display.message(f"{run_id} goes on. These are {are} now.")
            fetch = results.Fetch(way, run_id, what, target, display.transfer)
            fetch.run(listing)
        except OSError as error:
            raise results.write_error(error, folder if options["to"].startswith(S3) else Path(target.place)) from None
        finally:
            display.close()
        self._display.display(_summary(fetch, target.place))
        return {"changed": bool(fetch.received), "place": target.place, "warnings": _warnings(fetch)}


def _target(options: Mapping[str, Any], transfer: Transfer) -> ResultTarget:
    run_id, what, to = options["run_id"], options["what"], options["to"]
    if not to.startswith(S3):
        return LocalFolder(Path(to or run_id).expanduser().absolute(), what, transfer)
    name, _slash, prefix = to.removeprefix(S3).strip("/").partition("/")
    aws = Aws.from_options(options)
    region = Bucket(aws, name, prefix).find_region()
    partial = Path(options["folder"], run_id, what).absolute()
    return S3Folder(Bucket(aws.in_region(region), name, prefix or run_id), partial, transfer)


def _nothing(run_id: str, what: str, listing: results.Listing) -> str:
    if listing.left_out:
        return f"All files of the {what} of {run_id} are left out: {listing.left_out.text}. {RULES}"
    yet = f" yet: it is {listing.state}" if listing.is_active else ""
    if what == "model":
        return (
            f"{run_id} has no model/ in its folder{yet}. The collection's trainers write it at their end; let a script "
            "of your own write to $DEEPLEARNING_RUN_DIR/model. To get its checkpoints: -e what=checkpoints"
        )
    return f"{run_id} has no {what}{yet}. To get its logs: -e what=logs"


def _preview(missing: list[RunFile], present: int, place: str) -> list[str]:
    lines = [f"  {results.size(file.size):>10}  {file.name}" for file in missing[:MOST_SHOWN]]
    more = len(missing) - MOST_SHOWN
    if more > 0:
        lines.append(f"  and {more} more")
    total = results.size(sum(file.size for file in missing))
    already = f"; {results.count(present)} there already" if present else ""
    lines.append(f"To get: {results.count(len(missing))}, {total}, to {place}{already}")
    return lines


def _summary(fetch: results.Fetch, place: str) -> str:
    total = results.size(sum(file.size for file in (*fetch.received, *fetch.were_there)))
    number = results.count(len(fetch.received) + len(fetch.were_there))
    already = f", of which {len(fetch.were_there)} had been there" if fetch.were_there else ""
    return f"{number} of {fetch.run_id}, {total}, in {place}{already}. All were compared by SHA-256."


def _warnings(fetch: results.Fetch) -> list[str]:
    warnings = _left_out(fetch.left_out)
    if fetch.gone:
        shown = ", ".join(fetch.gone[:MOST_NAMED])
        warnings.append(f"The run has removed {results.count(len(fetch.gone))} meanwhile: {shown}.")
    return warnings


def _left_out(left_out: LeftOut) -> list[str]:
    if not left_out:
        return []
    return [f"Left out: {left_out.text}. {RULES}"]
