"""Record what it was started with, then end as its argument says: script.py finish|fail|stay …"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

started_with = {"arguments": sys.argv[1:], "secret": os.environ.get("SECRET")}
Path(os.environ["DEEPLEARNING_RUN_DIR"], "started_with.json").write_text(json.dumps(started_with))
if sys.argv[1] == "fail":
    print("this went wrong")
    sys.exit(7)
if sys.argv[1] == "stay":
    signal.pause()
