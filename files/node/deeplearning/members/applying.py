"""Each node goes by the newest member list that it has checked."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning import Refusal, files, machine, paths
from deeplearning.aws import Aws
from deeplearning.config import Config
from deeplearning.members import checking, rendering, standing
from deeplearning.members.reading import Members, this_member
from deeplearning.members.signers import check_signature


@dataclass(frozen=True)
class Outcome:
    generation: int
    changed: bool
    listed: bool
    """Whether this machine is one of the members."""


def apply(config: Config, connect: Callable[[], Aws]) -> Outcome:
    if not machine.is_mounted(config.efs_mount):
        raise Refusal(f"nothing is mounted at {config.efs_mount}, where the member list is: mount it.")
    with _only_one():
        _open_shared_folders(config.efs_mount)
        source = paths.published(config.efs_mount, config.cluster)
        content = checking.content_of(source)
        members = checked(content, config, connect)
        changed = _install(config, members)
        # Last: who waits for a generation finds all of it in place.
        changed |= files.put(paths.APPLIED, content.decode("utf-8"))
        standing.remember(source, _watched())
        return Outcome(members.generation, changed, _listed(members))


def _open_shared_folders(efs_mount: str) -> None:
    """Give the folders that all clusters on the file system share to root, so that none locks out another's user."""
    for name in paths.SHARED:
        # A link is left alone: who needs the folder refuses it in a sentence.
        with contextlib.suppress(OSError):
            files.folder_for_all(f"{efs_mount}/{name}")


def checked(content: bytes, config: Config, connect: Callable[[], Aws]) -> Members:
    """Return the members of a published list, if it is one that this node may go by."""
    record = checking.record_of(content)
    members = checking.check(record, config)
    applied = _applied(config)
    if record == applied:
        return members
    generation = applied["generation"] if applied else 0
    if members.generation <= generation:
        raise Refusal(
            f"the published member list has generation {members.generation}, and this node goes by {generation}: "
            "it waits for a higher one."
        )
    check_signature(record, config, connect)
    return members


def _applied(config: Config) -> dict[str, Any] | None:
    """None for a list of another cluster, which an image or a machine may have brought along."""
    with contextlib.suppress(Refusal):
        record = checking.record_of((files.text_of(paths.APPLIED) or "").encode())
        checking.check(record, config)
        return record
    return None


def _install(config: Config, members: Members) -> bool:
    variables = rendering.environment(
        config, members, this_member(members).gpus if _listed(members) else machine.gpus()
    )
    targets = rendering.TARGETS
    written = [target for target in targets if files.put(target.path, _text(target, target.lines(members, variables)))]
    _tell_systemd(variables)
    return bool(written)


def _listed(members: Members) -> bool:
    own = machine.instance_id()
    return any(member.instance_id == own for member in members.members)


def _text(target: rendering.Target, lines: str) -> str:
    return files.with_block(files.text_of(target.path) or "", lines) if target.shared else lines


def forget() -> bool:
    """Takes away all that `apply` has written. Whether there was anything."""
    with _only_one():
        changed = False
        for target in rendering.TARGETS:
            text = files.text_of(target.path)
            if target.shared and text is not None:
                changed |= files.put(target.path, files.with_block(text, ""))
            elif not target.shared:
                changed |= files.remove(target.path)
        for path in (paths.APPLIED, paths.STANDING):
            changed |= files.remove(path)
        _tell_systemd({})
        return changed


def _watched() -> list[str]:
    return [paths.CLUSTER, rendering.__file__, *(target.path for target in rendering.TARGETS)]


def _only_one() -> contextlib.AbstractContextManager[None]:
    return files.only_one(f"{paths.RUNTIME}/apply.lock", "deeplearning members apply")


def _tell_systemd(variables: Mapping[str, str]) -> None:
    """Have systemd read its default environment again, unless it has these variables of ours and no others.

    What it has is asked of systemd itself: the process that wrote the file may have been killed before it got here.
    """
    shown = subprocess.run(["systemctl", "show-environment"], check=False, capture_output=True, text=True).stdout
    current = {line for line in shown.splitlines() if line.partition("=")[0] in rendering.VARIABLES}
    if current != {f"{name}={value}" for name, value in variables.items()}:
        subprocess.run(["systemctl", "daemon-reload"], check=False, capture_output=True)
