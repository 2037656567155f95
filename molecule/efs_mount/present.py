"""It is mounted as AWS advises, every user may write, and it is mounted again after a reboot."""

from __future__ import annotations

import json

from remote import FOLDER, output, reboot, run

name = json.loads((FOLDER / "machine.json").read_text(encoding="utf-8"))["efs_name"]
(line,) = [line.split() for line in output("cat /etc/fstab").splitlines() if " /efs " in line]
assert line[:3] == [f"{name}:/", "/efs", "nfs4"]
advised = "nfsvers=4.1 rsize=1048576 wsize=1048576 hard timeo=600 retrans=2 noresvport"
at_boot = "_netdev nofail x-systemd.mount-timeout=30s"
assert set(line[3].split(",")) == {*advised.split(), *at_boot.split(), "x-deeplearning.efs"}

assert output("findmnt -n -o TARGET /efs") == "/efs"
assert output("stat -c %U:%G:%a /efs") == "root:root:1777"
output("mkdir /efs/mine && echo word > /efs/mine/file")
assert run("sudo -u nobody mv /efs/mine /efs/stolen").returncode != 0
reboot()
# Logins do not wait for it.
output("timeout 60 sh -c 'until findmnt /efs; do sleep 1; done'")
assert output("cat /efs/mine/file") == "word"
