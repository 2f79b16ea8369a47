"""Consumer model of spectrax 0.1.3 (JAX, MPMD): one process that dispatches every rank's actions.

Written from docs/semantics.md, section "spectrax", and from runs. The order of a rank and the inputs of each action
make one graph; with a cycle the walk over it ends in an error, else the actions run in an order of it. There are no
messages. The last stage runs its backward inside its forward, so its own backward actions do nothing. Nothing checks
that an action is missing or doubled.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, TypeAlias

from bubbleproof.schedules.op import BACKWARDS, Op
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.runtimes.prediction import Prediction

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["predict"]

Place: TypeAlias = tuple[int, int]


def predict(schedule: Schedule, instance: Instance) -> Prediction:
    """What spectrax does with a schedule in one training step.

    Parameters
    ----------
    schedule
        Single ops of stages and microbatches that exist, each on the rank of its stage; at least two stages.
    """
    last = instance.stages - 1
    places: dict[Op, list[Place]] = {}
    ops: dict[Place, Op] = {}
    for rank, position, each in schedule.ops():
        places.setdefault(each, []).append((rank, position))
        ops[rank, position] = each
    needed = _needs(schedule, places, last)
    try:
        order = list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        rank, position = error.args[1][0]
        why = f"a cycle through {schedule.orders[rank][position]}: the walk over the graph does not end"
        return Prediction(outcome="crash", reason=why, rank=rank, position=position)
    saved: set[tuple[int, int]] = set()
    halved: set[tuple[int, int]] = set()  # B has run and left its W to do
    for rank, position in order:
        op = ops[rank, position]
        at = op.stage, op.microbatch
        if op.stage == last:
            continue
        if op.kind == "F":
            saved.add(at)
        elif op.kind == "W" and at in halved:
            halved.remove(at)
        elif at in saved:
            saved.remove(at)
            if op.kind == "B":
                halved.add(at)
        else:
            why = f"{op}: what its forward saved is not there, or is used up"
            return Prediction(outcome="crash", reason=why, rank=rank, position=position)
    return _result(places, instance)


def _needs(schedule: Schedule, places: dict[Op, list[Place]], last: int) -> dict[Place, set[Place]]:
    """What each action waits for: the one before it on its rank, and the last occurrence of each of its inputs."""
    needed: dict[Place, set[Place]] = {}
    before: dict[int, Place] = {}
    for rank, position, op in schedule.ops():
        stage, j = op.stage, op.microbatch
        if stage == last and op.kind != "F":
            continue
        mine = needed.setdefault((rank, position), set())
        if rank in before:
            mine.add(before[rank])
        before[rank] = rank, position
        inputs = [Op("F", stage - 1, j)] if op.kind == "F" else [Op("F", stage, j)]
        if op.kind != "F":
            inputs += [Op("F", last, j)] if stage + 1 == last else [Op(kind, stage + 1, j) for kind in BACKWARDS]
        mine.update(places[each][-1] for each in inputs if each in places)
    return needed


def _result(places: dict[Op, list[Place]], instance: Instance) -> Prediction:
    """Whether the gradients are right, once everything has run."""
    last = instance.stages - 1
    for j in range(instance.microbatches):
        count = len(places.get(Op("F", last, j), ()))
        if count != 1:
            return Prediction(outcome="wrong", reason=f"{last}F{j} runs {count} times, and with it its backward")
        for stage in range(last):
            if Op("BW", stage, j) in places:
                continue
            for kind in ("B", "W"):
                # the first stage hands no gradient on, and its W needs no B
                if Op(kind, stage, j) not in places and not (kind == "B" and stage == 0):
                    return Prediction(outcome="wrong", reason=f"no {stage}{kind}{j}, which nobody misses")
    return Prediction(outcome="ok")
