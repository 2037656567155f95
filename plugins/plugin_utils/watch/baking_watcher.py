# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wait until a machine has turned itself into the source of an image, and report its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.polling import ProgressPrinter, until
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import FAILED, READY
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import NodeSetup

if TYPE_CHECKING:
    from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.setup_reports import SetupReports

ENDED = ("stopped", "shutting-down", "terminated")


class BakingWatch:
    """The machine is in no group, so its reports are read under its own id."""

    def __init__(
        self, aws: Aws, machine: str, reports: SetupReports, timeout_seconds: float, display: Callable[[str], None]
    ) -> None:
        self._aws, self._machine, self._reports = aws, machine, reports
        self._timeout_seconds = timeout_seconds
        self._progress = ProgressPrinter(display)

    def run(self) -> None:
        ended = until(self._poll, self._timeout_seconds)
        if ended is None:
            raise UserError(
                f"{self._machine} has not prepared itself within {self._timeout_seconds / 60:g} minutes: "
                f"{' / '.join(self._reports.console(self._machine)) or 'its console shows nothing'}"
            )
        state, setup = ended
        if (state, setup.state) != ("stopped", READY):
            log = [*setup.log] or self._reports.console(self._machine)
            raise UserError(f"{self._machine} could not prepare itself ({setup.step or state}): {' / '.join(log)}")

    def _poll(self) -> tuple[str, NodeSetup] | None:
        # The state first: a machine reports before it stops.
        state = self._state()
        setup = self._reports.read({self._machine: [self._machine]}).get(self._machine, NodeSetup())
        self._progress.report(f"{self._machine} is {state}: {setup.state or 'no report yet'} {setup.step}".rstrip())
        return (state, setup) if state in ENDED or setup.state == FAILED else None

    def _state(self) -> str:
        described = self._aws.pages("ec2", "describe_instances", "Reservations", InstanceIds=[self._machine])
        return str(described[0]["Instances"][0]["State"]["Name"])
