"""PyTorch: a schedule as an object of ``torch.distributed.pipelining``, and back.

Both ways go through the text of actions (PyTorch's schedule CSV), which has stayed the same since torch 2.6; the Python
types behind it have not. The runtime class that executes such an order is private to PyTorch, so each step that may
break with a version says what it needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import torch_comms, torch_csv, torch_versions

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.program import Program
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["build", "read", "read_program"]

Communication = Literal["torch", "bubbleproof"]


def build(
    schedule: Schedule,
    instance: Instance,
    stages: Sequence[Any],
    loss_fn: Callable[[Any, Any], Any] | None,
    *,
    scale_grads: bool = True,
    communication: Communication = "torch",
    **options: Any,
) -> Any:
    """A ready schedule object of PyTorch for one rank; call its ``step`` like that of any PyTorch schedule.

    Parameters
    ----------
    schedule, instance
        The order, and the placement and number of microbatches that it is for. The judge has to prove it first, under
        the rules of PyTorch's runtime.
    stages
        The ``PipelineStage`` objects of this rank, ascending by stage: exactly the stages that the placement puts here.
    loss_fn
        As for PyTorch's schedules: of the output of the last stage and its target. Without one nothing is trained.
    scale_grads
        Whether gradients are divided by the number of microbatches; right for a loss that is a mean.
    communication
        ``torch``: PyTorch adds sends and receives when it loads the order. ``bubbleproof``: they are part of what it
        loads, placed by `bubbleproof.schedules.lower`, in the form that the installed version reads.
    options
        Passed on to PyTorch's runtime class.

    Returns
    -------
    torch.distributed.pipelining.schedules._PipelineScheduleRuntime

    Raises
    ------
    FormatError
        PyTorch, or the version that is installed, cannot run the schedule; or the judge refuses it; or `stages` are not
        the stages of one rank.
    ImportError
        PyTorch is not installed or has no such runtime (before 2.6).
    """
    import torch
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    text = _text(schedule, instance, communication, scale_grads, torch_versions.parse(str(torch.__version__)))
    _check_stages(stages, instance)
    made = _PipelineScheduleRuntime(
        list(stages), instance.microbatches, loss_fn=loss_fn, scale_grads=scale_grads, **options
    )
    with tempfile.TemporaryDirectory(prefix="bubbleproof-") as folder:
        path = Path(folder, "schedule.csv")
        path.write_text(text, encoding="utf-8")
        made._load_csv(str(path), format="compute_only" if communication == "torch" else "compute_comms")
    return made


def _text(
    schedule: Schedule,
    instance: Instance,
    communication: Communication,
    scale_grads: bool,
    version: torch_versions.Version,
) -> str:
    """The text that PyTorch loads, judged by what PyTorch will do with it."""
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import Verdict, verify
    from bubbleproof.verify.program_judge import verify_program

    if communication not in ("torch", "bubbleproof"):
        raise FormatError(f"communication = {communication!r} is neither torch nor bubbleproof")
    torch_versions.check(schedule, version, scale_grads=scale_grads)
    report = verify(schedule, instance, target="torch")
    text = ""
    if report.verdict is Verdict.PROVED:
        if communication == "torch":
            return torch_csv.dumps(schedule, instance)
        program = lower(schedule, instance, reduce=torch_versions.reduces(version))
        text = torch_comms.dumps(program, instance)
        run = program if torch_versions.reduces(version) else torch_versions.with_final_reductions(program)
        report = verify_program(run, instance, channel="rendezvous-pair", target="torch", scale_grads=scale_grads)
    if report.verdict is not Verdict.PROVED:
        first = report.violations[0] if report.violations else report.verdict.value
        raise FormatError(f"not for PyTorch: {first}")
    return text


def _check_stages(stages: Sequence[Any], instance: Instance) -> None:
    """Whether the stage objects are those of one rank: PyTorch hangs or asks for absurd memory if they are not."""
    have = [int(stage.stage_index) for stage in stages]
    placed = instance.placement.stages_of_rank
    rank = int(stages[0].group_rank) if stages else -1
    if not 0 <= rank < len(placed) or tuple(have) != placed[rank]:
        want = list(placed[rank]) if 0 <= rank < len(placed) else "none"
        raise FormatError(f"rank {rank} has stage objects {have}; the placement wants {want}, ascending")
    for stage in stages:
        if int(stage.num_stages) != instance.stages:
            raise FormatError(
                f"stage object {stage.stage_index} belongs to {stage.num_stages} stages, "
                f"the schedule to {instance.stages}"
            )


def read(orders: Any, name: str = "") -> Schedule:
    """The schedule of a live schedule object of PyTorch, or of its ``pipeline_order``.

    Idle cells, and the collectives that some of PyTorch's orders contain, are left out.

    Parameters
    ----------
    orders
        An object with ``pipeline_order``, or such a table: rank → actions, None for idle.

    Raises
    ------
    FormatError
        There is no such table, or an action has a text that the compute-only CSV does not know.
    """
    return read_program(getattr(orders, "pipeline_order", orders), name).schedule


def read_program(orders: Any, name: str = "") -> Program:
    """The program of a live schedule object: its ``pipeline_order_with_comms``, or a table like it.

    Raises
    ------
    FormatError
        There is no such table, or an action has a text that the CSV with communication does not know.
    """
    table = getattr(orders, "pipeline_order_with_comms", orders)
    if not isinstance(table, Mapping) or set(table) != set(range(len(table))):
        raise FormatError("no table of ranks 0 … p−1 with their actions: pass a multi-stage schedule of PyTorch")
    rows = [",".join(str(action) for action in table[rank] if action is not None) for rank in range(len(table))]
    program = torch_comms.loads("\n".join(rows) + "\n", name or "pipeline_order")
    return type(program)(program.rows, name)
