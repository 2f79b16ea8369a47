"""What pictures of timelines share: axis ticks, shortened figures."""

from __future__ import annotations

from fractions import Fraction

__all__ = ["percent", "ticks"]


def ticks(low: int, high: int, most: int) -> list[int]:
    """Round times from `low` to `high`, at most about `most` of them: steps of 1, 2 or 5 times a power of ten."""
    step = 1
    while (high - low) // step > most:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(-(-low // step) * step, high + 1, step))


def percent(part: int | Fraction, whole: int = 1, digits: int = 1) -> str:
    """A share in percent, rounded half up, computed without floats."""
    share = Fraction(part) / whole if whole else Fraction(0)
    scaled = int(abs(share) * 100 * 10**digits + Fraction(1, 2))
    text = f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}" if digits else str(scaled)
    return f"{'-' if share < 0 and scaled else ''}{text}%"
