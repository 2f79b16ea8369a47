"""DeepSpeed: a schedule executed by its pipeline engine, and streams of instructions read from its own schedules.

`initialize` takes the place of ``deepspeed.initialize`` and gives an engine whose ``train_batch`` runs the streams;
nothing of DeepSpeed is replaced. The engine is a subclass of DeepSpeed's ``PipelineEngine``. Where that one has a
single loss and a single received gradient it keeps one for each pipeline buffer, so that any order can run. It knows
the two halves of a split backward as well, by the functions with which PyTorch's own pipeline splits one.

What is executed is judged first; docs/semantics.md, section "DeepSpeed", says what the engine does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import deepspeed as text
from bubbleproof.schedules.instructions import Streams

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["initialize", "pipe_schedule", "pipeline_module", "read", "streams_for"]


def streams_for(schedule: Schedule, instance: Instance) -> Streams:
    """The streams of a schedule, judged by what the engine of `initialize` does with them.

    Raises
    ------
    FormatError
        DeepSpeed cannot express the schedule, or the judge refuses it.
    """
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import Verdict, verify, verify_program
    from bubbleproof.verify.runtimes.deepspeed import predict

    text.refuse(schedule, instance)
    report = verify(schedule, instance)
    if report.verdict is Verdict.PROVED:
        program = lower(schedule, instance, reduce=False, blocking=True)
        streams = text.streams_of(program, instance)
        said = predict(streams, engine="bubbleproof")
        report = verify_program(program, instance, channel="rendezvous-rank", prediction=said)
        if report.verdict is Verdict.PROVED:
            return streams
    raise FormatError(f"not for DeepSpeed: {report.violations[0] if report.violations else report.verdict.value}")


def initialize(
    streams: Streams, *, model: Any, config: Any, judge: bool = True, **options: Any
) -> tuple[Any, Any, Any, Any]:
    """As ``deepspeed.initialize`` with a ``PipelineModule``, for an engine that trains by streams of instructions.

    Parameters
    ----------
    streams
        From `streams_for`, or read from a file; all ranks need the same.
    model
        A ``PipelineModule`` with as many stages as the streams, for a vee a ``DualPipeVModule``: see `pipeline_module`.
    config
        DeepSpeed's configuration; ``gradient_accumulation_steps`` is the number of microbatches of the streams.
    judge
        Refuse streams that would not train right. Without it they run, to whatever end.
    options
        ``optimizer``, ``model_parameters``, ``training_data``, ``lr_scheduler`` and ``collate_fn``, as for
        ``deepspeed.initialize``.

    Returns
    -------
    engine, optimizer, training dataloader, learning rate scheduler

    Raises
    ------
    FormatError
        The streams would not train right, or are for another number of stages or microbatches, or the configuration has
        something with which split backwards were never executed.
    ImportError
        DeepSpeed is not installed.
    """
    from deepspeed import comm
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.config import DeepSpeedConfig

    from bubbleproof.verify.runtimes.deepspeed import predict

    if judge:
        said = predict(streams, engine="bubbleproof")
        if said.outcome != "ok":
            raise FormatError(f"not for DeepSpeed: {said.outcome}: {said.reason}")
    comm.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    grid = model.mpu()
    engine = (_vee_classes() if streams.vee else _classes()).Engine(
        streams=streams,
        args=None,
        model=model,
        mpu=grid,
        config=config,
        config_class=DeepSpeedConfig(config, grid),
        **{"optimizer": None, "model_parameters": None, **options},
    )
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def pipe_schedule(streams: Streams, stage: int) -> Any:
    """A ``PipeSchedule`` of DeepSpeed that yields the stream of a stage, one instruction a step."""
    return _classes().Schedule(streams, stage)


def pipeline_module(layers: Sequence[Any], bounds: Sequence[int], *, vee: bool = False, **options: Any) -> Any:
    """A ``PipelineModule`` whose stage s holds the layers bounds[s] … bounds[s+1] − 1, however unequal.

    Parameters
    ----------
    vee
        A ``DualPipeVModule`` instead, with two stages on each rank.
    options
        As for DeepSpeed's class, without ``num_stages`` and ``partition_method``.

    Raises
    ------
    FormatError
        The bounds do not cut all layers into stages of at least one.
    """
    if list(bounds) != sorted(set(bounds)) or len(bounds) < 2 or (bounds[0], bounds[-1]) != (0, len(layers)):
        raise FormatError(
            f"bounds = {list(bounds)[:16]} do not cut {len(layers)} layers into stages of at least one each"
        )
    if vee and len(bounds) % 2 == 0:
        raise FormatError(f"a vee has two stages on each rank, not {len(bounds) - 1} in all")
    ranks = (len(bounds) - 1) // (2 if vee else 1)
    return (_vee_classes() if vee else _classes()).Module(list(layers), list(bounds), ranks, **options)


def read(schedules: Sequence[Any], name: str = "") -> Streams:
    """The streams of DeepSpeed's own schedule objects, one ``PipeSchedule`` for each stage in order.

    Raises
    ------
    FormatError
        An instruction is none that DeepSpeed's linear engine has.
    """
    from bubbleproof.schedules.errors import ScheduleError
    from bubbleproof.schedules.instructions import parse_instruction

    try:
        rows = [[parse_instruction(repr(one)) for step in each.steps() for one in step] for each in schedules]
    except ScheduleError as error:
        raise FormatError(str(error)) from error
    counts = [int(each.num_pipe_buffers()) for each in schedules]
    return Streams.of(rows, int(schedules[0].num_micro_batches), counts, name or type(schedules[0]).__name__)


class _Classes(NamedTuple):
    Schedule: Any
    Engine: Any
    Module: Any
    Halves: Any
    halves: Any


@cache
def _classes() -> _Classes:
    """Subclasses of DeepSpeed's classes, which exist only where it is installed."""
    import torch
    from deepspeed.runtime.pipe import schedule as known
    from deepspeed.runtime.pipe.engine import PipelineEngine
    from deepspeed.runtime.pipe.module import PipelineModule

    class BackwardInput(known.BufferOpInstruction):  # type: ignore[misc]  # DeepSpeed has no types
        """Compute the gradient of a stage's input and keep what the other half needs."""

    class BackwardWeight(known.BufferOpInstruction):  # type: ignore[misc]
        """Compute the gradients of a stage's weights and add them up."""

    named = {"BackwardInput": BackwardInput, "BackwardWeight": BackwardWeight}

    class StreamSchedule(known.PipeSchedule):  # type: ignore[misc]
        """The stream of one stage."""

        def __init__(self, streams: Streams, stage: int) -> None:
            super().__init__(streams.microbatches, streams.ranks, stage)
            self.streams = streams

        def steps(self) -> Iterator[list[Any]]:
            for name, buffer, phase in self.streams.rows[self.stage_id]:
                given = {"buffer_id": buffer, "phase": phase}
                made = named.get(name) or getattr(known, name)
                yield [made(**{key: value for key, value in given.items() if value is not None})]

        def num_pipe_buffers(self) -> int:
            return self.streams.buffers[self.stage_id]

    class Halves:
        """What is added to an engine of DeepSpeed: its schedule is a stream, and a backward may have two halves."""

        def __init__(self, *args: Any, streams: Streams, **options: Any) -> None:
            self._halving = False
            self._rest: dict[int, Any] = {}
            super().__init__(*args, **options)
            self.streams = streams
            _refuse(self, streams)

        def _exec_schedule(self, pipe_schedule: Any) -> None:
            if torch.is_grad_enabled():  # without gradients it is an evaluation, by DeepSpeed's own schedule
                if self.micro_batches != self.streams.microbatches:  # type: ignore[attr-defined]
                    raise FormatError(
                        f"gradient_accumulation_steps = {self.micro_batches}, but the streams are for "  # type: ignore[attr-defined]
                        f"{self.streams.microbatches} microbatches"
                    )
                pipe_schedule = StreamSchedule(self.streams, self.stage_id)  # type: ignore[attr-defined]
            super()._exec_schedule(pipe_schedule)  # type: ignore[misc]

        def _first_half(self, buffer_id: int, roots: list[Any], gradients: list[Any] | None) -> None:
            """The gradients of the inputs in a buffer; the rest is kept for the other half."""
            from torch.distributed.pipelining._backward import stage_backward_input

            inputs = self.pipe_buffers["inputs"][buffer_id]  # type: ignore[attr-defined]
            wanted = [each for each in _listed(inputs) if each.requires_grad]
            if wanted:
                with self._running():
                    found = stage_backward_input(roots, gradients, wanted, self.module.parameters())  # type: ignore[attr-defined]
                self._rest[buffer_id] = found[1]
            else:
                self._rest[buffer_id] = roots, gradients  # no gradient to hand on: all of it is the other half
            self.pipe_buffers["outputs"][buffer_id] = None  # type: ignore[attr-defined]

        def _exec_backward_weight(self, buffer_id: int, phase: int | None = None) -> None:
            from torch.distributed.pipelining._backward import stage_backward_weight

            rest = _taken(self._rest, buffer_id, "a BackwardInput")
            with self._running():
                if isinstance(rest, tuple):
                    torch.autograd.backward(*rest)
                else:
                    stage_backward_weight(self.module.parameters(), rest)  # type: ignore[attr-defined]

        @contextmanager
        def _running(self) -> Iterator[None]:
            """What DeepSpeed's hooks on outputs want in order to let a backward pass, and not to scale it twice."""
            self._running_engine_backward = self._halving = True
            try:
                yield
            finally:
                self._running_engine_backward = self._halving = False

        def _backward_prologue_per_tensor(self, grad: Any) -> Any:
            return grad if self._halving else super()._backward_prologue_per_tensor(grad)  # type: ignore[misc]

    class StreamEngine(Halves, PipelineEngine):  # type: ignore[misc]
        """DeepSpeed's pipeline engine with a loss and a gradient for each buffer, and split backwards."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._losses: dict[int, Any] = {}
            self._gradients: dict[int, Any] = {}
            self.grad_layer: Any = None
            super().__init__(*args, **options)

        def _exec_forward_pass(self, buffer_id: int) -> None:
            super()._exec_forward_pass(buffer_id)
            if self.is_last_stage() and torch.is_grad_enabled():
                self._losses[buffer_id] = self.loss

        def _exec_recv_grads(self, buffer_id: int) -> None:
            super()._exec_recv_grads(buffer_id)
            came = self.grad_layer
            # what is received next goes to the same memory
            self._gradients[buffer_id] = came.clone() if torch.is_tensor(came) else [each.clone() for each in came]

        def _exec_backward_pass(self, buffer_id: int) -> None:
            if self.is_last_stage():
                self.loss = _taken(self._losses, buffer_id, "a loss")
                super()._exec_backward_pass(buffer_id)
                return
            shared, self.grad_layer = self.grad_layer, _taken(self._gradients, buffer_id, "a received gradient")
            try:
                super()._exec_backward_pass(buffer_id)
            finally:
                self.grad_layer = shared

        def _exec_backward_input(self, buffer_id: int) -> None:
            if self.is_last_stage():
                loss = _taken(self._losses, buffer_id, "a loss") / self.gradient_accumulation_steps()
                self._first_half(buffer_id, [loss], None)
                return
            roots = _roots(self.pipe_buffers["outputs"][buffer_id], buffer_id)
            self._first_half(buffer_id, roots, _listed(_taken(self._gradients, buffer_id, "a received gradient")))

        _INSTRUCTION_MAP = {  # noqa: RUF012  # DeepSpeed's name for it, read by its engine
            **PipelineEngine._INSTRUCTION_MAP,
            known.ForwardPass: _exec_forward_pass,
            known.BackwardPass: _exec_backward_pass,
            known.RecvGrad: _exec_recv_grads,
            BackwardInput: _exec_backward_input,
            BackwardWeight: Halves._exec_backward_weight,
        }

    class BoundedModule(PipelineModule):  # type: ignore[misc]
        """A pipeline module that is cut where it is told."""

        def __init__(self, layers: list[Any], bounds: list[int], ranks: int, **options: Any) -> None:
            self._given_bounds = bounds
            super().__init__(layers, num_stages=ranks, **options)

        def _partition_layers(self, method: str = "") -> None:
            self.parts = self._given_bounds
            stage = self._topo.get_coord(self.global_rank).pipe
            self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])

    return _Classes(StreamSchedule, StreamEngine, BoundedModule, Halves, (BackwardInput, BackwardWeight))


@cache
def _vee_classes() -> _Classes:
    """The same for vees, on top of DeepSpeed's engine for DualPipeV, which keeps losses and gradients by buffer."""
    from deepspeed.runtime.pipe.dualpipev import DualPipeVEngine, DualPipeVModule

    flat = _classes()
    backward_input, backward_weight = flat.halves

    class VeeEngine(flat.Halves, DualPipeVEngine):  # type: ignore[misc, name-defined]
        """DeepSpeed's engine for DualPipeV, for any order and with split backwards."""

        def _exec_backward_input(self, buffer_id: int, phase: int) -> None:
            held, outputs = self.pipe_buffers, self.pipe_buffers["outputs"][buffer_id]
            if self._is_loss_stage(phase):
                loss, held["losses"][buffer_id] = held["losses"][buffer_id], None
                if loss is None:
                    raise RuntimeError(f"buffer {buffer_id} has no loss")
                self._first_half(buffer_id, [loss / self.gradient_accumulation_steps()], None)
                held["labels"][buffer_id] = None
                return
            if self._is_last_rank() and phase == 0:
                turned = self._phase1_buffer(buffer_id)
                came = [each.grad for each in _listed(held["inputs"][turned]) if each.is_floating_point()]
                held["inputs"][turned] = None
            else:
                came = _listed(held["grads"][buffer_id])
                held["grads"][buffer_id] = None
            if any(each is None for each in came):
                raise RuntimeError(f"buffer {buffer_id} has no gradient")
            self._first_half(buffer_id, _roots(outputs, buffer_id), came)
            if self.is_first_stage() and phase == 0:
                held["inputs"][buffer_id] = None

        _INSTRUCTION_MAP = {  # noqa: RUF012  # DeepSpeed's name for it, read by its engine
            **DualPipeVEngine._INSTRUCTION_MAP,
            backward_input: _exec_backward_input,
            backward_weight: flat.Halves._exec_backward_weight,
        }

    class BoundedVeeModule(DualPipeVModule, flat.Module):  # type: ignore[misc, name-defined]
        """DeepSpeed's module for DualPipeV, cut where it is told."""

    return flat._replace(Engine=VeeEngine, Module=BoundedVeeModule)


def _refuse(engine: Any, streams: Streams) -> None:
    """Refuse streams that are not for an engine, or that need what was never executed."""
    if engine.num_stages != streams.ranks:
        raise FormatError(f"the model is for {engine.num_stages} ranks, the streams are for {streams.ranks}")
    if not streams.split:
        return
    untried = {
        "a ZeRO optimizer": bool(engine.zero_optimization_stage()),
        "fp16 or bf16": engine.fp16_enabled() or engine.bfloat16_enabled(),
        "activation checkpoints": engine.module.activation_checkpoint_interval > 0,
        "tied layers": bool(engine.module.tied_comms),
        "model parallelism": engine.is_model_parallel,
    }
    for what, there in untried.items():
        if there:
            raise FormatError(f"split backwards with {what} were never executed here; use fused backwards (BW)")


def _roots(outputs: Any, buffer_id: int) -> list[Any]:
    """What the backward of outputs starts from."""
    if outputs is None:
        raise RuntimeError(f"buffer {buffer_id} has no output")
    # PyTorch detaches what it starts from, which it cannot do to a view
    return [each.clone() if each._is_view() else each for each in _listed(outputs) if each.is_floating_point()]


def _taken(held: dict[int, Any], buffer_id: int, what: str) -> Any:
    if buffer_id not in held:
        raise RuntimeError(f"buffer {buffer_id} waits for {what} that has not come")
    return held.pop(buffer_id)


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (tuple, list)) else [tensors]
