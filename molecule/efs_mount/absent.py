"""Nothing is mounted, now or at the next boot."""

from __future__ import annotations

from seen import says, ssh

assert ssh("findmnt /efs || findmnt /shared").returncode != 0
assert "efs" not in says("cat /etc/fstab")
assert ssh("ls /efs || ls /shared").returncode != 0
