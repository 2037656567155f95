"""Write roles/monitoring/files/alerts.yml: an alert for each problem that Prometheus can notice, by its expression.

.venv/bin/python tools/alert_rules.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "files/node"))

from deeplearning.contract import problems  # noqa: E402
from deeplearning.contract.problems import Problem  # noqa: E402

FILE = ROOT / "roles/monitoring/files/alerts.yml"
WIDTH = 108
HEAD = """\
# Made by deeplearning.aws, role monitoring
# Written by tools/alert_rules.py with the sentences of plugins/module_utils/contract/problems.py
---
groups:
  - name: cluster
    rules:
"""


SEE_STATUS = "i-… (status.yml shows its id)"
"""Instead of the id of a machine."""
SILENT = (
    "no process has reported progress or output. Silent:"
    "{{ range printf \"deeplearning_run_silent{run='%s'}\" $labels.run | query }} {{ .Labels.role }} "
    "{{ .Labels.process_rank }} on {{ .Labels.node }};{{ end }} their logs have the stacks"
)
COST = (
    "{{ with printf \"deeplearning_run_stall_usd_per_hour{run='%s'}\" $labels.run | query }}"
    '{{ . | first | value | printf "%.2f" }} USD an hour{{ else }}an amount that is not known{{ end }}'
)
GPU = {"gpu": "{{ $labels.gpu }}", "subject": "{{ $labels.instance }}"}
MEMBER = {"subject": "{{ $labels.member }}"}


@dataclass(frozen=True)
class Alert:
    """How Prometheus notices a problem."""

    problem: Problem
    expr: str
    values: Mapping[str, str]
    """Prometheus' templates for what the texts of the problem name."""
    minutes: int = 0
    """How long it has to last."""
    severity: str = "warning"

    @property
    def name(self) -> str:
        return self.problem.id.title().replace("_", "")


ALERTS = (
    Alert(
        problems.MEMBER_DOWN,
        'up{job="node"} == 0',
        {"subject": "{{ $labels.instance }} ({{ $labels.instance_id }})"},
        minutes=1,
        severity="critical",
    ),
    Alert(
        problems.MEMBERS_MISSING,
        "deeplearning_members < deeplearning_members_desired",
        {
            "desired": '{{ with query "deeplearning_members_desired" }}{{ . | first | value }}{{ end }}',
            "count": "{{ $value }}",
        },
        minutes=15,
    ),
    Alert(problems.MEMBER_FAULTY, 'deeplearning_member_ready{state!="held"} == 0', MEMBER, minutes=5),
    Alert(
        problems.MEMBER_HELD,
        'deeplearning_member_ready{state="held"} == 0',
        {**MEMBER, "reason": problems.HELD_REASON, "node": SEE_STATUS},
    ),
    Alert(
        problems.DISK_ALMOST_FULL,
        '100 * (1 - node_filesystem_avail_bytes{job="node", fstype!~"tmpfs|ramfs|nfs.*|fuse.*"} '
        f"/ node_filesystem_size_bytes) >= {problems.DISK_ALMOST_FULL.threshold:g} and node_filesystem_readonly == 0",
        {
            "subject": "{{ $labels.instance }}",
            "path": "{{ $labels.mountpoint }}",
            "percent": '{{ $value | printf "%.0f" }}',
        },
        minutes=5,
    ),
    Alert(
        problems.RUN_STALLED,
        'deeplearning_run_state{state="stalled"} == 1',
        {"subject": "{{ $labels.run }}", "reason": SILENT, "cost": COST},
        severity="critical",
    ),
    Alert(
        problems.RUN_FIGURES_MISSING,
        'time() - node_textfile_mtime_seconds{file=~".*deeplearning.prom"} > '
        f"{problems.RUN_FIGURES_MISSING.threshold:g}",
        {"age": "{{ $value | humanizeDuration }}"},
    ),
    Alert(problems.GPU_ERROR, "DCGM_FI_DEV_XID_ERRORS > 0", {**GPU, "xid": "{{ $value }}"}),
    Alert(
        problems.GPU_MEMORY_FAILING,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0 or increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1h]) > 0",
        {**GPU, "node": SEE_STATUS},
        severity="critical",
    ),
)


def rules() -> str:
    """Return the file. It is static, so that promtool tests what is installed, and the role needs no template."""
    return HEAD + "\n".join("".join(f"{line}\n" for line in _rule(alert)) for alert in ALERTS)


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield from _folded(8, "expr", alert.expr)
    if alert.minutes:
        yield f"        for: {alert.minutes}m"
    yield f"        labels: {{severity: {alert.severity}}}"
    yield "        annotations:"
    yield from _folded(10, "summary", alert.problem.text.format(**alert.values))
    yield from _folded(10, "advice", alert.problem.advice.format(**alert.values))


def _folded(indent: int, key: str, text: str) -> Iterator[str]:
    yield f"{' ' * indent}{key}: >-"
    lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    yield from (f"{' ' * (indent + 2)}{line}" for line in lines)


if __name__ == "__main__":
    FILE.write_text(rules())
