# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The forms of the node program's answers, by command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils.contract import node_load, run_files, run_request, schema
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.frameworks import DISTRIBUTIONS
from ...module_utils.contract.report import MEMBER_STATES
from ...module_utils.contract.run_request import STATES, run_id
from .. import untrusted as u

Form = Callable[[Any], dict[str, Any]]

framework = u.one_of(*DISTRIBUTIONS)
distribution = u.one_of(*(name for names in DISTRIBUTIONS.values() for name in names))


role = u.one_of("worker", "chief", "ps", "evaluator", "server", "scheduler", "mpirun")
processes = u.list_of(u.record(node=u.node, role=role), 200_000)
"""The processes of a run on all its nodes."""


def load(value: Any) -> dict[str, Any]:
    """Parse the load of a node."""
    try:
        return schema.validate_part(value, node_load.FIELDS, "the load")
    except UserError as error:
        raise u.InvalidValue(str(error)) from None


def figures(*names: str) -> dict[str, u.Parser]:
    """Return the fields of figures that users' scripts report."""
    return dict.fromkeys(names, u.lenient(u.number))


progress = u.lenient(u.record(**figures("epoch", "step", "loss", "accuracy", "samples_per_second", "seconds_left")))
"""The progress of a run, which its script reports."""

cost = u.lenient(u.record(so_far=u.number, at_end=u.optional(u.number)))
"""What a run has cost so far, and at its end. A program of an older version does not say it."""

_RUN = {"run_id": run_id, "state": u.one_of(*STATES)}
_EXISTS = {"exists": u.boolean}
_STAGED = u.record(changed=u.boolean, path=u.path, generated=u.boolean)

_EVALUATION = u.record(
    epoch=u.count,
    samples=u.count,
    right=u.optional(u.count),
    val_accuracy=u.optional(u.number),
    average_precision=u.optional(u.number),
)


def evaluation(value: Any) -> dict[str, Any]:
    """Parse a line of a run's metrics/evaluation.jsonl. `text` is for people."""
    line = _EVALUATION(value)
    if line["average_precision"] is not None:
        figure = f"average precision {line['average_precision']:.4f} on {line['samples']} images"
    else:
        figure = f"{line['right']} of {line['samples']} right, accuracy {line['val_accuracy'] or 0:.4f}"
    return {**line, "text": f"after epoch {line['epoch']}: {figure}"}


recorded_run = u.record(
    run_id=run_id,
    **{
        **{key: u.optional(field.check) for key, field in run_request.FIELDS.items() if field.evaluated_with},
        **{"framework": framework, "distribution": distribution, "python": u.path},
        **{"script": u.words, "script_args": u.list_of(u.argument), "data": u.optional(u.words)},
        "requirements": u.optional(u.words),
        "generated": u.boolean,
    },
)
"""What the operator's side uses of run.json."""

ANSWERS: Mapping[str, Form] = {
    "run list": u.record(runs=u.list_of(u.record(**_RUN))),
    "run show": u.record(run=recorded_run, checkpoints=u.list_of(u.words)),
    "run frameworks": u.record(
        # In check mode the program may be an older one, which does not name the runs.
        frameworks=u.list_of(
            u.record(framework=framework, runs=u.optional(u.list_of(run_id)), processor=u.optional(u.boolean))
        )
    ),
    "run evaluation": u.record(evaluation=u.optional(evaluation)),
    "run files": u.record(
        state=u.one_of(*STATES),
        files=u.list_of(u.record(**run_files.FILE), run_files.MOST_FILES),
        left_out=u.list_of(u.words, 100),
        # The program may be an older one.
        left_out_count=u.optional(u.count),
    ),
    "run create": u.record(run_id=run_id, warnings=u.list_of(u.words)),
    "tensorboard check": u.record(installed=u.boolean),
    "tensorboard start": u.record(changed=u.boolean, port=u.between(6006, 6105)),
    "tensorboard stop": u.record(changed=u.boolean),
    "page start": u.record(changed=u.boolean, port=u.between(6106, 6205)),
    "page stop": u.record(changed=u.boolean),
    "unpack show": u.record(**_EXISTS),
    "unpack share": u.record(changed=u.boolean, files=u.count),
    "unpack finish": u.record(changed=u.boolean),
    "data show": u.record(**_EXISTS, path=u.path, generated=u.boolean, received=u.count),
    "data stage": _STAGED,
    "data receive": u.record(path=u.path),
    "status": u.record(
        members=u.list_of(u.record(instance_id=schema.instance, rank=u.count, state=u.one_of(*MEMBER_STATES))),
        loads=u.list_of(load),
        runs=u.list_of(
            u.record(
                **_RUN,
                framework=framework,
                distribution=distribution,
                nodes=u.list_of(u.node),
                progress=progress,
                sentence=u.words,
                # The program may be an older one.
                requested_by=u.optional(u.words),
                requested_at=u.optional(u.words),
                reason=u.optional(u.words),
                stalled_seconds=u.lenient(u.number),
                cost=cost,
            )
        ),
        problems=u.list_of(u.words),
    ),
    "members publish": u.record(generation=u.count, changed=u.boolean, left_out=u.list_of(u.words)),
    "members apply": u.record(generation=u.count, changed=u.boolean, listed=u.boolean),
    "members report": u.record(changed=u.boolean),
    "members forget": u.record(changed=u.boolean),
}
"""By the command's first two words. Other commands answer with text for people."""

FOR_PEOPLE = ("run list", "run show")
"""Without --json, these answer with text as well."""
OTHER_VERSION = (
    "Its program may be another version, or changed: ansible-playbook deeplearning.aws.configure installs the right "
    "one."
)


def parse(host: str, command: Sequence[str], text: str) -> dict[str, Any]:
    """Return the answer of a host to `deeplearning COMMAND`. Text for people is returned as `text`."""
    name = " ".join(command[:2])
    form = ANSWERS.get(name)
    if form is None or (name in FOR_PEOPLE and "--json" not in command):
        return {"text": u.printable(text.strip())}
    try:
        return form(u.from_json(text))
    except u.InvalidValue as malformed:
        raise unexpected(host, command, malformed) from None


def unexpected(host: str, command: Sequence[str], malformed: u.InvalidValue) -> UserError:
    return UserError(
        f"{host} answered `deeplearning {' '.join(command[:2])}` with something unexpected ({malformed}). "
        f"{OTHER_VERSION}"
    )
