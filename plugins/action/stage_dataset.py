# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Stage a data set in a bucket and show progress. Its documentation is in plugins/modules/stage_dataset.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data import bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.first_fetches import FirstFetches
from ansible_collections.deeplearning.aws.plugins.plugin_utils.data.upload import stage
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        display = ProgressDisplay.of_ansible()
        data = options["data"]
        source = Path(options["source_dir"]).expanduser() if options["source_dir"] else None
        folder = Path(options["folder"]).expanduser() / data
        try:
            aws = Aws.from_options(options)
            own = Names("", aws.account, aws.region).data_bucket
            target = bucket.choose(aws, own, options["bucket"], data)
            fetches = FirstFetches(Path(options["records"]).expanduser())
            return stage(target, data, source, folder, fetches, display, self.check_mode, options["replace"])
        except OSError as error:
            problem = f"{error.filename or folder}: {error.strerror}"
            raise UserError(f"{problem}. Fix that and run the same command again: it resumes there.") from None
        finally:
            display.close()
