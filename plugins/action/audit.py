# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Says what clusters have left in the account."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import Estate, remains
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import Reader, clusters_in
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking
from ansible_collections.deeplearning.aws.plugins.plugin_utils._summary import costs_in_words, destroy_command

ALL = "all"


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=dict(_looking.SPEC))[1]
        try:
            aws = _looking.aws_of(given)
            names = clusters_in(aws) if given["cluster"] == ALL else [given["cluster"]]
            estates = [Reader(aws, name).read() for name in names]
        except AwsProblem as problem:
            return {"failed": True, "msg": str(problem)}
        Display().display("\n" + "\n".join(_text(aws, given["cluster"], estates)) + "\n")
        return {
            "changed": False,
            "clusters": {
                estate.cluster: {
                    "clean": not remains(estate, keep=True),
                    "exists": [thing.as_dict() for thing in estate.living],
                }
                for estate in estates
            },
        }


def _text(aws: Aws, asked: str, estates: list[Estate]) -> list[str]:
    found = [estate for estate in estates if estate.living]
    if not found:
        whose = "any cluster" if asked == ALL else f"the cluster {asked}"
        return [f"There is nothing of {whose} in {aws.region}."]
    lines: list[str] = []
    for estate in found:
        lines.append(f"The cluster {estate.cluster} ({estate.region}, account {estate.account}) has:")
        for thing in estate.living:
            state = f", {thing.state}" if thing.state else ""
            foreign = "" if thing.ours else ", not made by the cluster"
            lines.append(f"  {thing.in_words()}{state}{foreign}")
        costs = costs_in_words(estate.living)
        lines.append(f"It costs: {', '.join(costs)}." if costs else "It costs nothing.")
        if remains(estate, keep=True):
            lines.append(f"To remove it: {destroy_command(estate.cluster, f' -e cluster_name={estate.cluster}')}")
    return lines
