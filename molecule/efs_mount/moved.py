"""It is mounted at the new path and no longer at the old one. The user's mount and line are as they were."""

from __future__ import annotations

from remote import output, run

assert run("ls /efs").returncode != 0
assert output("cat /shared/mine/file") == "word" == output("cat /theirs/mine/file")
lines = [line.split() for line in output("cat /etc/fstab").splitlines() if "efs" in line]
managed = {line[1]: "x-deeplearning.efs" in line[3].split(",") for line in lines}
assert managed == {"/shared": True, "/theirs": False, "/efs": False}
