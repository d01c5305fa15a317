"""Small pictures in SVG: axes, lines, dots and bars, coloured by the page's style sheet, for dark mode and print.

A picture is an image to a screen reader, with a title and one sentence; its numbers stand in a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 44
_numbers = count(1)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """Points drawn as `kind`: line, dots, or bars from the axis up."""

    name: str
    points: Points
    kind: str = "line"
    radii: Sequence[float] = ()  # of dots


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale with its ticks from `low` to `high`."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def over(
        cls,
        label: str,
        values: Sequence[float],
        *,
        start: float | None = None,
        end: float | None = None,
        whole: bool = False,
    ) -> Axis:
        """An axis over the finite values, its ends moved out to a tick where they are not given."""
        known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(known) if start is None else start, max(known) if end is None else end
        if high <= low:
            low, high = low - 0.5 * abs(low or 1), low + 0.5 * abs(low or 1)
        step = max(1.0, _step(high - low)) if whole else _step(high - low)
        first = math.floor(low / step + 1e-9) if start is None else math.ceil(low / step - 1e-9)
        last = math.ceil(high / step - 1e-9) if end is None else math.floor(high / step + 1e-9)
        ticks = tuple(n * step for n in range(first, last + 1))
        return cls(label, min(low, ticks[0]), max(high, ticks[-1]), ticks)

    def place(self, value: float, length: float) -> float:
        return (value - self.low) / (self.high - self.low) * length


def chart(title: str, about: str, x: Axis, y: Axis, series: Sequence[Series], *, diagonal: bool = False) -> str:
    """An <svg> with its legend; `about` says in a sentence what is to be seen."""
    number = next(_numbers)
    body = [_axes(x, y)]
    if diagonal:
        ends = [(max(x.low, y.low), max(x.low, y.low)), (min(x.high, y.high), min(x.high, y.high))]
        body.append(f'<path class="reference" d="{_path(ends, x, y)}"/>')
    body += [_drawn(one, f"s{n}", x, y) for n, one in enumerate(series)]
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(about)}</desc>{"".join(body)}</svg>'
    )
    keys = [f'<span class="key s{n}">{escape(one.name)}</span>' for n, one in enumerate(series) if len(series) > 1]
    return f"<figure><figcaption><b>{escape(title)}</b> {' '.join(keys)}</figcaption>{picture}</figure>"


def bars(title: str, about: str, label: str, rows: Sequence[tuple[str, float, float]]) -> str:
    """Horizontal bars of (name, value, half width of its range), as they come."""
    number = next(_numbers)
    longest = max([value + spread for _, value, spread in rows] + [1e-9])
    left, height = 150, 22 * len(rows) + 30
    parts = []
    for n, (name, value, spread) in enumerate(rows):
        top = 22 * n + 4
        width = max(0.0, value) / longest * (WIDTH - left - 70)
        low, high = (max(0.0, value + side) / longest * (WIDTH - left - 70) for side in (-spread, spread))
        shown = name if len(name) <= 24 else name[:23] + "…"
        parts.append(f'<text class="name" x="{left - 8}" y="{top + 12}">{escape(shown)}</text>')
        parts.append(f'<rect class="bar s0" x="{left}" y="{top + 2}" width="{width:.1f}" height="13"/>')
        parts.append(f'<path class="range" d="M{left + low:.1f} {top + 8.5}H{left + high:.1f}"/>')
        parts.append(f'<text class="value" x="{left + max(width, high) + 6:.1f}" y="{top + 12}">{value:.4f}</text>')
    return (
        f'<figure class="full"><figcaption><b>{escape(title)}</b> {escape(label)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(about)}</desc>'
        f"{''.join(parts)}</svg></figure>"
    )


def _drawn(series: Series, style: str, x: Axis, y: Axis) -> str:
    if series.kind == "line":
        dot = "" if len(series.points) != 1 else _dots(series, style, x, y)
        return f'<path class="line {style}" d="{_path(series.points, x, y)}"/>{dot}'
    if series.kind == "dots":
        return _dots(series, style, x, y)
    width = (WIDTH - LEFT - RIGHT) / max(1, len(series.points))
    base = HEIGHT - BOTTOM
    boxes = [
        f'<rect class="bar {style}" x="{_x(a, x) - width / 2:.1f}" y="{_y(b, y):.1f}" width="{width:.2f}" '
        f'height="{max(0.0, base - _y(b, y)):.1f}"/>'
        for a, b in series.points
    ]
    return "".join(boxes)


def _dots(series: Series, style: str, x: Axis, y: Axis) -> str:
    radii = series.radii or [3.0] * len(series.points)
    return "".join(
        f'<circle class="dot {style}" cx="{_x(a, x):.1f}" cy="{_y(b, y):.1f}" r="{r:.1f}"/>'
        for (a, b), r in zip(series.points, radii, strict=True)
    )


def _axes(x: Axis, y: Axis) -> str:
    base, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in y.ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {_y(tick, y):.1f}H{right}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 7}" y="{_y(tick, y) + 3.5:.1f}">{_number(tick)}</text>')
    for tick in x.ticks:
        parts.append(f'<path class="grid" d="M{_x(tick, x):.1f} {base}v4"/>')
        parts.append(f'<text class="tick x" x="{_x(tick, x):.1f}" y="{base + 17}">{_number(tick)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {base}H{right}"/>')
    parts.append(f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}">{escape(x.label)}</text>')
    middle = (TOP + base) / 2
    parts.append(f'<text class="label" transform="translate(12 {middle}) rotate(-90)">{escape(y.label)}</text>')
    return "".join(parts)


def _path(points: Points, x: Axis, y: Axis) -> str:
    known = [(a, b) for a, b in points if math.isfinite(a) and math.isfinite(b)]
    return "".join(f"{'L' if n else 'M'}{_x(a, x):.1f} {_y(b, y):.1f}" for n, (a, b) in enumerate(known))


def _x(value: float, axis: Axis) -> float:
    return LEFT + axis.place(value, WIDTH - LEFT - RIGHT)


def _y(value: float, axis: Axis) -> float:
    return HEIGHT - BOTTOM - axis.place(value, HEIGHT - TOP - BOTTOM)


def _step(width: float) -> float:
    """A round step that gives about five ticks."""
    rough = width / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if rough <= power * factor * 1.0001)


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:.6g}"
