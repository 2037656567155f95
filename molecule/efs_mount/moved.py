"""It is at its new place and no more at the old one; what somebody else has mounted stays."""

from __future__ import annotations

from seen import says, ssh

assert ssh("ls /efs").returncode != 0
assert says("cat /shared/mine/file") == "word" == says("cat /theirs/mine/file")
lines = [line.split() for line in says("cat /etc/fstab").splitlines() if "efs" in line]
places = {line[1]: "x-deeplearning.efs" in line[3].split(",") for line in lines}
assert places == {"/shared": True, "/theirs": False, "/efs": False}
