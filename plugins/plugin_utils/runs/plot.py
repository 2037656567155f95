# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Line plots of a few series, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...module_utils.contract import html_page

WIDTH, HEIGHT = 560, 310
"""Without the legend, which is below."""
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 54
LEGEND_ROW = 15
"""The height of a row with two names."""
COLOURS = ("#2563a8", "#d1602a", "#2f8a57", "#8a4fa3", "#b59a20", "#3c9bb3", "#a33a4c", "#6b6b6b")
INK, FAINT = "#333333", "#dddddd"

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_ticks: Sequence[float] = ()
    """By default, round numbers."""

    @property
    def height(self) -> int:
        return HEIGHT + LEGEND_ROW * ((len(self.series) + 1) // 2)

    def svg(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        role = f'role="img" aria-label="{html_page.text(self.title)}" font-family="sans-serif"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {role}>'
        return "\n".join([head, *self._titles(), *self._axes(), *self._curves(), *self._legend(), "</svg>"])

    def _titles(self) -> Iterator[str]:
        yield _text((WIDTH / 2, 20), self.title, size=14)
        yield _text((LEFT, TOP - 8), self.y_label, "start")
        yield _text((WIDTH - RIGHT, HEIGHT - BOTTOM + 32), self.x_label, "end")

    def _axes(self) -> Iterator[str]:
        columns, rows = self._scales
        for y in rows:
            left, right = self._position(0, y), self._position(columns[-1], y)
            yield _line([left, right], FAINT)
            yield _text((LEFT - 6, left[1] + 4), f"{y:,g}", "end")
        for x in columns:
            yield _text((self._position(x, 0)[0], HEIGHT - BOTTOM + 16), f"{x:,g}")
        yield _line([self._position(0, 0), self._position(columns[-1], 0)], INK)

    def _curves(self) -> Iterator[str]:
        for number, series in enumerate(self.series):
            points = [self._position(x, y) for x, y in series.points]
            yield _line(points, _colour(number), 2, series.dashed)
            if not series.dashed:
                yield from (_dot(point, _colour(number)) for point in points)

    def _legend(self) -> Iterator[str]:
        for number, series in enumerate(self.series):
            x, y = LEFT + (number % 2) * 240, HEIGHT + (number // 2) * LEGEND_ROW
            yield _line([(x, y - 4), (x + 18, y - 4)], _colour(number), 2, series.dashed)
            yield _text((x + 24, y), series.name, "start")

    @cached_property
    def _scales(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the marks of both axes."""
        points = [point for series in self.series for point in series.points]
        columns = self.x_ticks or ticks(0, max((x for x, _y in points), default=1))
        return columns, ticks(0, max((y for _x, y in points), default=1))

    def _position(self, x: float, y: float) -> Point:
        """Return where a point of a series is in the picture."""
        columns, rows = self._scales
        right, top = max(columns[-1], 1e-9), max(rows[-1], 1e-9)
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + width * x / right, 1), round(HEIGHT - BOTTOM - height * y / top, 1)


def ticks(low: float, high: float) -> list[float]:
    """Return four to eight round numbers from `low` on, the last one at `high` or above."""
    if not high > low:
        high = low + 1
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [round(low + step * number, 10) for number in range(math.ceil((high - low) / step - 1e-9) + 1)]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(at: Point, text: str, anchor: str = "middle", size: int = 11) -> str:
    position = f'x="{at[0]:g}" y="{at[1]:g}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {position} fill="{INK}">{html_page.text(text)}</text>'


def _dot(at: Point, colour: str) -> str:
    return f'<circle cx="{at[0]:g}" cy="{at[1]:g}" r="3" fill="{colour}"/>'


def _line(points: Sequence[Point], colour: str, width: float = 1, dashed: bool = False) -> str:
    corners = " ".join(f"{x:g},{y:g}" for x, y in points)
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}/>'
