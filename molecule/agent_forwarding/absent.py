"""Host-based authentication is off again."""

from __future__ import annotations

from seen import says, ssh

assert "hostbasedauthentication no" in says("sudo /usr/sbin/sshd -T")
assert ssh("ls /etc/ssh/*.d/*deeplearning*").returncode != 0
