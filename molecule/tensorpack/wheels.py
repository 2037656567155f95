"""Print the wheels of Horovod that builds of the machines' image made by the present code: key, path and SHA-256."""

from __future__ import annotations

import hashlib
import json

from localcloud.image import features
from localcloud.state import IMAGES

wheels = [
    {"key": key, "path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    for key, path in sorted(features.kept_wheels(IMAGES / "wheels").items())
]
print(json.dumps(wheels))
