"""Messages that occupy channels: one start per message, in the order of the ops that make them."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.orders import Orders
from bubbleproof.solver.cpsat.variables import Variables

__all__ = ["add_channels"]


@dataclass(frozen=True)
class _Line:
    """The messages of one queue of ops to one other stage."""

    number: int
    maker: int
    time: int
    start: list[cp_model.IntVar]
    interval: list[cp_model.IntervalVar]


def add_channels(v: Variables, orders: Orders) -> None:
    """Messages of a channel go one at a time, in the order of the ops that make them."""
    wires = v.flat.wires
    if wires is None:
        return
    for channel in range(wires.channels):
        found = [q for q in range(len(v.flat.rank), len(wires.rank)) if wires.rank[q] == v.flat.ranks + channel]
        lines = [_line(v, message) for message in found]
        v.model.add_no_overlap([interval for line in lines for interval in line.interval])
        for place, line in enumerate(lines):
            _after_itself(v, line)
            for other in lines[place + 1 :]:
                if line.maker == other.maker:
                    _in_turn(v, line, other)
                else:
                    _as_made(v, orders, line, other)
                    _as_made(v, orders, other, line)


def _line(v: Variables, message: int) -> _Line:
    wires, flat = v.flat.wires, v.flat
    assert wires is not None
    ((maker, _),) = wires.inputs[message]
    ((target, _),) = wires.outputs[message]
    time = wires.duration[message]
    starts, intervals = [], []
    for k in range(flat.size[maker]):
        v.check()
        low, high = v.low[maker][k] + flat.duration[maker], v.high[target][k] - time
        start = v.model.new_int_var(low, high, f"m{message}_{k}")
        v.model.add(start >= v.end(maker, k))
        v.model.add(v.start[target][k] >= start + time)
        starts.append(start)
        intervals.append(v.model.new_fixed_size_interval_var(start, time, f"n{message}_{k}"))
    return _Line(message, maker, time, starts, intervals)


def _after_itself(v: Variables, line: _Line) -> None:
    for k in range(1, len(line.start)):
        v.model.add(line.start[k] >= line.start[k - 1] + line.time)


def _in_turn(v: Variables, line: _Line, later: _Line) -> None:
    """The messages of one op to two stages follow each other."""
    for k in range(len(line.start)):
        v.model.add(later.start[k] >= line.start[k] + line.time)
        if k:
            v.model.add(line.start[k] >= later.start[k - 1] + later.time)


def _as_made(v: Variables, orders: Orders, line: _Line, other: _Line) -> None:
    """A message whose op comes before that of another goes before it."""
    for k, start in enumerate(other.start):
        v.check()
        for i in reversed(range(len(line.start))):
            before = orders.before(line.maker, i, other.maker, k)
            if before is True:
                v.model.add(start >= line.start[i] + line.time)
                break  # earlier ones go before this one
            if before is not False:
                v.model.add(start >= line.start[i] + line.time).only_enforce_if(before)
