# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plots of a few lines each. A plot is a list of strokes and words, which become SVG, or PNG where Pillow is there.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 310
"""without the lines' names, which stand below"""
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 54
ROW = 15
"""of two names"""
COLOURS = ("#2563a8", "#d1602a", "#2f8a57", "#8a4fa3", "#b59a20", "#3c9bb3", "#a33a4c", "#6b6b6b")
INK, FAINT = "#333333", "#dddddd"

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True)
class Stroke:
    points: tuple[Point, ...]
    colour: str
    width: float = 1
    dashed: bool = False


@dataclass(frozen=True)
class Dot:
    at: Point
    colour: str


@dataclass(frozen=True)
class Words:
    at: Point
    text: str
    anchor: str = "middle"
    size: int = 11


Shape = Stroke | Dot | Words


@dataclass(frozen=True)
class Plot:
    title: str
    across: str
    up: str
    series: Sequence[Series]
    marks: Sequence[float] = ()
    """where the axis across is marked; found by itself if empty"""

    @property
    def height(self) -> int:
        return HEIGHT + ROW * ((len(self.series) + 1) // 2)

    def svg(self) -> str:
        place = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        named = f'role="img" aria-label="{escape(self.title)}" font-family="sans-serif"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {place} {named}>'
        return "\n".join([head, *(_svg(shape) for shape in self.shapes()), "</svg>"])

    def png(self) -> bytes | None:
        """None without Pillow."""
        try:
            from PIL import Image, ImageDraw, ImageFont
        except ImportError:
            return None
        scale = 4  # drawn large and made small: that is what smooths the edges
        image = Image.new("RGB", (WIDTH * scale, self.height * scale), "white")
        draw = ImageDraw.Draw(image)
        for shape in self.shapes():
            if isinstance(shape, Words):
                anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
                font = ImageFont.load_default(shape.size * scale)
                draw.text((shape.at[0] * scale, shape.at[1] * scale), shape.text, INK, font, anchor)
            elif isinstance(shape, Dot):
                draw.circle((shape.at[0] * scale, shape.at[1] * scale), 3 * scale, shape.colour)
            else:
                for part in _dashes(shape.points) if shape.dashed else [shape.points]:
                    scaled = [(x * scale, y * scale) for x, y in part]
                    draw.line(scaled, shape.colour, round(shape.width * scale), joint="curve")
        made = io.BytesIO()
        image.resize((WIDTH * 2, self.height * 2), Image.Resampling.LANCZOS).save(made, "PNG", optimize=True)
        return made.getvalue()

    def shapes(self) -> list[Shape]:
        points = [point for series in self.series for point in series.points]
        columns = list(self.marks) or ticks(0, max((x for x, _unused in points), default=1))
        rows = ticks(0, max((y for _unused, y in points), default=1))
        right, top = max(columns[-1], 1e-9), max(rows[-1], 1e-9)

        def placed(x: float, y: float) -> Point:
            across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
            return round(LEFT + across * x / right, 1), round(HEIGHT - BOTTOM - up * y / top, 1)

        shapes: list[Shape] = [Words((WIDTH / 2, 20), self.title, size=14), Words((LEFT, TOP - 8), self.up, "start")]
        shapes.append(Words((WIDTH - RIGHT, HEIGHT - BOTTOM + 32), self.across, "end"))
        for y in rows:
            shapes.append(Stroke((placed(0, y), placed(right, y)), FAINT))
            shapes.append(Words((LEFT - 6, placed(0, y)[1] + 4), f"{y:,g}", "end"))
        for x in columns:
            shapes.append(Words((placed(x, 0)[0], HEIGHT - BOTTOM + 16), f"{x:,g}"))
        shapes.append(Stroke((placed(0, 0), placed(right, 0)), INK))
        for number, series in enumerate(self.series):
            colour = COLOURS[number % len(COLOURS)]
            line = tuple(placed(x, y) for x, y in series.points)
            shapes.append(Stroke(line, colour, 2, series.dashed))
            if not series.dashed:
                shapes += [Dot(point, colour) for point in line]
            key = LEFT + (number % 2) * 240, HEIGHT + (number // 2) * ROW
            shapes.append(Stroke(((key[0], key[1] - 4), (key[0] + 18, key[1] - 4)), colour, 2, series.dashed))
            shapes.append(Words((key[0] + 24, key[1]), series.name, "start"))
        return shapes


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` on, four to eight of them, the last at `high` or above."""
    if not high > low:
        high = low + 1
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [round(low + step * number, 10) for number in range(math.ceil((high - low) / step - 1e-9) + 1)]


def _svg(shape: Shape) -> str:
    if isinstance(shape, Words):
        place = f'x="{shape.at[0]:g}" y="{shape.at[1]:g}" text-anchor="{shape.anchor}" font-size="{shape.size}"'
        return f'<text {place} fill="{INK}">{escape(shape.text)}</text>'
    if isinstance(shape, Dot):
        return f'<circle cx="{shape.at[0]:g}" cy="{shape.at[1]:g}" r="3" fill="{shape.colour}"/>'
    points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
    dashes = ' stroke-dasharray="6 4"' if shape.dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="{shape.colour}" stroke-width="{shape.width:g}"{dashes}/>'


def _dashes(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Of six units each, four apart."""
    found = []
    for (x, y), (to_x, to_y) in zip(points, points[1:], strict=False):
        length = math.hypot(to_x - x, to_y - y)
        for start in range(0, int(length), 10):
            first, last = start / length, min(start + 6, length) / length
            found.append(
                (
                    (x + (to_x - x) * first, y + (to_y - y) * first),
                    (x + (to_x - x) * last, y + (to_y - y) * last),
                )
            )
    return found
