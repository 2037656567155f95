"""Nothing of it runs, and nothing of it is left but the node program."""

from __future__ import annotations

from remote import output, run

assert (
    run("systemctl is-active prometheus prometheus-node-exporter deeplearning-metrics.timer").stdout.split()
    == ["inactive"] * 3
)
assert run("ls -d /etc/deeplearning/monitoring /etc/default/prometheus* /usr/bin/prometheus*").stdout == ""
assert "deeplearning" in output("deeplearning --help")
