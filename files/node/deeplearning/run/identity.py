"""Who does the work: the cluster's user, whoever calls, so that a run's files have one owner."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence

from deeplearning import Refusal


def become(user: str) -> None:
    # Ubuntu's own umask lets a group write.
    os.umask(0o022)
    if os.geteuid() != 0:
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Refusal(f"The cluster's user is {user}, and this node has none: configure it (configure.yml).") from None
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user)


def as_root(*words: str) -> Sequence[str]:
    return (["sudo", "-n"] if os.geteuid() else []) + list(words)
