# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""One archive with what shows why a cluster, a node or a run failed: what AWS records, and what the nodes answer.

It is made however little answers. Nodes may send anything, so names are our own, and each text is made printable.
"""

from __future__ import annotations

import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

from ansible.release import __version__ as ansible_version

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.forbidden_names import NameFilter
from ...module_utils.contract.hosts import aliases
from .. import untrusted as u
from ..members.console import console_outputs
from ..members.host_keys import JUMP
from ..members.hosts import SshAccess
from ..redaction import redact
from ..resources.membership import LIVING, ClusterNode, clusters_from, instance_filters, read_records
from ..resources.resources import ClusterResources
from ..runs import node_logs, node_program
from ..runs.left_out import LeftOut

NODE_SECONDS = 120.0
AT_ONCE = 8
MOST_ACTIVITIES = 100
MOST_CONSOLES = 100
ENDED = ("shutting-down", "terminated", "stopping", "stopped")
ABOUT = """\
Logs of the cluster {cluster}, collected at {time}.

aws/cluster.json       the cluster according to AWS, as status.yml saves it
aws/*-activities.txt   what its Auto Scaling groups did, the newest first
aws/consoles/          what machines printed while they booted; also of machines that are gone
health.json            the last result of health.yml, if there is one
operator.json          versions on the machine that collected this
nodes/                 what each node answered: its boot, bundle, member list, units, journal, health and versions
nodes/*/runs/          requests, states, events and output of runs

Secrets that have a known form or name are removed. Read it before you pass it on.
"""


class Archive:
    """A tar.gz that appears when it is complete. Texts have no secrets and no control characters in it.

    Threads may add to it. Names that would make a program run commands where the archive is unpacked are left out.
    """

    def __init__(self, file: tarfile.TarFile, folder: str) -> None:
        self._file, self._folder, self._lock = file, folder, Lock()
        self._names = NameFilter()
        self.left_out: list[str] = []
        """Names that were refused, each with the reason."""

    def add(self, name: str, text: str) -> None:
        with self._lock:
            refusal = self._names.accept(name)
            if refusal:
                self.left_out.append(f"{name} ({refusal})")
                return
        # A secret is known by its form, or by a name, neither of which a colour may cut.
        content = redact(u.printable(u.without_sequences(text))).encode()
        member = tarfile.TarInfo(f"{self._folder}/{name}")
        member.size, member.mode, member.mtime = len(content), 0o600, time.time()
        with self._lock:
            self._file.addfile(member, BytesIO(content))


@contextmanager
def new_archive(path: Path) -> Iterator[Archive]:
    """Create the file, for its owner only, or leave none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    try:
        with (
            os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream,
            tarfile.open(fileobj=stream, mode="w:gz") as file,
        ):
            yield Archive(file, path.name.removesuffix(".tar.gz"))
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)


@dataclass
class LogCollector:
    aws: Aws
    resources: ClusterResources
    access: SshAccess
    efs_mount: str
    node: str = ""
    """the only node to ask, by its name or instance id; without it all"""
    run_id: str = ""
    """the only run to collect; without it the newest"""
    display: Callable[[str], None] = print
    answered: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """sentences about what could not be read"""

    def collect(self, archive: Archive, summary: Mapping[str, Any], health_file: Path) -> None:
        nodes, ended = self._machines()
        chosen, consoles = self._choose(nodes, ended)
        archive.add("aws/cluster.json", json.dumps(summary, indent=2))
        archive.add("operator.json", json.dumps(versions(), indent=2))
        if health_file.exists():
            archive.add("health.json", health_file.read_text(encoding="utf-8", errors="replace"))
        self._add_activities(archive)
        self._add_consoles(archive, consoles)
        for node, (count, problem) in self._ask(archive, chosen):
            if count:
                self.answered.append(node.name)
            if problem:
                self.problems.append(problem)
        about = ABOUT.format(cluster=self.resources.cluster, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        if archive.left_out:
            left_out = LeftOut(len(archive.left_out), tuple(archive.left_out))
            self.problems.append(u.one_line(f"Left out of the archive: {left_out.text}."))
        lines = [f"Answered: {', '.join(self.answered) or 'no node'}.", *self.problems]
        archive.add("README.txt", "\n".join([about, *lines, ""]))

    def _machines(self) -> tuple[list[ClusterNode], list[str]]:
        """Return the nodes that live, and the ids of machines that have ended and that AWS still lists."""
        cluster = self.resources.cluster
        records = read_records(self.aws, instance_filters([cluster], (*LIVING, *ENDED)))
        (living,) = clusters_from([record for record in records if record["state"] in LIVING], [cluster])
        return living.nodes, [str(record["id"]) for record in records if record["state"] in ENDED]

    def _choose(self, nodes: Sequence[ClusterNode], ended: Sequence[str]) -> tuple[list[ClusterNode], list[str]]:
        """Return the nodes to ask, and the instances whose consoles to read."""
        if not self.node:
            return list(nodes), [*(node.id for node in nodes), *ended]
        chosen = [node for node in nodes if self.node in (node.name, node.id, *aliases(node.rank))]
        if not chosen and self.node not in ended:
            names = ", ".join([*(node.name for node in nodes), *ended]) or "no machines"
            raise UserError(f"node is {self.node}; the cluster {self.resources.cluster} has {names}.")
        return chosen, [node.id for node in chosen] or [self.node]

    def _add_activities(self, archive: Archive) -> None:
        for group in self.resources.groups:
            try:
                query = {"AutoScalingGroupName": group.name, "MaxRecords": MOST_ACTIVITIES}
                listed = self.aws.call("autoscaling", "describe_scaling_activities", **query)["Activities"]
            except AwsError as error:
                self.problems.append(f"The activities of {group.name} cannot be read: {error}")
                continue
            what = group.name.removeprefix(f"{self.resources.cluster}-")
            archive.add(f"aws/{what}-activities.txt", "\n\n".join(map(_activity, listed)) + "\n")

    def _add_consoles(self, archive: Archive, instances: Sequence[str]) -> None:
        for instance in instances[:MOST_CONSOLES]:
            try:
                outputs = console_outputs(self.aws, instance) or ["AWS shows nothing yet.\n"]
            except AwsError as error:
                self.problems.append(f"The console of {instance} cannot be read: {error}")
                continue
            for output, suffix in zip(outputs, ("", "-posted"), strict=False):
                archive.add(f"aws/consoles/{instance}{suffix}.txt", output)

    def _ask(self, archive: Archive, nodes: Sequence[ClusterNode]) -> Iterator[tuple[ClusterNode, tuple[int, str]]]:
        """Yield each node with the number of files that it sent, and why that is not all.

        The master comes first: the others may be reached through it.
        """
        masters = [node for node in nodes if node.rank == 1]
        others = [node for node in nodes if node.rank != 1]
        # All nodes see the files of runs: one sends them.
        runs_from = (masters or others)[:1]
        for node in masters:
            answer = self._add_node(archive, node, with_runs=True)
            yield node, answer
            if not answer[0] and self.access.connection == JUMP:
                for other in others:
                    yield other, (0, f"{other.name} was not asked: the master, which leads to it, does not answer.")
                return
            if not answer[0]:
                runs_from = others[:1]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda node: self._add_node(archive, node, node in runs_from), others)
            yield from zip(others, answers, strict=True)

    def _add_node(self, archive: Archive, node: ClusterNode, with_runs: bool) -> tuple[int, str]:
        """Add what has come of a node, however it behaves."""
        if node.id not in self.access.known:
            return 0, f"{node.name} was not asked: its host key is not known yet."
        command = node_logs.collect_command(self.resources.cluster, self.efs_mount, with_runs, self.run_id)
        self.display(f"Collecting the logs of {node.name}.")
        way, count = node_program.Way.of_config(self.access.config, node.name), 0
        try:
            with node_program.output(way, command, limit=node_logs.MOST_PACKED, seconds=NODE_SECONDS) as chunks:
                for name, text in node_logs.read(node_program.lines(chunks, node.name)):
                    archive.add(f"nodes/{node.name}/{name}", text)
                    count += 1
        except UserError as error:
            return count, str(error)
        except u.InvalidValue as malformed:
            return count, f"{node.name} sends {malformed}: the rest is left out."
        return count, "" if count else f"{node.name} answered with nothing that is expected."


def _activity(activity: Mapping[str, Any]) -> str:
    keys = ("StatusCode", "Description", "Cause", "StatusMessage")
    return "\n  ".join([str(activity.get("StartTime", "")), *(str(activity[key]) for key in keys if activity.get(key))])


def result_lines(cluster: str, file: Path, collector: LogCollector) -> list[str]:
    size = f"{-(-file.stat().st_size // 1024)} KiB"
    answered = f"Answered: {', '.join(collector.answered) or 'no node'}."
    return [
        f"The logs of the cluster {cluster}: {file} ({size})",
        *(f"  {line}" for line in (answered, *collector.problems)),
        "Secrets that have a known form or name are removed. Read it before you pass it on.",
    ]


def versions() -> dict[str, str]:
    """Return the versions on this machine."""
    root = Path(__file__).resolve().parents[3]
    # A clone has the first of these files, an installed collection the second.
    files = (root / "galaxy.yml", root / "MANIFEST.json")
    text = next((file.read_text(encoding="utf-8") for file in files if file.exists()), "")
    version = re.search(r'\bversion"?: "?([\w.+-]+)', text)
    return {
        "ansible-core": ansible_version,
        "deeplearning.aws": version[1] if version else "",
        "python": platform.python_version(),
        "system": platform.platform(),
    }
