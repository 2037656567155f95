# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Removes a cluster, or parts of it. The order is in plugin_utils/_teardown.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import (
    WORDS,
    Estate,
    Thing,
    counted,
    kept,
    remains,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import Reader
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking
from ansible_collections.deeplearning.aws.plugins.plugin_utils._summary import destroy_command
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teardown import (
    PARTS,
    Teardown,
    doomed,
    foreign_targets,
    why_left,
)

ARGUMENTS: dict[str, dict[str, Any]] = {
    **_looking.SPEC,
    "consent": {"type": "str", "default": ""},
    "keep_file_system": {"type": "bool", "default": True},
    "parts": {"type": "list", "elements": "str", "default": [], "choices": list(PARTS)},
    "timeout_seconds": {"type": "float", "default": 1800.0},
    "stuck_seconds": {"type": "float", "default": 90.0},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]
        try:
            return self._run(_looking.aws_of(given), given)
        except AwsProblem as problem:
            return {"failed": True, "msg": str(problem)}

    def _run(self, aws: Aws, given: dict[str, Any]) -> dict[str, Any]:
        display, cluster, keep = Display(), given["cluster"], given["keep_file_system"]
        reader = Reader(aws, cluster)
        estate = reader.read()
        going = doomed(estate, keep, given["parts"])
        if given["consent"] != cluster:
            return self._refuse(display, estate, going, given)
        if self._task.check_mode:
            display.display("\n" + "\n".join(told(estate, going, keep)) + "\n")
            return {"changed": bool(going), "removed": [thing.as_dict() for thing in going]}
        teardown = Teardown(
            aws,
            reader,
            keep,
            display.display,
            seconds=given["timeout_seconds"],
            stuck_seconds=given["stuck_seconds"],
            parts=given["parts"],
        )
        left = teardown.run(estate)
        return self._settle(aws, teardown, left, given)

    def _refuse(self, display: Display, estate: Estate, going: list[Thing], given: dict[str, Any]) -> dict[str, Any]:
        cluster, consent = given["cluster"], given["consent"]
        display.display("\n" + "\n".join(told(estate, going, given["keep_file_system"])) + "\n")
        if not going:
            return {"changed": False, "removed": []}
        wrong = (
            f"destroy is {consent} and the cluster is {cluster}, so nothing was removed"
            if consent
            else "Nothing was removed, since that takes consent by name"
        )
        return {
            "failed": True,
            "msg": f"{wrong}. To remove what is listed, type: {destroy_command(cluster, _looking.again())}",
        }

    def _settle(self, aws: Aws, teardown: Teardown, left: list[Thing], given: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {
            "changed": teardown.changed,
            "removed": [thing.as_dict() for thing in teardown.removed.values()],
        }
        if given["parts"]:
            rest = left
        else:
            # The sweep: all is read anew, and what was meant to be done counts for nothing.
            estate = Reader(aws, given["cluster"]).read()
            rest = remains(estate, given["keep_file_system"])
            result["kept"] = [thing.as_dict() for thing in kept(estate, given["keep_file_system"])]
            if not rest:
                Display().display("\n" + "\n".join(told_after(estate, teardown)) + "\n")
        if rest:
            said = teardown.problems
            reasons = [why_left(aws, thing, said.get((thing.kind, thing.id), _why_not_ours(thing))) for thing in rest]
            result |= {
                "failed": True,
                "remains": [thing.as_dict() for thing in rest],
                "msg": f"Of the cluster {given['cluster']} there is still: " + "\n".join(reasons),
            }
        return result


def _why_not_ours(thing: Thing) -> str:
    return "" if thing.ours else "the cluster did not make it, so it is left alone."


def told(estate: Estate, going: list[Thing], keep: bool) -> list[str]:
    """What would go and what would stay."""
    where = f"{estate.cluster} ({estate.region}, account {estate.account})"
    lines = [f"Of the cluster {where} these would be removed:"] if going else [f"There is no cluster {where}."]
    order = list(WORDS)
    lines += [f"  {thing.in_words()}" for thing in sorted(going, key=lambda thing: order.index(thing.kind))]
    stays = kept(estate, keep)
    foreign = [thing for thing in estate.living if not thing.ours]
    held = [thing for thing in estate.of("file_system") if not keep and foreign_targets(estate, thing)]
    lines += [
        f"The {thing.in_words()} is kept: the next site.yml finds it. To remove it too: -e cluster_keep_efs=false"
        for thing in stays
    ]
    lines += [f"The {thing.in_words()} stays, as others have mount targets on it." for thing in held]
    lines += [f"The {thing.in_words()} stays, as the cluster did not make it." for thing in foreign]
    return lines


def told_after(estate: Estate, teardown: Teardown) -> list[str]:
    gone = counted(teardown.removed.values())
    lines = [f"The cluster {estate.cluster} is gone" + (f": {', '.join(gone)}." if gone else ", and was before.")]
    for thing in kept(estate, teardown.keep):
        size = f", {thing.facts['bytes'] / 2**30:.1f} GiB," if thing.facts["bytes"] >= 2**28 else ""
        lines.append(f"The {thing.in_words()}{size} is kept and goes on costing: the next site.yml finds it again.")
    return lines
