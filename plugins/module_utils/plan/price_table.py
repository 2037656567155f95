# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""AWS's on-demand prices in USD by region and item, each with its date and source. Made by tools/prices.py.

Figures from memory have not been compared with AWS's list since. PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping

MEMORY = "memory"
Figure = tuple[float, str, str]

PRICES: Mapping[str, Mapping[str, Figure]] = {
    "us-east-1": {
        "NAT gateway, GB": (0.045, "2025-12", MEMORY),
        "NAT gateway, hour": (0.045, "2025-12", MEMORY),
        "bucket, GB-month": (0.023, "2025-12", MEMORY),
        "disk gp2, GB-month": (0.1, "2025-12", MEMORY),
        "disk gp3, GB-month": (0.08, "2025-12", MEMORY),
        "file system, GB-month": (0.3, "2025-12", MEMORY),
        "machine c5.18xlarge, hour": (3.06, "2025-12", MEMORY),
        "machine c5.2xlarge, hour": (0.34, "2025-12", MEMORY),
        "machine c5.4xlarge, hour": (0.68, "2025-12", MEMORY),
        "machine c5.9xlarge, hour": (1.53, "2025-12", MEMORY),
        "machine c5.large, hour": (0.085, "2025-12", MEMORY),
        "machine c5.xlarge, hour": (0.17, "2025-12", MEMORY),
        "machine c5n.18xlarge, hour": (3.888, "2025-12", MEMORY),
        "machine c6i.2xlarge, hour": (0.34, "2025-12", MEMORY),
        "machine c6i.4xlarge, hour": (0.68, "2025-12", MEMORY),
        "machine c6i.large, hour": (0.085, "2025-12", MEMORY),
        "machine c6i.xlarge, hour": (0.17, "2025-12", MEMORY),
        "machine g4dn.12xlarge, hour": (3.912, "2025-12", MEMORY),
        "machine g4dn.16xlarge, hour": (4.352, "2025-12", MEMORY),
        "machine g4dn.2xlarge, hour": (0.752, "2025-12", MEMORY),
        "machine g4dn.4xlarge, hour": (1.204, "2025-12", MEMORY),
        "machine g4dn.8xlarge, hour": (2.176, "2025-12", MEMORY),
        "machine g4dn.metal, hour": (7.824, "2025-12", MEMORY),
        "machine g4dn.xlarge, hour": (0.526, "2025-12", MEMORY),
        "machine g5.12xlarge, hour": (5.672, "2025-12", MEMORY),
        "machine g5.16xlarge, hour": (4.096, "2025-12", MEMORY),
        "machine g5.24xlarge, hour": (8.144, "2025-12", MEMORY),
        "machine g5.2xlarge, hour": (1.212, "2025-12", MEMORY),
        "machine g5.48xlarge, hour": (16.288, "2025-12", MEMORY),
        "machine g5.4xlarge, hour": (1.624, "2025-12", MEMORY),
        "machine g5.8xlarge, hour": (2.448, "2025-12", MEMORY),
        "machine g5.xlarge, hour": (1.006, "2025-12", MEMORY),
        "machine g6.12xlarge, hour": (4.6016, "2025-12", MEMORY),
        "machine g6.16xlarge, hour": (3.3968, "2025-12", MEMORY),
        "machine g6.24xlarge, hour": (6.6752, "2025-12", MEMORY),
        "machine g6.2xlarge, hour": (0.9776, "2025-12", MEMORY),
        "machine g6.48xlarge, hour": (13.3504, "2025-12", MEMORY),
        "machine g6.4xlarge, hour": (1.3232, "2025-12", MEMORY),
        "machine g6.8xlarge, hour": (2.0144, "2025-12", MEMORY),
        "machine g6.xlarge, hour": (0.8048, "2025-12", MEMORY),
        "machine g6e.12xlarge, hour": (10.4926, "2025-12", MEMORY),
        "machine g6e.16xlarge, hour": (7.5772, "2025-12", MEMORY),
        "machine g6e.24xlarge, hour": (15.0656, "2025-12", MEMORY),
        "machine g6e.2xlarge, hour": (2.2421, "2025-12", MEMORY),
        "machine g6e.48xlarge, hour": (30.1312, "2025-12", MEMORY),
        "machine g6e.4xlarge, hour": (3.0042, "2025-12", MEMORY),
        "machine g6e.8xlarge, hour": (4.5286, "2025-12", MEMORY),
        "machine g6e.xlarge, hour": (1.861, "2025-12", MEMORY),
        "machine m5.2xlarge, hour": (0.384, "2025-12", MEMORY),
        "machine m5.4xlarge, hour": (0.768, "2025-12", MEMORY),
        "machine m5.large, hour": (0.096, "2025-12", MEMORY),
        "machine m5.xlarge, hour": (0.192, "2025-12", MEMORY),
        "machine m6i.2xlarge, hour": (0.384, "2025-12", MEMORY),
        "machine m6i.large, hour": (0.096, "2025-12", MEMORY),
        "machine m6i.xlarge, hour": (0.192, "2025-12", MEMORY),
        "machine p2.16xlarge, hour": (14.4, "2025-12", MEMORY),
        "machine p2.8xlarge, hour": (7.2, "2025-12", MEMORY),
        "machine p2.xlarge, hour": (0.9, "2025-12", MEMORY),
        "machine p3.16xlarge, hour": (24.48, "2025-12", MEMORY),
        "machine p3.2xlarge, hour": (3.06, "2025-12", MEMORY),
        "machine p3.8xlarge, hour": (12.24, "2025-12", MEMORY),
        "machine p3dn.24xlarge, hour": (31.212, "2025-12", MEMORY),
        "machine p4d.24xlarge, hour": (21.96, "2025-12", MEMORY),
        "machine p4de.24xlarge, hour": (27.45, "2025-12", MEMORY),
        "machine p5.48xlarge, hour": (55.04, "2025-12", MEMORY),
        "machine p5.4xlarge, hour": (6.88, "2025-12", MEMORY),
        "machine p5en.48xlarge, hour": (63.3, "2025-12", MEMORY),
        "machine t3.2xlarge, hour": (0.3328, "2025-12", MEMORY),
        "machine t3.large, hour": (0.0832, "2025-12", MEMORY),
        "machine t3.medium, hour": (0.0416, "2025-12", MEMORY),
        "machine t3.micro, hour": (0.0104, "2025-12", MEMORY),
        "machine t3.small, hour": (0.0208, "2025-12", MEMORY),
        "machine t3.xlarge, hour": (0.1664, "2025-12", MEMORY),
        "public address, hour": (0.005, "2025-12", MEMORY),
        "snapshot, GB-month": (0.05, "2025-12", MEMORY),
    },
}
