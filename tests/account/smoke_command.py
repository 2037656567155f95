"""`make aws-smoke` with what tests change, as a process of its own: smoke_command.py FOLDER OPTIONS.

OPTIONS is JSON with the words of `program`, `ahead`, by how many seconds its clock is
ahead, and `settings` of all clusters.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ansible.plugins.loader import init_plugin_loader  # noqa: E402

init_plugin_loader([str(ROOT / "collections")])

from tests.smoke import run  # noqa: E402

if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    sys.exit(
        run.main(
            dict(os.environ),
            program=options["program"],
            clock=lambda: time.time() + options.get("ahead", 0),
            folder=Path(sys.argv[1]),
            **options.get("settings", {}),
        )
    )
