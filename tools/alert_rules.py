"""Write roles/monitoring/files/alerts.yml: an alert for each problem that Prometheus can notice.

.venv/bin/python tools/alert_rules.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "files/node"))

from deeplearning.contract import problems  # noqa: E402
from deeplearning.contract.problems import Alert, Problem  # noqa: E402

FILE = ROOT / "roles/monitoring/files/alerts.yml"
WIDTH = 108
HEAD = """\
# Made by deeplearning.aws, role monitoring
# Written by tools/alert_rules.py from plugins/module_utils/contract/problems.py
---
groups:
  - name: cluster
    rules:
"""


def rules() -> str:
    """Return the file. It is static, so that promtool tests what is installed, and the role needs no template."""
    alerts = [(each, each.alert) for each in vars(problems).values() if isinstance(each, Problem) and each.alert]
    return HEAD + "\n".join("".join(f"{line}\n" for line in _rule(problem, alert)) for problem, alert in alerts)


def _rule(problem: Problem, alert: Alert) -> Iterator[str]:
    yield f"      - alert: {name(problem)}"
    yield from _folded(8, "expr", alert.expr.replace("$threshold", f"{problem.threshold:g}"))
    if alert.minutes:
        yield f"        for: {alert.minutes}m"
    yield f"        labels: {{severity: {alert.severity}}}"
    yield "        annotations:"
    yield from _folded(10, "summary", problem.text.format(**alert.values))
    yield from _folded(10, "advice", problem.advice.format(**alert.values))


def name(problem: Problem) -> str:
    return problem.id.title().replace("_", "")


def _folded(indent: int, key: str, text: str) -> Iterator[str]:
    yield f"{' ' * indent}{key}: >-"
    lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    yield from (f"{' ' * (indent + 2)}{line}" for line in lines)


if __name__ == "__main__":
    FILE.write_text(rules())
