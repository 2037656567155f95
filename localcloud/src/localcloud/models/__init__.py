"""Requests and answers against the models of AWS's services in botocore."""

from __future__ import annotations

VARIABLE = "LOCALCLOUD_FORMS"
"""In the environment: the file. Without it nothing is compared."""
COLLECTION, NODE, BOOT = "collection", "node", "boot"
"""Where a request comes from: modules and plugins, the node program, or its first stage, which has no SDK."""
