"""Runs lists of nodes on ColossalAI's zero-bubble scheduler: one process per rank, gloo, CPU; with its own Python.

Reads one job (JSON) per line from standard input and answers each with one line (JSON). ColossalAI is loaded once; each
job forks its ranks from here. Nothing of this file is imported by the tests.

A job
-----
read
    Arguments of ColossalAI's own ``PipelineGraph``: the nodes that it makes are returned, nothing else done. Otherwise:
schedule
    A bubbleproof schedule file's text: `bubbleproof.runtimes.colossalai.nodes_for` makes the nodes, judged.
nodes
    Instead: the text of a file of nodes, unjudged.
scheduler
    ``stock`` or ``bubbleproof``.
overlap, layers, steps, seconds
    ``overlap_p2p``; layers on each stage; steps to run; for how long nothing moves before it counts as a hang.
own_layers
    Whether the layers are ColossalAI's own.

An answer
---------
outcome
    ``ok``, ``wrong`` (finished; gradients or losses differ), ``refused`` (before the first node), ``crash``, ``hang``.
error
    The first error's text. ``gradient_error`` and ``loss_error`` are the largest relative errors; ``waits`` tells at
    which node each rank stood if it hung.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import types
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist

ROWS, WIDTH = 4, 48  # of each microbatch; a tensor is larger than the text of its shape
LIMIT = 60  # seconds for all of a job; one in which nothing moves for its own time limit has hung

# ColossalAI 0.5.0 asks for a function that PyTorch for CPUs has not
if not hasattr(dist, "is_hccl_available"):
    dist.is_hccl_available = lambda: False
warnings.filterwarnings("ignore")
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what ColossalAI prints must not mix with the answers

import colossalai  # noqa: E402
from colossalai.pipeline.schedule import zero_bubble_pp  # noqa: E402, F401  # loaded before ranks are forked


def main() -> None:
    torch.set_num_threads(1)
    found = {"colossalai": version("colossalai"), "torch": torch.__version__, "python": sys.version.split()[0]}
    print(json.dumps(found), file=ANSWERS, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(own(job["read"]) if "read" in job else run(job)), file=ANSWERS, flush=True)


def own(arguments: dict) -> dict:
    """The nodes that ColossalAI itself makes."""
    from colossalai.pipeline.schedule.v_schedule import PipelineGraph

    from bubbleproof.runtimes.colossalai import read
    from bubbleproof.schedules.formats.scheduled_node import dumps

    return {"nodes": dumps(read(PipelineGraph(**arguments).get_v_schedule(), arguments["n_micro"], "get_v_schedule"))}


def run(job: dict) -> dict:
    """Fork the ranks of one job, wait for them under a deadline, and gather what they wrote."""
    folder = Path(tempfile.mkdtemp(prefix="pipeline-"))
    ranks = len(job["layers"]) // 2
    children = {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                code = one_rank(job, rank, ranks, folder)
            finally:
                os._exit(code)
        children[child] = rank
    left = awaited(job, children, folder)
    found = []
    for rank in range(ranks):
        path = folder / f"{rank}.json"
        nothing = {"outcome": "hang" if rank in left else "crash"}
        found.append(json.loads(path.read_text()) if path.exists() else nothing)
        stack = folder / f"{rank}.stack"
        if stack.exists() and stack.stat().st_size:
            found[-1]["stack"] = stack.read_text()[:4000]
        at = folder / f"{rank}.at"
        found[-1]["now"] = at.read_text().strip() if at.exists() else ""
    shutil.rmtree(folder, ignore_errors=True)
    return gathered(found)


def awaited(job: dict, children: dict, folder: Path) -> list[int]:
    """Wait for the ranks; those that are left when nothing has moved for the time limit are ended, and named."""
    begun = moved = time.monotonic()
    state = None
    while children and time.monotonic() - begun < LIMIT:
        child, _ = os.waitpid(-1, os.WNOHANG)
        children.pop(child, None)
        if child:
            continue
        now = [(path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.at"))], len(children)
        if now != state:
            state, moved = now, time.monotonic()
        if now[0] and time.monotonic() - moved > job["seconds"]:
            break
        time.sleep(0.01)
    left = list(children.values())
    for child in children:
        os.kill(child, signal.SIGUSR1)  # its stack
    time.sleep(0.2 if children else 0)
    for child in children:
        os.kill(child, signal.SIGKILL)  # all at once, so that none sees another one go
    for child in children:
        os.waitpid(child, 0)
    return left


def gathered(found: list[dict]) -> dict:
    """One outcome for all ranks: of errors the first in time tells what happened; the others only lost their peer."""
    failed = [one for one in found if one["outcome"] in ("refused", "crash", "hang")]
    order = ("crash", "refused", "hang")
    failed.sort(key=lambda one: (order.index(one["outcome"]), lost(one.get("error", "")), one.get("at", 1e18)))
    answer = {
        "outcome": failed[0]["outcome"] if failed else "ok",
        "error": failed[0].get("error", "") if failed else "",
        "gradient_error": max((one.get("gradient_error", 0.0) for one in found), default=0.0),
        "loss_error": max((one.get("loss_error", 0.0) for one in found), default=0.0),
        "stacks": {rank: one["stack"] for rank, one in enumerate(found) if "stack" in one},
        "waits": {rank: one["now"] for rank, one in enumerate(found) if one["outcome"] == "hang"},
    }
    if not failed and (answer["gradient_error"] > 1e-6 or answer["loss_error"] > 1e-6):
        answer["outcome"] = "wrong"
    return answer


def lost(error: str) -> bool:
    """Whether an error only shows that another rank has gone before."""
    return any(text in error for text in ("closed by peer", "Connection reset", "Broken pipe"))


class Block(torch.nn.Module):
    """A layer of a stage: with split weight gradients, or plain for the reference."""

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.kind = kind
        made = [torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2)]
        if kind == "bubbleproof":
            from bubbleproof.runtimes.colossalai import split_linear

            for at, plain in enumerate(made):
                made[at] = split_linear(WIDTH, WIDTH, dtype=torch.float64)
                made[at].load_state_dict(plain.state_dict())
        self.first, self.second = made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind != "colossalai":
            return self.second(torch.tanh(self.first(x)))
        linear_with_grad_accum = own_linear()
        inside = torch.tanh(linear_with_grad_accum(x, self.first.weight, self.first.bias, True, use_zbv=True))
        return linear_with_grad_accum(inside, self.second.weight, self.second.bias, True, use_zbv=True)


def own_linear() -> object:
    """ColossalAI's function for linear layers, without what its package imports beside it from many others."""
    for name in ("shardformer", "shardformer.layer"):
        if f"colossalai.{name}" not in sys.modules:
            package = types.ModuleType(f"colossalai.{name}")
            package.__path__ = [str(Path(colossalai.__file__).parent / name.replace(".", "/"))]
            sys.modules[package.__name__] = package
    from colossalai.shardformer.layer._operation import linear_with_grad_accum

    return linear_with_grad_accum


def blocks(job: dict, stage: int, kind: str) -> torch.nn.Sequential:
    """The layers of a stage, equal in every process."""
    return torch.nn.Sequential(*(Block(100 * stage + layer, kind) for layer in range(job["layers"][stage])))


class Chunks(torch.nn.Module):
    """What a rank holds: its two stages, one of which ``stage_index`` names."""

    def __init__(self, stages: list[torch.nn.Sequential]) -> None:
        super().__init__()
        self.stages = torch.nn.ModuleList(stages)

    def forward(self, x: torch.Tensor, y: torch.Tensor, stage_index: int, hidden: torch.Tensor | None = None) -> dict:
        return {"hidden": self.stages[stage_index](x if hidden is None else hidden)}


def batch_of(microbatches: int, step: int) -> dict:
    """The batch of a step."""
    generator = torch.Generator().manual_seed(step)
    size = microbatches * ROWS, WIDTH
    return {name: torch.randn(size, generator=generator, dtype=torch.float64) for name in ("x", "y")}


def loss_of(output: dict, batch: dict) -> torch.Tensor:
    if output["hidden"].shape != batch["y"].shape:
        raise ValueError("output and labels have different shapes")
    return torch.nn.functional.mse_loss(output["hidden"], batch["y"])


def one_rank(job: dict, rank: int, ranks: int, folder: Path) -> int:
    """One process; what it found goes to its own file."""
    answer: dict = {}
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.register(signal.SIGUSR1, file=stack)
    begun = [False]
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=LIMIT),
        )
        answer = trained(job, rank, ranks, folder, begun)
        dist.barrier()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        late = "imed out" in text or "imeout" in text
        kind = "hang" if late else "crash" if begun[0] else "refused"
        answer = {"outcome": kind, "error": text[:600], "at": time.monotonic()}
    (folder / f"{rank}.part").write_text(json.dumps(answer))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    return 0


def trained(job: dict, rank: int, ranks: int, folder: Path, begun: list[bool]) -> dict:
    """Run the steps and compare the gradients of the last one with the unpipelined model."""
    from colossalai.cluster import ProcessGroupMesh
    from colossalai.interface import OptimizerWrapper
    from colossalai.pipeline.stage_manager import PipelineStageManager

    from bubbleproof.runtimes.colossalai import nodes_for, scheduler
    from bubbleproof.schedules.formats.schedule_json import loads
    from bubbleproof.schedules.formats.scheduled_node import loads_nodes

    class Optimizer(OptimizerWrapper):
        """With the method that ColossalAI's plugins add; there is nothing to synchronize."""

        def no_sync(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

    manager = PipelineStageManager(ProcessGroupMesh(ranks), 0, enable_interleave=True, use_zbv=True, num_model_chunks=2)
    manager.stage_indices = [0, 1]
    if "schedule" in job:
        document = loads(job["schedule"], "job")
        nodes = nodes_for(document.schedule, document.instance)
    else:
        nodes = loads_nodes(job["nodes"], "job")
    stock = job["scheduler"] == "stock"
    runner = scheduler(nodes, manager, judge="schedule" in job, overlap_p2p=job.get("overlap", True), stock=stock)
    mine = [rank, 2 * ranks - 1 - rank]
    kind = "colossalai" if job.get("own_layers") else "bubbleproof"
    model = Chunks([blocks(job, stage, kind) for stage in mine])
    optimizer = Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    follow(runner, folder / f"{rank}.at", begun)
    losses = []
    for step in range(job.get("steps", 1)):
        model.zero_grad(set_to_none=True)
        batch = batch_of(nodes.microbatches, step)
        seen = runner.forward_backward_step(model, iter([batch]), loss_of, optimizer, return_loss=True)
        if rank == 0:
            losses.append(float(seen["loss"]))
    return compared(job, nodes.microbatches, [model.stages[chunk] for chunk in (0, 1)], mine, losses)


def follow(runner: object, path: Path, begun: list[bool]) -> None:
    """Keep on disk at which node the scheduler stands."""

    class Told(list):
        def __getitem__(self, at: int) -> object:
            node = super().__getitem__(at)
            begun[0] = True
            path.write_text(f"{node.type} chunk {node.chunk} microbatch {node.minibatch} at {at}")
            return node

    path.write_text("the beginning")
    runner.schedules = [Told(row) for row in runner.schedules]


def compared(job: dict, microbatches: int, stages: list, mine: list[int], losses: list[float]) -> dict:
    """The largest relative errors of the gradients of the last step and of the losses."""
    whole = [blocks(job, stage, "plain") for stage in range(len(job["layers"]))]
    wanted = []
    for step in range(job.get("steps", 1)):
        batch = batch_of(microbatches, step)
        for each in whole:
            each.zero_grad(set_to_none=True)
        total = loss_of({"hidden": torch.nn.Sequential(*whole)(batch["x"])}, batch)
        total.backward()
        wanted.append(total.item())
    worst = 0.0
    for have, stage in zip(stages, mine, strict=True):
        for one, other in zip(have.parameters(), whole[stage].parameters(), strict=True):
            gradient = torch.zeros_like(other) if one.grad is None else one.grad
            worst = max(worst, relative(gradient, other.grad))
    error = (
        max((abs(have - want) / abs(want) for have, want in zip(losses, wanted, strict=True)), default=0.0)
        if losses
        else 0.0
    )
    return {"outcome": "ok", "gradient_error": worst, "loss_error": error if error < 1e30 else 1e30}


def relative(have: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference over largest magnitude; 1e30 for what is no number."""
    value = float((have - want).abs().max() / want.abs().max().clamp_min(1e-300))
    return value if value < 1e30 else 1e30


if __name__ == "__main__":
    main()
