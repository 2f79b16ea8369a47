"""ColossalAI: its scheduler for zero-bubble pipelines, given a schedule of ours.

`scheduler` makes a ``ZeroBubbleVPipeScheduler``, or a subclass of it that takes any number of microbatches and of
steps, and notices missing weight gradients; nothing of ColossalAI is replaced. `scheduled_nodes` makes the lists that
its hybrid plugin takes as ``scheduler_nodes``. `split_linear` is a layer whose weight gradients come with W: those of
ColossalAI's own layers (0.5.0) are added up only with a fused kernel for GPUs (docs/findings.md).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import scheduled_node
from bubbleproof.schedules.nodes import NodeLists

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["nodes_for", "read", "scheduled_nodes", "scheduler", "split_linear"]


def nodes_for(schedule: Schedule, instance: Instance) -> NodeLists:
    """The nodes of a schedule, judged by what the scheduler of `scheduler` does with them.

    Raises
    ------
    FormatError
        ColossalAI cannot express the schedule, or the judge refuses it.
    """
    from bubbleproof.schedules.lower import lower
    from bubbleproof.schedules.timeline import replay
    from bubbleproof.verify import Verdict, verify, verify_program
    from bubbleproof.verify.runtimes.colossalai import predict

    scheduled_node.refuse(schedule, instance, "colossalai")
    report = verify(schedule, instance)
    if report.verdict is Verdict.PROVED:
        program = lower(schedule, instance, reduce=False, blocking=True)
        nodes = scheduled_node.nodes_of(program, instance, "colossalai", replay(schedule, instance))
        said = predict(nodes, scheduler="bubbleproof", overlap=False)
        report = verify_program(program, instance, channel="rendezvous-rank", prediction=said)
        if report.verdict is Verdict.PROVED:
            return nodes
    raise FormatError(f"not for ColossalAI: {report.violations[0] if report.violations else report.verdict.value}")


def scheduled_nodes(nodes: NodeLists) -> list[list[Any]]:
    """ColossalAI's own ``ScheduledNode`` objects, a list for each rank.

    Raises
    ------
    FormatError
        The nodes are for another runtime.
    ImportError
        ColossalAI is not installed.
    """
    if nodes.dialect != "colossalai":
        raise FormatError(f"the nodes are for {nodes.dialect}, not for ColossalAI")
    from colossalai.pipeline.schedule.v_schedule import ScheduledNode

    return [
        [
            ScheduledNode(
                type=node.type,
                chunk=node.chunk,
                stage=rank,
                minibatch=node.microbatch,
                start_time=node.start,
                completion_time=node.end,
            )
            for node in row
        ]
        for rank, row in enumerate(nodes.rows)
    ]


def scheduler(
    nodes: NodeLists, stage_manager: Any, *, judge: bool = True, overlap_p2p: bool = True, stock: bool = False
) -> Any:
    """A scheduler of ColossalAI that runs the nodes; all ranks need the same.

    Parameters
    ----------
    stage_manager
        A ``PipelineStageManager`` with ``use_zbv=True`` and two model chunks.
    judge
        Refuse nodes that would not train right. Without it they run, to whatever end.
    overlap_p2p
        As for ColossalAI's class.
    stock
        ColossalAI's class itself, which wants a multiple of the ranks as the number of microbatches and does not
        notice a missing W.

    Raises
    ------
    FormatError
        The nodes would not train right, or are for another number of ranks.
    ImportError
        ColossalAI is not installed.
    """
    from bubbleproof.verify.runtimes.colossalai import predict

    if judge:
        said = predict(nodes, scheduler="stock" if stock else "bubbleproof", overlap=overlap_p2p)
        if said.outcome != "ok":
            raise FormatError(f"not for ColossalAI: {said.outcome}: {said.reason}")
    if stage_manager.num_stages != nodes.ranks:
        raise FormatError(f"the nodes are for {nodes.ranks} ranks, the stage manager has {stage_manager.num_stages}")
    known = _classes()
    return (known.Stock if stock else known.Own)(
        stage_manager=stage_manager,
        schedule=scheduled_nodes(nodes),
        num_model_chunks=2,
        num_microbatch=nodes.microbatches,
        overlap_p2p=overlap_p2p,
    )


def read(lists: Any, microbatches: int | None = None, name: str = "") -> NodeLists:
    """The nodes of ColossalAI's own objects, such as ``PipelineGraph.get_v_schedule()`` makes."""
    from dataclasses import asdict

    from bubbleproof.schedules.formats.scheduled_node_fields import decoded, placed

    rows = [[asdict(node) for node in row] for row in lists]
    return decoded("colossalai", rows, placed("colossalai", rows, "nodes"), microbatches, "nodes", name)


def split_linear(features: int, out: int, *, bias: bool = True, dtype: Any = None) -> Any:
    """A linear layer that leaves the gradient of its weight to W; that of its bias comes with B."""
    return _classes().Linear(features, out, bias=bias, dtype=dtype)


class _Classes(NamedTuple):
    Stock: Any
    Own: Any
    Linear: Any


@cache
def _classes() -> _Classes:
    """Classes on top of ColossalAI's and PyTorch's, which exist only where these are installed."""
    import torch
    from colossalai.pipeline.schedule.zero_bubble_pp import ZeroBubbleVPipeScheduler
    from colossalai.pipeline.weight_grad_store import WeightGradStore

    class NodeScheduler(ZeroBubbleVPipeScheduler):  # type: ignore[misc]  # ColossalAI has no types
        """ColossalAI's scheduler for any number of microbatches, which raises if weight gradients are left."""

        forward_only: Any
        num_microbatch: Any

        def load_batch(self, data_iter: Any, device: Any = None) -> None:
            if self.forward_only:
                super().load_batch(data_iter, device)
                return
            # only where nothing but forwards run does ColossalAI accept any number; both count microbatches alike
            self.forward_only = True
            wanted = self.num_microbatch
            try:
                batch = next(data_iter)
                rows = len(next(each for each in torch.utils._pytree.tree_leaves(batch) if torch.is_tensor(each)))
                if rows % wanted:
                    raise FormatError(f"a batch of {rows} rows is not {wanted} equal microbatches")
                self.microbatch_size = rows // wanted
                super().load_batch(iter([batch]), device)
            finally:
                self.forward_only = False
                self.num_microbatch = wanted

        def run_forward_backward(self, *args: Any, **options: Any) -> Any:
            self.wait_handles: list[Any] = []  # ColossalAI's grows from step to step
            result = super().run_forward_backward(*args, **options)
            left = [queue.qsize() for queue in WeightGradStore.weight_grad_queue]
            if any(left):
                raise RuntimeError(f"a W is missing: weight gradients of {left} microbatches are left, by chunk")
            return result

    class LaterWeight(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not there where types are checked
        """A linear map whose backward puts the gradient of its weight off."""

        @staticmethod
        def forward(ctx: Any, given: Any, weight: Any, bias: Any) -> Any:
            ctx.save_for_backward(given)
            ctx.weight, ctx.has_bias = weight, bias is not None
            return torch.nn.functional.linear(given, weight, bias)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (gradient,), (given,) = gradients, ctx.saved_tensors
            flat = gradient.reshape(-1, gradient.shape[-1])
            WeightGradStore.put(given.reshape(-1, given.shape[-1]), flat, ctx.weight, added)
            return gradient.matmul(ctx.weight), None, flat.sum(0) if ctx.has_bias else None

    def added(given: Any, gradient: Any, held: Any = None) -> Any:
        """The gradient of the weight, or that added to what is held."""
        found = gradient.t().matmul(given)
        return found if held is None else held.add_(found)

    class SplitLinear(torch.nn.Linear):  # type: ignore[misc]
        """A linear layer for split backwards."""

        def forward(self, given: Any) -> Any:
            return LaterWeight.apply(given, self.weight, self.bias)

    return _Classes(ZeroBubbleVPipeScheduler, NodeScheduler, SplitLinear)
