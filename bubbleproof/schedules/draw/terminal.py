"""A timeline as text: one line per rank, as wide as the window, readable with and without colour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from bubbleproof.schedules.draw.scale import percent, ticks
from bubbleproof.schedules.op import Op, Overlap, Slot, members

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["MIN_WIDTH", "render"]

MIN_WIDTH = 40
"""Narrower windows get lines of this width."""

# what fills the rest of a cell after its label; alone it stands for a cell of one column (see `_cell`)
_FILL = {"F": "-", "B": "=", "W": "~", "BW": "#", "R": "+", "pair": "&"}
_NAMES = {
    "F": "forward",
    "B": "gradient of the input",
    "W": "gradient of the weights",
    "BW": "both gradients",
    "R": "recompute",
    "pair": "overlapped pair",
}
# 256-colour backgrounds, two shades each: (light, dark, text). The shade tells apart the chunks of a rank that holds
# several, and neighbouring microbatches on one that holds a single stage.
# Blue, orange, green, purple, yellow differ in brightness too, for those who do not see the hues.
_COLOURS = {
    "F": (153, 110, 16),
    "B": (215, 208, 16),
    "W": (157, 114, 16),
    "BW": (209, 203, 16),
    "R": (252, 246, 16),
    "pair": (183, 140, 16),
}
_RESET = "\x1b[0m"
_DIM = "\x1b[2m"


@dataclass(frozen=True)
class _Style:
    colour: bool
    idle: str


def _group(slot: Slot) -> str:
    return "pair" if isinstance(slot, Overlap) else slot.kind


def render(
    timeline: Timeline,
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
    window: tuple[int, int] | None = None,
    max_ranks: int | None = None,
) -> str:
    """Draw a timeline.

    Parameters
    ----------
    width
        Columns of the terminal.
    colour
        Whether to use ANSI colours. Without them cells still differ by letter and filling.
    unicode
        Whether the output may hold characters beyond ASCII.
    window
        Draw only the times from the first to the second; left out, the whole timeline.
    max_ranks
        Draw at most so many ranks, the first and the last ones; left out, all.
    """
    style = _Style(colour, "·" if unicode else ".")
    low, high = window or (timeline.first_start, timeline.last_end)
    ranks = _shown_ranks(timeline.instance.ranks, max_ranks)
    left = [f"rank {rank} " for rank in range(timeline.instance.ranks)]
    margin = max(map(len, left))
    bubbles = [_idle_share(timeline, rank) for rank in range(timeline.instance.ranks)]
    peaks = [_peak(timeline, rank) for rank in range(timeline.instance.ranks)]
    peak_head = "peak/cap" if len(set(timeline.instance.memory.cap or ())) > 1 else "peak"
    bubble_width, peak_width = max(6, *map(len, bubbles)), max(len(peak_head), *map(len, peaks))
    columns = max(width, MIN_WIDTH) - margin - bubble_width - peak_width - 4
    if columns < 16:  # the figures leave no room for the picture; the picture goes first
        bubble_width = peak_width = 0
        columns = max(width, MIN_WIDTH) - margin - 1
    grid = _Grid(low, max(high, low + 1), max(columns, 8))

    def line(start: str, middle: str, used: int, idle: str, peak: str) -> str:
        tail = f"  {idle:>{bubble_width}}  {peak:>{peak_width}}" if bubble_width else ""
        return f"{start:<{margin}}{middle}{' ' * (grid.columns - used) if tail else ''}{tail}".rstrip()

    lines = [line("", "", 0, "idle", peak_head)]
    for rank in ranks:
        if rank is None:
            lines.append(line(f"{'⋮' if unicode else ':'}", "", 0, "", ""))
            continue
        lines.append(line(left[rank], _row(timeline, rank, grid, style), grid.columns, bubbles[rank], peaks[rank]))
    lines += _axis(grid, margin, unicode)
    lines += _legend(timeline, style, grid, margin, max(width, MIN_WIDTH))
    return "\n".join(lines) + "\n"


def _shown_ranks(count: int, most: int | None) -> list[int | None]:
    if most is None or count <= most:
        return list(range(count))
    head = (most + 1) // 2
    return [*range(head), None, *range(count - (most - head), count)]


def _idle_share(timeline: Timeline, rank: int) -> str:
    return percent(timeline.makespan - timeline.busy[rank], timeline.makespan)


def _peak(timeline: Timeline, rank: int) -> str:
    """The peak of a rank, marked if it is above the cap; with the cap where it differs between ranks."""
    cap = timeline.instance.memory.cap
    peak = timeline.peaks[rank].memory
    if cap is None:
        return f"{peak:,}"
    mark = "!" if peak > cap[rank] else ""
    return f"{peak:,}{mark}" if len(set(cap)) == 1 else f"{peak:,}{mark}/{cap[rank]:,}"


@dataclass(frozen=True)
class _Grid:
    """Columns for the times low … high; whole columns per time unit where they fit, so that equal ops look equal."""

    low: int
    high: int
    most: int

    @property
    def per_unit(self) -> int:
        return self.most // (self.high - self.low)

    @property
    def columns(self) -> int:
        return (self.high - self.low) * self.per_unit or self.most

    def column(self, time: int) -> int:
        """The column in which a time falls, 0 … columns."""
        clipped = min(max(time, self.low), self.high) - self.low
        return clipped * self.columns // (self.high - self.low)


def _row(timeline: Timeline, rank: int, grid: _Grid, style: _Style) -> str:
    starts, ends = timeline.starts[rank], timeline.ends[rank]
    held = timeline.instance.placement.stages_of_rank[rank]
    if _crowded(timeline, rank, grid):
        return _density(timeline, rank, grid, style)
    out = []
    at = 0
    for slot, start, end in zip(timeline.schedule.orders[rank], starts, ends, strict=True):
        first, last = grid.column(start), grid.column(end)
        if last <= first or first < at:
            first = max(first, at)
            if last <= first:
                continue
        out.append(_idle(first - at, style))
        out.append(_cell(slot, last - first, held, style))
        at = last
    out.append(_idle(grid.columns - at, style))
    return "".join(out)


def _crowded(timeline: Timeline, rank: int, grid: _Grid) -> bool:
    """Whether a typical op has no column of its own."""
    spans = sum(
        1 for s, e in zip(timeline.starts[rank], timeline.ends[rank], strict=True) if grid.low <= s and e <= grid.high
    )
    return spans > grid.columns


def _density(timeline: Timeline, rank: int, grid: _Grid, style: _Style) -> str:
    """For each column the group that fills most of its time."""
    shares: list[dict[str, int]] = [{} for _ in range(grid.columns)]
    length = grid.high - grid.low
    for slot, start, end in zip(
        timeline.schedule.orders[rank], timeline.starts[rank], timeline.ends[rank], strict=True
    ):
        group = _group(slot)
        for column in range(grid.column(start), min(grid.column(end) + 1, grid.columns)):
            # times are scaled by the number of columns, so that column borders are integers
            left, right = column * length, (column + 1) * length
            inside = min((end - grid.low) * grid.columns, right) - max((start - grid.low) * grid.columns, left)
            if inside > 0:
                shares[column][group] = shares[column].get(group, 0) + inside
    cells = []
    for share in shares:
        busy = sum(share.values())
        if 2 * busy < length:
            cells.append(_idle(1, style))
        else:
            group = max(share, key=lambda name: share[name])
            cells.append(_painted(_narrow(group), group, 0, style))
    return "".join(cells)


def _narrow(group: str) -> str:
    return group if len(group) == 1 else _FILL[group]


def _idle(count: int, style: _Style) -> str:
    if count <= 0:
        return ""
    return f"{_DIM}{style.idle * count}{_RESET}" if style.colour else style.idle * count


def _cell(slot: Slot, width: int, held: tuple[int, ...], style: _Style) -> str:
    """A cell: the longest label that fits, then the filling of its group."""
    group, first = _group(slot), members(slot)[0]
    label = next((text for text in _labels(slot, len(held) > 1) if len(text) <= width), "")
    shade = held.index(first.stage) if len(held) > 1 and first.stage in held else first.microbatch
    return _painted(label + _FILL[group] * (width - len(label)), group, shade, style)


def _labels(slot: Slot, several: bool) -> Iterable[str]:
    """Labels from long to short: with the stage where a rank holds several, without it, the kind alone."""
    if isinstance(slot, Op):
        if several:
            yield str(slot)
        yield f"{slot.kind}{slot.microbatch}"
        yield slot.kind
        return
    forward, backward = slot
    yield f"{forward}&{backward}" if several else f"F{forward.microbatch}&{backward.kind}{backward.microbatch}"
    yield f"&{forward.microbatch};{backward.microbatch}"


def _painted(text: str, group: str, shade: int, style: _Style) -> str:
    if not style.colour:
        return text
    background = _COLOURS[group][shade % 2]
    return f"\x1b[48;5;{background};38;5;{_COLOURS[group][2]}m{_blanked(text, group)}{_RESET}"


def _blanked(text: str, group: str) -> str:
    """In colour the filling is not needed to tell groups apart; a lone filling character stays."""
    bare = text.rstrip(_FILL[group])
    return bare + " " * (len(text) - len(bare))


def _axis(grid: _Grid, margin: int, unicode: bool) -> list[str]:
    rule, labels = [" "] * (grid.columns + 1), [" "] * (grid.columns + 16)
    free = 0
    for time in ticks(grid.low, grid.high, max(2, grid.columns // 12)):
        column, text = grid.column(time), f"{time:,}"
        rule[column] = "|"
        place = max(0, min(column - len(text) // 2, grid.columns - len(text) + 1))
        if place >= free:
            labels[place : place + len(text)] = text
            free = place + len(text) + 1
    line = "─" if unicode else "-"
    drawn = "".join(line if char == " " else ("┴" if unicode else "+") for char in rule)
    return [" " * margin + drawn[: grid.columns + 1], " " * margin + "".join(labels).rstrip()]


def _legend(timeline: Timeline, style: _Style, grid: _Grid, margin: int, width: int) -> list[str]:
    """Samples with their meaning and the scale, in lines that fit."""
    used = {_group(slot) for _, _, slot in timeline.schedule.slots()}
    parts = []
    for group in (group for group in _FILL if group in used):
        text = f"{group if group != 'pair' else '&'}{_FILL[group]}"
        parts.append((len(text), _painted(text, group, 0, style), _NAMES[group]))
    parts.append((2, _idle(2, style), "idle"))
    lines, column = [" " * margin], margin
    for length, sample, words in parts:
        taken = length + 1 + len(words) + 3
        if column > margin and column + taken - 3 > width:
            lines.append(" " * margin)
            column = margin
        lines[-1] += f"{sample} {words}   "
        column += taken
    unit = timeline.instance.units.time
    scale = f"one column = {round(Fraction(grid.high - grid.low, grid.columns)):,}" if not grid.per_unit else ""
    if unit != "1":
        scale = f"{scale} {unit}" if scale else f"time in {unit}"
    if scale and column + len(scale) > width:
        lines.append(" " * margin)
    return [line.rstrip() for line in [*lines[:-1], lines[-1] + scale]]
