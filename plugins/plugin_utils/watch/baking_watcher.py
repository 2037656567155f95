# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wait until a machine has turned itself into the source of an image, and report its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...module_utils.aws.polling import ProgressPrinter, until
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.report import FAILED, READY
from .capacity import NodeSetup

if TYPE_CHECKING:
    from ...module_utils.aws.client import Aws
    from .setup_reports import SetupReports

ENDED = ("stopped", "shutting-down", "terminated")


def wait_for_baking(
    aws: Aws, machine: str, reports: SetupReports, timeout_seconds: float, display: Callable[[str], None]
) -> None:
    """Raise UserError if the machine fails or is late. It is in no group: its reports are read under its own id."""
    progress = ProgressPrinter(display)

    def poll() -> tuple[str, NodeSetup] | None:
        # The state first: a machine reports before it stops.
        (instance,) = aws.instances(InstanceIds=[machine])
        state = str(instance["State"]["Name"])
        setup = reports.read({machine: [machine]}).get(machine, NodeSetup())
        progress.report(f"{machine} is {state}: {setup.state or 'no report yet'} {setup.step}".rstrip())
        return (state, setup) if state in ENDED or setup.state == FAILED else None

    ended = until(poll, timeout_seconds)
    if ended is None:
        raise UserError(
            f"{machine} has not prepared itself within {timeout_seconds / 60:g} minutes: "
            f"{' / '.join(reports.console(machine)) or 'its console shows nothing'}"
        )
    state, setup = ended
    if (state, setup.state) != ("stopped", READY):
        log = [*setup.log] or reports.console(machine)
        raise UserError(f"{machine} could not prepare itself ({setup.step or state}): {' / '.join(log)}")
