"""Bootstrap action of EMR: become root, and run first_stage.py until a deadline. For Python 3.9.

`boot_bundle` stores it with the other program's text and the parameters of the cluster in it. Its argument is its
SHA-256. Comparing them detects accidents only, such as an incomplete upload: EMR downloads it by its name, and a person
who can replace it can leave the comparison out. The members' roles cannot write there.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections import deque
from typing import Any

PARAMETERS: dict[str, Any] = {}
FIRST_STAGE = ""
PARAMETERS_LINE = "PARAMETERS: dict[str, Any] = {}\n"

INFO = "/mnt/var/lib/info"
"""EMR writes instance.json and job-flow.json there before it runs bootstrap actions."""
LOGS, PASS = "/var/log", 0o011
"""EMR's services run as users of their own, and need to pass through the folder of logs."""
PYTHON = "/usr/bin/python3"
DEADLINE_SECONDS = 2400
SHOWN_LINES = 25
"""More than a failure has: its step, and the last lines of the playbook."""


def main(arguments: list[str]) -> int:
    with open(__file__, "rb") as file:
        actual = hashlib.sha256(file.read()).hexdigest()
    if arguments != [actual]:
        print(f"{__file__} is altered: its SHA-256 is {actual}, and not {' '.join(arguments)}", file=sys.stderr)
        return 1
    if os.geteuid():
        command = ["sudo", "-n", PYTHON, "-I", os.path.abspath(__file__), *arguments]
        return subprocess.run(command, check=False).returncode
    try:
        open_logs()
        return configure(node_parameters())
    except (OSError, ValueError, LookupError) as error:
        print(f"this machine cannot be configured: {error}", file=sys.stderr)
        return 1


def open_logs() -> None:
    """Let all users pass through the folder of logs, which Deep Learning AMIs closed: awslabs/deeplearning-emr 8."""
    mode = stat.S_IMODE(os.stat(LOGS).st_mode)
    if mode & PASS != PASS:
        os.chmod(LOGS, mode | PASS)


def node_parameters() -> dict[str, Any]:
    """Return first_stage.py's parameters for this machine, whose place in the cluster EMR tells."""
    role = "master" if _info("instance")["isMaster"] else "worker"
    return {
        **PARAMETERS,
        "role": role,
        "gpus": PARAMETERS["gpus"][role],
        "job_flow": _info("job-flow")["jobFlowId"],
        # There is no Auto Scaling group, and so no hook to answer and no address to take over.
        "group": "",
        "address": "",
    }


def _info(name: str) -> dict[str, Any]:
    with open(f"{INFO}/{name}.json", encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    return content


def configure(parameters: dict[str, Any]) -> int:
    """Run first_stage.py. If it fails, print its last lines to stderr."""
    folder = parameters["folder"]
    os.makedirs(folder, exist_ok=True)
    program = f"{folder}/first_stage.py"
    with open(program, "w", encoding="utf-8") as file:
        file.write(FIRST_STAGE.replace(PARAMETERS_LINE, PARAMETERS_LINE.replace("{}", repr(parameters))))
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    with subprocess.Popen(
        # At the deadline, all processes of its group are killed.
        ["timeout", "--signal=KILL", str(DEADLINE_SECONDS), PYTHON, "-I", program, "run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last.append(line)
    if process.returncode == -signal.SIGKILL:
        last.append(f"this machine was not configured within {DEADLINE_SECONDS} s\n")
    if process.returncode:
        sys.stderr.writelines(last)
    return 1 if process.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
