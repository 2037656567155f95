"""A plot, line by line: what is where in the picture."""

from __future__ import annotations

import re

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.plot import COLOURS, HEIGHT, Plot, Series, ticks

PLOT = Plot(
    "Speed <1>",
    "nodes",
    "samples/s",
    [
        Series("pytorch", [(1, 1000), (2, 1500)]),
        Series("ideal", [(1, 1000), (2, 2000)], dashed=True),
        Series("mxnet", []),
    ],
    [0, 1, 2],
)


def test_the_whole_picture() -> None:
    def text(x: float, y: float, words: str, anchor: str = "middle", size: int = 11) -> str:
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"'
        return f'<text {place} fill="#333333">{words}</text>'

    def line(points: str, colour: str, width: int = 1, more: str = "") -> str:
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{more}/>'

    blue, orange, green = COLOURS[:3]
    dashes = ' stroke-dasharray="6 4"'
    assert PLOT.svg().splitlines() == [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 340" width="560" height="340" role="img" '
        'aria-label="Speed &lt;1&gt;" font-family="sans-serif">',
        text(280, 20, "Speed &lt;1&gt;", size=14),
        text(64, 32, "samples/s", "start"),
        text(544, 288, "nodes", "end"),
        # The higher a value, the higher is its mark.
        line("64,256 544,256", "#dddddd"),
        text(58, 260, "0", "end"),
        line("64,202 544,202", "#dddddd"),
        text(58, 206, "500", "end"),
        line("64,148 544,148", "#dddddd"),
        text(58, 152, "1,000", "end"),
        line("64,94 544,94", "#dddddd"),
        text(58, 98, "1,500", "end"),
        line("64,40 544,40", "#dddddd"),
        text(58, 44, "2,000", "end"),
        text(64, 272, "0"),
        text(304, 272, "1"),
        text(544, 272, "2"),
        line("64,256 544,256", "#333333"),
        line("304,148 544,94", blue, 2),
        f'<circle cx="304" cy="148" r="3" fill="{blue}"/>',
        f'<circle cx="544" cy="94" r="3" fill="{blue}"/>',
        # What was not measured has no dots.
        line("304,148 544,40", orange, 2, dashes),
        line("", green, 2),
        line("64,306 82,306", blue, 2),
        text(88, 310, "pytorch", "start"),
        line("304,306 322,306", orange, 2, dashes),
        text(328, 310, "ideal", "start"),
        line("64,321 82,321", green, 2),
        text(88, 325, "mxnet", "start"),
        "</svg>",
    ]


def test_a_plot_without_points_has_axes_and_colours_repeat() -> None:
    empty = Plot("t", "x", "y", [Series("a", [])]).svg()
    assert [mark for mark in re.findall(r'text-anchor="middle" font-size="11" fill="#333333">([^<]*)<', empty)] == [
        *("0", "0.2", "0.4", "0.6", "0.8", "1")
    ]
    many = Plot("t", "x", "y", [Series(str(number), []) for number in range(len(COLOURS) + 1)])
    assert many.svg().count(COLOURS[0]) == 4 and many.svg().count(COLOURS[1]) == 2
    assert many.height == HEIGHT + 15 * 5
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in COLOURS)
    flat = Plot("t", "x", "y", [Series("a", [(0, 0)])], [0]).svg()
    assert 'cx="64" cy="256"' in flat


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0, 5, [0, 1, 2, 3, 4, 5]),
        (0, 5.1, [0, 2, 4, 6]),
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 11, [0, 5, 10, 15]),
        (0, 26, [0, 10, 20, 30]),
        (0, 0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
        (2, 7, [2, 3, 4, 5, 6, 7]),
        (3, 3, [3, 3.2, 3.4, 3.6, 3.8, 4]),
        (3, 2, [3, 3.2, 3.4, 3.6, 3.8, 4]),
    ],
)
def test_marks_are_round_numbers(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high) == marks
