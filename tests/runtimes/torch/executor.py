"""Runs schedules on torch.distributed.pipelining: one process per rank, gloo, CPU; started with torch's own Python.

Reads one job (JSON) per line from standard input and answers each with one line (JSON). torch is loaded once; each job
forks its ranks from here, so a small job takes a fraction of a second. Nothing of this file is imported by the tests.

A job
-----
schedule
    A bubbleproof schedule file's text: the ranks call `bubbleproof.runtimes.torch.build`.
csv, format
    Instead: the text of a CSV for torch's own reader, and ``compute_only`` or ``compute_comms``.
defer
    With a compute-only CSV: lower with torch's deferred receives.
simulate
    Ask torch's simulator of messages first; the answer has ``simulated``: ``accepted`` or its error, of the rows as
    they are and without reductions and gathers.
evaluate
    Call ``eval`` instead of ``step``; only losses are compared.
timed
    In single precision and without a reference: only the seconds of each step, and with it ``ops``, the seconds of each
    forward and backward of a stage, waiting for messages not included.
dump
    Instead of all this: name, ranks and microbatches of one of torch's orders; the answer has its text, ``csv``.
stages, microbatches, rank_of_stage, scale_grads
    The launch.
hidden
    Width inside each stage, one per stage; the number of Linear layers differs with `layers`.
steps, seconds
    Steps to run, and the time limit.

An answer
---------
outcome
    ``ok``, ``wrong`` (finished, gradients or losses differ), ``refused`` (at load), ``crash``, ``hang``.
error
    The largest relative error of a gradient, of losses; the first error text; where each rank stood if it hung.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH = 8
ROWS = 2  # of the batch, per microbatch


def main() -> None:
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what torch prints must not mix with the answers
    print(json.dumps({"torch": torch.__version__, "python": sys.version.split()[0]}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=out, flush=True)


def run(job: dict) -> dict:
    """Fork the ranks of one job, wait for them under a deadline, and gather what they wrote."""
    if "dump" in job:
        from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

        rows = get_schedule_ops(*job["dump"])
        kept = [[str(action) for action in row if action and "REDUCE_GRAD" not in str(action)] for row in rows]
        return {"outcome": "ok", "csv": "".join(",".join(row) + "\n" for row in kept)}
    folder = Path(tempfile.mkdtemp(prefix="pipeline-"))
    ranks = 1 + max(job["rank_of_stage"])
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
    deadline = time.monotonic() + job["seconds"] + 4
    while children and time.monotonic() < deadline:
        child, _ = os.waitpid(-1, os.WNOHANG)
        children.pop(child, None)
        if not child:
            time.sleep(0.01)
    left = list(children.values())
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = []
    for rank in range(ranks):
        path = folder / f"{rank}.json"
        nothing = {"outcome": "hang" if rank in left else "crash"}
        found.append(json.loads(path.read_text()) if path.exists() else nothing)
        stack = folder / f"{rank}.stack"
        if stack.exists() and stack.stat().st_size:
            found[-1]["stack"] = stack.read_text()[:4000]
    shutil.rmtree(folder, ignore_errors=True)
    return gathered(found)


def gathered(found: list[dict]) -> dict:
    """One outcome for all ranks: of errors the first in time tells what happened; the others only lost their peer."""
    failed = [one for one in found if one["outcome"] in ("refused", "crash", "hang")]
    # a lost connection only shows that the peer has failed before, be it by its own time limit
    failed.sort(key=lambda one: ("closed by peer" in one.get("error", ""), one.get("at", 1e18)))
    answer = {
        "outcome": failed[0]["outcome"] if failed else "ok",
        "error": failed[0].get("error", "") if failed else "",
        "gradient_error": max((one.get("gradient_error", 0.0) for one in found), default=0.0),
        "loss_error": max((one.get("loss_error", 0.0) for one in found), default=0.0),
        "missing": sorted({name for one in found for name in one.get("missing", ())}),
        "stacks": {rank: one["stack"] for rank, one in enumerate(found) if "stack" in one},
        "simulated": found[0].get("simulated", []),
        "ops": {name: times for one in found for name, times in one.get("ops", {}).items()},
        "step_seconds": [max(times) for times in zip(*(one.get("step_seconds", []) for one in found), strict=False)],
    }
    if not failed and (answer["gradient_error"] > 1e-6 or answer["loss_error"] > 1e-6 or answer["missing"]):
        answer["outcome"] = "wrong"
    return answer


def blocks(job: dict, dtype: torch.dtype) -> list[torch.nn.Module]:
    """The modules of all stages, equal in every process."""
    made = []
    width = job.get("width", WIDTH)
    for stage, hidden in enumerate(job["hidden"]):
        torch.manual_seed(100 + stage)
        layers = job.get("layers", [1] * len(job["hidden"]))[stage]
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(width, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, width)]
        made.append(torch.nn.Sequential(*parts).to(dtype))
    return made


def batch(job: dict, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shape = (job["microbatches"] * job.get("rows", ROWS), job.get("width", WIDTH))
    return torch.randn(shape, generator=generator, dtype=dtype), torch.randn(shape, generator=generator, dtype=dtype)


def one_rank(job: dict, rank: int, ranks: int, folder: Path) -> int:
    """One process of the pipeline; what it found goes to its own file."""
    answer: dict = {}
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.dump_traceback_later(job["seconds"] + 1, file=stack)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=job["seconds"]),
    )
    loaded = False
    try:
        dtype = torch.float32 if job.get("timed") else torch.float64
        # torch 2.9 greets its neighbours with an integer of 8 bytes into a buffer of the default type: gloo aborts on 4
        torch.set_default_dtype(dtype)
        modules = blocks(job, dtype)
        stages = [
            PipelineStage(modules[stage], stage, len(modules), torch.device("cpu"))
            for stage, where in enumerate(job["rank_of_stage"])
            if where == rank
        ]
        seconds: dict[str, list[float]] = {}
        if job.get("timed"):
            for stage in stages:
                watch(stage, seconds)
        schedule = prepared(job, stages, folder, rank)
        loaded = True
        simulated = asked(schedule) if job.get("simulate") else []
        answer = {**trained(job, schedule, stages, modules, dtype), "simulated": simulated, "ops": seconds}
        dist.barrier()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        late = "imed out" in text or "imeout" in text
        kind = "hang" if late else "crash" if loaded else "refused"
        answer = {"outcome": kind, "error": text[:600], "at": time.monotonic()}
    (folder / f"{rank}.part").write_text(json.dumps(answer))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    return 0


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


def prepared(job: dict, stages: list, folder: Path, rank: int) -> _PipelineScheduleRuntime:
    """The schedule object, loaded the way the job asks for."""
    if "schedule" in job:
        from bubbleproof.runtimes.torch import build
        from bubbleproof.schedules.formats.schedule_json import loads

        document = loads(job["schedule"], "job")
        return build(
            document.schedule,
            document.instance,
            stages,
            loss_of,
            scale_grads=job["scale_grads"],
            communication=job.get("communication", "torch"),
        )
    path = folder / f"{rank}.csv"
    path.write_text(job["csv"])
    more = {"defer_pp_recv": True} if job.get("defer") else {}
    made = _PipelineScheduleRuntime(
        stages, job["microbatches"], loss_fn=loss_of, scale_grads=job["scale_grads"], **more
    )
    made._load_csv(str(path), format=job["format"])
    return made


def watch(stage: PipelineStage, seconds: dict[str, list[float]]) -> None:
    """Take the time of what a stage computes; torch waits for messages outside of these calls."""

    def timed(name: str, letter: object) -> None:
        inner = getattr(stage, name)

        def outer(*positional: object, **named: object) -> object:
            begun = time.perf_counter()
            result = inner(*positional, **named)
            kind = letter(named) if callable(letter) else letter
            seconds.setdefault(f"{stage.stage_index}{kind}", []).append(time.perf_counter() - begun)
            return result

        setattr(stage, name, outer)

    timed("forward_one_chunk", "F")
    timed("backward_one_chunk", lambda named: "B" if named.get("full_backward", True) else "I")
    timed("backward_weight_one_chunk", "W")


def asked(schedule: _PipelineScheduleRuntime) -> list[str]:
    """What torch's simulator says of the loaded rows, as they are and without reductions and gathers."""
    from torch.distributed.pipelining.schedules import _simulate_comms_compute

    said = []
    rows = schedule.pipeline_order_with_comms
    computing = {
        rank: [action for action in row if not str(action).endswith(("REDUCE_GRAD", "UNSHARD", "RESHARD"))]
        for rank, row in rows.items()
    }
    for each in (rows, computing):
        try:
            _simulate_comms_compute(each, lambda stage: schedule.stage_index_to_group_rank[stage], schedule._num_stages)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}"[:200])
        else:
            said.append("accepted")
    return said


def trained(job: dict, schedule: object, stages: list, modules: list, dtype: torch.dtype) -> dict:
    """Run the steps and compare with the unpipelined model."""
    inputs, targets = batch(job, dtype)
    mine = [stage.stage_index for stage in stages]
    last = len(modules) - 1
    losses: list = []
    times = []
    for _ in range(job.get("steps", 1)):
        for module in modules:
            module.zero_grad()
        losses.clear()
        dist.barrier()
        begun = time.perf_counter()
        more = {"target": targets, "losses": losses} if last in mine else {}
        run = schedule.eval if job.get("evaluate") else schedule.step
        run(*((inputs,) if 0 in mine else ()), **more)
        times.append(time.perf_counter() - begun)
    if job.get("timed"):
        return {"outcome": "ok", "step_seconds": times}
    reference = blocks(job, dtype)
    expected = []
    count = job["microbatches"]
    for part, want in zip(inputs.chunk(count), targets.chunk(count), strict=True):
        value = part
        for module in reference:
            value = module(value)
        loss = loss_of(value, want)
        expected.append(loss.detach())
        (loss / count if job["scale_grads"] else loss).backward()
    worst, missing = 0.0, []
    for stage in () if job.get("evaluate") else mine:
        for (name, have), want in zip(modules[stage].named_parameters(), reference[stage].parameters(), strict=True):
            if have.grad is None:
                missing.append(f"{stage}.{name}")
                continue
            worst = max(worst, relative(have.grad, want.grad))
    answer = {"outcome": "ok", "gradient_error": worst, "missing": missing, "step_seconds": times}
    if last in mine:
        same = len(losses) == count
        answer["loss_error"] = relative(torch.stack(losses).detach(), torch.stack(expected)) if same else 1.0
    return answer


def relative(have: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference over largest magnitude; 1e30 for what is no number."""
    value = float((have - want).abs().max() / want.abs().max().clamp_min(1e-300))
    return value if value == value and value < 1e30 else 1e30


if __name__ == "__main__":
    main()
