"""The node's own disk for data sets: its instance store if its type has one, else the root volume.

What is on an instance store is lost when the machine stops. So nothing is remembered: before a data set is staged, the
store is mounted unless it is. AWS's Deep Learning AMIs mount it at boot. On other images a single volume gets a file
system of ours, several are striped before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from deeplearning import programs
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.identity import as_root

IMAGES_MOUNT = "/opt/dlami/nvme"
"""Where AWS's images mount the instance store, striped if it has several volumes."""
MODEL = "Amazon EC2 NVMe Instance Storage"
LABEL = "deeplearning"
STRIPE = f"/dev/md/{LABEL}"


def volumes(listed: str) -> dict[str, str]:
    """Return the unused volumes of the instance store that are empty or ours, from the output of lsblk.

    By the name of each device: what is on it, as lsblk names file systems. After a reboot ours have what they had.
    """
    unused = {}
    for device in json.loads(listed)["blockdevices"]:
        used = device.get("mountpoint") or device.get("children")
        content, label = device.get("fstype") or "", device.get("label") or ""
        is_usable = not content or label.rpartition(":")[2] == LABEL
        if str(device.get("model") or "").strip() == MODEL and not used and is_usable:
            unused[device["path"]] = content
    return unused


def mount_commands(unused: Mapping[str, str], root: str) -> list[list[str]]:
    """Return the commands that make one file system of the volumes, unless they have it, and mount it at `root`."""
    devices, is_new = list(unused), not all(unused.values())
    device = devices[0] if len(devices) == 1 else STRIPE
    commands = []
    if len(devices) > 1:
        layout = ["--level=0", f"--raid-devices={len(devices)}", f"--name={LABEL}", "--run"] if is_new else []
        commands.append(["mdadm", "--create" if is_new else "--assemble", STRIPE, *layout, *devices])
    if is_new:
        commands.append(["mkfs.xfs", "-q", "-L", LABEL, device])
    return [*commands, ["mount", "-o", "noatime", device, root], ["chmod", "1777", root]]


def prepare(root: str = paths.NODE_DATA) -> None:
    """Mount the instance store at the root of the data sets, if this machine has one that is not mounted."""
    if os.path.ismount(root):
        return
    commands = [["install", "-d", "-m", "1777", root]]
    if os.path.ismount(IMAGES_MOUNT):
        commands += [
            ["install", "-d", "-m", "1777", f"{IMAGES_MOUNT}/{LABEL}"],
            ["mount", "--bind", f"{IMAGES_MOUNT}/{LABEL}", root],
        ]
    elif unused := _volumes():
        commands += mount_commands(unused, root)
    else:
        return
    for command in commands:
        done = programs.run(*as_root(*command))
        if done.returncode:
            raise UserError(
                f"The instance store cannot be used ({command[0]}: {programs.last_line(done.stderr)}): install "
                "xfsprogs and mdadm on the nodes, or take data_on=efs."
            )


def require_instance_store(root: str = paths.NODE_DATA) -> None:
    """Raise UserError if this machine has no instance store to use."""
    if not (os.path.ismount(root) or os.path.ismount(IMAGES_MOUNT) or _volumes()):
        raise UserError(
            "data_on is instance_store, and this machine's type has none that is free: take data_on=node for its root "
            "volume, or a type with instance store. Example: -e cluster_instance_type=g5.xlarge"
        )


def _volumes() -> dict[str, str]:
    listed = programs.run("lsblk", "--json", "--output", "PATH,MODEL,MOUNTPOINT,FSTYPE,LABEL")
    # A container may list devices of its host, which it has not.
    unused = {} if listed.returncode else volumes(listed.stdout)
    return {device: content for device, content in unused.items() if os.path.exists(device)}
