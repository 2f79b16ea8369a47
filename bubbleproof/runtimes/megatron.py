"""Megatron-core: a function that runs any order of ops in place of the ones that Megatron has.

``forward_backward_func(schedule, instance)`` returns what ``get_forward_backward_func()`` of Megatron-core would: a
function with the same keywords. It runs Megatron's own forward and backward steps and sends through Megatron's
communicator, one call after the other, in the order of messages that `bubbleproof.schedules.lower` places. Written
against megatron-core 0.16.1; arguments that other versions do not have are left out by their signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bubbleproof.runtimes.megatron_step import Step
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.program import Program
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["forward_backward_func", "program_of", "unchecked"]


def forward_backward_func(schedule: Schedule, instance: Instance) -> Callable[..., list[Any]]:
    """The function to use where Megatron's training loop calls ``get_forward_backward_func()``.

    Its model is the list of this rank's stages, ascending, each a Megatron chunk (a module with ``config``,
    ``model_type`` and ``set_input_tensor``). With a loop placement these are the chunks that Megatron itself builds;
    for another placement the model provider has to build the layers of these stages.

    Parameters
    ----------
    schedule, instance
        The order, with its placement and number of microbatches.

    Raises
    ------
    FormatError
        The judge refuses the schedule, or the function cannot run it.
    """
    return unchecked(program_of(schedule, instance), instance)


def program_of(schedule: Schedule, instance: Instance) -> Program:
    """The messages and ops that each rank runs, judged for a runtime in which transfers block.

    Raises
    ------
    FormatError
        The judge refuses the schedule, or the function cannot run it.
    """
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import Verdict, verify
    from bubbleproof.verify.program_judge import verify_program
    from bubbleproof.verify.runtimes.megatron import predict

    report = verify(schedule, instance)
    if report.verdict is Verdict.PROVED:
        program = lower(schedule, instance, reduce=False, blocking=True)
        said = predict(program, instance)
        report = verify_program(program, instance, channel="rendezvous-rank", prediction=said)
    if report.verdict is not Verdict.PROVED:
        first = report.violations[0] if report.violations else report.verdict.value
        raise FormatError(f"not for Megatron: {first}")
    return program


def unchecked(program: Program, instance: Instance) -> Callable[..., list[Any]]:
    """The function for a program as it is; whether it hangs or trains wrongly is not asked.

    Raises
    ------
    FormatError
        Ops are missing or stand on the wrong rank.
    """
    from bubbleproof.verify.runtimes.megatron import refusal

    found = refusal(program, instance)
    if found is not None:
        raise FormatError(f"not for Megatron: {found[0]}")

    def forward_backward(
        *,
        forward_step_func: Callable[..., Any],
        data_iterator: Any,
        model: Any,
        num_microbatches: int,
        seq_length: int,
        micro_batch_size: int,
        decoder_seq_length: int | None = None,
        forward_only: bool = False,
        collect_non_loss_data: bool = False,
        first_val_step: bool | None = None,
        adjust_tensor_shapes_fn: Callable[..., Any] | None = None,
        p2p_communicator: Any = None,
        pg_collection: Any = None,
        force_all_reduce: bool | None = False,
    ) -> list[Any]:
        if num_microbatches != instance.microbatches:
            raise FormatError(f"{num_microbatches} microbatches asked for, the schedule has {instance.microbatches}")
        if decoder_seq_length is not None or adjust_tensor_shapes_fn is not None:
            raise FormatError("decoder_seq_length and adjust_tensor_shapes_fn: all messages have one shape here")
        step = Step(
            program,
            instance,
            model if isinstance(model, list) else [model],
            data_iterator if isinstance(data_iterator, list) else [data_iterator],
            (p2p_communicator, pg_collection),
            forward_only=forward_only,
        )
        step.shape = step.tensor_shape(seq_length, micro_batch_size)
        step.options = {
            "forward_step_func": forward_step_func,
            "collect_non_loss_data": collect_non_loss_data,
            "checkpoint_activations_microbatch": None,
        }
        step.first = not forward_only or first_val_step is None or first_val_step
        return step.run(force_all_reduce)

    return forward_backward
