"""DeepSpeed's streams of instructions: written, read, and what they mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof import Instance, Schedule
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import deepspeed
from bubbleproof.schedules.instructions import Instruction, Streams
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.timeline import replay

DATA = Path(__file__).parents[2] / "data" / "deepspeed"


def instance(placement: Placement, microbatches: int, *, split: bool = True) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks))


def lowered(family: str, ranks: int, microbatches: int) -> tuple[Schedule, Instance, Streams]:
    where = instance(linear(ranks), microbatches)
    schedule = FAMILIES[family].build(where)
    program = lower(schedule, where, reduce=False, blocking=True)
    return schedule, where, deepspeed.streams_of(program, where)


@given(
    family=st.sampled_from(["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"]),
    ranks=st.integers(1, 5),
    microbatches=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_a_schedule_comes_back_from_its_streams_and_the_streams_from_their_text(
    family: str, ranks: int, microbatches: int
) -> None:
    schedule, where, streams = lowered(family, ranks, microbatches)
    text = deepspeed.dumps(streams)
    assert deepspeed.loads_streams(text) == streams
    assert deepspeed.loads(text, "file") == schedule
    assert deepspeed.loads(deepspeed.write(replay(schedule, where)), "file") == schedule


@given(
    family=st.sampled_from(["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"]),
    ranks=st.integers(1, 5),
    microbatches=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_a_buffer_is_never_taken_while_another_microbatch_uses_it_and_there_is_none_too_many(
    family: str, ranks: int, microbatches: int
) -> None:
    _, where, streams = lowered(family, ranks, microbatches)
    program = deepspeed.program_of(streams)
    for row, actions, count in zip(streams.rows, program.rows, streams.buffers, strict=True):
        named = iter(actions)
        uses: dict[int, list[int]] = {}
        buffer_of: dict[int, int] = {}
        order = []
        for at, one in enumerate(one for one in row if one.buffer is not None and one.name != "LoadMicroBatch"):
            microbatch = next(named).microbatch
            order.append(microbatch)
            uses.setdefault(microbatch, []).append(at)
            assert buffer_of.setdefault(microbatch, one.buffer) == one.buffer
        live = [sum(u[0] <= at <= u[-1] for u in uses.values()) for at in range(len(order))]
        assert max(live) <= count <= where.microbatches
        for a, first in uses.items():
            for b, second in uses.items():
                if a < b and buffer_of[a] == buffer_of[b]:
                    assert first[-1] < second[0] or second[-1] < first[0]


def test_the_known_streams_of_1f1b_on_two_ranks() -> None:
    _, _, streams = lowered("1f1b", 2, 2)
    names = [" ".join(f"{one.name}{'' if one.buffer is None else one.buffer}" for one in row) for row in streams.rows]
    assert names[1] == (
        "RecvActivation0 LoadMicroBatch0 ForwardPass0 RecvActivation1 BackwardPass0 SendGrad0 LoadMicroBatch1 "
        "ForwardPass1 BackwardPass1 SendGrad1 ReduceTiedGrads ReduceGrads OptimizerStep"
    )
    assert streams.buffers == (2, 2)


def test_the_last_stage_loads_labels_in_the_order_of_the_first_stage() -> None:
    where = instance(linear(2), 3, split=False)
    schedule = Schedule.parse(["0F0 0F1 0F2 0BW2 0BW1 0BW0", "1F2 1BW2 1F1 1BW1 1F0 1BW0"])
    streams = deepspeed.streams_of(lower(schedule, where, reduce=False), where)
    last = [str(one) for one in streams.rows[1] if one.name in ("LoadMicroBatch", "ForwardPass")]
    assert last == [
        *(f"LoadMicroBatch(buffer_id={buffer})" for buffer in _loads(streams.rows[1])),
        *(f"ForwardPass(buffer_id={buffer})" for buffer in reversed(_loads(streams.rows[1]))),
    ]
    assert deepspeed.program_of(streams).schedule == schedule


def _loads(row: tuple[Instruction, ...]) -> list[int | None]:
    return [one.buffer for one in row if one.name == "LoadMicroBatch"]


@pytest.mark.parametrize(
    ("placement", "family", "why"),
    [
        (vee(2), "zb-v", "at least 2 · 2 microbatches, not 3. The nearest that it runs has 4, or the linear placement"),
        (loop(2, 2), "looped-bfs", "stage r on rank r.*this is loop.*linear placement on 2 ranks"),
    ],
)
def test_what_is_refused_is_told_the_rule_and_what_can_be_had(placement: Placement, family: str, why: str) -> None:
    where = instance(placement, 3)
    with pytest.raises(FormatError, match=why):
        deepspeed.write(replay(FAMILIES[family].build(where), where))


@given(family=st.sampled_from(["zb-v", "v-half", "v-min"]), ranks=st.integers(2, 4), more=st.integers(0, 4))
@settings(max_examples=25, deadline=None)
def test_a_schedule_on_a_vee_comes_back_from_its_streams(family: str, ranks: int, more: int) -> None:
    where = instance(vee(ranks), 2 * ranks + more)
    schedule = FAMILIES[family].build(where)
    text = deepspeed.write(replay(schedule, where))
    streams = deepspeed.loads_streams(text)
    assert deepspeed.dumps(streams) == text
    assert streams.buffers == (2 * where.microbatches,) * ranks
    program = deepspeed.program_of(streams)
    assert program.schedule == schedule
    assert program == lower(schedule, where, reduce=False, blocking=True)


def test_deepspeeds_own_schedule_for_vees_is_read() -> None:
    streams = deepspeed.loads_streams((DATA / "dualpipev-p2-m5.txt").read_text(encoding="utf-8"))
    assert (streams.vee, streams.microbatches, streams.buffers) == (True, 5, (10, 10))
    assert str(streams.rows[0][10]) == "ForwardPass(buffer_id=2, phase=0)"
    first = deepspeed.program_of(streams).rows[0]
    assert " ".join(map(str, first[:7])) == "0F0 0SEND_F0 0F1 0SEND_F1 0F2 3RECV_F0 3F0"


def test_recompute_is_refused() -> None:
    where = instance(linear(1), 1, split=False)
    with pytest.raises(FormatError, match="0R0: DeepSpeed recomputes inside a backward"):
        deepspeed.refuse(Schedule.parse(["0F0 0R0 0BW0"]), where)


def test_streams_that_deepspeed_prints_of_its_own_schedule_are_1f1b() -> None:
    text = (DATA / "train-p4-m5.txt").read_text(encoding="utf-8")
    streams = deepspeed.loads_streams(text)
    assert (streams.ranks, streams.microbatches) == (4, 5)
    where = instance(linear(4), 5)
    assert deepspeed.program_of(streams).schedule == FAMILIES["1f1b"].build(where)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "file: Input data was truncated"),
        ('{"format": "x", "microbatches": 1, "buffers": [1], "rows": [[]]}', "format = 'x' is not"),
        ('{"format": "deepspeed-instructions/1", "microbatches": 0, "buffers": [1], "rows": [[]]}', "at least 1"),
        ('{"format": "deepspeed-instructions/1", "microbatches": 1, "buffers": [], "rows": [[]]}', "one count"),
        (
            '{"format": "deepspeed-instructions/1", "microbatches": 1, "buffers": [1], "rows": [["Jump()"]]}',
            r"rows\[0\]\[0\]: 'Jump\(\)': no instruction Jump",
        ),
        ("stage 0\n[ForwardPass()]", r"line 2: 'ForwardPass\(\)': ForwardPass has a buffer"),
        ("stage 0\n[ReduceGrads(buffer_id=1)]", "line 2: .*ReduceGrads has no buffer"),
        ("stage 0\n[ForwardPass(buffer_id=-1)]", "line 2: .*is no instruction"),
        ("stage 1\n[]", "line 1: .*this would be stage 0"),
        ("[ForwardPass(buffer_id=0)]", "before the first line like `stage 0`"),
        ("stage 0\nhello", "line 2: 'hello' is neither"),
        ("", "neither JSON"),
    ],
)
def test_what_is_no_stream_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        deepspeed.loads_streams(text, "file")
