"""Names and numbers of the local cloud that programs outside of it need."""

from __future__ import annotations

import json

from localcloud.core.settings import ACCOUNT as ACCOUNT
from localcloud.core.settings import DATA as DATA
from localcloud.core.settings import DEFAULT_REGION as DEFAULT_REGION
from localcloud.core.settings import EDGE_ADDRESS
from localcloud.core.settings import HOME as HOME
from localcloud.core.settings import IMAGE_NAME as IMAGE_NAME
from localcloud.core.settings import SUITE as SUITE
from localcloud.core.settings import image_with as image_with

OPERATOR = f"{EDGE_ADDRESS}/32"
"""The address from which machines see the connections of the operator's machine come."""

# Read without the modules that serve them, which load all of moto.
QUOTA_CODES: tuple[str, ...] = tuple(
    limit["code"] for limit in json.loads((DATA / "quotas.json").read_text(encoding="utf-8"))["resources"]
)
"""The codes of the quotas of resources: by default an account may have five of each."""
