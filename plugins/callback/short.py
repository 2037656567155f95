# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: short
type: stdout
short_description: Print changes, messages and failures only
version_added: 1.0.0
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
description:
  - Prints a line for each role that has changed something, with the number of changes and the time that the role took,
    a line for each other change, and messages of M(ansible.builtin.debug) as they are, lists of texts as lines, and
    other values as P(ansible.builtin.default#callback) prints them. The name of a play is printed above the first of
    its lines, unless that is a message or the output of an action, which speak for themselves.
  - Of a failure it prints the sentence, and at most five lines more, the last of which names the task. Lists of
    problems are whole. Hosts with the same failure have it printed once. A failure that is rescued is not printed, as
    the rescue reports it.
  - Tasks that change nothing, skipped hosts and included files are not printed. A task whose name tells that it takes
    minutes is printed when it starts.
  - The recap is printed if something has failed. Otherwise a playbook that took longer ends with its time.
  - If no task of a playbook of this collection ran, because of C(--limit) or C(--tags) for example, it says so, and
    C(ansible-playbook) returns 2.
  - Lines are written as things happen, into a file or a pipe as well.
  - With C(-v) it prints all that P(ansible.builtin.default#callback) prints.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - Enable it in ansible.cfg, C(stdout_callback = deeplearning.aws.short), as this collection's own does.
"""

import functools
import io
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.tables import join_names
from ansible_collections.deeplearning.aws.plugins.plugin_utils.failures import failure_text, is_rescued
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import command_line
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.run_events import clock
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import one_line

LONGEST_LABEL = 100
"""An item of a loop may be a whole record."""
MOST_HOSTS = 5
"""Names in the line below a failure."""
LONG_SECONDS = 10.0
"""A change or a playbook that takes longer is printed with its time."""
COLLECTION = "deeplearning.aws."
OPERATOR = "localhost"
ROLES: Mapping[str, str] = {
    "agent_forwarding": "logins",
    "bucket": "bucket",
    "cluster_env": "node program",
    "efs_mount": "mount",
    "emr_cluster": "EMR cluster",
    "framework": "environment",
    "iam": "IAM roles",
    "machines": "machines",
    "monitoring": "monitoring",
    "network": "network",
    "storage": "file system",
    "tensorpack": "tensorpack",
    "training_run": "run",
}
"""What the collection's roles create or change, for people."""
FAILED = 2
"""Ansible's exit code if a task has failed."""
NOTHING_DONE = (
    "Nothing was done: no task of this playbook ran. It works on localhost and on the machines of the cluster, and its "
    "tasks have no tags: run it without --limit, --tags, --skip-tags and --start-at-task."
)
REPORTS = "follow_run"
"""The action of a role that prints for a long time, so that the changes before it have their line first."""


@dataclass
class FailedTask:
    """The failures of one task that have been printed."""

    title: str = ""
    texts: set[str] = field(default_factory=set)
    hosts: list[str] = field(default_factory=list)


@dataclass
class RoleChanges:
    """What a role has changed since it began."""

    subject: str = ""
    """empty: no role that has a line of its own"""
    began: float = 0.0
    count: int = 0
    hosts: set[str] = field(default_factory=set)

    def line(self, verb: str) -> str:
        nodes = self.hosts - {OPERATOR}
        where = f" on {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}" if nodes else ""
        return f"  {self.subject:<12} {f'{self.count} {verb}{where}':<24} {clock(time.monotonic() - self.began)}"


def unless_verbose(plugin: type[DefaultCallback]) -> type[DefaultCallback]:
    """With -v, let ansible.builtin.default print instead: by each method that the class has of it."""
    for name, method in list(vars(plugin).items()):
        if name.startswith(("v2_", "_task_start")) and name != "v2_playbook_on_stats":
            setattr(plugin, name, _chosen(method))
    return plugin


def _chosen(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def chosen(self: CallbackModule, *arguments: Any, **options: Any) -> None:
        verbose = getattr(DefaultCallback, method.__name__)
        (verbose if self._display.verbosity else method)(self, *arguments, **options)

    return chosen


@unless_verbose
class CallbackModule(DefaultCallback):  # type: ignore[misc]
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "deeplearning.aws.short"

    def __init__(self) -> None:
        super().__init__()
        self._messages: set[tuple[str, str, str]] = set()
        self._announced: set[str] = set()
        self._failure = FailedTask()
        self._play_line = ""
        self._role = RoleChanges()
        self._is_new = False
        self._check_mode = False
        self._began = self._task_began = time.monotonic()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Into a file or a pipe Python writes when a buffer is full.
            sys.stdout.reconfigure(line_buffering=True)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        super().v2_playbook_on_start(playbook)
        display, operator = self._display.display, os.getpid()

        # All that Ansible prints passes through this one method, what actions print in the operator's process at last.
        # A play that begins with such a line needs no header. A warning, which is an error's line, does not count.
        def display_without_header(*line: Any, **options: Any) -> None:
            if os.getpid() == operator and not options.get("stderr"):
                self._play_line = ""
            display(*line, **options)

        self._display.display = display_without_header

    def _show(self, line: str, color: str, **options: Any) -> None:
        """Print a line about a task, below the header of its play."""
        header, self._play_line = self._play_line, ""
        if header:
            self._display.display(header)
        self._display.display(line, color=color, **options)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end_failure()
        self._begin_role(RoleChanges())
        self._play = play
        self._check_mode = bool(play.check_mode)
        marker = " [CHECK MODE]" if play.check_mode and self.get_option("check_mode_markers") else ""
        self._play_line = f"PLAY [{play.get_name().strip()}]{marker}"

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Print nothing."""

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing."""

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self._end_failure()
        self._last_task_name = task.get_name().strip()
        self._task_began = time.monotonic()
        subject = _subject(task)
        if subject != self._role.subject:
            self._begin_role(RoleChanges(subject, self._task_began))

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if task.get_name().endswith("minutes)"):
            self._announce("started", task)

    def v2_runner_retry(self, result: Any) -> None:
        self._announce("waiting", result.task)

    def _announce(self, state: str, task: Any) -> None:
        if task._uuid not in self._announced:
            self._announced.add(task._uuid)
            self._show(f"{state}: {_title(task)}", C.COLOR_DEBUG)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print nothing."""

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Print nothing."""

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._handle_warnings(result.result)
        # The failed items of a loop have been printed.
        if not is_rescued(result.task) and not (result.task.loop and result.result.get("results")):
            self._print_failure(result, "fatal", _ignored(ignore_errors))
        if not ignore_errors and not is_rescued(result.task):
            self._failure.title = result.task.get_name().strip()

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._handle_warnings(result.result)
        if not is_rescued(result.task):
            label = one_line(str(self._get_item_label(result.result)))[:LONGEST_LABEL]
            self._print_failure(result, "failed", f"(item={label}) {_ignored(result.task.ignore_errors)}")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._handle_warnings(result.result)
        prefix = f"{_ignored(result.task.ignore_unreachable)}UNREACHABLE: "
        self._print_failure(result, "fatal", prefix, C.COLOR_UNREACHABLE)

    def _print_failure(self, result: Any, kind: str, prefix: str, color: str = C.COLOR_ERROR) -> None:
        """Print a failure of a host at once, unless another host has had the same; details of the first one only."""
        host = str(self.host_label(result))
        text = failure_text(result.result, _action(result.task))
        # Messages begin with the name of their host, as ansible-core's own output needs it.
        text = prefix + text.removeprefix(f"{host}: ")
        if host not in self._failure.hosts:
            self._failure.hosts.append(host)
        if text in self._failure.texts:
            return
        shown = text.split("\n", 1)[0] if self._failure.texts else text
        self._failure.texts.add(text)
        self._begin_role(RoleChanges(self._role.subject, self._role.began))
        self._print_error(f"{kind}: [{host}]: {shown}", color)

    def _end_failure(self) -> None:
        """Print which task has failed, after its last host."""
        failure, self._failure = self._failure, FailedTask()
        if failure.title:
            hosts = f" on {join_names(failure.hosts, MOST_HOSTS)}" if len(failure.hosts) > 1 else ""
            self._print_error(f"  in the task: {failure.title}{hosts} (details with -v)", C.COLOR_DEBUG)

    def _print_error(self, line: str, color: str) -> None:
        self._show(line, color, stderr=self.get_option("display_failed_stderr"))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if self._display.verbosity:
            super().v2_playbook_on_stats(stats)
        else:
            self._print_end(stats)
        if not stats.processed and command_line.is_of_this_collection():
            self._display.display(NOTHING_DONE, color=C.COLOR_ERROR, stderr=True)
            # Ansible turns an exception of a callback into a warning, and returns 0 if no task has failed.
            raise SystemExit(FAILED)

    def _print_end(self, stats: Any) -> None:
        self._end_failure()
        self._begin_role(RoleChanges())
        self._play_line = ""
        outcomes = [stats.summarize(host) for host in stats.processed]
        if any(outcome["failures"] or outcome["unreachable"] for outcome in outcomes):
            super().v2_playbook_on_stats(stats)
        elif time.monotonic() - self._began >= LONG_SECONDS:
            self._display.display(f"Finished in {clock(time.monotonic() - self._began)}.", color=C.COLOR_DEBUG)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._handle_warnings_and_exception(result)
        plan = result.result.get("plan")
        if isinstance(plan, dict) and _action(result.task) == f"{COLLECTION}plan":
            self._is_new = plan.get("exists") is False
        # The items of a loop have been printed.
        if not (result.task.loop or isinstance(result.task, TaskInclude)):
            self._print_success(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        if not isinstance(result.task, TaskInclude):
            self._handle_warnings_and_exception(result)
            self._print_success(result, f" => (item={self._get_item_label(result.result)})")

    def _print_success(self, result: Any, item: str = "") -> None:
        if result.task.action in C._ACTION_DEBUG:
            self._print_message(result, item)
        elif result.result.get("changed"):
            self._print_change(result, item)

    def _print_message(self, result: Any, item: str) -> None:
        """Print a message of `debug` as it is, a list of texts as lines, and any other value as ansible.builtin.default
        prints it."""
        message = result.result.get("msg")
        if isinstance(message, list) and message and all(isinstance(line, str) for line in message):
            message = "\n".join(message)
        if not isinstance(message, str):
            self._clean_results(result.result, result.task.action)
            message = f"ok: [{self.host_label(result)}]{item} => {self._dump_results(result.result)}"
        # All nodes may have the same message.
        if (result.task._uuid, item, message) not in self._messages:
            self._messages.add((result.task._uuid, item, message))
            self._display.display(message)

    def _print_change(self, result: Any, item: str) -> None:
        """Print a change, or count it if the task is of a role that has one line for all."""
        host = str(self.host_label(result))
        if self._role.subject:
            self._role.count += 1
            self._role.hosts.add(host)
            return
        seconds = time.monotonic() - self._task_began
        where = "" if host == OPERATOR else f"[{host}] "
        lasted = f"  {clock(seconds)}" if seconds >= LONG_SECONDS else ""
        self._show(f"changed: {where}{_title(result.task)}{item}{lasted}", C.COLOR_CHANGED)

    def _begin_role(self, role: RoleChanges) -> None:
        """Print what the role before has changed."""
        before, self._role = self._role, role
        if before.count:
            verb = "created" if self._is_new and before.hosts == {OPERATOR} else "changed"
            line = before.line(f"would be {verb}" if self._check_mode else verb)
            self._show(line, C.COLOR_CHANGED)


def _action(task: Any) -> str:
    return str(task.resolved_action or task.action)


def _subject(task: Any) -> str:
    """Return what the task's role is about; empty if the task does not belong to a line for the whole role."""
    name = str(task._role.get_name()) if task._role and _action(task) != f"{COLLECTION}{REPORTS}" else ""
    return ROLES.get(name.removeprefix(COLLECTION), "") if name.startswith(COLLECTION) else ""


def _ignored(is_ignored: bool | None) -> str:
    return "ignored: " if is_ignored else ""


def _title(task: Any) -> str:
    """Return a task's name without its role and its file: `Create the VPC` of `network : vpc | Create the VPC`."""
    name = str(task.get_name())
    title = name.partition(" : ")[2] if task._role else name
    # ansible-lint has names in such files begin like this. Any other `|` is the task's own.
    file = re.escape(Path(task.get_path() or "").stem)
    return re.sub(rf"\A(?:\w+ \| )*{file} \| ", "", title).strip()
