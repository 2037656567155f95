# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a node is asked for its logs, and which files are expected of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from ...module_utils.contract import boot, paths
from ...module_utils.contract.identifiers import RUN_ID
from . import node_files

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


def collect_command(cluster: str, efs_mount: str, with_runs: bool, run_id: str = "") -> str:
    """Return the shell command that prints the logs of a node, and those of one run or of the newest runs."""
    places = {"efs": shlex.quote(efs_mount), "cluster": cluster}
    lines = [node_files.functions(LARGEST_FILE)]
    lines += [node_files.send(name, text.format(**places)) for name, text in COMMANDS.items()]
    if with_runs:
        lines.append(_send_runs(paths.runs(efs_mount, cluster), run_id))
    return f"sudo -n sh -c {shlex.quote(chr(10).join(lines))}"


def _send_runs(root: str, run_id: str) -> str:
    # Names that are not as expected, which a shell might not take as one word either, are left out.
    chosen = run_id or f"$(ls -t | grep -Ex '{RUN_ID}' | head -n {MOST_RUNS})"
    listing = (
        f"cd {shlex.quote(root)} && for run in {chosen}; do find $run/ -maxdepth 2 -type f; done "
        f"| sed 's,//*,/,g' | grep -Ex '{RUN_ID}/{_RUN_FILES.replace('(?:', '(')}' | head -n {MOST_RUN_FILES}"
    )
    return node_files.send_each(listing, root, "runs/")


def read(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the files in a node's answer. Others than those above are left out."""
    for name, content in node_files.read(lines, _is_expected, LARGEST_FILE, MOST_UNPACKED):
        yield name, content.decode(errors="replace")


def _is_expected(name: str) -> bool:
    return name in COMMANDS or bool(_RUN_FILE.fullmatch(name))
