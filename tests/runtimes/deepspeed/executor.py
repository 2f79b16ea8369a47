"""Runs streams of instructions on DeepSpeed's pipeline engine: one process per rank, gloo, CPU; with its own Python.

Reads one job (JSON) per line from standard input and answers each with one line (JSON). DeepSpeed is loaded once; each
job forks its ranks from here. Nothing of this file is imported by the tests.

A job
-----
read
    Ranks and microbatches, and whether it is a vee: DeepSpeed's own schedule is returned, nothing else done. Otherwise:
schedule
    A bubbleproof schedule file's text: the ranks call `bubbleproof.runtimes.deepspeed.streams_for` and ``initialize``.
streams, engine
    Instead: the text of a file of streams, unjudged, and ``stock`` or ``bubbleproof`` for the engine that runs them;
    without streams ``stock`` runs DeepSpeed's own schedule.
microbatches, layers, widths
    Gradient accumulation steps; layers on each stage; width of the tensors between stages (one more than stages).
replicas, steps, seconds
    Data-parallel replicas, steps to run, and for how long nothing moves before it counts as a hang.
config
    More of DeepSpeed's configuration.
vee, view, float32
    Whether rank r holds stages r and 2p − 1 − r; whether each stage ends with an op whose output is a view; whether to
    train in float32 instead of float64.

An answer
---------
outcome
    ``ok``, ``wrong`` (finished; weights or losses differ), ``refused`` (before the step), ``crash``, ``hang``.
error
    The first error's text. ``gradient_error`` and ``loss_error`` are the largest relative errors of the change of a
    weight (in float32 of its gradient in the first step), and of the loss that the engine reports; ``waits`` tells at
    which instruction each rank stood if it hung.
"""

from __future__ import annotations

import datetime
import faulthandler
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import deepspeed
import torch

ROWS = 2  # of each microbatch
RATE, MOMENTUM = 0.5, 0.9
LIMIT = 60  # seconds for all of a job; one in which nothing moves for its own time limit has hung


def main() -> None:
    torch.set_num_threads(1)
    # without this DeepSpeed compiles a kernel for shared memory in each process; it is not used for messages
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed reduces gradients of the types that its accelerator names; on a CPU float64 is not among them, and the
    # jobs with ``float32`` run without this
    accelerator = deepspeed.accelerator.get_accelerator()
    named = accelerator.supported_dtypes()
    accelerator.supported_dtypes = lambda: [*named, torch.float64]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what DeepSpeed prints must not mix with the answers
    versions = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(printed(*job["read"]) if "read" in job else run(job)), file=out, flush=True)


def printed(stages: int, microbatches: int, vee: bool = False) -> dict:
    """DeepSpeed's own training schedule, read from its objects, and as it prints itself."""
    from deepspeed.runtime.pipe.schedule import DualPipeVSchedule, TrainSchedule

    from bubbleproof.runtimes.deepspeed import read
    from bubbleproof.schedules.formats.deepspeed import dumps

    kind = DualPipeVSchedule if vee else TrainSchedule
    made = [kind(microbatches, stages, stage) for stage in range(stages)]
    lines = [line for stage, each in enumerate(made) for line in (f"stage {stage}", *map(str, each.steps()))]
    return {"streams": dumps(read(made)), "text": "\n".join(lines)}


def run(job: dict) -> dict:
    """Fork the ranks of one job, wait for them under a deadline, and gather what they wrote."""
    folder = Path(tempfile.mkdtemp(prefix="pipeline-"))
    ranks = stages_of(job) * job.get("replicas", 1)
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


def stages_of(job: dict) -> int:
    """How many ranks one replica has."""
    return len(job["layers"]) // (2 if job.get("vee") else 1)


def awaited(job: dict, children: dict, folder: Path) -> list[int]:
    """Wait for the ranks; those that are left when nothing has moved for the time limit are ended, and named."""
    ranks = len(children)
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
        begun_all = len(now[0]) == ranks or len(children) < ranks  # while some still start, the others may well wait
        if begun_all and time.monotonic() - moved > job["seconds"]:
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
    failed.sort(key=lambda one: (lost(one.get("error", "")), one.get("at", 1e18)))
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
    """Whether an error only shows that another rank has gone before, be it by its own time limit."""
    return any(text in error for text in ("closed by peer", "Connection reset", "Broken pipe"))


class Block(torch.nn.Module):
    """A layer of a stage."""

    def __init__(self, seed: int, width: int, out: int, view: bool) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(width, 9), torch.nn.Tanh(), torch.nn.Linear(9, out))
        self.view = view

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.net(x)
        return made.view(made.shape) if self.view else made


def layers_of(job: dict) -> list[Block]:
    """The layers of all stages, equal in every process; the last one of a stage makes what the next stage takes."""
    made: list[Block] = []
    widths = job.get("widths", [8] * (len(job["layers"]) + 1))
    for stage, count in enumerate(job["layers"]):
        for layer in range(count):
            out = widths[stage + 1] if layer == count - 1 else widths[stage]
            block = Block(100 * stage + layer, widths[stage], out, bool(job.get("view")))
            made.append(block.to(type_of(job)))
    return made


def type_of(job: dict) -> torch.dtype:
    return torch.float32 if job.get("float32") else torch.float64


def batches(job: dict, replica: int, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The microbatches of one replica in one step."""
    widths = job.get("widths", [8] * (len(job["layers"]) + 1))
    generator = torch.Generator().manual_seed(1000 * step + replica)
    return [
        tuple(
            torch.randn(ROWS, width, generator=generator, dtype=torch.float64).to(type_of(job))
            for width in (widths[0], widths[-1])
        )
        for _ in range(job["microbatches"])
    ]


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


def one_rank(job: dict, rank: int, ranks: int, folder: Path) -> int:
    """One process; what it found goes to its own file."""
    answer: dict = {}
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.register(signal.SIGUSR1, file=stack)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    loaded = [False]
    try:
        deepspeed.init_distributed(
            dist_backend="gloo",
            auto_mpi_discovery=False,
            verbose=False,
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=LIMIT),
        )
        answer = trained(job, rank, folder, loaded)
        deepspeed.comm.barrier()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        late = "imed out" in text or "imeout" in text
        kind = "hang" if late else "crash" if loaded[0] else "refused"
        answer = {"outcome": kind, "error": text[:600], "at": time.monotonic()}
    (folder / f"{rank}.part").write_text(json.dumps(answer))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    return 0


def prepared(job: dict, module: object, parameters: list) -> object:
    """The engine, made the way the job asks for."""
    from bubbleproof.runtimes.deepspeed import initialize, pipe_schedule, streams_for
    from bubbleproof.schedules.formats.deepspeed import loads_streams
    from bubbleproof.schedules.formats.schedule_json import loads

    config = {
        "train_micro_batch_size_per_gpu": ROWS,
        "gradient_accumulation_steps": job["microbatches"],
        "gradient_clipping": 0.0,
        "steps_per_print": 1 << 30,
        **job.get("config", {}),
    }
    optimizer = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM)
    if "schedule" in job:
        document = loads(job["schedule"], "job")
        streams = streams_for(document.schedule, document.instance)
        return initialize(streams, model=module, config=config, optimizer=optimizer)[0]
    streams = loads_streams(job["streams"], "job") if "streams" in job else None
    if job["engine"] == "bubbleproof":
        return initialize(streams, model=module, config=config, optimizer=optimizer, judge=False)[0]
    engine = deepspeed.initialize(model=module, config=config, optimizer=optimizer, model_parameters=parameters)[0]
    if streams is not None:
        engine._train_schedule = lambda: pipe_schedule(streams, engine.stage_id)
    return engine


def trained(job: dict, rank: int, folder: Path, loaded: list[bool]) -> dict:
    """Run the steps and compare with the unpipelined model."""
    from bubbleproof.runtimes.deepspeed import pipeline_module

    layers = layers_of(job)
    bounds = [0, *itertools.accumulate(job["layers"])]
    module = pipeline_module(layers, bounds, vee=bool(job.get("vee")), loss_fn=loss_of)
    engine = prepared(job, module, [each for each in module.parameters() if each.requires_grad])
    engine.communication_data_type = type_of(job)
    follow(engine, folder / f"{rank}.at")
    replica = engine.grid.get_data_parallel_rank()
    held = [engine.stage_id, *([len(job["layers"]) - 1 - engine.stage_id] if job.get("vee") else [])]
    mine = [layer for stage in held for layer in range(bounds[stage], bounds[stage + 1])]
    gradients: list = []
    engine.optimizer.register_step_pre_hook(
        lambda *_: gradients.append([None if each.grad is None else each.grad.clone() for each in module.parameters()])
    )
    (folder / f"{rank}.at").write_text("the start")
    loaded[0] = True
    steps = range(job.get("steps", 1))
    reported = [float(engine.train_batch(data_iter=iter(batches(job, replica, step)))) for step in steps]
    wanted, losses = reference(job)
    start = layers_of(job)
    changes = []
    for index in mine:
        for have, want, old in zip(
            layers[index].parameters(), wanted[index].parameters(), start[index].parameters(), strict=True
        ):
            changes.append((have.detach() - old.detach(), want.detach() - old.detach()))
    if job.get("float32"):  # differences of weights would have too few digits
        changes = [(have, -want / RATE) for have, (_, want) in zip(gradients[0], changes, strict=True)]
    worst = max(relative(have, want) for have, want in changes)
    loss_error = max(abs(have - want) / abs(want) for have, want in zip(reported, losses, strict=True))
    return {"outcome": "ok", "gradient_error": worst, "loss_error": loss_error}


def follow(engine: object, path: Path) -> None:
    """Keep on disk at which instruction the engine stands."""

    def followed(kind: type, does: object) -> object:
        def told(self: object, **given: object) -> object:
            path.write_text(f"{kind.__name__}({', '.join(f'{key}={value}' for key, value in given.items())})")
            return does(self, **given)

        return told

    engine._INSTRUCTION_MAP = {kind: followed(kind, does) for kind, does in engine._INSTRUCTION_MAP.items()}


def reference(job: dict) -> tuple[list[Block], list[float]]:
    """The same training without a pipeline, and the loss of each step."""
    layers = [layer.double() for layer in layers_of(job)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for step in range(job.get("steps", 1)):
        replicas = [
            [(x.double(), y.double()) for x, y in batches(job, replica, step)]
            for replica in range(job.get("replicas", 1))
        ]
        count = sum(map(len, replicas))
        total = sum(loss_of(model(x), y) for data in replicas for x, y in data) / count
        model.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return layers, losses


def relative(have: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference over largest magnitude; 1e30 for what is no number."""
    value = float((have - want).abs().max() / want.abs().max().clamp_min(1e-300))
    return value if value < 1e30 else 1e30


if __name__ == "__main__":
    main()
