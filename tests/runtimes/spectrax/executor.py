"""Runs schedules on spectrax (JAX) on virtual CPU devices in one process; started with spectrax's own Python.

Reads one job (JSON) per line from standard input and answers each with one line (JSON). Each job runs in a forked
child under a time limit. Nothing of this file is imported by the tests.

A job: ``schedule`` (a bubbleproof schedule file's text), ``check`` (let the judge prove it first), ``hidden`` (width
inside each stage), ``seconds``. An answer: ``outcome`` (``ok``, ``wrong``, ``refused``, ``crash``, ``hang``),
``error``, and the largest relative error of a gradient and of the loss.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4 --xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

ROWS = 2  # of the batch, per microbatch


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from importlib import metadata

    versions = {name: metadata.version(name) for name in ("spectrax-lib", "jax")}
    print(json.dumps({**versions, "python": sys.version.split()[0]}), file=out, flush=True)
    worker = None
    for line in sys.stdin:
        job = json.loads(line)
        if worker is None:
            worker = subprocess.Popen(
                [sys.executable, __file__, "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        answer, worker = ask(worker, job)
        print(json.dumps(answer), file=out, flush=True)


def ask(worker: subprocess.Popen, job: dict) -> tuple[dict, subprocess.Popen | None]:
    """One job for the worker; a worker that does not answer in time is ended."""
    import select

    worker.stdin.write(json.dumps(job) + "\n")
    worker.stdin.flush()
    ready, _, _ = select.select([worker.stdout], [], [], job["seconds"])
    line = worker.stdout.readline() if ready else ""
    if line:
        return json.loads(line), worker
    worker.kill()
    worker.wait()
    return {"outcome": "crash" if ready else "hang", "error": "the process ended" if ready else "time limit"}, None


def work() -> None:
    """Answer jobs in this process, which may be killed."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import jax

    jax.config.update("jax_enable_x64", True)
    for line in sys.stdin:
        job = json.loads(line)
        loaded = [False]
        try:
            answer = trained(job, loaded)
        except BaseException as error:
            answer = {"outcome": "crash" if loaded[0] else "refused", "error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(answer), file=out, flush=True)


def trained(job: dict, loaded: list[bool]) -> dict:
    """One step, and the same without a pipeline."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import spectrax as spx
    from block import WIDTH, Block  # next to this file
    from jax.sharding import Mesh
    from spectrax import nn
    from spectrax.runtime.mpmd import sxcall
    from spectrax.runtime.types import MpMdMesh

    from bubbleproof.runtimes.spectrax import build
    from bubbleproof.schedules.formats.schedule_json import loads

    document = loads(job["schedule"], "job")
    instance = document.instance
    schedule = build(document.schedule, instance, check=job.get("check", True))
    rngs = spx.Rngs(0)
    blocks = [Block(hidden, rngs) for hidden in job["hidden"]]
    model = nn.PipelineSequential(*blocks)
    rows = ROWS * instance.microbatches
    generator = np.random.RandomState(3)
    x, y = (jnp.array(generator.randn(rows, WIDTH)) for _ in range(2))
    mesh = MpMdMesh(Mesh(np.array(jax.devices()[: instance.ranks]), ("pp",)), "pp")

    def loss_of(output: object, target: object) -> object:
        return jnp.mean((output - target) ** 2)

    loaded[0] = True
    loss, gradients = sxcall(model, (x, y), mesh=mesh, schedule=schedule, loss_fn=loss_of)
    parts = [jax.tree_util.tree_leaves(block) for block in blocks]
    tree = [jax.tree_util.tree_structure(block) for block in blocks]

    def whole(leaves: object) -> object:
        value = x
        for structure, part in zip(tree, leaves, strict=True):
            value = jax.tree_util.tree_unflatten(structure, part)(value)
        return loss_of(value, y)

    want_loss, want = jax.value_and_grad(whole)(parts)
    worst = 0.0
    for stage, wanted in enumerate(want):
        have = jax.tree_util.tree_leaves(gradients.shards[stage])
        if len(have) != len(wanted):
            return {"outcome": "wrong", "error": f"stage {stage}: {len(have)} gradients", "gradient_error": 1e30}
        for one, other in zip(have, wanted, strict=True):
            worst = max(worst, relative(np.asarray(one), np.asarray(other)))
    loss_error = relative(np.asarray(loss), np.asarray(want_loss))
    outcome = "ok" if worst <= 1e-6 and loss_error <= 1e-6 else "wrong"
    return {"outcome": outcome, "error": "", "gradient_error": worst, "loss_error": loss_error}


def relative(have: object, want: object) -> float:
    """Largest difference over largest magnitude; 1e30 for what is no number or has another shape."""
    if have.shape != want.shape:
        return 1e30
    value = float(abs(have - want).max() / max(abs(want).max(), 1e-300))
    return value if value < 1e30 else 1e30


if __name__ == "__main__":
    work() if sys.argv[1:] else main()
