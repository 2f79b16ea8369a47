"""A Pareto front, memory cap against objective, as SVG and as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from xml.sax.saxutils import escape

from bubbleproof.schedules.draw.scale import ticks

__all__ = ["Label", "Picture", "Step", "render", "write"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 900, 520, 96, 70, 40, 64
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px;fill:#1b1b1b}"
    ".h{font-size:15px;font-weight:600}.s{fill:#555}.e{text-anchor:end}.t{text-anchor:middle;fill:#555}"
    ".g{stroke:#e2e2e2;stroke-width:1}.v{fill:none;stroke:#0072b2;stroke-width:2}"
    ".b{fill:none;stroke:#d55e00;stroke-width:1.5;stroke-dasharray:5 3}.f{fill:#009e73}.n{fill:#00664b}"
    ".p{fill:#0072b2}.q{fill:#fff;stroke:#0072b2;stroke-width:2}"
)


@dataclass(frozen=True)
class Step:
    """Caps ``low … high − 1`` (high None: from low on), the best value under all of them and a bound for all."""

    low: int
    high: int | None
    value: int
    bound: int


@dataclass(frozen=True)
class Label:
    """A named point: the least cap under which a schedule fits, and its value."""

    name: str
    cap: int
    value: int


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Parameters
    ----------
    steps
        Adjacent, by ascending cap; the last one has no end.
    corners
        (cap, value, whether proved) of each corner of the front.
    labels
        Published families.
    cap_title, value_title
        What the axes count, with units.
    """

    title: str
    subtitle: str
    steps: tuple[Step, ...]
    corners: tuple[tuple[int, int, bool], ...]
    labels: tuple[Label, ...]
    cap_title: str
    value_title: str


def _logarithm(value: int) -> int:
    """About 2**29 times the binary logarithm, without floats: of value**1024, linear between powers of two."""
    power = max(1, value) ** 1024
    bits = power.bit_length()
    return ((bits - 1) << 19) + (power << 19 >> (bits - 1)) - (1 << 19)


class _Axes:
    """Where caps and values fall; families far outside the range of the front are left out.

    Values that range over more than a factor of three are drawn on a logarithmic axis.
    """

    def __init__(self, picture: Picture) -> None:
        first, last = picture.steps[0].low, picture.steps[-1].low
        lowest, highest = min(step.bound for step in picture.steps), max(step.value for step in picture.steps)
        wide, tall = max(1, last - first), max(1, highest - lowest)
        self.log = highest > 3 * lowest > 0
        self.labels = [x for x in picture.labels if x.cap <= last + wide // 3 and x.value <= highest + tall // 4]
        right = max([last, *(label.cap for label in self.labels)])
        top = max([highest, *(label.value for label in self.labels)])
        self.left_out = sorted({label.name for label in picture.labels} - {label.name for label in self.labels})
        self.low, self.high = first - wide // 40, right + max(1, (right - first) // 12)
        self.bottom, self.top = lowest - max(1, (top - lowest) // 20), top + max(1, (top - lowest) // 20)
        if self.log:
            self.bottom, self.top = lowest - max(1, lowest // 20), top + max(1, top // 20)

    def x(self, cap: int, width: int) -> Fraction:
        return Fraction((cap - self.low) * width, self.high - self.low)

    def y(self, value: int, height: int) -> Fraction:
        if self.log:
            top = _logarithm(self.top)
            return Fraction((top - _logarithm(value)) * height, top - _logarithm(self.bottom))
        return Fraction((self.top - value) * height, self.top - self.bottom)

    def value_ticks(self) -> list[int]:
        """Round values: evenly spaced, or few digits times powers of ten on a logarithmic axis."""
        if not self.log:
            return ticks(self.bottom, self.top, 8)
        powers = (10**k for k in range(len(str(self.top))))
        return [c * power for power in powers for c in (1, 2, 3, 5, 7) if self.bottom <= c * power <= self.top]


def write(picture: Picture) -> str:
    """Draw as one SVG file that stands alone: values and bounds as step curves with what lies between them shaded."""
    axes = _Axes(picture)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(picture.title, {chr(34): "&quot;"})}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text class="h" x="12" y="24">{escape(picture.title)}</text>',
        f'<text class="s" x="12" y="44">{escape(picture.subtitle)}</text>',
        *_grid(picture, axes),
        *_curves(picture, axes),
        *_named(axes),
        *_legend(axes),
    ]
    return "\n".join(parts) + "\n</svg>\n"


def _place(axes: _Axes, cap: int, value: int) -> tuple[str, str]:
    x = _LEFT + axes.x(cap, _WIDTH - _LEFT - _RIGHT)
    y = _TOP + axes.y(value, _HEIGHT - _TOP - _BOTTOM)
    return _number(x), _number(y)


def _number(value: Fraction) -> str:
    """A coordinate with at most two decimals, computed without floats."""
    hundredths = round(value * 100)
    whole, rest = divmod(abs(hundredths), 100)
    text = f"{whole}.{rest:02d}".rstrip("0").rstrip(".")
    return f"-{text}" if hundredths < 0 else text


def _grid(picture: Picture, axes: _Axes) -> Iterator[str]:
    below = _HEIGHT - _BOTTOM
    for cap in ticks(axes.low, axes.high, 7):
        x, _ = _place(axes, cap, axes.bottom)
        yield f'<line class="g" x1="{x}" y1="{_TOP}" x2="{x}" y2="{below}"/>'
        yield f'<text class="t" x="{x}" y="{below + 18}">{cap:,}</text>'
    for value in axes.value_ticks():
        _, y = _place(axes, axes.low, value)
        yield f'<line class="g" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
        yield f'<text class="s e" x="{_LEFT - 8}" y="{y}" dy="4">{value:,}</text>'
    yield f'<text class="t" x="{(_LEFT + _WIDTH - _RIGHT) // 2}" y="{below + 38}">{escape(picture.cap_title)}</text>'
    yield f'<text class="s" x="{_LEFT}" y="{_TOP - 8}">{escape(picture.value_title)}</text>'


def _curves(picture: Picture, axes: _Axes) -> Iterator[str]:
    upper, lower = [], []
    for step in picture.steps:
        high = axes.high if step.high is None else step.high
        upper += [_place(axes, step.low, step.value), _place(axes, high, step.value)]
        lower += [_place(axes, step.low, step.bound), _place(axes, high, step.bound)]
    around = " ".join(f"{x},{y}" for x, y in [*upper, *reversed(lower)])
    yield f'<polygon points="{around}" fill="#f0b64f" fill-opacity=".35"/>'
    yield f'<polyline class="b" points="{" ".join(f"{x},{y}" for x, y in lower)}"/>'
    yield f'<polyline class="v" points="{" ".join(f"{x},{y}" for x, y in upper)}"/>'
    for cap, value, proved in picture.corners:
        x, y = _place(axes, cap, value)
        words = f"cap {cap:,}: {value:,}, {'proved optimal' if proved else 'not proved'}"
        yield f'<circle class="{"p" if proved else "q"}" cx="{x}" cy="{y}" r="4"><title>{words}</title></circle>'


def _named(axes: _Axes) -> Iterator[str]:
    """The families; those that coincide share a label, and labels give way downwards to one another."""
    places: dict[tuple[int, int], list[str]] = {}
    for label in axes.labels:
        places.setdefault((label.cap, label.value), []).append(label.name)
    taken: list[tuple[Fraction, Fraction, int]] = []
    for (cap, value), names in sorted(places.items(), key=lambda item: (-item[0][1], item[0][0])):
        x = _LEFT + axes.x(cap, _WIDTH - _LEFT - _RIGHT)
        y = _TOP + axes.y(value, _HEIGHT - _TOP - _BOTTOM)
        text = ", ".join(names)
        left = x + 8 + 7 * len(text) > _WIDTH - 4
        begin, size, at = (x - 8 - 7 * len(text) if left else x + 8), 7 * len(text), y - 6
        while any(abs(at - other) < 13 and begin < end and start < begin + size for start, other, end in taken):
            at += 1
        taken.append((begin, at, int(begin) + size))
        yield (
            f'<circle class="f" cx="{_number(x)}" cy="{_number(y)}" r="3"/>'
            f'<text class="n{" e" if left else ""}" x="{_number(x - 8 if left else x + 8)}" y="{_number(at)}">'
            f"{escape(text)}</text>"
        )


def _legend(axes: _Axes) -> Iterator[str]:
    y, x = _HEIGHT - 10, _LEFT
    for sample, width, words in (
        ('<line class="v" x1="{0}" y1="{1}" x2="{2}" y2="{1}"/>', 24, "best found"),
        ('<line class="b" x1="{0}" y1="{1}" x2="{2}" y2="{1}"/>', 24, "lower bound"),
        ('<circle class="p" cx="{3}" cy="{1}" r="4"/>', 8, "proved optimal"),
        ('<circle class="q" cx="{3}" cy="{1}" r="4"/>', 8, "open"),
        ('<circle class="f" cx="{3}" cy="{1}" r="3"/>', 8, "published family"),
    ):
        yield sample.format(x, y - 4, x + width, x + 4) + f'<text x="{x + width + 6}" y="{y}">{words}</text>'
        x += width + 20 + 7 * len(words)
    if axes.left_out:
        words = f"far outside: {', '.join(axes.left_out)}"
        most = max(12, (_WIDTH - x) // 7)
        shown = words if len(words) <= most else words[: most - 1] + "…"
        yield f'<text class="s" x="{x}" y="{y}">{escape(shown)}</text>'


def render(picture: Picture, width: int = 80, height: int = 14, *, unicode: bool = True) -> str:
    """Draw for a terminal: the best found and the lower bound of each column of caps, with what lies between shaded."""
    axes = _Axes(picture)
    best, bound, between = ("█", "▁", "░") if unicode else ("#", "_", ".")
    names = [f"{value:,}" for value in (axes.top, axes.bottom)]
    margin = max(map(len, names)) + 1
    columns = max(20, width - margin - 2)
    rows = [[" "] * columns for _ in range(height)]
    for column in range(columns):
        cap = axes.low + (axes.high - axes.low) * (2 * column + 1) // (2 * columns)
        step = next((s for s in reversed(picture.steps) if s.low <= cap), None)
        if step is None:
            continue
        top, low = (min(height - 1, int(axes.y(value, height))) for value in (step.value, step.bound))
        for row in range(top, low + 1):
            rows[row][column] = best if row == top else bound if row == low else between
    lines = [names[0].rjust(margin - 1), *("".join(row).rstrip() for row in rows), names[1].rjust(margin - 1)]
    bar = "│" if unicode else "|"
    out = [f"{lines[0]} {picture.value_title}"]
    out += [" " * margin + bar + line for line in lines[1:-1]]
    rule = ("└" if unicode else "+") + ("─" if unicode else "-") * columns
    out.append(lines[-1] + " " + rule)
    low_name, high_name = f"{axes.low:,}", f"{axes.high:,}"
    out.append(" " * margin + low_name + high_name.rjust(columns + 1 - len(low_name)))
    out.append(f"{' ' * margin}{picture.cap_title}; {best} best found, {bound} lower bound, {between} open between")
    return "\n".join(line.rstrip() for line in out) + "\n"
