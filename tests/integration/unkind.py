"""An image that is less kind than Debian's: AWS's additions, ssh by socket activation, a held lock, a late mirror.

sshd, systemd, dpkg and apt are the distribution's own. The mirror is one package on the machine itself, behind a web
server that does not answer at first. Amazon's Open MPI and pip's boto3 are Debian's at other paths, and the instance
store is a tmpfs.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.images import image_after
from tests.integration.machines import Cloud, Cluster

PORT = 8099
DIST_PACKAGES = 'import sys; print("/usr/local/lib/python%d.%d/dist-packages" % sys.version_info[:2])'


@dataclass(frozen=True)
class Unkind:
    locked: int
    """Seconds from the boot on, for which dpkg's lock is held."""
    mirror: int
    """Seconds from the boot on, until the mirror answers."""

    def make_image(self, cloud: Cloud, base: str, name: str) -> str:
        """Return the id of an image of a machine that has run the script."""
        return image_after(script(self.locked, self.mirror), cloud, base, name)

    def assert_met(self, cluster: Cluster, node: str) -> None:
        """Check that a node began to configure itself without sshd and under the lock, and ended with the mirror."""

        def seconds(line: str) -> int:
            return int(cluster.says(node, f"sudo sh -c {line!r}"))

        assert cluster.says(node, "cat /srv/unkind") == "whole"
        assert cluster.says(node, "systemctl is-enabled ssh.socket") == "enabled"
        assert cluster.says(node, "dpkg-query --show --showformat='${Status}' wget") == "install ok installed"
        boto3 = cluster.says(node, "python3 -c 'import boto3; print(boto3.__file__)'")
        assert boto3.startswith("/usr/local/lib/python3."), boto3
        since = 'date -d "$(systemctl show -P ExecMainStartTimestamp %s)" +%%s'
        locked, mirror, sshd, began = (seconds(since % unit) for unit in ("lock", "mirror", "ssh", "deeplearning-boot"))
        assert locked <= began < locked + self.locked, (locked, began)
        assert sshd > began
        assert seconds("stat -c %Y /var/lib/deeplearning/configured") > mirror


def script(locked: int, mirror: int) -> str:
    return f"""#!/bin/bash
set -eu
# As Ubuntu has it since 22.10: until the first connection there is no sshd, and no folder that it needs for `sshd -t`.
systemctl disable ssh.service
systemctl enable ssh.socket

# What AWS's images have besides: boto3 where pip puts it, toolkits, Amazon's Open MPI, instance store.
packages=$(python3 -c '{DIST_PACKAGES}')
mkdir -p "$packages"
cp --recursive /usr/lib/python3/dist-packages/{{boto3,botocore,s3transfer}} "$packages"
mkdir -p /usr/local/cuda-{{12.4,12.9,13.0}} /opt/amazon/openmpi/bin /opt/dlami/nvme
ln -s /usr/local/cuda-13.0 /usr/local/cuda
ln -s /usr/bin/{{mpirun,orted,ompi_info}} /opt/amazon/openmpi/bin/
echo 'tmpfs /opt/dlami/nvme tmpfs mode=755 0 0' >> /etc/fstab

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
time.sleep({locked})
END
cat > /etc/systemd/system/mirror.service << END
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/mirror {PORT}
END
cat > /etc/systemd/system/mirror.timer << END
[Timer]
OnStartupSec={mirror}
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
