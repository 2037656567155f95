"""Nothing of it runs, and nothing of it is left but what others have installed."""

from __future__ import annotations

from remote import output, run

assert output("systemctl list-units --all --plain --no-legend 'deeplearning-*'") == ""
assert run("ls /usr/local/bin/* /etc/systemd/system/deeplearning-* /etc/deeplearning").stdout == ""
assert output("ls /opt/deeplearning") == "env"
