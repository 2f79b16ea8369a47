"""A timeline as one SVG file that stands alone: no scripts, no fonts, no links."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from bubbleproof.schedules.draw.scale import percent, ticks
from bubbleproof.schedules.op import Op, Overlap, Slot, members

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["write"]

_ROW, _GAP, _TOP, _LEFT = 26, 6, 64, 66
_LEAST, _MOST = 640, 16_000
"""Width of the plot in pixels."""

# fills of the colour-blind-safe palette of Okabe and Ito, lightened so that black text is readable on all of them; the
# second shade is for odd chunks (or odd microbatches where a rank holds one stage)
_FILL = {
    "F": ("#9ecbee", "#6fb1e4"),
    "B": ("#f6cf8b", "#f0b64f"),
    "W": ("#93dac1", "#5cc5a2"),
    "BW": ("#f0a98a", "#e88a63"),
    "R": ("#d4d4d4", "#bdbdbd"),
    "pair": ("#ddb3cd", "#cd8fb7"),
}
_NAMES = {
    "F": "F forward",
    "B": "B gradient of the input",
    "W": "W gradient of the weights",
    "BW": "BW both gradients",
    "R": "R recompute",
    "pair": "F&B overlapped pair",
}
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px;fill:#1b1b1b}"
    ".l{font-size:11px;text-anchor:middle;pointer-events:none}.h{font-size:15px;font-weight:600}"
    ".s{fill:#555}.e{text-anchor:end}.t{text-anchor:middle;fill:#555}.g{stroke:#d9d9d9;stroke-width:1}"
    ".r{fill:#f3f3f3}rect.o{stroke:#fff;stroke-width:.6}"
)


def write(timeline: Timeline) -> str:
    """Draw a timeline.

    Every op carries a tooltip with its stage, microbatch and times. The width follows the number of ops, so that their
    labels stay readable up to a few hundred ops per rank.
    """
    ranks = timeline.instance.ranks
    plot = _plot_width(timeline)
    right = 84 + max(60, 8 * max(len(_peak(timeline, rank)) for rank in range(ranks)))
    width, height = _LEFT + plot + right, _TOP + ranks * (_ROW + _GAP) + 64
    title = _title(timeline)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="h" x="12" y="24">{escape(title)}</text>',
        f'<text class="s" x="12" y="44">{escape(_summary(timeline))}</text>',
        *_axis(timeline, plot),
        *_heads(timeline, plot, width),
    ]
    for rank in range(ranks):
        parts += _row(timeline, rank, plot, width)
    parts += _legend(timeline, _TOP + ranks * (_ROW + _GAP) + 46)
    return "\n".join(parts) + "\n</svg>\n"


def _title(timeline: Timeline) -> str:
    names = [name for name in (timeline.schedule.name, timeline.instance.name) if name]
    return " on ".join(names) or "schedule"


def _summary(timeline: Timeline) -> str:
    instance = timeline.instance
    unit = "" if instance.units.time == "1" else f" {instance.units.time}"
    return (
        f"{instance.ranks} ranks, {instance.stages} stages, {instance.microbatches} microbatches · "
        f"makespan {timeline.makespan:,}{unit}, span {timeline.span:,}{unit} · "
        f"bubble/step {percent(timeline.bubble('step'))}, bubble/compute {percent(timeline.bubble('compute'))}"
    )


def _plot_width(timeline: Timeline) -> int:
    """Wide enough that a typical op shows its label, within the limits."""
    most = max((len(order) for order in timeline.schedule.orders), default=1)
    return min(max(_LEAST, most * 34), _MOST)


def _x(timeline: Timeline, time: int, plot: int) -> Fraction:
    return Fraction((time - timeline.first_start) * plot, max(timeline.makespan, 1))


def _number(value: Fraction | int) -> str:
    """A coordinate with at most two decimals, computed without floats."""
    hundredths = round(value * 100)
    whole, rest = divmod(abs(hundredths), 100)
    text = f"{whole}.{rest:02d}".rstrip("0").rstrip(".")
    return f"-{text}" if hundredths < 0 else text


def _axis(timeline: Timeline, plot: int) -> Iterator[str]:
    bottom = _TOP + timeline.instance.ranks * (_ROW + _GAP)
    for time in ticks(timeline.first_start, timeline.last_end, max(4, plot // 90)):
        x = _number(_LEFT + _x(timeline, time, plot))
        yield f'<line class="g" x1="{x}" y1="{_TOP - 2}" x2="{x}" y2="{bottom + 4}"/>'
        yield f'<text class="t" x="{x}" y="{bottom + 18}">{time:,}</text>'


def _heads(timeline: Timeline, plot: int, width: int) -> Iterator[str]:
    peak = "peak" if timeline.instance.memory.cap is None else "peak / cap"
    yield f'<text class="s e" x="{_LEFT + plot + 52}" y="{_TOP - 8}">idle</text>'
    yield f'<text class="s e" x="{width - 12}" y="{_TOP - 8}">{peak}</text>'


def _peak(timeline: Timeline, rank: int) -> str:
    cap = timeline.instance.memory.cap
    return f"{timeline.peaks[rank].memory:,}" + (f" / {cap[rank]:,}" if cap is not None else "")


def _row(timeline: Timeline, rank: int, plot: int, width: int) -> Iterator[str]:
    y = _TOP + rank * (_ROW + _GAP)
    middle = y + _ROW // 2 + 4
    held = timeline.instance.placement.stages_of_rank[rank]
    idle = percent(timeline.makespan - timeline.busy[rank], timeline.makespan)
    yield f'<text class="e" x="{_LEFT - 10}" y="{middle}">rank {rank}</text>'
    yield f'<rect class="r" x="{_LEFT}" y="{y}" width="{plot}" height="{_ROW}"/>'
    for slot, start, end in zip(
        timeline.schedule.orders[rank], timeline.starts[rank], timeline.ends[rank], strict=True
    ):
        yield from _cell(timeline, slot, start, end, y, plot, held)
    yield f'<text class="e" x="{_LEFT + plot + 52}" y="{middle}">{idle}</text>'
    yield f'<text class="e" x="{width - 12}" y="{middle}">{_peak(timeline, rank)}</text>'


def _cell(
    timeline: Timeline, slot: Slot, start: int, end: int, y: int, plot: int, held: tuple[int, ...]
) -> Iterator[str]:
    left, right = _LEFT + _x(timeline, start, plot), _LEFT + _x(timeline, end, plot)
    first = members(slot)[0]
    shade = held.index(first.stage) if len(held) > 1 and first.stage in held else first.microbatch
    group = "pair" if isinstance(slot, Overlap) else slot.kind
    size = right - left
    yield (
        f'<rect class="o" x="{_number(left)}" y="{y}" width="{_number(size)}" height="{_ROW}" '
        f'fill="{_FILL[group][shade % 2]}"><title>{escape(_tooltip(slot, start, end))}</title></rect>'
    )
    # a character of the label font is about 7 pixels wide
    label = next((text for text in _labels(slot, len(held) > 1) if 7 * len(text) + 3 <= size), None)
    if label:
        yield f'<text class="l" x="{_number((left + right) / 2)}" y="{y + _ROW // 2 + 4}">{escape(label)}</text>'


def _labels(slot: Slot, several: bool) -> Iterator[str]:
    """From long to short; the colour already tells the kind, so the shortest label is the microbatch."""
    if isinstance(slot, Op):
        if several:
            yield str(slot)
        yield f"{slot.kind}{slot.microbatch}"
        yield str(slot.microbatch)
        return
    forward, backward = slot
    if several:
        yield f"{forward}&{backward}"
    yield f"F{forward.microbatch}&{backward.kind}{backward.microbatch}"
    yield f"{forward.microbatch}&{backward.microbatch}"


def _tooltip(slot: Slot, start: int, end: int) -> str:
    words = " and ".join(f"{op.kind} of stage {op.stage}, microbatch {op.microbatch}" for op in members(slot))
    return f"{slot}: {words}; {start} to {end} ({end - start})"


def _legend(timeline: Timeline, y: int) -> Iterator[str]:
    used = {"pair" if isinstance(slot, Overlap) else slot.kind for _, _, slot in timeline.schedule.slots()}
    x = _LEFT
    for group, name in _NAMES.items():
        if group in used:
            yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" fill="{_FILL[group][0]}"/>'
            yield f'<text x="{x + 20}" y="{y}">{escape(name)}</text>'
            x += 34 + 7 * len(name)
    yield f'<rect class="r" x="{x}" y="{y - 11}" width="14" height="14"/><text x="{x + 20}" y="{y}">idle</text>'
