"""Nothing of the cluster is left: absent.py CLUSTER REGION"""

from __future__ import annotations

import sys

from census import census

assert not (left := census(*sys.argv[1:])), left
