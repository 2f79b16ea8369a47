"""The rule `pairs` of docs/bounds.md, from figures that the caller has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["most_saved", "opening"]


def most_saved(
    plain: Iterable[tuple[int, int, int]], with_b: Sequence[int | None], with_bw: Sequence[int | None]
) -> int:
    """The most by which a pair is shorter than its members; 0 if none is.

    Parameters
    ----------
    plain
        Shares (f, b, w) of the stages of a rank, not cut for pairs.
    with_b, with_bw
        For each of these stages the duration of a pair with its forward and a B, or a BW; None without one of its own.
    """
    shares = list(plain)
    most_b, most_bw = max(b for _, b, _ in shares), max(b + w for _, b, w in shares)
    saved = 0
    for (f, _, _), time_b, time_bw in zip(shares, with_b, with_bw, strict=True):
        if time_b is not None:
            saved = max(saved, f + most_b - time_b)
        if time_bw is not None:
            saved = max(saved, f + most_bw - time_bw)
    return saved


def opening(saved: int, longest: int, head: int, begin: int, most: int) -> int:
    """The least, over 0 ≤ k ≤ most, of saved·k + max(head, begin − longest·k): falling, then rising with k."""
    best = max(head, begin)
    if longest > 0:
        turn = min(most, max(0, -(-(begin - head) // longest)))
        for k in (turn - 1, turn):
            if k >= 0:
                best = min(best, saved * k + max(head, begin - longest * k))
    return best
