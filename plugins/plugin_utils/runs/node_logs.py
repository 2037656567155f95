# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a node is asked for its logs, and how its answer is read.

The node needs nothing of this collection: it may have failed before anything was installed. It prints a line for each
file, the name and the packed content. So what has arrived counts, even if the node hangs in the middle.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import zlib
from collections.abc import Iterator

from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot, paths
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.identifiers import RUN_ID

MOST_PACKED = 32 << 20
MOST_UNPACKED = 64 << 20
LARGEST_FILE = 512 << 10
"""Bytes of a file: the end of a longer one is sent."""
MOST_RUNS = 10
"""If no run is requested, the newest."""
MOST_RUN_FILES = 300

_CLOUD_INIT = "/var/log/cloud-init-output.log"
COMMANDS = {
    "boot.log": f"cat {boot.LOG}",
    "cloud-init.log": f"cat {_CLOUD_INIT}",
    "bundle.txt": f"cat {paths.CLUSTER}; ls -la {boot.FOLDER} {paths.RUNTIME}",
    "members.json": f"cat {paths.APPLIED}",
    "hosts.txt": f"tail -n +1 {paths.WORKERS} {paths.ADDRESSES} {paths.HOSTFILE} /etc/hosts",
    "units.txt": "systemctl --no-pager --failed; systemctl --no-pager list-timers --all 'deeplearning-*'; "
    "systemctl --no-pager status 'deeplearning-*'",
    "journal.log": "journalctl --no-pager -q -o short-iso -n 5000",
    "health.txt": "uptime; free -m; df -h -l; df -i -l; ip -brief address; ps -eo pid,user,stat,etime,pcpu,pmem,comm; "
    "nvidia-smi",
    "versions.txt": "cat /etc/os-release; uname -a; python3 --version; mpirun --version; "
    f"tail -n +1 {paths.ENVIRONMENTS}/*/{paths.MARKER}; modinfo -F version nvidia",
    "efs.txt": "grep nfs4 /proc/self/mounts; df -h {efs}; cat {efs}/.deeplearning/{cluster}/members.json",
}
"""The files of each node, and what prints them."""
_RUN_FILES = r"(?:(?:run|state|result)\.json|events\.jsonl|logs/[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.log)"
_RUN_FILE = re.compile(rf"runs/{RUN_ID}/{_RUN_FILES}")

_FUNCTIONS = f"""\
limited() {{ timeout -k 2 15 sh -c "$1" 2>&1 </dev/null; }}
send() {{ printf '%s ' "$1"; limited "$2" | tail -c {LARGEST_FILE} | gzip -c | base64 -w 0; echo; }}
"""


def collect_command(cluster: str, efs_mount: str, with_runs: bool, run_id: str = "") -> str:
    """Return the shell command that prints the logs of a node, and those of one run or of the newest runs."""
    places = {"efs": shlex.quote(efs_mount), "cluster": cluster}
    lines = [f"send {name} {shlex.quote(text.format(**places))}" for name, text in COMMANDS.items()]
    if with_runs:
        lines += _send_runs(paths.runs(efs_mount, cluster), run_id)
    return f"sudo -n sh -c {shlex.quote(_FUNCTIONS + chr(10).join(lines))}"


def _send_runs(root: str, run_id: str) -> list[str]:
    # Names that are not as expected, which a shell might not take as one word either, are left out.
    chosen = run_id or f"$(ls -t | grep -Ex '{RUN_ID}' | head -n {MOST_RUNS})"
    listing = (
        f"cd {shlex.quote(root)} && for run in {chosen}; do find $run/ -maxdepth 2 -type f; done "
        f"| sed 's,//*,/,g' | grep -Ex '{RUN_ID}/{_RUN_FILES.replace('(?:', '(')}' | head -n {MOST_RUN_FILES}"
    )
    return [
        f"for file in $(limited {shlex.quote(listing)}); do",
        f'send "runs/$file" "cat {shlex.quote(root)}/$file"',
        "done",
    ]


def read(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the files in a node's answer, which may hold anything. Others than those above are left out."""
    seen, remaining = set(), MOST_UNPACKED
    for line in content.split(b"\n"):
        name, _space, packed = line.decode("ascii", errors="replace").partition(" ")
        if name in seen or not (name in COMMANDS or _RUN_FILE.fullmatch(name)):
            continue
        seen.add(name)
        text = _unpack(packed)
        remaining -= len(text)
        if remaining < 0:
            return
        if text:
            yield name, text


def _unpack(packed: str) -> str:
    try:
        content = base64.b64decode(packed, validate=True)
        return zlib.decompressobj(wbits=31).decompress(content, LARGEST_FILE).decode(errors="replace")
    except (binascii.Error, ValueError, zlib.error):
        return ""
