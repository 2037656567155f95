"""Switch to the cluster's user, so that a run's files have one owner whichever user calls."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence

from deeplearning.contract.errors import UserError


def become(user: str) -> None:
    # Ubuntu's default umask lets the group write.
    os.umask(0o022)
    if os.geteuid() != 0:
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise UserError(
            f"The cluster's user is {user}, which this node does not have: name the user of its image with "
            "cluster_login_user."
        ) from None
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user)


def as_root(*argv: str) -> Sequence[str]:
    return (["sudo", "-n"] if os.geteuid() else []) + list(argv)
