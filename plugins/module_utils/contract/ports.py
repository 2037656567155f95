# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The TCP ports of a cluster's services."""

from __future__ import annotations

NFS = 2049
PROMETHEUS = 9090
"""At the master's own loopback address."""
NODE_EXPORTER, DCGM_EXPORTER = 9100, 9400
"""What Prometheus reads on members."""
