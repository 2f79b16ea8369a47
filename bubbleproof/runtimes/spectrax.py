"""spectrax (JAX, MPMD): a schedule as an object of its scheduler, and back.

For spectrax-lib 0.1.3; 0.1.4 fails most of its own pipeline tests. It is licensed under the AGPL: a peer to test with,
not a dependency, and imported only inside the functions here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.jax_mpmd import PHASES, grid_of
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["build", "read"]


def build(schedule: Schedule, instance: Instance, *, check: bool = True) -> Any:
    """A schedule object for ``spectrax.runtime.mpmd.sxcall``.

    Parameters
    ----------
    schedule, instance
        The order and what it is for; every rank holds equally many stages.
    check
        Let the judge prove the schedule first. spectrax trains on wrong gradients without an error if a backward of
        another rank than the last stage's is missing.

    Returns
    -------
    spectrax.runtime.schedules.base.Schedule

    Raises
    ------
    FormatError
        spectrax cannot express the schedule, or the judge refuses it.
    ImportError
        spectrax is not installed.
    """
    from spectrax.runtime.schedules.base import Action, Phase
    from spectrax.runtime.schedules.base import Schedule as Base

    if check:
        _judge(schedule, instance)
    grid = [
        [None if cell is None else Action(Phase[cell.phase], cell.microbatch, cell.virtual_stage) for cell in row]
        for row in grid_of(schedule, instance, timed=check)
    ]
    placed = instance.placement.stages_of_rank
    route = instance.placement.routes[0]

    class Given(Base):  # type: ignore[misc]  # the base class has no types
        def build(self, n_stages: int) -> Any:
            if n_stages != instance.ranks:
                raise FormatError(f"the schedule is for {instance.ranks} ranks, the mesh has {n_stages}")
            return grid

        def virtual_stages_per_rank(self) -> int:
            return len(placed[0])

        def logical_at(self, rank: int, virt: int, n_stages: int) -> int:
            return placed[rank][virt]

        def next_logical_loc(self, rank: int, virt: int, n_stages: int) -> tuple[int, int] | None:
            stage = placed[rank][virt] + 1
            return None if stage == instance.stages else _place(stage)

        def terminal_loc(self, n_stages: int) -> tuple[int, int]:
            return _place(instance.stages - 1)

        def peak_activations(self, n_stages: int) -> int:
            return max(_peak(order) for order in schedule.orders)

    def _place(stage: int) -> tuple[int, int]:
        return route[stage], placed[route[stage]].index(stage)

    return Given(microbatches=instance.microbatches)


def _judge(schedule: Schedule, instance: Instance) -> None:
    from bubbleproof.verify import Verdict, verify

    report = verify(schedule, instance)
    if report.verdict is not Verdict.PROVED:
        raise FormatError(f"not for spectrax: {report.violations[0] if report.violations else report.verdict.value}")


def _peak(order: tuple[object, ...]) -> int:
    """The most forwards of a rank whose weight gradient has not run."""
    held = most = 0
    for op in order:
        assert isinstance(op, Op)
        held += {"F": 1, "W": -1, "BW": -1}.get(op.kind, 0)
        most = max(most, held)
    return most


def read(given: Any, ranks: int, name: str = "") -> Schedule:
    """The schedule of a live spectrax schedule object on so many ranks.

    Raises
    ------
    FormatError
        The object builds something that is no grid of actions.
    """
    kinds = {phase: kind for kind, phase in PHASES.items()}
    orders: list[list[Op]] = [[] for _ in range(ranks)]
    for number, row in enumerate(given.build(ranks)):
        if len(row) != ranks:
            raise FormatError(f"row {number} of the grid has {len(row)} cells for {ranks} ranks")
        for rank, cell in enumerate(row):
            for action in () if cell is None else cell.split() if hasattr(cell, "split") else (cell,):
                stage = given.logical_at(rank, action.virtual_stage, ranks)
                orders[rank].append(Op(kinds[action.phase.name], stage, action.microbatch))  # type: ignore[arg-type]
    return Schedule.of(orders, name)
