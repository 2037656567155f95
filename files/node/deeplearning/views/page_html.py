"""The status page as HTML, with its styles and charts in it. Every value is escaped, and there is no script.

Training code writes the figures of its run, and root on any node the load of nodes: what is shown is data.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning.contract.html_page import bullets, document, table, text

REFRESH_SECONDS = 15
HEAD = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><meta name="viewport" content="width=device-width">'
WIDTH, HEIGHT = 320, 72
"""Of a chart, in units of its own."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6875; --line: #d9dfe5; --card: #fff; --page: #f3f5f7;
  --good: #1a7f4b; --bad: #b42318; --mark: #2563ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --soft: #9aa7b3; --line: #333d47; --card: #1b2229;
  --page: #12171c; --good: #4cc38a; --bad: #ff7b6b; --mark: #6cb0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1180px; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 15px; margin: 0 0 10px; }
header { display: flex; gap: 16px; align-items: baseline; flex-wrap: wrap; margin-bottom: 16px; }
header p, .soft { color: var(--soft); margin: 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px;
  margin-bottom: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:last-child td { border-bottom: 0; } td { font-variant-numeric: tabular-nums; }
ul { margin: 0; padding-left: 18px; }
.good { color: var(--good); } .bad { color: var(--bad); } .problems { border-left: 4px solid var(--bad); }
.bar { vertical-align: middle; margin-right: 6px; } .bar .track { fill: var(--line); } .bar .fill { fill: var(--mark); }
.run { display: grid; grid-template-columns: minmax(250px, 1fr) repeat(3, 1fr); gap: 18px; padding: 12px 0;
  border-top: 1px solid var(--line); }
.run:first-of-type { border-top: 0; }
.run h3 { margin: 0; font-size: 14px; } figure { margin: 0; } figcaption { color: var(--soft); }
figcaption b { color: var(--ink); float: right; }
.chart { width: 100%; height: 72px; display: block; } .chart path { fill: none; stroke: var(--mark); stroke-width: 1.6;
  vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.range { display: flex; justify-content: space-between; font-size: 12px; }
"""

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

MEMBER_COLUMNS = (
    "name",
    "instance",
    "address",
    "type",
    "state",
    "load",
    "memory",
    "disk",
    "GPUs busy",
    "GPU memory",
    "logins",
)
CHARTS = (
    ("loss", "loss", "{:.4g}", None),
    ("accuracy", "accuracy", "{:.3f}", None),
    ("samples_per_second", "samples/s", "{:.0f}", 0.0),
)
"""Figure, label, format, and where the axis begins: if None, at the lowest value."""
KINDS = {"finished": "good", "running": "good", **dict.fromkeys(("stalled", "failed", "lost"), "bad")}
"""How states are shown; others are soft."""


def page(snapshot: Mapping[str, Any]) -> str:
    members, runs = snapshot["members"], snapshot["runs"]
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot["at"]))
    count = f"{len(members)} of {snapshot['desired']} machines"
    body = (
        f"<header><h1>{text(snapshot['cluster'])}</h1>"
        f"<p>{text(snapshot['region'])} · {text(count)} · member list {text(snapshot['generation'])} · {when}</p>"
        f"</header>{_problems(snapshot['problems'])}"
        f"<section><h2>Members</h2>{table(MEMBER_COLUMNS, map(_member, members))}</section>"
        f"<section><h2>Runs</h2>{''.join(map(_run, runs)) or '<p>There is no run yet.</p>'}</section>"
    )
    return document(str(snapshot["cluster"]), STYLE, body, HEAD)


def error_page(title: str, message: str) -> str:
    body = f'<section class="problems"><h1>{text(title)}</h1><p>{text(message)}</p></section>'
    return document(title, STYLE, body, HEAD)


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return '<section><span class="good">All members and runs are well.</span></section>'
    return f'<section class="problems"><h2 class="bad">Problems</h2>{bullets(map(text, problems))}</section>'


def _member(member: Mapping[str, Any]) -> list[str]:
    """Return the cells of a member's row, as HTML."""
    state = f'<span class="{"good" if member["state"] == "ready" else "bad"}">{text(member["state"])}</span>'
    columns = (member["aliases"][0], *(member[key] for key in ("instance_id", "private_ip", "instance_type")))
    known = [*map(text, columns), state]
    load = member["load"]
    if load is None:
        return [*known, *["–"] * 6]
    percents = [[load[key]] for key in ("memory_percent", "disk_percent")]
    percents += [[gpu[key] for gpu in load["gpus"]] for key in ("busy_percent", "memory_percent")]
    return [
        *known,
        f"{_bar(100 * load['load'] / load['processors'])}{load['load']:.1f} of {load['processors']}",
        *map(_percent, percents),
        text(load["logins"]),
    ]


def _percent(values: Sequence[float]) -> str:
    if not values:
        return "–"
    average = sum(values) / len(values)
    return f"{_bar(average)}{average:.0f} %"


def _bar(percent: float) -> str:
    width = max(0.0, min(percent, 100.0)) * 0.48
    return (
        '<svg class="bar" width="48" height="8" viewBox="0 0 48 8"><rect class="track" width="48" height="8" rx="2"/>'
        f'<rect class="fill" width="{width:.1f}" height="8" rx="2"/></svg>'
    )


def _run(run: Mapping[str, Any]) -> str:
    kind = KINDS.get(run["state"], "soft")
    points = run["points"]
    facts = [
        f"{run['framework']} {run['distribution']}",
        f"nodes: {run['nodes']}",
        f"requested at {run['requested_at']}",
    ]
    lines = [", ".join(facts), _progress(points[-1]) if points else "", run["reason"]]
    described = "".join(f'<p class="soft">{text(line)}</p>' for line in lines if line)
    charts = "".join(_chart(points, *chart) for chart in CHARTS)
    title = f'<h3>{text(run["run_id"])} <span class="{kind}">{text(run["state"])}</span></h3>'
    return f'<div class="run"><div>{title}{described}</div>{charts}</div>'


def _progress(point: Mapping[str, Any]) -> str:
    parts = [f"{key} {point[key]:.0f}" for key in ("epoch", "step") if point[key] is not None]
    if point["val_accuracy"] is not None:
        parts.append(f"validation accuracy {point['val_accuracy']:.3f}")
    if point["seconds_left"]:
        parts.append(f"{_duration(point['seconds_left'])} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {int(seconds) % 60} s"


def _chart(points: Sequence[Mapping[str, Any]], key: str, label: str, form: str, origin: float | None) -> str:
    known = [(point["time"], point[key]) for point in points if point[key] is not None]
    if not known:
        return "<div></div>"
    (first, last), values = (known[0][0], known[-1][0]), [value for _time, value in known]
    low, high = min(values) if origin is None else origin, max(values)
    path = "M" + " L".join(
        f"{WIDTH * _share(at, first, last):.1f} {HEIGHT * (0.95 - 0.9 * _share(value, low, high)):.1f}"
        for at, value in known
    )
    return (
        f"<figure><figcaption>{label} <b>{form.format(values[-1])}</b></figcaption>"
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"><path d="{path}"/></svg>'
        f'<div class="range soft"><span>{form.format(low)} to {form.format(high)}</span>'
        f"<span>{_duration(last - first)}</span></div></figure>"
    )


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
