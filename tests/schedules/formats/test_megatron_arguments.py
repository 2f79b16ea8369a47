"""Megatron's own orders, from the arguments that choose them and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbleproof import Instance, verify
from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import megatron
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.formats.schedule_json import Document, save
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict


def instance(placement: Placement, m: int) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    return Instance(placement, m, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))


SIZES = [(p, v, m, n) for p in (1, 2, 3, 4) for v in (1, 2, 3) for m in (1, 2, 3, 5, 8) for n in range(p, m + 1)]


def test_every_order_that_megatron_takes_is_proved() -> None:
    taken = 0
    for p, v, m, n in SIZES:
        stock = megatron.Stock(p, v, m, n if v > 1 else 0)
        try:
            stock.refuse()
        except FormatError:
            continue
        schedule = megatron.order(stock)
        given = infer_instance(schedule, "order", ranks=p, stages=p * v, microbatches=m).instance
        assert verify(schedule, given).verdict is Verdict.PROVED
        assert megatron.recognise(schedule, given) == stock
        taken += 1
    assert taken == 86


def test_the_interleaved_order_is_the_one_that_was_traced() -> None:
    """pp 2, vp 2, m 5, N 3, rank 0, as Megatron-core 0.16.1 ran it."""
    row = megatron.order(megatron.Stock(2, 2, 5, 3)).orders[0]
    assert " ".join(map(str, row[:8])) == "0F0 0F1 0F2 2F0 2F1 2F2 2BW0 0F3"


def test_the_orders_are_those_of_the_families() -> None:
    assert megatron.order(megatron.Stock(4, 1, 6)).orders == FAMILIES["1f1b"].build(instance(linear(4), 6)).orders
    given = instance(loop(3, 2), 7)
    for n in (4, 7):
        assert megatron.order(megatron.Stock(3, 2, 7, n)).orders == (
            FAMILIES["interleaved-1f1b"].build(given, group=n).orders
        )


@pytest.mark.parametrize(
    ("stock", "said"),
    [
        (megatron.Stock(2, 2, 3, 2), "leaves 1. Nearest: --microbatch-group-size-per-virtual-pipeline-stage 3"),
        (megatron.Stock(4, 2, 3, 4), "m = 3 is below p = 4"),
        (megatron.Stock(4, 2, 8, 9), "N = 9"),
        (megatron.Stock(1, 2, 4, 1), "on more than 1 ranks"),
        (megatron.Stock(2, 2, 4, 2, overlap=False), "or --overlap-p2p-communication"),
    ],
)
def test_what_megatron_refuses_is_refused_with_its_rule_and_what_is_near(stock: megatron.Stock, said: str) -> None:
    with pytest.raises(FormatError) as refused:
        stock.refuse()
    assert said in str(refused.value)


def test_arguments_choose_the_order() -> None:
    text = (
        "# of a run\n--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\\n--micro-batch-size=2\n"
        "--global-batch-size 12 --num-layers 16 --num-layers-per-virtual-pipeline-stage 2 --bf16\n"
    )
    assert megatron.read(text, "run") == megatron.Stock(2, 4, 6, 2)
    layout = '--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4 --num-layers 6 "--pipeline-'
    assert megatron.read(layout + 'model-parallel-layout=Et|(tt|)*2tL"', "run").words == ("Et", "tt", "tt", "tL")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--pipeline-model-parallel-split-rank 2", "not known here"),
        ("--rampup-batch-size 1 2 3", "another order"),
        ("--pipeline-model-parallel-layout Et|t|t|tL|", "must|multiple of 2"),
        ("--pipeline-model-parallel-layout Et|tL||", "L is not in the last stage"),
        ("--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-layout Et|tL", "takes one of"),
        ("--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 3", "leaves 1"),
        ("--num-virtual-stages-per-pipeline-rank x", "one whole number"),
        ("--num-layers-per-virtual-pipeline-stage 3 --num-layers 4", "a multiple of 3 × 2"),
        ("--micro-batch-size 3", "stands twice"),
        ("'", "closing"),
    ],
)
def test_arguments_that_megatron_does_not_run_are_refused(more: str, said: str) -> None:
    text = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4 "
    with pytest.raises(FormatError, match=said):
        megatron.loads(text + more, "run")


def test_the_number_of_microbatches_has_to_follow_from_the_arguments() -> None:
    with pytest.raises(FormatError, match="no --micro-batch-size and no --global-batch-size"):
        megatron.read("--pipeline-model-parallel-size 2", "run")
    with pytest.raises(FormatError, match="no multiple"):
        megatron.read("--micro-batch-size 2 --global-batch-size 5", "run")


def test_a_file_survives_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = instance(loop(2, 2), 4)
    schedule = FAMILIES["interleaved-1f1b"].build(given, group=4)
    mine, out, back = tmp_path / "a.json", tmp_path / "a.megatron.args", tmp_path / "b.json"
    save(mine, Document(schedule, given))
    assert main(["export", str(mine), "--to", "megatron", "--layers-per-stage", "1,2,2,2", "-o", str(out)]) == 0
    assert out.read_text().splitlines() == [
        "--pipeline-model-parallel-size 2",
        "--num-layers 7",
        "--num-virtual-stages-per-pipeline-rank 2",
        "--account-for-embedding-in-pipeline-split",
        "--microbatch-group-size-per-virtual-pipeline-stage 4",
        "--micro-batch-size 1",
        "--global-batch-size 4",
    ]
    assert main(["import", str(out), "--from", "megatron", "-o", str(back)]) == 0
    assert json.loads(back.read_text())["orders"] == json.loads(mine.read_text())["orders"]
    assert main(["verify", str(out)]) == 0
    assert "PROVED" in capsys.readouterr().out


def test_other_orders_are_refused_with_the_nearest_and_the_first_difference() -> None:
    given = instance(linear(3), 4)
    with pytest.raises(FormatError) as refused:
        megatron.write(replay(FAMILIES["zb-h1"].build(given), given))
    assert "Nearest: megatron, 1f1b; rank 0, position" in str(refused.value)
    placed = instance(vee(2), 4)
    with pytest.raises(FormatError, match="the placement is vee. Nearest: a loop on 2 ranks"):
        megatron.write(replay(FAMILIES["zb-v"].build(placed), placed))
