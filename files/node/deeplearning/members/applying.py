"""Verify the newest member list, and make this node's files follow it."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning import lock, machine, programs, safe_files, safe_paths
from deeplearning.aws import AwsClient
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.members import published_list, rendering, signing
from deeplearning.members.member_list import Members, this_member
from deeplearning.members.unchanged import stamp_of


@dataclass(frozen=True)
class ApplyOutcome:
    generation: int
    changed: bool
    listed: bool
    """Whether this machine is one of the members."""


def apply(config: Config, connect: Callable[[], AwsClient]) -> ApplyOutcome:
    if not machine.is_mounted(config.efs_mount):
        raise UserError(f"nothing is mounted at {config.efs_mount}, where the member list is: mount it.")
    with lock.exclusive_lock("apply"):
        # The folders that all clusters on the file system share are root's, so that no user can lock others out.
        for name in paths.SHARED:
            # A link is left alone: the program that needs the folder refuses it with a message.
            with contextlib.suppress(OSError):
                safe_paths.folder_for_all(f"{config.efs_mount}/{name}")
        source = paths.published(config.efs_mount, config.cluster)
        content = published_list.content_of(source)
        members = checked(content, config, connect)
        changed = _install(config, members)
        # Written last: a process that waits for a generation finds everything in place.
        changed |= atomic_file.write_if_changed(paths.APPLIED, content.decode("utf-8"))
        files = (target.path for target in rendering.targets(config))
        stamps = map(stamp_of, (paths.CLUSTER, rendering.__file__, *files))
        atomic_file.write_if_changed(paths.UNCHANGED, "\n".join([source, *stamps]))
        return ApplyOutcome(members.generation, changed, _is_listed(members))


def checked(content: bytes, config: Config, connect: Callable[[], AwsClient]) -> Members:
    """Return the members of a published list. Raise UserError if this node must not use it."""
    record = published_list.record_of(content)
    members = published_list.check(record, config)
    applied = _applied(config)
    if record == applied:
        return members
    generation = applied["generation"] if applied else 0
    if members.generation <= generation:
        raise UserError(
            f"the published member list has generation {members.generation}, and this node uses {generation}: "
            "it waits for a higher one."
        )
    signing.check_signature(record, config, connect)
    return members


def _applied(config: Config) -> dict[str, Any] | None:
    """Return the list that this node uses; None for one of another cluster, which may come with the machine's image."""
    with contextlib.suppress(UserError):
        record = published_list.record_of((atomic_file.read_or_none(paths.APPLIED) or "").encode())
        published_list.check(record, config)
        return record
    return None


def _install(config: Config, members: Members) -> bool:
    gpus = this_member(members).gpus if _is_listed(members) else machine.gpus()
    variables = rendering.environment(config, members, gpus)
    changed = False
    for target in rendering.targets(config):
        text = target.lines(members, variables)
        if target.shared:
            text = rendering.with_block(atomic_file.read_or_none(target.path) or "", text)
        if target.emr:
            changed |= _write_for_user(target.path, text, config.user)
        else:
            changed |= atomic_file.write_if_changed(target.path, text)
    _update_systemd(variables)
    return changed


def _write_for_user(path: str, text: str, user: str) -> bool:
    """Replace a file in a folder of the user, who may put a link or a pipe in its place at any moment."""
    with contextlib.suppress(OSError, UserError):
        if safe_files.read(path) == text.encode():
            return False
    entry = pwd.getpwnam(user)
    atomic_file.replace(path, text.encode(), owner=(entry.pw_uid, entry.pw_gid))
    return True


def _is_listed(members: Members) -> bool:
    own_id = machine.instance_id()
    return any(member.instance_id == own_id for member in members.members)


def unapply() -> bool:
    """Remove everything that `apply` has written. Return whether there was anything."""
    with lock.exclusive_lock("apply"):
        changed = False
        for target in rendering.TARGETS:
            if not target.shared:
                changed |= atomic_file.remove(target.path)
            elif (text := atomic_file.read_or_none(target.path)) is not None:
                changed |= atomic_file.write_if_changed(target.path, rendering.with_block(text, ""))
        for path in (paths.APPLIED, paths.UNCHANGED):
            changed |= atomic_file.remove(path)
        _update_systemd({})
        return changed


def _update_systemd(variables: Mapping[str, str]) -> None:
    """Let systemd read its default environment again, unless it has these variables. Without any it reads it always.

    systemd itself is asked, because the process that wrote the file may have been killed before it came here.
    """
    shown = programs.run("systemctl", "show-environment").stdout.splitlines()
    if not variables or not {f"{name}={value}" for name, value in variables.items()} <= set(shown):
        programs.run("systemctl", "daemon-reload")
