# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Poll an EMR cluster until all its machines are configured, and say why if that fails."""

from __future__ import annotations

import contextlib
import gzip
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeVar

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.aws.polling import ProgressPrinter, until
from ...module_utils.contract.names import CORE
from ...module_utils.resources.emr_cluster import ENDING, groups_of, terminate
from ..untrusted import one_line, printable
from .capacity import clock

T = TypeVar("T")

MOST_LOGS = 2
LOG_LINES, LOG_CHARACTERS = 40, 4096
MOST_COMPRESSED, MOST_DECOMPRESSED = 1 << 20, 16 << 20
LOG_SECONDS = 600.0
"""EMR stores logs some minutes late, and those of a machine that ended early perhaps never."""
END_SECONDS = 900.0
"""The longest time for a cluster to end."""

_MACHINE = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_ACTION = re.compile(r"bootstrap action (\d{1,3})")
_READY = ("RUNNING", "WAITING")
_BOOTSTRAP_FAILURE = "BOOTSTRAP_FAILURE"


@dataclass
class EmrWatch:
    """One wait for an EMR cluster. A cluster that does not become ready in time is terminated."""

    aws: Aws
    cluster_id: str
    logs: str
    """Where EMR stores its logs: a bucket, or bucket/prefix."""
    timeout_seconds: float
    poll_seconds: float
    display: Callable[[str], None]
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    changed: bool = False
    _cluster: Mapping[str, Any] = field(default_factory=dict)
    _groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _failed: Sequence[Mapping[str, Any]] = ()
    """Core nodes that ended during the wait because their bootstrap action failed."""

    def run(self) -> dict[str, Any]:
        started = self.now()
        progress = ProgressPrinter(self.display, self.now)

        def poll() -> bool | None:
            self._describe(started)
            if self._is_ready:
                return True
            elapsed = clock(self.now() - started)
            progress.report(f"emr {self.cluster_id}: {self._state}, {self._count} configured", f", {elapsed}")
            return False if self._has_ended or (self._failed and self._state in _READY) else None

        ready = self._until(poll, self.timeout_seconds)
        return self._result(self.now() - started) if ready else self._failure(started, in_time=ready is False)

    def _until(self, poll: Callable[[], T | None], seconds: float) -> T | None:
        return until(poll, seconds, now=self.now, pause=lambda _seconds: self.sleep(self.poll_seconds))

    def _describe(self, since: float) -> None:
        self._cluster = self.aws.call("emr", "describe_cluster", ClusterId=self.cluster_id)["Cluster"]
        self._groups = groups_of(self.aws, self.cluster_id)
        if self._state in _READY and not self._is_ready:
            ended_nodes = {"InstanceGroupTypes": [CORE], "InstanceStates": ["TERMINATED"]}
            ended = self.aws.pages("emr", "list_instances", "Instances", ClusterId=self.cluster_id, **ended_nodes)
            self._failed = [item for item in ended if _failed_since(item["Status"], since)]

    @property
    def _state(self) -> str:
        return str(self._cluster["Status"]["State"])

    @property
    def _has_ended(self) -> bool:
        return self._state.startswith("TERMINATED")

    def _sum(self, key: str) -> int:
        return sum(int(group.get(key) or 0) for group in self._groups.values())

    @property
    def _count(self) -> str:
        return f"{self._sum('RunningInstanceCount')}/{self._sum('RequestedInstanceCount')}"

    @property
    def _is_ready(self) -> bool:
        return self._state in _READY and all(
            group.get("RunningInstanceCount") == group.get("RequestedInstanceCount") for group in self._groups.values()
        )

    def _result(self, seconds: float, **more: Any) -> dict[str, Any]:
        return {
            "changed": self.changed,
            "outcome": "full",
            "desired": self._sum("RequestedInstanceCount"),
            "in_service": self._sum("RunningInstanceCount"),
            "waited_seconds": round(seconds, 1),
            "msg": f"The EMR cluster {self.cluster_id} is {self._state}, {self._count} configured.",
            **more,
        }

    def _failure(self, started: float, in_time: bool) -> dict[str, Any]:
        if self._state == ENDING and not in_time:
            self._until(self._ended, END_SECONDS)
        if self._failed and self._state in _READY:
            machines = [str(item["Ec2InstanceId"]) for item in self._failed]
            reason = _reason(self._failed[0]["Status"])
            words = (
                f"{len(machines)} core nodes of the EMR cluster {self.cluster_id} could not be configured ({reason}). "
                f"The others go on, {self._count} of them"
            )
            lines = self._log_lines(machines, reason)
        elif self._has_ended:
            reason = _reason(self._cluster["Status"])
            words = (
                f"The EMR cluster {self.cluster_id} has ended: {reason or 'EMR gives no reason'}. Nothing keeps running"
            )
            lines = self._log_lines(_MACHINE.findall(reason), reason) if "bootstrap action" in reason else []
        elif self._state in _READY:
            words = (
                f"Of the EMR cluster {self.cluster_id} {self._count} are configured after "
                f"{clock(self.timeout_seconds)}. EMR goes on starting the others: a smaller cluster_worker_count "
                "ends that"
            )
            lines = []
        else:
            words, lines = self._give_up(), []
        return self._result(self.now() - started, failed=True, outcome="failed", msg="\n".join([f"{words}.", *lines]))

    def _give_up(self) -> str:
        state = self._state
        self.changed = True
        terminate(self.aws, self.cluster_id)
        ended = self._until(self._ended, END_SECONDS)
        rest = "Nothing keeps running" if ended else f"It is {self._state} and may still cost"
        return (
            f"The EMR cluster {self.cluster_id} was still {state} after {clock(self.timeout_seconds)}, so it was "
            f"terminated. {rest}. EMR shows what it waited for: aws emr describe-cluster --region {self.aws.region} "
            f"--cluster-id {self.cluster_id}"
        )

    def _ended(self) -> bool | None:
        self._cluster = self.aws.call("emr", "describe_cluster", ClusterId=self.cluster_id)["Cluster"]
        return True if self._has_ended else None

    def _log_lines(self, machines: Sequence[str], reason: str) -> list[str]:
        """Return the ends of the logs of the first machines. Nodes have written them."""
        match = _ACTION.search(reason)
        number = match[1] if match else "1"
        lines: list[str] = []
        deadline = self.now() + LOG_SECONDS
        for machine in list(dict.fromkeys(machines))[:MOST_LOGS]:
            bucket, _slash, prefix = self.logs.partition("/")
            folder = "/".join(filter(None, [prefix, self.cluster_id, "node", machine, "bootstrap-actions", number]))
            text = self._read_log(bucket, f"{folder}/stderr.gz", deadline)
            title = f"{machine}, bootstrap action {number}, s3://{bucket}/{folder}/stderr.gz"
            lines += [f"{title}:", *text] if text else [f"{title} is not there."]
        return lines

    def _read_log(self, bucket: str, key: str, deadline: float) -> list[str]:
        progress = ProgressPrinter(self.display, self.now)

        def poll() -> list[str] | None:
            try:
                content = self.aws.content(bucket, key, self.aws.account, MOST_COMPRESSED)
            except AwsError as error:
                if error.code not in ("NoSuchKey", "404"):
                    return [f"  {error}"]
                if self.now() < deadline and not progress.has_reported:
                    progress.report(f"Waiting for s3://{bucket}/{key}, which EMR stores some minutes late.")
                return None
            return [f"  {one_line(line)}" for line in tail_of(content).splitlines()[-LOG_LINES:]]

        return self._until(poll, max(0.0, deadline - self.now())) or []


def tail_of(compressed: bytes) -> str:
    """Return the printable end of a file that a node has compressed with gzip, in one or more members, or what can be
    read of it."""
    tail, total = b"", 0
    with contextlib.suppress(gzip.BadGzipFile, EOFError, zlib.error), gzip.open(BytesIO(compressed)) as file:
        while total < MOST_DECOMPRESSED and (piece := file.read1(1 << 16)):
            total += len(piece)
            tail = (tail + piece)[-LOG_CHARACTERS:]
    return printable(tail.decode("utf-8", "replace"))


def _reason(status: Mapping[str, Any]) -> str:
    """Return EMR's reason for a state, as one line."""
    reason = status.get("StateChangeReason") or {}
    words = [str(reason.get(key) or "") for key in ("Code", "Message")]
    return one_line(": ".join(filter(None, words))).rstrip(".")


def _failed_since(status: Mapping[str, Any], since: float) -> bool:
    ended = (status.get("Timeline") or {}).get("EndDateTime")
    code = (status.get("StateChangeReason") or {}).get("Code")
    # EMR's clock is not ours.
    return code == _BOOTSTRAP_FAILURE and (ended is None or ended.timestamp() >= since - 60)
