# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the actions that look at a whole cluster have in common.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import Estate, Health, health_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils._capacity import Wish, explain, missing_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils._summary import repeated
from ansible_collections.deeplearning.aws.plugins.plugin_utils._watching import AutoScaling

SPEC: Mapping[str, dict[str, Any]] = {**ARGUMENTS, "cluster": {"type": "str", "required": True}}


def aws_of(given: Mapping[str, Any]) -> Aws:
    return Aws(given["region"], given["profile"], given["role_arn"])


def again() -> str:
    """The -e options of this command line."""
    return repeated(str(one) for one in context.CLIARGS.get("extra_vars") or ())


def health(aws: Aws, estate: Estate) -> Health:
    """How the cluster is; where machines are missing, with AWS's words why."""
    groups = [thing for thing in estate.of("auto_scaling_group") if thing.ours]
    short = [thing for thing in groups if len(thing.facts["in_service"]) < int(thing.facts["most"])]
    reasons: dict[str, Sequence[str]] = {}
    if short:
        seen = AutoScaling(aws).look([thing.name for thing in short], 0.0, None)
        for thing in short:
            if thing.name in seen and seen[thing.name].failures:
                wish = Wish(thing.name, int(thing.facts["most"]))
                reasons[thing.name] = [explain(one) for one in missing_of(seen[thing.name], wish)]
    return health_of(estate, reasons)
