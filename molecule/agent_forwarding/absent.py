"""Host-based authentication is off again."""

from __future__ import annotations

from remote import output, run

assert "hostbasedauthentication no" in output("sudo /usr/sbin/sshd -T")
assert run("ls /etc/ssh/*.d/*deeplearning*").returncode != 0
