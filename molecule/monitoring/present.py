"""Prometheus reads the machine's own node exporter, and neither listens on all addresses."""

from __future__ import annotations

import json
import time
import urllib.parse
from typing import Any

from remote import output, run

MONITORING = "/etc/deeplearning/monitoring"
SECONDS = 90


def get(path: str, **parameters: str) -> Any:
    """Return an answer of Prometheus' API."""
    query = urllib.parse.urlencode(parameters)
    address = f"http://127.0.0.1:9090/api/v1/{path}?{query}"
    code = f"import urllib.request as r; print(r.urlopen('{address}').read().decode())"
    return json.loads(output(f'python3 -c "{code}"'))["data"]


units = "prometheus.service prometheus-node-exporter.service deeplearning-metrics.timer"
assert output(f"systemctl is-active {units}").split() == ["active"] * 3
assert output(f"systemctl is-enabled {units}").split() == ["enabled"] * 3

address = output("hostname -I").split()[0]
listening = {line.split()[3] for line in output("sudo ss -Hltn").splitlines()}
assert {local for local in listening if local.endswith((":9090", ":9100"))} == {"127.0.0.1:9090", f"{address}:9100"}

# What `deeplearning members apply` writes when the machine is a member.
target = json.dumps([{"targets": [f"{address}:9100"], "labels": {"instance": "deeplearning-worker1"}}])
output(f"echo '{target}' | sudo tee {MONITORING}/nodes.json")
deadline = time.monotonic() + SECONDS
while not get("query", query='up{job="node",instance="deeplearning-worker1"}==1')["result"]:
    assert time.monotonic() < deadline, f"Prometheus does not read the node exporter: {get('targets')}"
    time.sleep(1)  # between two polls
rules = [rule["name"] for group in get("rules")["groups"] for rule in group["rules"]]
assert {"MemberDown", "DiskAlmostFull", "RunStalled", "GpuError"} <= set(rules)

# There is no member list here, and the journal says so once.
assert "no member list" in run("sudo deeplearning members metrics").stderr
