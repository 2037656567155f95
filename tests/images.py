"""Images of booted machines that tests share."""

from __future__ import annotations

FRAMEWORKS = {"bullseye": "", "bookworm": "mxnet,pytorch,tensorflow,tensorpack", "trixie": "tensorflow"}
"""What the image of training clusters has inside, by Debian's release. Of the others there are no wheels for CPUs and
Debian 13's Python. No cluster of Debian 11 trains."""
