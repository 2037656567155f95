# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the program on the nodes answers to each of its commands, and what it reports while it works.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils import _untrusted as u
from ansible_collections.deeplearning.aws.plugins.plugin_utils._argument_values import ALL, RUN_ID
from ansible_collections.deeplearning.aws.plugins.plugin_utils._arguments import DISTRIBUTIONS

Form = Callable[[Any], dict[str, Any]]

STATES = (
    *("created", "waiting", "starting", "running", "recovering", "stopping"),
    *("finished", "failed", "stopped", "lost"),
)

framework = u.choice(*DISTRIBUTIONS)
distribution = u.choice(*(name for names in DISTRIBUTIONS.values() for name in names))


def run_id(value: Any) -> str:
    if not isinstance(value, str) or not RUN_ID.fullmatch(value) or value == ALL:
        raise u.Malformed("a run's id")
    return value


def nodes(value: Any) -> int | list[str]:
    """How many, or which."""
    return u.list_of(u.node)(value) if isinstance(value, list) else int(u.whole(1, u.MOST_ITEMS)(value))


role = u.choice("worker", "chief", "ps", "evaluator", "server", "scheduler", "mpirun")
processes = u.list_of(u.record(node=u.node, role=role), 200_000)
"""Of a run, on all its nodes."""

_STAGED = u.record(changed=u.flag, path=u.path, generated=u.flag)

ANSWERS: Mapping[str, Form] = {
    "run list": u.record(runs=u.list_of(u.record(run_id=run_id, state=u.choice(*STATES)))),
    "run show": u.record(
        run=u.record(
            framework=framework,
            distribution=distribution,
            python=u.path,
            script=u.words,
            script_args=u.list_of(u.argument),
            data=u.optional(u.words),
            generated=u.flag,
            nodes=u.optional(nodes),
            processes_per_node=u.optional(u.whole(1, 1024)),
            servers=u.optional(u.whole(1, 1024)),
        )
    ),
    "run create": u.record(run_id=run_id, warnings=u.list_of(u.words)),
    "tensorboard start": u.record(changed=u.flag, port=u.whole(6006, 6105)),
    "tensorboard stop": u.record(changed=u.flag),
    "unpack show": u.record(there=u.flag),
    "unpack share": u.record(changed=u.flag, files=u.count),
    "unpack finish": u.record(changed=u.flag),
    "data show": u.record(there=u.flag, path=u.path, generated=u.flag, received=u.count),
    "data stage": _STAGED,
    "data receive": u.record(path=u.path),
    "members publish": u.record(generation=u.count, changed=u.flag, left_out=u.list_of(u.words)),
    "members apply": u.record(generation=u.count, changed=u.flag, listed=u.flag),
    "members report": u.record(changed=u.flag),
    "members forget": u.record(changed=u.flag),
}
"""By the command's first two words. Other commands answer in words for people."""

EVALUATION: Form = u.record(epoch=u.count, right=u.count, samples=u.count, val_accuracy=u.number)
"""A line of a run's metrics/evaluation.jsonl."""

FOR_PEOPLE = ("run list", "run show")
"""These too, without --json."""


def parse(command: Sequence[str], text: str) -> dict[str, Any]:
    """The answer to `deeplearning COMMAND`. Words for people are returned as `said`."""
    name = " ".join(command[:2])
    form = ANSWERS.get(name)
    if form is None or (name in FOR_PEOPLE and "--json" not in command):
        return {"said": u.printable(text.strip())}
    return form(u.from_json(text))


def unexpected(host: str, command: Sequence[str], malformed: u.Malformed) -> str:
    return (
        f"{host} answered `deeplearning {' '.join(command[:2])}` with something else than it should ({malformed}). Its "
        "program may be another version, or changed: ansible-playbook configure.yml installs ours."
    )
