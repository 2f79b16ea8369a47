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
        A ``PipelineModule`` with as many stages as the streams; see `pipeline_module`.
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
    engine = _classes().Engine(
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


def pipeline_module(layers: Sequence[Any], bounds: Sequence[int], **options: Any) -> Any:
    """A ``PipelineModule`` whose stage s holds the layers bounds[s] … bounds[s+1] − 1, however unequal.

    Parameters
    ----------
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
    return _classes().Module(list(layers), list(bounds), **options)


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


@cache
def _classes() -> _Classes:  # classes whose bases exist only where DeepSpeed is installed
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
            for one in self.streams.rows[self.stage_id]:
                made = named.get(one.name) or getattr(known, one.name)
                yield [made() if one.buffer is None else made(buffer_id=one.buffer)]

        def num_pipe_buffers(self) -> int:
            return self.streams.buffers[self.stage_id]

    class StreamEngine(PipelineEngine):  # type: ignore[misc]
        """DeepSpeed's pipeline engine with a loss and a gradient for each buffer, and split backwards."""

        def __init__(self, *args: Any, streams: Streams, **options: Any) -> None:
            self._halving = False
            self.grad_layer: Any = None
            super().__init__(*args, **options)
            self.streams = streams
            self._refuse()
            self._losses: dict[int, Any] = {}
            self._gradients: dict[int, Any] = {}
            self._rest: dict[int, Any] = {}

        def _refuse(self) -> None:
            streams = self.streams
            if self.num_stages != streams.ranks:
                raise FormatError(f"the model has {self.num_stages} stages, the streams are for {streams.ranks}")
            if not streams.split:
                return
            untried = {
                "a ZeRO optimizer": bool(self.zero_optimization_stage()),
                "fp16 or bf16": self.fp16_enabled() or self.bfloat16_enabled(),
                "activation checkpoints": self.module.activation_checkpoint_interval > 0,
                "tied layers": bool(self.module.tied_comms),
                "model parallelism": self.is_model_parallel,
            }
            for what, there in untried.items():
                if there:
                    raise FormatError(f"split backwards with {what} were never executed here; use fused backwards (BW)")

        def _exec_schedule(self, pipe_schedule: Any) -> None:
            if isinstance(pipe_schedule, known.TrainSchedule):
                if self.micro_batches != self.streams.microbatches:
                    raise FormatError(
                        f"gradient_accumulation_steps = {self.micro_batches}, but the streams are for "
                        f"{self.streams.microbatches} microbatches"
                    )
                pipe_schedule = StreamSchedule(self.streams, self.stage_id)
            super()._exec_schedule(pipe_schedule)

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
                self.loss = self._taken(self._losses, buffer_id, "a loss")
                super()._exec_backward_pass(buffer_id)
                return
            shared, self.grad_layer = self.grad_layer, self._taken(self._gradients, buffer_id, "a received gradient")
            try:
                super()._exec_backward_pass(buffer_id)
            finally:
                self.grad_layer = shared

        def _exec_backward_input(self, buffer_id: int) -> None:
            from torch.distributed.pipelining._backward import stage_backward_input

            roots, gradients = self._roots(buffer_id)
            inputs = self.pipe_buffers["inputs"][buffer_id]
            wanted = [each for each in _listed(inputs) if each.requires_grad]
            if wanted:
                with self._running(halving=True):
                    found = stage_backward_input(roots, gradients, wanted, self.module.parameters())
                self._rest[buffer_id] = found[1]
            else:
                self._rest[buffer_id] = roots, gradients  # no gradient to hand on: all of it is the other half
            self.pipe_buffers["outputs"][buffer_id] = None

        def _exec_backward_weight(self, buffer_id: int) -> None:
            from torch.distributed.pipelining._backward import stage_backward_weight

            rest = self._taken(self._rest, buffer_id, "a BackwardInput")
            with self._running(halving=True):
                if isinstance(rest, tuple):
                    torch.autograd.backward(*rest)
                else:
                    stage_backward_weight(self.module.parameters(), rest)

        def _roots(self, buffer_id: int) -> tuple[list[Any], list[Any] | None]:
            """What a split backward starts from, and the gradients of it."""
            if self.is_last_stage():
                loss = self._taken(self._losses, buffer_id, "a loss")
                return [loss / self.gradient_accumulation_steps()], None
            outputs = self.pipe_buffers["outputs"][buffer_id]
            if outputs is None:
                raise RuntimeError(f"buffer {buffer_id} has no output")
            # PyTorch detaches what it starts from, which it cannot do to a view
            roots = [each.clone() if each._is_view() else each for each in _listed(outputs) if each.is_floating_point()]
            return roots, _listed(self._taken(self._gradients, buffer_id, "a received gradient"))

        def _taken(self, held: dict[int, Any], buffer_id: int, what: str) -> Any:
            if buffer_id not in held:
                raise RuntimeError(f"buffer {buffer_id} waits for {what} that has not come")
            return held.pop(buffer_id)

        @contextmanager
        def _running(self, *, halving: bool) -> Iterator[None]:
            """What DeepSpeed's hooks on outputs ask for: they let a backward of the engine pass, and scale no twice."""
            self._running_engine_backward, self._halving = True, halving
            try:
                yield
            finally:
                self._running_engine_backward = self._halving = False

        def _backward_prologue_per_tensor(self, grad: Any) -> Any:
            return grad if self._halving else super()._backward_prologue_per_tensor(grad)

        _INSTRUCTION_MAP = {  # noqa: RUF012  # DeepSpeed's name for it, read by its engine
            **PipelineEngine._INSTRUCTION_MAP,
            known.ForwardPass: _exec_forward_pass,
            known.BackwardPass: _exec_backward_pass,
            known.RecvGrad: _exec_recv_grads,
            BackwardInput: _exec_backward_input,
            BackwardWeight: _exec_backward_weight,
        }

    class BoundedModule(PipelineModule):  # type: ignore[misc]
        """A pipeline module that is cut where it is told."""

        def __init__(self, layers: list[Any], bounds: list[int], **options: Any) -> None:
            self._given_bounds = bounds
            super().__init__(layers, num_stages=len(bounds) - 1, **options)

        def _partition_layers(self, method: str = "") -> None:
            self.parts = self._given_bounds
            stage = self._topo.get_coord(self.global_rank).pipe
            self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])

    return _Classes(StreamSchedule, StreamEngine, BoundedModule)


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (tuple, list)) else [tensors]
