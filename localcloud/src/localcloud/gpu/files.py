"""What a machine of a GPU type has that others have not: NVIDIA's library and nvidia-smi, and the driver's traces."""

from __future__ import annotations

from pathlib import Path

from localcloud.core.settings import HOME
from localcloud.core.views import InstanceView
from localcloud.gpu import library

STATE = "/etc/localcloud/gpus"
DRIVER = "595.91.07"
CUDA = 13020
_FOLDER = "/usr/lib/localcloud/driver"
_UNITS = "/etc/systemd/system"
# Nothing can be written to /proc before the machine has mounted it.
_MOUNT = f"""[Unit]
Description=The driver's files of GPUs that are made up

[Mount]
What={_FOLDER}
Where=/proc/driver
Type=none
Options=bind,ro
"""
_PERSISTENCE = f"""[Unit]
Description=The persistence daemon of GPUs that are made up

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sed -i "s/^persistence .*/persistence 1/" {STATE}
ExecStop=/bin/sed -i "s/^persistence .*/persistence 0/" {STATE}

[Install]
WantedBy=multi-user.target
"""


def files_for(machine: InstanceView) -> dict[str, tuple[int, bytes]]:
    """Return the files of a new machine, as path: (mode, content)."""
    program = Path(__file__).with_name("nvidia_smi.py")
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (made up)\n"
    return {
        f"/usr/lib/{library.NAME}": (0o755, library.build(HOME / "gpu").read_bytes()),
        "/usr/bin/nvidia-smi": (0o755, program.read_bytes()),
        STATE: (0o644, state(machine).encode()),
        f"{_FOLDER}/nvidia/version": (0o444, version.encode()),
        f"{_UNITS}/proc-driver.mount": (0o644, _MOUNT.encode()),
        f"{_UNITS}/local-fs.target.d/10-gpus.conf": (0o644, b"[Unit]\nWants=proc-driver.mount\n"),
        "/usr/lib/systemd/system/nvidia-persistenced.service": (0o644, _PERSISTENCE.encode()),
    }


def state(machine: InstanceView) -> str:
    """Return what the library reports at first: GPUs of the machine's type that are well and have nothing to do."""
    values: dict[str, object] = {
        "driver": DRIVER,
        "cuda": CUDA,
        "count": machine.gpus,
        "name": machine.gpu_name,
        "memory_total": machine.gpu_memory_mib * 2**20,
        "memory_used": 0,
        "busy": 0,
        "temperature": 30,
        "milliwatts": 60000,
        "persistence": 0,
        "mig": 0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remapped_rows": "0 0 0 0",
        "throttle_reasons": 0,
    }
    for index in range(machine.gpus):
        values[f"{index}.uuid"] = f"GPU-{machine.id[2:10]}-0000-0000-0000-{index:012d}"
        values[f"{index}.serial"] = f"{int(machine.id[2:10], 16):010d}{index:02d}"
        values[f"{index}.bus_id"] = f"00000000:00:{0x10 + index:02X}.0"
    return "".join(f"{key} {value}\n" for key, value in values.items())
