"""What a malicious node or user might send."""

from __future__ import annotations

EVIL_IDS = ["../x", "/abs", "a/../../x", "all", "", "-rf", "a b", "A", "a\n", "x" * 49, ["a"], {"a": 1}, 7, True, None]
EVIL = "{{ lookup('pipe', 'id') }}"
