"""Runs a CSV through torchtitan's own functions: option parser, placement, module split, schedule builder, one step.

Started with the Python of torchtitan's environment. Everything but these functions (processes, deadlines, answers) is
that of the executor of torch next door. torchtitan's trainer, which needs a GPU, does not run.

A job: ``arguments`` (for torchtitan's command line; ``FILE`` stands for the file), ``csv``, ``rank_of_stage`` (what the
schedule expects), ``unchecked`` (go on where torchtitan built other stages), ``layers`` (of the model), ``seconds``.
The answer is that of torch's executor.
"""

from __future__ import annotations

import datetime
import faulthandler
import importlib.util
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

WIDTH = 8
ROWS = 2  # of the batch, per microbatch

spec = importlib.util.spec_from_file_location("torch_executor", Path(__file__).parents[1] / "torch" / "executor.py")
base = importlib.util.module_from_spec(spec)
spec.loader.exec_module(base)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.inner(x))


class Model(torch.nn.Module):
    """A model whose parts have the names by which torchtitan splits."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tok_embeddings = torch.nn.Linear(WIDTH, WIDTH)
        self.layers = torch.nn.ModuleDict({str(number): Block() for number in range(layers)})
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.lm_head = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            x = layer(x)
        x = self.norm(x) if self.norm is not None else x
        return self.lm_head(x) if self.lm_head is not None else x


def one_rank(job: dict, rank: int, ranks: int, folder: Path) -> int:
    """One process: what torchtitan makes of the arguments and the file, and one step."""
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.dump_traceback_later(job["seconds"] + 1, file=stack)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=job["seconds"]),
    )
    loaded = [False]
    try:
        answer = trained(job, rank, ranks, folder, loaded)
        dist.barrier()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        kind = "hang" if "imed out" in text or "imeout" in text else "crash" if loaded[0] else "refused"
        answer = {"outcome": kind, "error": text[:600], "at": time.monotonic()}
    (folder / f"{rank}.part").write_text(json.dumps(answer))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    return 0


def trained(job: dict, rank: int, ranks: int, folder: Path, loaded: list[bool]) -> dict:
    """Build by torchtitan, run a step, compare with the whole model."""
    from types import SimpleNamespace

    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import pipeline_parallel as titan

    file = folder / f"{rank}.csv"
    file.write_text(job["csv"])
    given = [each.replace("FILE", str(file)) for each in job["arguments"]]
    config = ConfigManager().parse_args(["--module", "titan_config", "--config", "small", *given])
    parallelism, training = config.parallelism, config.training
    torch.manual_seed(5)
    whole = Model(job["layers"]).double()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("pp",))
    stages_in_all, layers, head, tail = titan._get_pipeline_metadata(
        SimpleNamespace(pp=ranks), parallelism, SimpleNamespace(layers=[None] * job["layers"])
    )
    names = titan._generate_llm_fqn_per_model_part(stages_in_all, layers, head, tail)
    stages, parts = titan._pipeline_module_split(
        whole, mesh["pp"], parallelism.pipeline_parallel_schedule, torch.device("cpu"), names
    )
    expected = [stage for stage, where in enumerate(job["rank_of_stage"]) if where == rank]
    built = [stage.stage_index for stage in stages]
    if built != expected and not job.get("unchecked"):
        raise RuntimeError(f"torchtitan built stages {built} on rank {rank}, the schedule runs {expected} there")
    schedule = titan._build_pipeline_schedule(
        parallelism=parallelism,
        local_batch_size=training.local_batch_size,
        stages=stages,
        loss_fn=lambda output, target: (loss_of(output, target), None),
    )
    loaded[0] = True
    generator = torch.Generator().manual_seed(7)
    m = schedule._n_microbatches
    inputs, targets = (torch.randn(m * ROWS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    losses: list = []
    last = stages_in_all - 1
    more = {"target": targets, "losses": losses} if last in built else {}
    schedule.step(*((inputs,) if 0 in built else ()), **more)
    wanted = []
    for one, target in zip(inputs.chunk(m), targets.chunk(m), strict=True):
        loss = loss_of(whole(one), target)
        wanted.append(loss.detach())
        loss.backward()  # torchtitan's loss is divided outside; here nothing is
    reference = dict(whole.named_parameters())
    worst, missing, seen = 0.0, [], 0
    for part in parts:
        for name, have in part.named_parameters():
            seen += 1
            if have.grad is None:
                missing.append(name)
            else:
                worst = max(worst, base.relative(have.grad, reference[name].grad))
    answer = {"outcome": "ok", "gradient_error": worst, "missing": missing, "parameters": seen, "placement": built}
    if last in built:
        answer["loss_error"] = base.relative(torch.stack(losses).detach(), torch.stack(wanted))
    return answer


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


def main() -> None:
    import logging
    import os
    from importlib import metadata

    base.one_rank = one_rank
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    import titan_config  # noqa: F401  # next to this file; loaded once, before the ranks are forked
    import torchtitan.distributed.pipeline_parallel
    import torchtitan.experiments
    import torchtitan.models  # noqa: F401

    versions = {"torchtitan": metadata.version("torchtitan"), "torch": torch.__version__}
    print(json.dumps({**versions, "python": sys.version.split()[0]}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(base.run(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
