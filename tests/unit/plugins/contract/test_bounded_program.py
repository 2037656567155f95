"""Programs that hang or print without end have neither this process's time nor its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import bounded_program


def shell(script: str, seconds: float = 20, **options: str) -> subprocess.CompletedProcess[str]:
    return bounded_program.run(["/bin/sh", "-c", script], seconds, **options)


def test_a_program_that_ends_has_its_code_and_all_that_it_printed(tmp_path: Path) -> None:
    done = shell(r"cat; pwd; printf 'a\377' >&2; exit 3", cwd=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n", "a\ufffd")
    assert len(shell(f"head -c {bounded_program.MOST_BYTES} /dev/zero").stdout) == bounded_program.MOST_BYTES


def test_an_output_that_is_too_long_is_an_error_and_the_end_of_the_errors_is_kept() -> None:
    with pytest.raises(bounded_program.TooMuchOutput, match="^printed more than 1 MiB, and was read no further$"):
        shell(f"head -c {bounded_program.MOST_BYTES + 1} /dev/zero")
    done = shell("head -c 3000000 /dev/zero >&2; echo the reason >&2")
    assert len(done.stderr) == bounded_program.MOST_BYTES and done.stderr.endswith("\0the reason\n")


@pytest.mark.parametrize("hangs", ["sleep 600", "sleep 600 & wait", "cat /dev/zero >&2", "exec sleep 600 >&- 2>&-"])
def test_a_program_that_hangs_is_killed_with_its_children(hangs: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        shell(f"echo $$ > {tmp_path}/pid; {hangs}", 3)
    assert time.monotonic() - begun < 600 / 2
    group = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and alive(group):
        time.sleep(0.01)
    assert not alive(group)


def alive(group: int) -> bool:
    """Return whether a process of a group lives. One that has ended may wait for init to learn of it."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[2] == str(group) and fields[0] != "Z":
            return True
    return False


@pytest.mark.parametrize("error", [None, PermissionError, ProcessLookupError])
def test_a_program_that_cannot_be_killed_is_not_waited_for(
    error: type[OSError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a device, or sudo has made it root's."""
    kill, groups, begun = os.killpg, list[int](), time.monotonic()

    def refuse(group: int, number: int) -> None:
        groups.append(group)
        if error:
            raise error

    monkeypatch.setattr(os, "killpg", refuse)
    with pytest.raises(subprocess.TimeoutExpired):
        bounded_program.run([sys.executable, "-c", "import time; time.sleep(600)"], 0.3)
    assert time.monotonic() - begun < 600 / 2
    (group,) = groups
    assert os.waitpid(group, os.WNOHANG) == (0, 0)
    kill(group, signal.SIGKILL)
    os.waitpid(group, 0)
