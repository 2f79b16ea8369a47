"""Runs schedules on Megatron-core: one process per rank, gloo, CPU; started with the environment's own Python.

Reads one job (JSON) per line from standard input and answers each with one line (JSON). Megatron-core asks for CUDA
devices; here they are CPU devices by the shims of `on_cpu`. Models are plain modules that speak Megatron's protocol
(``config``, ``model_type``, ``set_input_tensor``); its own layers and Transformer Engine are not used.

A job
-----
program, unchecked
    The text of a program file: run by `bubbleproof.runtimes.megatron.unchecked`.
schedule
    Instead: the text of a schedule file, run by `forward_backward_func`.
stock
    Instead: N, with Megatron's own function; ``microbatches`` and ``rank_of_stage`` are the launch.
layouts
    Instead: pairs of a pipeline layout and a number of ranks, for Megatron's own class.
layers, seconds
    Linear layers of each stage; the time limit.

An answer: ``outcome`` (ok, wrong, hang, crash, refused), ``error``, ``gradient_error``, ``loss_error``, ``trace`` (the
ops of each rank as they ran), ``stacks``.
"""

from __future__ import annotations

import datetime
import faulthandler
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import megatron.core  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

LENGTH, SAMPLES, WIDTH = 3, 2, 8


def main() -> None:
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Megatron prints must not mix with the answers
    versions = {"megatron-core": megatron.core.__version__, "torch": torch.__version__}
    print(json.dumps(versions), file=out, flush=True)
    on_cpu()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=out, flush=True)


def on_cpu() -> None:
    """Let Megatron's calls about CUDA devices mean the CPU."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.set_device = lambda *_: None
    for name in ("zeros", "empty", "ones", "tensor"):
        made = getattr(torch, name)

        @functools.wraps(made)
        def on_the_cpu(*given, made=made, **more):
            if more.get("device") == "cuda":
                more["device"] = "cpu"
            return made(*given, **more)

        setattr(torch, name, on_the_cpu)


def asked_about_layouts(job: dict) -> dict:
    """What Megatron's own class says of pipeline layouts: its decoder layers by stage, or why it refuses them."""
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    answers = []
    for text, ranks in job["layouts"]:
        try:
            made = PipelineParallelLayerLayout(text, ranks)
            flat = made.flatten_layout
            made.validate_layer_layout(flat.count(LayerType.decoder), flat.count(LayerType.mtp))
        except (AssertionError, IndexError, NotImplementedError) as error:
            answers.append({"refused": f"{type(error).__name__}: {error}"[:200]})
            continue
        chunks = range(made.virtual_pipeline_model_parallel_size)
        stages = [made.layout[rank][chunk] for chunk in chunks for rank in range(ranks)]
        answers.append({"layers": [stage.count(LayerType.decoder) for stage in stages]})
    return {"outcome": "ok", "layouts": answers}


def run(job: dict) -> dict:
    """Fork the ranks of one job, wait for them under a deadline, and gather what they wrote."""
    if "layouts" in job:
        return asked_about_layouts(job)
    folder = Path(tempfile.mkdtemp(prefix="megatron-"))
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
        path, stack = folder / f"{rank}.json", folder / f"{rank}.stack"
        nothing = {"outcome": "hang" if rank in left else "crash"}
        found.append(json.loads(path.read_text()) if path.exists() else nothing)
        if stack.exists() and stack.stat().st_size:
            found[-1]["stack"] = stack.read_text()[:4000]
    shutil.rmtree(folder, ignore_errors=True)
    return gathered(found)


def gathered(found: list[dict]) -> dict:
    """One outcome for all ranks: of errors the first in time tells what happened; the others only lost their peer."""
    failed = [one for one in found if one["outcome"] in ("refused", "crash", "hang")]
    failed.sort(key=lambda one: ("closed by peer" in one.get("error", ""), one.get("at", 1e18)))
    answer = {
        "outcome": failed[0]["outcome"] if failed else "ok",
        "error": failed[0].get("error", "") if failed else "",
        "gradient_error": max((one.get("gradient_error", 0.0) for one in found), default=0.0),
        "loss_error": max((one.get("loss_error", 0.0) for one in found), default=0.0),
        "trace": [one.get("trace", []) for one in found],
        "stacks": {rank: one["stack"] for rank, one in enumerate(found) if "stack" in one},
    }
    if not failed and max(answer["gradient_error"], answer["loss_error"]) > 1e-6:
        answer["outcome"] = "wrong"
    return answer


class Chunk(torch.nn.Module):
    """A stage that speaks Megatron's protocol."""

    def __init__(self, stage: int, layers: int, config: TransformerConfig | None) -> None:
        super().__init__()
        torch.manual_seed(100 + stage)
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(WIDTH, WIDTH + stage), torch.nn.Tanh(), torch.nn.Linear(WIDTH + stage, WIDTH)]
        self.body = torch.nn.Sequential(*parts)
        self.config, self.model_type = config, ModelType.encoder_or_decoder
        self.given: torch.Tensor | None = None
        self.stage = stage

    def set_input_tensor(self, given: list) -> None:
        self.given = given[0]

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        output = self.body(data if self.stage == 0 else self.given)
        return output.clone() if self.config.deallocate_pipeline_outputs else output  # Megatron frees no views


def batch(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    shape = (2, LENGTH, SAMPLES, WIDTH)
    return [tuple(torch.randn(shape, generator=generator, dtype=torch.float64)) for _ in range(count)]


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


def one_rank(job: dict, rank: int, ranks: int, folder: Path) -> int:
    """One process of the pipeline; what it found goes to its own file."""
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.dump_traceback_later(job["seconds"] + 1, file=stack)
    limit = datetime.timedelta(seconds=job["seconds"])
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    loaded = False
    try:
        torch.set_default_dtype(torch.float64)
        step, config = prepared(job, ranks)
        loaded = True
        answer = trained(job, step, config, rank)
        dist.barrier()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        kind = "hang" if "imed out" in text or "imeout" in text else "crash" if loaded else "refused"
        if (
            "stock" in job
            and kind == "crash"
            and isinstance(error, ValueError | RuntimeError)
            and "icro-batches" in text
        ):
            kind = "refused"
        answer = {"outcome": kind, "error": text[:600], "at": time.monotonic()}
    (folder / f"{rank}.part").write_text(json.dumps(answer))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    return 0


def prepared(job: dict, ranks: int) -> tuple:
    """The function that runs the step, and Megatron's configuration for it."""
    chunks = len(job["rank_of_stage"]) // ranks
    interleaved = "stock" in job and chunks > 1
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=ranks,
        virtual_pipeline_model_parallel_size=chunks if interleaved else None,
        create_gloo_process_groups=False,
        distributed_timeout_minutes=job["seconds"] / 60,
    )
    config = TransformerConfig(
        num_layers=max(len(job["rank_of_stage"]), 1),
        hidden_size=WIDTH,
        num_attention_heads=1,
        pipeline_dtype=torch.float64,
        pipeline_model_parallel_size=ranks,
        virtual_pipeline_model_parallel_size=chunks if interleaved else None,
        microbatch_group_size_per_vp_stage=job["stock"] if interleaved else None,
        deallocate_pipeline_outputs=job.get("deallocate", False),
        batch_p2p_comm=not (interleaved and ranks == 2),
        overlap_p2p_comm=interleaved and ranks == 2,
    )
    if "stock" in job:
        return schedules.get_forward_backward_func(), config
    from bubbleproof.runtimes.megatron import forward_backward_func, unchecked
    from bubbleproof.schedules.formats import program_json, schedule_json

    if "schedule" in job:
        document = schedule_json.loads(job["schedule"], "job")
        return forward_backward_func(document.schedule, document.instance), config
    read = program_json.loads(job["program"], "job")
    return unchecked(read.program, read.instance), config


def trained(job: dict, step: object, config: TransformerConfig, rank: int) -> dict:
    """Run the steps and compare with the unpipelined model."""
    mine = [stage for stage, where in enumerate(job["rank_of_stage"]) if where == rank]
    last, count, data = len(job["rank_of_stage"]) - 1, job["microbatches"], batch(job["microbatches"])
    model = [Chunk(stage, job["layers"][stage], config) for stage in mine]
    trace: list[str] = []
    watch(trace)

    def forward_step(iterator: object, chunk: Chunk) -> tuple:
        inputs, target = next(iterator)
        return chunk(inputs), lambda output: (loss_of(output, target), {"loss": loss_of(output, target).detach()})

    for _ in range(job.get("steps", 1)):
        trace.clear()
        for chunk in model:
            chunk.zero_grad()
        found = step(
            forward_step_func=forward_step,
            data_iterator=[iter(data) for _ in mine],
            model=model,
            num_microbatches=count,
            seq_length=LENGTH,
            micro_batch_size=SAMPLES,
            forward_only=False,
        )
    reference = [Chunk(stage, job["layers"][stage], config) for stage in range(last + 1)]
    expected = []
    for inputs, target in data:
        value = inputs
        for module in reference:
            value = module.body(value)
        loss = loss_of(value, target)
        expected.append(loss.detach())
        (loss / count).backward()
    worst = 0.0
    for chunk in model:
        for have, want in zip(chunk.parameters(), reference[chunk.stage].parameters(), strict=True):
            worst = max(worst, 1e30 if have.grad is None else relative(have.grad, want.grad))
    answer = {"outcome": "ok", "gradient_error": worst, "trace": trace}
    if last in mine:
        losses = [each["loss"] for each in found]
        answer["loss_error"] = relative(torch.stack(losses), torch.stack(expected)) if len(losses) == count else 1.0
    return answer


def watch(trace: list[str]) -> None:
    """Note each forward and whole backward step of Megatron with its stage; microbatches are counted."""
    forward, backward = schedules.forward_step, schedules.backward_step
    numbers: dict[tuple[str, int], int] = {}
    owners: dict[int, tuple[int, object]] = {}

    def note(kind: str, stage: int) -> None:
        numbers[kind, stage] = numbers.get((kind, stage), -1) + 1
        trace.append(f"{stage}{kind}{numbers[kind, stage]}")

    @functools.wraps(forward)
    def forward_step(forward_step_func, data_iterator, model, *given, **more):
        note("F", model.stage)
        made = forward(forward_step_func, data_iterator, model, *given, **more)
        output = made[0][0] if isinstance(made[0], list) else made[0]
        owners[id(output)] = model.stage, output
        return made

    @functools.wraps(backward)
    def backward_step(input_tensor, output_tensor, *given, **more):
        output = output_tensor[0] if isinstance(output_tensor, list) else output_tensor
        if id(output) in owners:
            note("BW", owners[id(output)][0])
        return backward(input_tensor, output_tensor, *given, **more)

    schedules.forward_step, schedules.backward_step = forward_step, backward_step


def relative(have: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference over largest magnitude; 1e30 for what is no number."""
    value = float((have - want).abs().max() / want.abs().max().clamp_min(1e-300))
    return value if value == value and value < 1e30 else 1e30


if __name__ == "__main__":
    main()
