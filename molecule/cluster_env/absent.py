"""Nothing of it runs, and nothing of it is left but what others have installed."""

from __future__ import annotations

from seen import says, ssh

assert says("systemctl list-units --all --plain --no-legend 'deeplearning-*'") == ""
assert ssh("ls /usr/local/bin/* /etc/systemd/system/deeplearning-* /etc/deeplearning").stdout == ""
assert says("ls /opt/deeplearning") == "env"
