"""Print the wheels of Horovod that builds of the machines' image made by the present code: key, path and SHA-256."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from localcloud.testing.images import CACHE  # noqa: E402
from tests.framework_recipes import kept_wheels  # noqa: E402

wheels = [
    {"key": key, "path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    for key, path in sorted(kept_wheels(CACHE).items())
]
print(json.dumps(wheels))
