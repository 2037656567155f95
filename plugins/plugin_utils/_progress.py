# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the program on a node tells while it fetches or unpacks: shown as it comes, and the last of it handed back.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils._program import event
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller


def shown(lines: Iterable[str], host: str, teller: Teller, before: int = 0, total: int = 0) -> dict[str, Any]:
    """The last thing that it tells. `before` was done before, of `total`, if that is not the program's to know."""
    last: dict[str, Any] = {}
    for line in lines:
        last = dict(event(line))
        if last.get("event") == "note":
            teller.say(f"{host}: {last['text']}")
        elif last.get("event") == "progress":
            done, of = before + last["done"], total or last["total"]
            teller.progress(f"{host}: {done / 2**20:.0f} of {of / 2**20:.0f} MiB", done / of if of else None)
    return last
