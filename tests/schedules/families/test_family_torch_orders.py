"""The orders of PyTorch's built-in schedules (torch 2.13.0, compute-only CSV) against the families."""

from pathlib import Path

import pytest

from bubbleproof.schedules.families import FAMILIES, build
from bubbleproof.schedules.formats import torch_csv
from bubbleproof.schedules.op import Op
from tests.schedules.families.sizes import equal

DATA = Path(__file__).parents[2] / "data" / "torch_csv"


def ours(name, p, m):
    return build(name, equal(FAMILIES[name].placement(p, FAMILIES[name].chunks), m))


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8)])
@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        ("GPipe", "gpipe"),
        ("1F1B", "1f1b"),
        ("Interleaved1F1B", "interleaved-1f1b"),
        ("InterleavedZeroBubble", "interleaved-zb"),
        ("ZBVZeroBubble", "zb-v"),
        ("DualPipeV", "dualpipev"),
    ],
)
def test_families_equal_pytorch_op_by_op(theirs, name, p, m):
    assert ours(name, p, m) == torch_csv.load(DATA / f"{theirs}_pp{p}_mb{m}_compute.csv")


@pytest.mark.parametrize(
    ("file", "name", "p", "m"),
    [
        ("bug_defer_DualPipeV_pp3_mb6_compute.csv", "dualpipev", 3, 6),
        ("bug_defer_InterleavedZeroBubble_pp2_mb3_compute.csv", "interleaved-zb", 2, 3),
        ("bug_defer_ZBVZeroBubble_pp2_mb3_compute.csv", "zb-v", 2, 3),
    ],
)
def test_families_equal_pytorch_at_odd_sizes(file, name, p, m):
    assert ours(name, p, m) == torch_csv.load(DATA / file)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8)])
def test_pytorch_runs_the_backwards_of_looped_bfs_in_descending_order(p, m):
    def mirrored(op: Op) -> Op:
        return op if op.kind == "F" else Op(op.kind, op.stage, m - 1 - op.microbatch)

    theirs = torch_csv.load(DATA / f"LoopedBFS_pp{p}_mb{m}_compute.csv")
    mine = ours("looped-bfs", p, m)
    assert theirs != mine
    assert theirs.orders == tuple(tuple(mirrored(op) for op in order) for order in mine.orders)
