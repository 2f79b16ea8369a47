"""One training step of one rank under `bubbleproof.runtimes.megatron`: ops and messages, one call after the other."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.program import Collective, Program, Transfer

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["Step"]

Key = tuple[str, int, int]
"""A tensor: F for an output on its way up, B for a gradient on its way down; the stage at this end; microbatch."""


class _Numbered:
    """A data iterator from which microbatches are taken by number, in any order."""

    def __init__(self, data: Iterator[Any]) -> None:
        self.data = data
        self.held: dict[int, Any] = {}
        self.next = 0

    def take(self, number: int) -> Iterator[Any]:
        """An iterator over the data of one microbatch, taken when it is asked for."""
        while self.next <= number:
            self.held[self.next] = next(self.data)
            self.next += 1
        yield self.held.pop(number)


class Step:
    """One training step of one rank."""

    def __init__(
        self,
        program: Program,
        instance: Instance,
        model: list[Any],
        data: list[Any],
        groups: tuple[Any, Any],
        *,
        forward_only: bool,
    ) -> None:
        from megatron.core.utils import get_model_config, get_model_type

        self.instance, self.model, self.forward_only = instance, model, forward_only
        self.config = get_model_config(model[0])
        self.model_type = get_model_type(model[0])
        self.p2p, self.groups = _groups(groups, self.config)
        self.rank = self.p2p.pp_group.rank()
        self.route, self.last = instance.placement.routes[0], instance.stages - 1
        self.stages = instance.placement.stages_of_rank[self.rank]
        self.row = [part for action in program.rows[self.rank] for part in (members(action) or (action,))]
        self._check(data)
        self.data = [None if each is None else _Numbered(each) for each in data]
        self.shape: list[int] = []
        self.options: dict[str, Any] = {}
        self.first = True
        self.came: dict[Key, Any] = {}
        self.to_send: dict[Key, Any] = {}
        self.saved: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.weights: dict[tuple[int, int], Callable[[], None]] = {}
        self.results: dict[int, list[Any]] = {}
        self.tokens: Any = 0
        self.left = dict.fromkeys(self.stages, instance.microbatches)
        self.begun: set[int] = set()
        self.at = 0
        self.no_sync = contextlib.ExitStack()

    def _check(self, data: Sequence[Any]) -> None:
        """What Megatron's configuration asks for and this function does not do."""
        size, config = self.p2p.pp_group.size(), self.config
        split = any(isinstance(action, Op) and action.kind == "W" for action in self.row)
        if size != self.instance.ranks:
            raise FormatError(f"the pipeline group has {size} ranks, the schedule {self.instance.ranks}")
        if len(self.model) != len(self.stages) or len(data) not in (1, len(self.stages)):
            raise FormatError(
                f"rank {self.rank} has {len(self.model)} chunks and {len(data)} data iterators; the placement gives it "
                f"stages {list(self.stages)}"
            )
        if len(data) < len(self.stages) and any(each is not None for each in data):
            raise FormatError("several chunks on a rank want a data iterator each")
        for name in ("overlap_moe_expert_parallel_comm", "hybrid_context_parallel", "delay_wgrad_compute"):
            if getattr(config, name, False):
                raise FormatError(f"{name} has an order of its own")
        if split and config.deallocate_pipeline_outputs:
            raise FormatError("a split backward needs the outputs: set deallocate_pipeline_outputs to False")
        if split and (config.no_sync_func is not None or config.gradient_accumulation_fusion):
            raise FormatError(
                "a split backward sets weight gradients without hooks: no overlap of their reduction, no fusion"
            )

    def tensor_shape(self, seq_length: int, micro_batch_size: int) -> list[int]:
        """The shape of every message, as in Megatron's interleaved function."""
        length = seq_length // self.groups.cp.size()
        if self.config.sequence_parallel:
            length //= self.groups.tp.size()
        return [length, micro_batch_size, self.config.hidden_size]

    def run(self, force_all_reduce: bool | None) -> list[Any]:
        """The whole step; returns what Megatron's functions return: the reduced losses of the last stage."""
        if self.config.timers is not None:
            self.config.timers("forward-backward", log_level=1).start(barrier=self.config.barrier_with_L1_time)
        self.enter_no_sync()
        for at, action in enumerate(self.row):
            self.at = at
            if isinstance(action, Collective) or (self.forward_only and not _forward(action)):
                continue
            if isinstance(action, Transfer):
                self.send(action) if action.sends else self.receive(action)
            else:
                self.compute(action)
        self.no_sync.close()
        if self.came:
            direction, stage, j = next(iter(self.came))
            raise RuntimeError(f"{stage}RECV_{direction}{j}: nothing uses what it received")
        if not self.forward_only:
            self.finish(force_all_reduce)
        if self.config.timers is not None:
            self.config.timers("forward-backward").stop()
        return [each for j in sorted(self.results) for each in self.results[j]]

    def enter_no_sync(self) -> None:
        """No reductions of gradients until the last backward."""
        functions = self.config.no_sync_func
        for function in functions if isinstance(functions, list) else [functions]:
            if function is not None:
                self.no_sync.enter_context(function())

    def finish(self, force_all_reduce: bool | None) -> None:
        """Reductions at the end of the step."""
        sync = self.config.grad_sync_func
        if sync is not None:
            for each, chunk in zip(
                sync if isinstance(sync, list) else [sync] * len(self.model), self.model, strict=True
            ):
                each(chunk.parameters())
        if self.config.finalize_model_grads_func is not None:
            _call(
                self.config.finalize_model_grads_func,
                self.model,
                self.tokens if self.config.calculate_per_token_loss else None,
                pg_collection=self.groups,
                force_all_reduce=force_all_reduce,
            )

    def compute(self, op: Any) -> None:
        """Run one op."""
        place = op.stage, op.microbatch
        if op.kind == "F":
            self.forward(*place)
        elif op.kind == "W":
            if place not in self.weights:
                raise RuntimeError(f"{op}: its B has not run")
            self.weights.pop(place)()
        else:
            self.backward(op)

    def input(self, direction: str, stage: int, j: int, op: object) -> Any:
        """The tensor that an op needs, which is then used up."""
        if (direction, stage, j) not in self.came:
            raise RuntimeError(f"{op}: its input is not there")
        return self.came.pop((direction, stage, j))

    def forward(self, stage: int, j: int) -> None:
        """Megatron's forward step of one stage and microbatch."""
        from megatron.core.pipeline_parallel.schedules import deallocate_output_tensor, forward_step

        chunk = self.stages.index(stage)
        given = None if stage == 0 else self.input("F", stage, j, Op("F", stage, j))
        data = self.data[chunk] if len(self.data) > 1 or len(self.stages) == 1 else None
        output, tokens = _call(
            forward_step,
            data_iterator=None if data is None else data.take(j),
            model=self.model[chunk],
            num_microbatches=self.instance.microbatches,
            input_tensor=given,
            forward_data_store=self.results.setdefault(j, []),
            config=self.config,
            cp_group_size=self.groups.cp.size(),
            is_first_microbatch=self.first and stage not in self.begun,
            current_microbatch=j,
            vp_stage=chunk if len(self.stages) > 1 else None,
            is_last_stage=stage == self.last,
            **self.options,
        )
        self.tokens = self.tokens + tokens
        self.begun.add(stage)
        if stage < self.last:
            here = stage + 1 in self.stages
            passed = output.detach()
            (self.came if here else self.to_send)["F", stage + here, j] = passed.requires_grad_() if here else passed
        if not self.forward_only:
            self.saved[stage, j] = given, output
            if stage < self.last:
                deallocate_output_tensor(output, self.config.deallocate_pipeline_outputs)

    def backward(self, op: Any) -> None:
        """A whole backward, or its part for the input."""
        from megatron.core.pipeline_parallel.schedules import backward_step

        stage, j = op.stage, op.microbatch
        if (stage, j) not in self.saved:
            raise RuntimeError(f"{op}: its F has not run")
        came = None if stage == self.last else self.input("B", stage, j, op)
        given, output = self.saved.pop((stage, j))
        self.left[stage] -= 1
        if not any(self.left.values()):
            self.no_sync.close()  # the last backward of this rank: reductions that overlap with it may begin
        whole = {"model_type": self.model_type, "config": self.config}
        if op.kind == "BW":
            gradient = _call(backward_step, given, output, came, **whole)
        elif stage == 0:  # nobody wants the gradient of the data, so W is the whole backward
            self.weights[stage, j] = lambda: _call(backward_step, given, output, came, **whole)
            return
        else:
            gradient = self.input_gradient(stage, j, given, output, came)
        if stage > 0:
            here = stage - 1 in self.stages
            (self.came if here else self.to_send)["B", stage - here, j] = gradient

    def input_gradient(self, stage: int, j: int, given: Any, output: Any, came: Any) -> Any:
        """Only the gradient of the input; what the weights need for theirs is kept."""
        from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

        if came is None and self.config.grad_scale_func is not None:
            output = self.config.grad_scale_func(output)
        if output._is_view():  # its graph is cut off in place below, which views do not allow
            output = output.clone()
        module = self.model[self.stages.index(stage)]
        grads = None if came is None else [came]
        (gradient,), groups = stage_backward_input([output], grads, [given], iter(list(module.parameters())))
        self.weights[stage, j] = lambda: _into_main(module, lambda: stage_backward_weight(module.parameters(), groups))
        return gradient

    def receive(self, action: Transfer) -> None:
        """Wait for a message and keep it."""
        import torch

        key = action.direction, action.stage, action.microbatch
        if key in self.came:
            raise RuntimeError(f"{action}: received twice before it is used")
        peer, lane = self.lane(action)
        if lane is not None:
            found = self.p2p._communicate(
                tensor_send_next=None,
                tensor_send_prev=None,
                recv_prev=lane == "prev",
                recv_next=lane == "next",
                tensor_shape=self.shape,
            )
            self.came[key] = found[0 if lane == "prev" else 1]
            return
        where = torch.cuda.current_device()
        buffer = torch.empty(self.shape, device=where, dtype=self.config.pipeline_dtype)
        torch.distributed.recv(buffer, src=peer, group=self.p2p.pp_group)
        self.came[key] = buffer.requires_grad_()

    def send(self, action: Transfer) -> None:
        """Send and wait until it has been received."""
        import torch

        key = action.direction, action.stage, action.microbatch
        if key not in self.to_send:
            raise RuntimeError(f"{action}: there is nothing to send")
        tensor = self.to_send.pop(key)
        peer, lane = self.lane(action)
        if lane is not None:
            self.p2p._communicate(
                tensor_send_next=tensor if lane == "next" else None,
                tensor_send_prev=tensor if lane == "prev" else None,
                recv_prev=False,
                recv_next=False,
                tensor_shape=None,
            )
        else:
            torch.distributed.send(tensor.contiguous(), dst=peer, group=self.p2p.pp_group)

    def lane(self, action: Transfer) -> tuple[int, str | None]:
        """The global rank at the other end, and which neighbour in Megatron's ring that is; None if it is none."""
        import torch

        ranks, other = self.instance.ranks, self.route[action.peer_stage]
        peer = torch.distributed.get_global_rank(self.p2p.pp_group, other)
        if other == (self.rank + 1) % ranks:
            return peer, "next"
        if other == (self.rank - 1) % ranks:
            return peer, "prev"
        if self.config.variable_seq_lengths:
            raise FormatError(f"{action}: messages of variable length go to neighbours only")
        return peer, None


def _forward(action: object) -> bool:
    return getattr(action, "kind", "") in ("F", "SEND_F", "RECV_F")


def _into_main(module: Any, make: Callable[[], object]) -> None:
    """Make weight gradients; if Megatron's data parallelism holds them elsewhere, add them there."""
    make()
    for parameter in module.parameters():
        main = getattr(parameter, "main_grad", None)
        if main is not None and parameter.grad is not None:
            main.add_(parameter.grad)
            parameter.grad = None


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call with those of the named arguments that this version of Megatron has."""
    known = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return function(*arguments, **named)
    return function(*arguments, **{name: value for name, value in named.items() if name in known})


def _groups(given: tuple[Any, Any], config: Any) -> tuple[Any, Any]:
    """Megatron's communicator and process groups: both given, or both from its global state."""
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
    from megatron.core.process_groups_config import ProcessGroupCollection

    communicator, groups = given
    if (communicator is None) != (groups is None):
        raise FormatError("p2p_communicator and pg_collection: give both or none")
    if communicator is not None:
        return communicator, groups
    groups = ProcessGroupCollection()
    groups.tp = parallel_state.get_tensor_model_parallel_group()
    groups.cp = parallel_state.get_context_parallel_group()
    groups.pp = parallel_state.get_pipeline_model_parallel_group()
    groups.embd = parallel_state.get_embedding_group(check_initialized=False)
    groups.pos_embd = parallel_state.get_position_embedding_group(check_initialized=False)
    groups.dp_cp = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=False)
    return P2PCommunicator(pp_group=groups.pp, config=config), groups
