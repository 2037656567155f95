"""Nothing is mounted, now or at the next boot."""

from __future__ import annotations

from remote import output, run

assert run("findmnt /efs || findmnt /shared").returncode != 0
assert "efs" not in output("cat /etc/fstab")
assert run("ls /efs || ls /shared").returncode != 0
