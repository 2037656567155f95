# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Resources in the cluster's network that do not have its tag, as text: what they cost, and how they are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.contract.run_cost import CURRENCY, shown
from ...module_utils.contract.tables import join_names
from ...module_utils.plan.prices import PriceList
from ..resources.kinds import kind_of
from ..resources.resources import ClusterResources
from ..resources.untagged import Surroundings, UntaggedResource, with_untagged
from .costs import hourly_of, present_machines, read_prices

_TITLE = "These do not have the cluster's tag, and are in its VPC or use its security groups:"


def prices_for(aws: Aws, owned: ClusterResources, surroundings: Surroundings) -> PriceList:
    """Read the prices of what `lines` describes. Without untagged resources, no call is made."""
    if not surroundings.untagged:
        return PriceList(aws.region)
    return read_prices(aws, present_machines(with_untagged(owned, surroundings)))


def lines(untagged: Sequence[UntaggedResource], prices: PriceList, destroy: str) -> list[str]:
    """Return a line for each resource. `destroy`: the command that removes the cluster."""
    if not untagged:
        return []
    shown_lines = [_TITLE, *(f"  {line(item, prices)}" for item in untagged)]
    removable = [item.id for item in untagged if item.is_removable]
    if removable:
        shown_lines.append(
            "destroy leaves them alone unless you name them, for which it needs an administrator's permission "
            f"(docs/iam.md): {destroy} -e destroy_also={','.join(removable)}"
        )
    return shown_lines


def line(item: UntaggedResource, prices: PriceList) -> str:
    """Return a resource with its state, its price, whose it is, and the command that removes it."""
    resource = item.resource
    words = [resource.describe()]
    if resource.state:
        words.append(resource.state)
    if item.vpc:
        words.append(f"in {item.vpc}")
    if not item.belongs_here:
        words.append("which the cluster did not create")
    if item.owner:
        words.append(f"belongs to {item.owner}")
    if item.note:
        words.append(item.note)
    if kind_of(resource.kind).costs:
        words.append(_price(item, prices))
    command = f". By hand: {item.command}" if item.command else ""
    return f"{', '.join(words)}{command}"


def _price(item: UntaggedResource, prices: PriceList) -> str:
    amount = hourly_of(item.resource, prices) if item.resource.costs else 0.0
    return "price not known" if amount is None else f"{shown(amount)} {CURRENCY} an hour"


def as_dicts(surroundings: Surroundings) -> list[dict[str, Any]]:
    """Return what is in the cluster's own VPC, fit for JSON."""
    return [item.resource.as_dict() for item in surroundings.untagged if item.belongs_here]


def brief(items: Sequence[Mapping[str, Any]]) -> str:
    """Return in a few words what `as_dicts` has returned; empty if that is nothing."""
    numbers = Counter(str(item["kind"]) for item in items)
    if not numbers:
        return ""
    counts = join_names([kind_of(kind).in_words(number) for kind, number in numbers.items()])
    return f"{counts} in the cluster's VPC: ansible-playbook deeplearning.aws.audit"
