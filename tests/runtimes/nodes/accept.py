"""Hands nodes to the passes of sail-sg's zero-bubble or to Primus's runner: ``accept.py <dialect> <checkout> <file>``.

Only the modules that read and dispatch nodes are loaded, from a checkout of the sources; what they import from the rest
of their projects and need only for training is left empty. Prints one JSON object: what was called and what came of it.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path


def package(name: str, folder: Path | None = None, **parts: object) -> None:
    """A package whose own first lines are not run."""
    made = types.ModuleType(name)
    made.__path__ = [str(folder)] if folder else []
    for key, value in parts.items():
        setattr(made, key, value)
    sys.modules[name] = made


def sail_sg(checkout: Path, document: dict) -> dict:
    """The check for deadlocks on all nodes, and all passes on the ops alone."""
    inner = checkout / "megatron" / "core" / "pipeline_parallel" / "zerobubble"
    package("megatron", checkout / "megatron")
    package("megatron.training", get_args=lambda: types.SimpleNamespace())
    for name, folder in (("core", inner.parents[1]), ("core.pipeline_parallel", inner.parent)):
        package(f"megatron.{name}", folder)
    package("megatron.core.pipeline_parallel.zerobubble", inner)
    from megatron.core.pipeline_parallel.zerobubble.scheduler import graph, passes
    from megatron.core.pipeline_parallel.zerobubble.scheduler.communication import validate_communication

    def node(fields: dict, keep: bool) -> object:
        made = {**fields, "type": graph.FuncType[fields["type"]]}
        if made["comm_direction"]:
            made["comm_direction"] = graph.CommDirection[made["comm_direction"]]
        if not keep:
            made = {key: made[key] for key in ("type", "stage", "microbatch", "chunk", "layer_group_idx")}
        return graph.ScheduledNode(**made)

    rows = document["rows"]
    validate_communication([[node(fields, True) for fields in row] for row in rows])
    ranks, route = len(rows), document["rank_of_stage"]
    config = graph.GraphConfig.basic_config(4.0, 5.0, 3.0, ranks, document["microbatches"], len(route) // ranks)
    ops = [[node(each, False) for each in row if each["type"] in ("F", "B", "W", "BW")] for row in rows]
    order = [
        [f"{each.type.value}{each.layer_group_idx}.{each.microbatch}" for each in row if each.type.is_computation()]
        for row in passes.run_schedule_passes(config, ops)
    ]
    return {"by": "validate_communication, run_schedule_passes", "order": order}


def primus(checkout: Path, document: dict) -> dict:
    """Every node dispatched to a handler that keeps books on what is sent, received and used; nothing is computed."""
    for name in ("primus", "primus.core", "primus.core.pipeline_parallel", "primus.core.pipeline_parallel.scheduler"):
        package(name, checkout / name.replace(".", "/"))
    package("primus.core.pipeline_parallel.handler")
    empty = types.SimpleNamespace(check_empty=lambda: None, record_offload_memory_info=False)
    package("primus.core.pipeline_parallel.handler.offload_handler", OFFLOAD_BUFFER=empty)
    from primus.core.pipeline_parallel.scheduler.scheduler import ScheduleRunner
    from primus.core.pipeline_parallel.scheduler.scheduler_node import FuncType, SchedulerNode

    table = [
        [SchedulerNode(**{**fields, "func_type": FuncType[fields["func_type"]]}) for fields in row]
        for row in document["rows"]
    ]
    count = 0
    sent: set[tuple] = set()
    taken: set[tuple] = set()

    def dispatched(node: object, at: int, row: list) -> None:
        nonlocal count
        count += 1
        given, kind = node.args, node.func_type.name
        if kind in ("SF", "SB"):
            sent.add(
                (
                    kind[1],
                    node.mini_batch,
                    given["from_pp_rank"],
                    node.chunk,
                    given["to_pp_rank"],
                    given["send_to_chunk"],
                )
            )
        elif kind in ("RF", "RB"):
            taken.add(
                (
                    kind[1],
                    node.mini_batch,
                    given["from_pp_rank"],
                    given["recv_from_chunk"],
                    given["to_pp_rank"],
                    node.chunk,
                )
            )

    runner = ScheduleRunner(dict.fromkeys(FuncType, dispatched))
    for rank in range(len(table)):
        runner.run(table, rank)
    if sent != taken or count != sum(map(len, table)):
        raise SystemExit("sends and receives do not name the same messages")
    return {"by": "ScheduleRunner.run with handlers that compute nothing", "nodes": count}


if __name__ == "__main__":
    dialect, folder, file = sys.argv[1:]
    out, sys.stdout = sys.stdout, sys.stderr
    answer = {"sail-sg": sail_sg, "primus": primus}[dialect](Path(folder), json.loads(Path(file).read_text()))
    print(json.dumps(answer), file=out)
