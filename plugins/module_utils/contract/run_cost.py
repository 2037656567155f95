# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the machines of a run cost an hour. The request has the prices: members have no permission to ask for them."""

from __future__ import annotations

from collections.abc import Mapping

from . import schema

CURRENCY = "USD"
CENT = 0.01
LEAST_AMOUNT = 0.0001
MOST_TYPES = 16
prices = schema.map_of(schema.instance_type, schema.number(0, 1e6), MOST_TYPES)
"""What machines of each type cost an hour on demand."""


def hourly(known: Mapping[str, float], machines: Mapping[str, int]) -> float | None:
    """Return what machines cost an hour, or None if that is not known. `machines`: how many there are of each type."""
    if not machines or not machines.keys() <= known.keys():
        return None
    return sum(known[kind] * count for kind, count in machines.items())


def phrase(amount: float | None) -> str:
    """Return what the machines of a run cost, as text."""
    return "an amount that is not known" if amount is None else f"{shown(amount)} {CURRENCY} an hour"


def in_all(cost: Mapping[str, float | None]) -> str:
    """Return the cost of a run as text: so far, and at its end if that can be estimated. It counts by the cent."""
    amount, at_end = cost["so_far"] or 0.0, cost["at_end"]
    if 0 < max(amount, at_end or 0.0) < CENT:
        return f"less than {CENT} {CURRENCY}"
    so_far = f"{shown(amount)} {CURRENCY}"
    return so_far if at_end is None else f"{so_far} so far, about {shown(at_end)} at its end"


def rate(amount: float) -> str:
    """Return what something costs, by its price of an hour, as text."""
    return f"{shown(amount)} {CURRENCY} an hour, {shown(amount * 24)} a day"


def shown(amount: float) -> str:
    """Return an amount with the digits that matter: 27.16, 0.045."""
    if 0 < amount < LEAST_AMOUNT:
        return f"less than {LEAST_AMOUNT}"
    return f"{amount:.2f}" if amount >= 1 or not amount else f"{amount:.4f}".rstrip("0")
