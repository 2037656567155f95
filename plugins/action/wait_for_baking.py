# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wait until a machine has prepared itself as the source of an image, and print its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.polling import ProgressPrinter, until
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import FAILED, READY
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.capacity import NodeSetup
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.setup_reports import SetupReports

GROUP = "image"
"""The reports are read by groups. This machine is in none."""
ENDED = ("stopped", "shutting-down", "terminated")


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        if self.check_mode:
            return {"changed": False}
        aws, machine = Aws.from_options(options), options["instance_id"]
        reports = SetupReports(aws, options["bucket"], options["account"], {GROUP: options["role_id"]})
        progress = ProgressPrinter(Display().display)

        def poll() -> tuple[str, NodeSetup] | None:
            # The state first: a machine reports before it stops.
            state = state_of(aws, machine)
            setup = reports.read({GROUP: [machine]}).get(machine, NodeSetup())
            progress.report(f"{machine} is {state}: {setup.state or 'no report yet'} {setup.step}".rstrip())
            return (state, setup) if state in ENDED or setup.state == FAILED else None

        ended = until(poll, options["timeout_seconds"])
        if ended is None:
            raise UserError(
                f"{machine} has not prepared itself within {options['timeout_seconds'] / 60:g} minutes: "
                f"{' / '.join(reports.console(machine)) or 'its console shows nothing'}"
            )
        state, setup = ended
        if (state, setup.state) != ("stopped", READY):
            log = [*setup.log] or reports.console(machine)
            raise UserError(f"{machine} could not prepare itself ({setup.step or state}): {' / '.join(log)}")
        return {"changed": False}


def state_of(aws: Aws, machine: str) -> str:
    described = aws.pages("ec2", "describe_instances", "Reservations", InstanceIds=[machine])
    return str(described[0]["Instances"][0]["State"]["Name"])
