# What an image is made of, as key=value. tests/smoke/facts.py says which values may be recorded.
version() { "$@" 2>&1 | sed -n '1,3s/.*[ v(]\([0-9][0-9]*\.[0-9.]*[0-9][a-z0-9]*\).*/\1/p' | head -n 1; }
has() { command -v "$1" >/dev/null 2>&1 && echo yes || echo no; }
. /etc/os-release
echo "system=$ID-$VERSION_ID"
echo "kernel=$(uname -r | sed 's/[^0-9.].*//')"
echo "systemd=$(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')"
for python in python3 python3.9 python3.10 python3.11 python3.12 python3.13; do
    if command -v "$python" >/dev/null; then echo "$python=$("$python" -c 'import sys; print(sys.version.split()[0])')"; fi
done
python3 - <<'PYTHON'
try:
    import boto3, botocore
except ImportError:
    print("boto3_by=none")
else:
    print("boto3_by=" + ("pip" if "/local/" in boto3.__file__ else "package"))
    print("boto3=" + boto3.__version__)
    print("botocore=" + botocore.__version__)
PYTHON
echo "openmpi=$(version mpirun --version)"
echo "openmpi_of_amazon=$([ -x /opt/amazon/openmpi/bin/mpirun ] && echo yes || echo no)"
echo "cuda=$(cd /usr/local && echo cuda-* | sed 's/cuda-//g; s/ /,/g; s/\*//')"
echo "dlami_nvme=$(findmnt /opt/dlami/nvme >/dev/null 2>&1 && echo yes || echo no)"
echo "mdadm=$(has mdadm)"
echo "mkfs_xfs=$(has mkfs.xfs)"
echo "aws=$(has aws)"
if command -v rpm >/dev/null; then
    for package in python3-boto3 awscli-2 mdadm; do echo "rpm_$package=$(rpm -q "$package" >/dev/null 2>&1 && echo yes || echo no)"; done
fi
echo "selinux=$(getenforce 2>/dev/null || echo none)"
echo "ssh_socket=$(systemctl is-active ssh.socket 2>/dev/null)"
echo "held_packages=$(apt-mark showhold 2>/dev/null | wc -l)"
echo "boot_seconds=$(systemd-analyze 2>/dev/null | sed -n 's/.*= *\([0-9]*min \)\{0,1\}\([0-9.]*\)s.*/\1\2/p' | sed 's/min /*60+/' | bc -l 2>/dev/null)"
echo "wait_online=$(systemd-analyze blame 2>/dev/null | sed -n 's/^ *\(.*[0-9]m\{0,1\}s\) .*wait-online.*/\1/p' | head -n 1)"
