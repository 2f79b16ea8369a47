"""Plots as SVG that look the same wherever they are made: lines on two logarithmic axes, and distributions of gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 80, 20, 200, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def write_plot(path: Path, series: Mapping[str, Sequence[tuple[float, float]]], x_title: str, y_title: str) -> None:
    """Each series as a line with its points; the axes go over whole powers of ten."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    low_x, high_x = math.floor(math.log10(min(xs)) + 0.05), math.ceil(math.log10(max(xs)) - 0.05)
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)
        up = (math.log10(y) - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)
        return LEFT + across, HEIGHT - BOTTOM - up

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low_x, high_x + 1):
        x, y = at(10**power, 10**low_y)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(low_y, high_y + 1):
        x, y = at(10**low_x, 10**power)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{x_title}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{y_title}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def write_gaps(path: Path, classes: Mapping[str, Sequence[float]]) -> None:
    """For each class the share of its rows with a gap of at most x percent, on a logarithmic axis.

    Rows without a gap count from the left edge on; the legend says how many there are.
    """
    low, high = -3, 2  # powers of ten, in percent

    def at(gap: float, share: float) -> tuple[float, float]:
        power = min(high, max(low, math.log10(gap))) if gap > 0 else low
        across = (power - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return LEFT + across, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        x, y = at(10.0**power, 0)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{10.0**power:g} %</text>')
    for tenth in range(0, 11, 2):
        x, y = at(0, tenth / 10)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10 * tenth} %</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">gap at most</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}">share of instances</text>')
    for number, (name, gaps) in enumerate(classes.items()):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="6 3"' if number >= len(COLOURS) else ""
        ordered = sorted(gaps)
        closed = sum(gap <= 0 for gap in ordered)
        places = [at(0, closed / max(1, len(ordered)))]
        for count, gap in enumerate(ordered[closed:], closed + 1):
            x, y = at(gap, count / len(ordered))
            places += [(x, places[-1][1]), (x, y)]
        places.append((WIDTH - RIGHT, places[-1][1]))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
        y = TOP + 20 + 18 * number
        parts.append(f'<path d="M{WIDTH - RIGHT + 12},{y - 4}h20" stroke="{colour}" stroke-width="1.5"{dash}/>')
        words = f"{name}: {closed}/{len(ordered)}"
        parts.append(f'<text x="{WIDTH - RIGHT + 38}" y="{y}" fill="{colour}">{words}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
