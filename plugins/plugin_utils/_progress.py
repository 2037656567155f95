# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the program on a node tells while it fetches or unpacks: shown as it comes, and the last of it handed back.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller

_NOTE = u.record(text=u.words)
_PROGRESS = u.record(done=u.count, total=u.count)


def shown(
    lines: Iterable[str], host: str, command: Sequence[str], teller: Teller, before: int = 0, total: int = 0
) -> dict[str, Any]:
    """The answer to the command, which is the last line. `before` was done before, of `total`, if that is not the
    program's to know."""
    last = ""
    for line in lines:
        last = line
        event = _program.event(line)
        try:
            if event.get("event") == "note":
                teller.say(f"{host}: {_NOTE(event)['text']}")
            elif event.get("event") == "progress":
                progress = _PROGRESS(event)
                done, of = before + progress["done"], total or progress["total"]
                teller.progress(f"{host}: {done / 2**20:.0f} of {of / 2**20:.0f} MiB", done / of if of else None)
        except u.Malformed:
            # An event that is not ours says nothing about how the command ends.
            continue
    return _program.parsed(host, command, last)
