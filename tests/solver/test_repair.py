"""Repairs are small, change nothing that is right, and what they give is proved by the judge."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.formats import torch_comms, torch_csv
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import custom
from bubbleproof.schedules.program import CHANNELS, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.repair import NoRepair, repair
from bubbleproof.verify import Verdict, verify, verify_program
from tests.strategies import instances_with_schedules

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "corpus"
TORCH = ROOT / "data" / "torch_csv"
CASES = json.loads((CORPUS / "manifest.json").read_text())["cases"]
QUEUED = [channel for channel in CHANNELS if channel not in ("batched", "even-odd")]
LONG = ("rd_deferred_Interleaved1F1B_pp4", "rd_deferred_InterleavedZeroBubble_pp4", "rd_deferred_ZBVZeroBubble_pp4")


def unit(ranks, microbatches, rank_of_stage=None, split=True, cap=None):
    """An instance in which every op takes 1 and activations are freed by the last backward op."""
    stages = tuple(rank_of_stage or range(ranks))
    costs = Costs.make(len(stages), F=1, B=1, W=1) if split else Costs.make(len(stages), F=1, B=2)
    memory = Memory.make(len(stages), ranks, cap=cap)
    return Instance(custom(stages, ranks), microbatches, costs, memory)


def compute(program):
    """The rows without their transfers."""
    return [[action for action in row if not isinstance(action, Transfer)] for row in program.rows]


def kept(one, two):
    """How many actions two rows have in common, in one order."""
    best = [0] * (len(two) + 1)
    for a in one:
        row = [0]
        for j, b in enumerate(two):
            row.append(best[j] + 1 if a == b else max(best[j + 1], row[j]))
        best = row
    return best[-1]


def moves(given, repaired):
    """How many of the actions that are in both do not keep their order: by the longest common rows."""
    return sum(
        sum((Counter(a) & Counter(b)).values()) - kept(a, b) for a, b in zip(given.rows, repaired.rows, strict=True)
    )


def read(case):
    path = CORPUS / case["file"]
    comms = case["format"] == "compute_comms"
    found = torch_comms.load(path) if comms else torch_csv.load(path)
    schedule = found.schedule if comms else found
    sizes = {key: case[key] for key in ("ranks", "stages", "microbatches")}
    return found, infer_instance(schedule, path.name, rank_of_stage=case["placement"], **sizes).instance


def repairable():
    """The files of the corpus that can be read, but for the three that take longest."""
    found = []
    for case in CASES:
        name = Path(case["file"]).stem
        if name.startswith("fmt_") or name in (*LONG, "overlap_empty", "overlap_reversed"):
            continue
        found.append(pytest.param(case, id=name))
    return found


@pytest.mark.parametrize("case", repairable())
def test_a_file_of_the_corpus_is_repaired_by_the_fewest_moves_or_left_as_it_is(case):
    given, instance = read(case)
    found = repair(given, instance, target="torch", scale_grads=case["scale_grads"])
    assert found.report.verdict == Verdict.PROVED
    assert found.level == "fewest"
    if isinstance(given, Program):
        again = verify_program(found.program, instance, target="torch", scale_grads=case["scale_grads"])
        before = verify_program(given, instance, target="torch", scale_grads=case["scale_grads"])
        if not any(rule[:2] in ("V1", "V2", "V7") for rule in before.counts):
            assert compute(found.program) == compute(given)
    else:
        again, before = (verify(s, instance, target="torch") for s in (found.program.schedule, given))
    assert again.verdict == Verdict.PROVED
    assert found.changed == (before.verdict == Verdict.VIOLATED)


@pytest.mark.parametrize(
    ("name", "most"),
    [("ZBVZeroBubble_pp2_mb3", 4), ("InterleavedZeroBubble_pp2_mb3", 4), ("DualPipeV_pp3_mb6", 5)],
)
def test_deferred_receives_of_torch_are_put_back_around_the_same_ops(name, most):
    given = torch_comms.load(TORCH / f"bug_defer_{name}_comms.csv")
    instance = infer_instance(given.schedule, name).instance
    found = repair(given, instance)
    assert compute(found.program) == compute(given)
    assert (found.moved_ops, found.moved_transfers, found.level) == (0, most, "fewest")
    assert moves(given, found.program) == most
    assert {change.what for change in found.changes} == {"moved"}
    assert found.makespan_before is None
    assert found.makespan_after == found.report.facts.makespan


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_good_program_is_returned_as_it_is(channel):
    instance = unit(3, 4)
    program = lower(Schedule.parse(_one_f_one_b(3, 4)), instance)
    if channel == "even-odd":
        instance = unit(1, 2)
        program = Program.parse(["0F0 0B0 0W0 0F1 0B1 0W1"])
    found = repair(program, instance, channel=channel)
    assert found.program is program
    assert not found.changed
    assert found.makespan_before == found.makespan_after


def _one_f_one_b(ranks, microbatches):
    rows = []
    for rank in range(ranks):
        ahead = min(microbatches, ranks - rank - 1)
        row = [f"{rank}F{j}" for j in range(ahead)]
        for j in range(microbatches):
            if j + ahead < microbatches:
                row.append(f"{rank}F{j + ahead}")
            row += [f"{rank}B{j}", f"{rank}W{j}"]
        rows.append(" ".join(row))
    return rows


def test_what_is_repaired_needs_no_further_repair():
    given = torch_comms.load(TORCH / "bug_defer_ZBVZeroBubble_pp2_mb3_comms.csv")
    instance = infer_instance(given.schedule, "file").instance
    for channel in ("rendezvous-pair", "rendezvous-rank", "per-direction", "batched"):
        once = repair(given, instance, channel=channel)
        assert not repair(once.program, instance, channel=channel).changed


def test_of_two_sends_that_cross_one_moves():
    """Each rank sends before it receives, and both sends are in the queue of the pair."""
    instance = unit(2, 2, (0, 1, 1, 0), split=False)
    good = lower(
        Schedule.parse(["0F0 0F1 3F0 3BW0 0BW0 3F1 3BW1 0BW1", "1F0 2F0 1F1 2F1 2BW0 1BW0 2BW1 1BW1"]), instance
    )
    rows = [list(row) for row in good.rows]
    receive = Transfer("RECV_F", 1, 1)
    rows[1].remove(receive)
    rows[1].insert(rows[1].index(Transfer("SEND_F", 2, 0)) + 1, receive)
    given = Program.of(rows)
    assert repair(given, instance, channel="eager").moved_transfers == 0
    found = repair(given, instance)
    assert "V601" in found.before.counts
    assert found.moved_transfers == len(found.changes) == 1
    assert found.changes[0].action in ("0SEND_F1", "3RECV_F0", "2SEND_F0", "1RECV_F1")


def test_missing_copied_and_misdirected_transfers_are_added_and_dropped():
    instance = unit(2, 1, split=False)
    rows = ["0F0 0SEND_B0 0SEND_F0 0SEND_F0 0RECV_B0 0BW0", "1F0 1BW0 0SEND_F0 1SEND_B0"]
    found = repair(Program.parse(rows), instance)
    assert str(found.program) == "0F0 0SEND_F0 0RECV_B0 0BW0\n1RECV_F0 1F0 1BW0 1SEND_B0"
    assert Counter(change.what for change in found.changes) == {"added": 1, "dropped": 3}
    assert (found.moved_ops, found.moved_transfers) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (["0F0 0F1 0BW0 0BW1", "1F0 1F1 1BW0 1BW1"], 0),
        (["0F0 0BW0 0F1 0BW1", "1F1 1F0 1BW0 1BW1"], 1),  # rank 0 waits for 1BW0, which waits for 0F1
        (["0F0 0BW0 0F1 0BW1", "1F1 1BW1 1F0 1BW0"], 1),  # 0F1 to the front
        (["0BW0 0F0 0BW1 0F1", "1F0 1BW0 1F1 1BW1"], 2),
        (["0F0 0F1 0BW0 0BW1", "1BW0 1BW1 1F0 1F1"], 2),
    ],
)
def test_a_cyclic_order_of_ops_moves_as_few_as_it_must(rows, count):
    given, instance = Schedule.parse(rows), unit(2, 2, split=False)
    found = repair(given, instance)
    assert (found.moved_ops, found.bound_ops, found.level) == (count, count, "fewest")
    assert moves(Program.of(given.orders), found.program) == count
    assert count == _fewest_by_search(Program.of(given.orders), instance, count, _ops_safe)


def _ops_safe(program, instance):
    return verify(program.schedule, instance).verdict == Verdict.PROVED


def _fewest_by_search(given, instance, most, safe, movable=(Op, Overlap)):
    """The fewest moves to a safe program, by trying all; None if more than `most` are needed."""
    level = {given}
    for count in range(most + 1):
        if any(safe(program, instance) for program in level):
            return count
        if count < most:
            level = {moved for program in level for moved in _neighbours(program, movable)}
    return None


def _neighbours(program, movable):
    for rank, row in enumerate(program.rows):
        for source, action in enumerate(row):
            if isinstance(action, movable):
                rest = row[:source] + row[source + 1 :]
                for target in range(len(row)):
                    new = (*rest[:target], action, *rest[target:])
                    yield Program((*program.rows[:rank], new, *program.rows[rank + 1 :]))


@pytest.mark.parametrize("channel", ["eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "batched"])
def test_no_repair_with_fewer_moved_transfers_exists(channel):
    """Against a search through all programs that are one move away; two moves where there are few."""
    source, found = random.Random(5), Counter()
    instance = unit(2, 2, (0, 1, 1, 0), split=False)
    orders = [
        ["0F0 0F1 3F0 3BW0 0BW0 3F1 3BW1 0BW1", "1F0 2F0 1F1 2F1 2BW0 1BW0 2BW1 1BW1"],
        ["0F0 0F1 3F0 3F1 3BW0 3BW1 0BW0 0BW1", "1F0 1F1 2F0 2F1 2BW0 2BW1 1BW0 1BW1"],
    ]
    for number in range(6):
        good = lower(Schedule.parse(orders[number % 2]), instance, reduce=False)
        given = good
        for _ in range(source.randint(1, 3)):
            given = source.choice(list(_neighbours(given, Transfer)))
        result = repair(given, instance, channel=channel)
        assert moves(given, result.program) == result.moved_transfers
        assert compute(result.program) == compute(given)
        if result.level == "fewest" and 0 < result.moved_transfers <= 2:

            def safe(program, instance):
                return verify_program(program, instance, channel=channel).verdict == Verdict.PROVED

            assert _fewest_by_search(given, instance, result.moved_transfers - 1, safe, Transfer) is None
        found[result.moved_transfers, result.level] += 1
    assert {size for size, _ in found} & {1, 2}
    if channel != "batched":
        assert {level for _, level in found} == {"fewest"}


@st.composite
def programs(draw):
    """An instance without caps, and a program of it that is safe under every channel but even-odd."""
    instance, schedule = draw(instances_with_schedules())
    instance = instance.with_cap(None)
    program = lower(schedule, instance, reduce=draw(st.booleans()))
    return instance, program


@settings(max_examples=30, deadline=None)
@given(programs(), st.sampled_from([*QUEUED, "batched"]), st.data())
def test_one_transfer_that_was_moved_is_repaired_by_moving_one_at_most(built, channel, data):
    instance, good = built
    places = [(rank, position) for rank, position, _ in good.transfers()]
    if not places:
        return
    rank, position = data.draw(st.sampled_from(places))
    row = list(good.rows[rank])
    action = row.pop(position)
    row.insert(data.draw(st.integers(0, len(row))), action)
    given = Program((*good.rows[:rank], tuple(row), *good.rows[rank + 1 :]))
    found = repair(given, instance, channel=channel)
    assert found.report.verdict == Verdict.PROVED
    assert found.moved_ops == 0
    assert found.moved_transfers == moves(given, found.program) <= 1
    assert compute(found.program) == compute(given)


@settings(max_examples=30, deadline=None)
@given(programs(), st.sampled_from(QUEUED), st.data())
def test_dropped_and_copied_transfers_are_repaired_without_a_move(built, channel, data):
    instance, good = built
    places = [(rank, position) for rank, position, _ in good.transfers()]
    if not places:
        return
    rank, position = data.draw(st.sampled_from(places))
    row = list(good.rows[rank])
    copied = data.draw(st.booleans())
    if copied:
        row.insert(data.draw(st.integers(0, len(row))), row[position])
    else:
        del row[position]
    given = Program((*good.rows[:rank], tuple(row), *good.rows[rank + 1 :]))
    found = repair(given, instance, channel=channel)
    assert [change.what for change in found.changes] == ["dropped" if copied else "added"]
    assert found.level == "fewest"


@settings(max_examples=30, deadline=None)
@given(programs(), st.data())
def test_one_slot_that_was_moved_is_repaired_by_moving_one_at_most(built, data):
    instance, program = built
    good = program.schedule
    rank = data.draw(st.sampled_from([rank for rank, order in enumerate(good.orders) if order]))
    order = list(good.orders[rank])
    slot = order.pop(data.draw(st.integers(0, len(order) - 1)))
    other = data.draw(st.integers(0, instance.ranks - 1))
    orders = [list(row) if r != rank else order for r, row in enumerate(good.orders)]
    orders[other].insert(data.draw(st.integers(0, len(orders[other]))), slot)
    given = Schedule.of(orders)
    found = repair(given, instance)
    assert found.report.verdict == Verdict.PROVED
    assert found.moved_ops <= 1 + isinstance(slot, Overlap)
    assert all(change.what == "moved" or isinstance(slot, Overlap) for change in found.changes)


@settings(max_examples=10, deadline=None)
@given(programs(), st.randoms(use_true_random=False), st.sampled_from(["rendezvous-pair", "rendezvous-rank"]))
def test_rows_in_any_order_are_repaired(built, source, channel):
    instance, good = built
    rows = [list(row) for row in good.rows]
    for row in rows:
        source.shuffle(row)
    found = repair(Program.of(rows), instance, channel=channel, seconds=1)
    assert verify_program(found.program, instance, channel=channel).verdict == Verdict.PROVED
    assert not repair(found.program, instance, channel=channel).changed


def test_a_missing_op_and_its_transfers_are_added():
    instance = unit(2, 2, split=False)
    good = lower(Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"]), instance)
    lost = ("1F1", "1RECV_F1")
    given = Program.of([action for action in row if str(action) not in lost] for row in good.rows)
    found = repair(given, instance)
    assert {(change.what, change.action) for change in found.changes} == {("added", name) for name in lost}
    assert found.makespan_after == repair(good, instance).makespan_after


def test_a_reduction_that_comes_early_is_moved_behind_the_last_backward():
    instance = unit(1, 2, split=False)
    found = repair(Program.parse(["0F0 0BW0 0REDUCE_GRAD 0F1 0BW1"]), instance)
    assert str(found.program) == "0F0 0BW0 0F1 0BW1 0REDUCE_GRAD"
    assert [change.what for change in found.changes] == ["moved"]


def test_a_pair_of_one_microbatch_is_taken_apart():
    instance = unit(1, 2)
    pair = Overlap(Op("F", 0, 1), Op("BW", 0, 1))
    found = repair(Schedule.of([[Op("F", 0, 0), pair, Op("BW", 0, 0)]]), instance)
    assert Counter(str(slot) for slot in found.program.rows[0]) == Counter(["0F0", "0F1", "0BW1", "0BW0"])
    assert found.level == "fewest"


def test_of_equally_small_repairs_the_faster_is_taken():
    """Either of two ops can be moved to break the circle; one of the two makes the step longer."""
    instance = Instance(
        custom((0, 1), 2),
        3,
        Costs.make(2, F=(1, 5), B=(7, 2), comm=1),
        Memory.make(2, 2),
    )
    given = Schedule.parse(["0F0 0BW0 0F1 0F2 0BW1 0BW2", "1F0 1F1 1BW0 1BW1 1F2 1BW2"])
    found = repair(given, instance)
    times = []
    for program in set(_neighbours(Program.of(given.orders), Op)):
        report = verify(program.schedule, instance)
        if report.verdict == Verdict.PROVED:
            times.append(report.facts.makespan)
    assert found.moved_ops == 1
    assert found.makespan_after == min(times) < max(times)


def test_memory_over_the_cap_is_not_repaired():
    instance = unit(1, 3, split=False, cap=1)
    with pytest.raises(NoRepair, match="V301: memory is over the cap"):
        repair(Schedule.parse(["0F0 0F1 0BW0 0BW1 0F2 0BW2"]), instance)


def test_rows_for_another_number_of_ranks_are_not_repaired():
    with pytest.raises(NoRepair, match="V100: the number of ranks"):
        repair(Schedule.parse(["0F0 0BW0"]), unit(2, 1, split=False))


def test_nothing_unproved_leaves_when_the_time_is_up():
    given = torch_comms.load(TORCH / "bug_defer_DualPipeV_pp3_mb6_comms.csv")
    instance = infer_instance(given.schedule, "file").instance
    found = repair(given, instance, seconds=0)
    assert found.report.verdict == Verdict.PROVED
    assert found.bound_transfers <= 5 <= found.moved_transfers
    for action in itertools.chain.from_iterable(found.program.rows):
        assert isinstance(action, Op | Overlap | Transfer | Collective)
