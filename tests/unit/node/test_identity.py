"""The cluster's user, also if another user calls; and programs that need root's rights. `become` is tested as root."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from deeplearning import identity
from deeplearning.contract.errors import UserError

NODE = Path(__file__).parents[3] / "files/node"
PROGRAM = f"""
import json, os, sys
sys.path.insert(0, {str(NODE)!r})
from deeplearning.identity import become
become(sys.argv[1])
become(sys.argv[2])
ids = [os.getresuid(), os.getresgid(), os.getgroups()]
print(json.dumps([*ids, os.umask(0), *(os.environ[name] for name in ("HOME", "USER", "LOGNAME", "OWN"))]))
"""


@pytest.mark.root
@pytest.mark.parametrize("second", ["nobody", "root"])
def test_root_becomes_the_user_for_good(second: str) -> None:
    """Others stay who they are: the second call changes nothing."""
    environment = {**os.environ, "HOME": "/root", "USER": "root", "LOGNAME": "root", "OWN": "kept"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, "nobody", second],
        env=environment, preexec_fn=lambda: os.umask(0o002), capture_output=True, text=True, check=True,
    )  # fmt: skip
    user = pwd.getpwnam("nobody")
    groups = sorted({user.pw_gid, *(group.gr_gid for group in grp.getgrall() if "nobody" in group.gr_mem)})
    users, own_groups, others, *rest = json.loads(done.stdout)
    assert (users, own_groups, sorted(others)) == ([user.pw_uid] * 3, [user.pw_gid] * 3, groups)
    assert rest == [0o022, user.pw_dir, "nobody", "nobody", "kept"]


def test_a_user_that_the_node_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    before = os.umask(0o022)
    try:
        with pytest.raises(UserError, match="user is no-such-user, which this node does not have: name the user"):
            identity.become("no-such-user")
    finally:
        os.umask(before)


@pytest.mark.parametrize(("user", "words"), [(0, ["true"]), (1000, ["sudo", "-n", "true"])])
def test_programs_are_called_as_root(monkeypatch: pytest.MonkeyPatch, user: int, words: list[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert identity.as_root("true") == words
