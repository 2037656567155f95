"""A machine of an image that is less kind than Debian's: ssh by socket activation, a held lock, and a late mirror.

sshd, systemd, dpkg and apt are the distribution's own. The mirror is one package on the machine itself, behind a web
server that does not answer in the first minute.
"""

from __future__ import annotations

import secrets

import pytest

from tests.integration.machines import Cloud, Cluster, wait_for

NODE = "deeplearning-master"
LOCKED_SECONDS, MIRROR_SECONDS = 30, 50
"""From the boot on."""
PORT = 8099
MAKE_UNKIND = f"""#!/bin/bash
set -eu
# As Ubuntu has it since 22.10: until somebody connects there is no sshd, and no folder that it needs for `sshd -t`.
systemctl disable ssh.service
systemctl enable ssh.socket

# wget is in the package mirror alone.
mkdir -p /srv/mirror /srv/wget/DEBIAN
cd /srv/mirror
fields=
for field in Package Version Architecture Maintainer Depends; do fields="$fields$field: \\${{$field}}\\n"; done
dpkg-query --show --showformat="${{fields}}Description: wget\\n" wget > /srv/wget/DEBIAN/control
dpkg -L wget | while read -r path; do [ -d "$path" ] || echo "$path"; done \\
    | tar --create --file - --files-from - | tar --extract --directory /srv/wget
dpkg-deb --build /srv/wget wget.deb
cp /srv/wget/DEBIAN/control Packages
echo "Filename: ./wget.deb
Size: $(stat --format %s wget.deb)
SHA256: $(sha256sum wget.deb | cut -d' ' -f1)" >> Packages
dpkg --purge wget
rm -rf /srv/wget /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] http://127.0.0.1:{PORT}/ ./' > /etc/apt/sources.list

cat > /srv/lock.py << END
import fcntl, time
files = [open(path, "w") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock")]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep({LOCKED_SECONDS})
END
cat > /etc/systemd/system/mirror.service << END
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/mirror {PORT}
END
cat > /etc/systemd/system/mirror.timer << END
[Timer]
OnStartupSec={MIRROR_SECONDS}
AccuracySec=1s
[Install]
WantedBy=timers.target
END
cat > /etc/systemd/system/lock.service << END
[Unit]
Before=cloud-init-local.service
DefaultDependencies=no
After=local-fs.target
[Service]
ExecStart=/usr/bin/python3 /srv/lock.py
[Install]
WantedBy=basic.target
END
systemctl enable mirror.timer lock.service
echo whole > /srv/unkind
systemctl poweroff
"""


def make_image(cloud: Cloud, name: str) -> str:
    """Return the id of an image of a machine that has run the script."""
    ec2 = cloud.client("ec2")
    [machine] = ec2.run_instances(
        ImageId=cloud.image(), InstanceType="t3.micro", MinCount=1, MaxCount=1, UserData=MAKE_UNKIND
    )["Instances"]
    instance = [machine["InstanceId"]]

    def state(of: str) -> bool:
        [reservation] = ec2.describe_instances(InstanceIds=instance)["Reservations"]
        return bool(reservation["Instances"][0]["State"]["Name"] == of)

    def available() -> bool:
        return bool(ec2.describe_images(ImageIds=[image])["Images"][0]["State"] == "available")

    try:
        wait_for(lambda: state("stopped"), 120, "the script of the machine")
        image = str(ec2.create_image(InstanceId=instance[0], Name=f"{name}-debian-12")["ImageId"])
        wait_for(available, 60, "the image")
    finally:
        ec2.terminate_instances(InstanceIds=instance)
    return image


@pytest.mark.long
@pytest.mark.stand_in("the package mirror: one package, on the machine itself")
def test_a_machine_waits_for_the_lock_and_the_mirror_and_needs_no_running_sshd(cloud_with_machines: Cloud) -> None:
    name = f"u-{secrets.token_hex(3)}"
    image = make_image(cloud_with_machines, name)
    with cloud_with_machines.cluster(name, worker_count=0, image=image) as cluster:
        created = cluster.play("site.yml")
        assert created.code == 0, created.output[-6000:]
        assert cluster.says(NODE, "cat /srv/unkind") == "whole"
        assert cluster.says(NODE, "systemctl is-enabled ssh.socket") == "enabled"
        assert cluster.says(NODE, "dpkg-query --show --showformat='${Status}' wget") == "install ok installed"
        assert_it_met_both(cluster)
        again = cluster.play("playbooks/configure.yml")
        assert again.code == 0, again.output[-6000:]


def assert_it_met_both(cluster: Cluster) -> None:
    """Check that the node began to configure itself without sshd and under the lock, and ended with the mirror."""

    def seconds(line: str) -> int:
        return int(cluster.says(NODE, f"sudo sh -c {line!r}"))

    since = 'date -d "$(systemctl show -P ExecMainStartTimestamp %s)" +%%s'
    locked, mirror, sshd, began = (seconds(since % unit) for unit in ("lock", "mirror", "ssh", "deeplearning-boot"))
    assert locked <= began < locked + LOCKED_SECONDS, (locked, began)
    assert sshd > began
    assert seconds("stat -c %Y /var/lib/deeplearning/configured") > mirror
