"""pip on a machine whose network, or package index, comes up after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import boot
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.node import python_env
from ansible_collections.deeplearning.aws.plugins.module_utils.node.python_env import Environment

PIN = f"numpy==1.0 --hash=sha256:{'0' * 64}"
ABSENT = "ERROR: No matching distribution found for numpy==1.0"
RETRYING = "WARNING: Retrying (Retry(total=0)) after connection broken by '{}': /simple/numpy/\n" + ABSENT
POOL = "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='pypi.org', port=443): "
RESOLVED, UNREACHABLE, SILENT, BROKEN = python_env.PASSING
WORDS = [
    (RESOLVED, RETRYING.format("NewConnectionError('<…>: [Errno -3] Temporary failure in name resolution')")),
    (RESOLVED, RETRYING.format("NameResolutionError(\"<…>: Failed to resolve 'pypi.org'\")")),
    (UNREACHABLE, RETRYING.format("NewConnectionError('<…>: [Errno 101] Network is unreachable')")),
    (SILENT, RETRYING.format("NewConnectionError('<…>: [Errno 111] Connection refused')")),
    (SILENT, RETRYING.format("ConnectTimeoutError(<…>, 'Connection to pypi.org timed out. (connect timeout=15)')")),
    (SILENT, RETRYING.format("ProtocolError('Connection aborted.', ConnectionResetError(104, 'reset by peer'))")),
    (SILENT, f"{POOL}Read timed out."),
    (BROKEN, "ERROR: HTTP error 503 while getting https://files.pythonhosted.org/numpy.whl"),
    (BROKEN, RETRYING.format("ResponseError('too many 502 error responses')")),
]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(python_env, "time", clock)
    return clock


def machine(folder: Path, words: str, failures: int) -> Environment:
    """An environment whose pip fails so many times with these words, and notes each call."""
    environment = Environment("pytorch", {"cpu": PIN}, ["3.11"], ["numpy"], folder=folder / "env")
    environment.python.parent.mkdir(parents=True)
    (folder / "words").write_text(words)
    environment.python.write_text(
        f"#!/bin/sh\necho >> {folder}/calls\n[ $(wc -l < {folder}/calls) -gt {failures} ] && exit\n"
        f"cat {folder}/words >&2\nexit 1\n"
    )
    environment.python.chmod(0o755)
    return environment


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


@pytest.mark.parametrize(("cause", "words"), WORDS)
def test_what_the_network_lacks_is_waited_for(cause: str, words: str, tmp_path: Path, clock: Clock) -> None:
    python_env.install_pins(machine(tmp_path, words, failures=2), [PIN])
    assert (calls(tmp_path), clock.now) == (3, 2 * python_env.PAUSE_SECONDS)
    error = python_env.pip_error(words)
    assert isinstance(error, python_env.NoNetwork) and str(error).startswith(f"{cause}. pip's own words: ")


def test_a_network_that_never_comes_is_named(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(UserError, match="^pytorch cannot be installed within 600 s: the network is unreachable. pip's"):
        python_env.install_pins(machine(tmp_path, WORDS[2][1], failures=1000), [PIN])
    assert boot.NETWORK_SECONDS - python_env.PAUSE_SECONDS <= clock.now <= boot.NETWORK_SECONDS


@pytest.mark.parametrize(
    "words",
    [
        ABSENT,
        "ERROR: HTTP error 404 while getting https://files.pythonhosted.org/numpy.whl",
        f"{WORDS[0][1]}\n    numpy==1.0 from https://pypi.org/numpy.whl:\n        Expected sha256 {'0' * 64}\n"
        f"             Got        {'1' * 64}",
    ],
)
def test_what_no_network_changes_is_not_repeated(words: str, tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(UserError):
        python_env.install_pins(machine(tmp_path, words, failures=1000), [PIN])
    assert (calls(tmp_path), clock.now) == (1, 0)
