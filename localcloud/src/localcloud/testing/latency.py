"""How long things take: `account.latency = Latency("slow", {"call": 0.5})`."""

from localcloud.core.latency import AWS as AWS
from localcloud.core.latency import Latency as Latency
