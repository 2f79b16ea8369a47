"""A fault planted at a random place of a random lowered program is named under every channel model.

Each fault comes with what else may follow from it; the machine of `tests.verify.operational` says what becomes of it.
"""

from itertools import accumulate

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.program import CHANNELS, Collective, Program, Transfer
from bubbleproof.verify import Verdict, verify_program
from tests.strategies import instances_with_schedules
from tests.verify.operational import Machine

many = settings(max_examples=25, deadline=None)
SIZES = {"max_ranks": 3, "max_chunks": 2, "max_microbatches": 3}
CHANNEL = st.sampled_from(CHANNELS)


@st.composite
def programs(draw, **options):
    """An instance, a valid program of it, and a channel under which it runs."""
    instance, schedule = draw(instances_with_schedules(**{**SIZES, **options}))
    program = lower(schedule, instance)
    channel = draw(CHANNEL)
    assume(channel != "even-odd" or verify_program(program, instance, channel=channel).verdict is Verdict.PROVED)
    return instance, program, channel


def pick(data, program, wanted):
    """A random (rank, position, action) among those wanted."""
    found = [place for place in program.actions() if wanted(place[2])]
    assume(found)
    return data.draw(st.sampled_from(found))


def edited(program, rank, change):
    """The program with the row of one rank changed in place by a function."""
    rows = [list(row) for row in program.rows]
    change(rows[rank])
    return Program.of(rows)


def moved(program, rank, old, new):
    """The program with one action of a rank taken out and put back at a position of the rest."""
    return edited(program, rank, lambda row: row.insert(new, row.pop(old)))


def named(program, instance, channel, rule, also=(), **options):
    """The violations of a rule that must be broken; no others may be than those that follow from the fault."""
    report = verify_program(program, instance, channel=channel, listed_per_rule=100, **options)
    assert report.verdict is Verdict.VIOLATED
    assert rule in report.counts, (dict(report.counts), channel, str(program))
    assert set(report.counts) <= {rule, *also}, (dict(report.counts), channel, str(program))
    return [violation for violation in report.violations if violation.rule == rule]


def agrees(program, instance, channel):
    """Hold the verdict and the places where ranks stop against the machine; what becomes of the program."""
    machine = Machine(program, instance, channel)
    found, _ = machine.explore()
    report = verify_program(program, instance, channel=channel)
    if report.verdict is Verdict.PROVED:
        assert found == {"ok"}, (found, str(program))
    if "crash" not in found:
        assert machine.stops == {report.channel.stops}, (machine.stops, report.channel.stops, str(program))
    return found


def is_send(action):
    return isinstance(action, Transfer) and action.sends


def is_receive(action):
    return isinstance(action, Transfer) and not action.sends


def is_transfer(action):
    return isinstance(action, Transfer)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_lowered_program_passes_and_runs(data):
    instance, schedule = data.draw(instances_with_schedules(**SIZES))
    channel = data.draw(CHANNEL)
    program = lower(schedule, instance)
    assert program.schedule == schedule
    report = verify_program(program, instance, channel=channel)
    assert report.verdict is Verdict.PROVED or (channel == "even-odd" and set(report.counts) == {"V601"})
    if sum(map(len, program.rows)) <= 40:
        found = agrees(program, instance, channel)
        assert found == ({"ok"} if report.verdict is Verdict.PROVED else {"hang"})


@many
@given(st.data())
def test_a_dropped_send_or_receive_is_missing(data):
    instance, program, channel = data.draw(programs())
    rank, position, transfer = pick(data, program, is_transfer)
    broken = edited(program, rank, lambda row: row.pop(position))
    (violation,) = named(broken, instance, channel, "V501" if transfer.sends else "V502")
    assert (violation.rank, violation.op) == (rank, str(transfer))
    if sum(map(len, program.rows)) <= 30:
        assert agrees(broken, instance, channel) & {"hang", "crash", "wrong"} or (not transfer.sends)


@many
@given(st.data())
def test_a_second_copy_of_a_transfer_is_named(data):
    instance, program, channel = data.draw(programs())
    rank, _, transfer = pick(data, program, is_transfer)
    at = data.draw(st.integers(0, len(program.rows[rank])))
    broken = edited(program, rank, lambda row: row.insert(at, transfer))
    # the first copy counts; standing earlier, a send may leave too early, either may cross others or close a circle
    (violation,) = named(broken, instance, channel, "V503", ("V508", "V510", "V601"))
    assert (violation.rank, violation.op) == (rank, str(transfer))
    if sum(map(len, program.rows)) <= 30:
        agrees(broken, instance, channel)


@many
@given(st.data())
def test_a_transfer_of_nothing_that_exists_is_named(data):
    instance, program, channel = data.draw(programs())
    rank = data.draw(st.integers(0, instance.ranks - 1))
    at = data.draw(st.integers(0, len(program.rows[rank])))
    kind = data.draw(st.sampled_from(["SEND_F", "RECV_F", "SEND_B", "RECV_B"]))
    unknown = data.draw(st.booleans())
    if unknown:
        transfer = data.draw(
            st.sampled_from([Transfer(kind, instance.stages, 0), Transfer(kind, 0, instance.microbatches)])
        )
    else:
        first = kind in ("RECV_F", "SEND_B")
        transfer = Transfer(kind, 0 if first else instance.stages - 1, 0)
    broken = edited(program, rank, lambda row: row.insert(at, transfer))
    rule = "V504" if unknown else "V505"
    # a group of transfers is not split by one that does nothing, so nothing else changes
    (violation,) = named(broken, instance, channel, rule)
    assert (violation.rank, violation.position, violation.op) == (rank, at, str(transfer))


@many
@given(st.data())
def test_a_transfer_between_two_stages_of_one_rank_is_named(data):
    instance, program, channel = data.draw(programs())
    edges = [
        (s, j)
        for s in range(instance.stages - 1)
        for j in range(instance.microbatches)
        if instance.rank_of(s, j) == instance.rank_of(s + 1, j)
    ]
    assume(edges)
    stage, j = data.draw(st.sampled_from(edges))
    rank = instance.rank_of(stage, j)
    transfer = data.draw(st.sampled_from([Transfer("SEND_F", stage, j), Transfer("RECV_B", stage, j)]))
    at = data.draw(st.integers(0, len(program.rows[rank])))
    broken = edited(program, rank, lambda row: row.insert(at, transfer))
    (violation,) = named(broken, instance, channel, "V506")
    assert (violation.rank, violation.position, violation.op) == (rank, at, str(transfer))


@many
@given(st.data())
def test_a_transfer_on_another_rank_is_named(data):
    instance, program, channel = data.draw(programs())
    assume(instance.ranks > 1)
    rank, position, transfer = pick(data, program, is_transfer)
    other = data.draw(st.integers(0, instance.ranks - 1).filter(lambda r: r != rank))
    at = data.draw(st.integers(0, len(program.rows[other])))
    broken = edited(edited(program, rank, lambda row: row.pop(position)), other, lambda row: row.insert(at, transfer))
    (violation,) = named(broken, instance, channel, "V507")
    assert (violation.rank, violation.position, violation.op) == (other, at, str(transfer))
    assert violation.witness == {"belongs_on": rank}


def makes(send):
    """The ops that make what a send takes along."""
    kinds = ("F",) if send.direction == "F" else ("B", "BW")
    return {Op(kind, send.stage, send.microbatch) for kind in kinds}


@many
@given(st.data())
def test_a_send_before_the_op_that_makes_it_is_named(data):
    instance, program, channel = data.draw(programs())
    rank, position, send = pick(data, program, is_send)
    producer = next(at for at, action in enumerate(program.rows[rank]) if makes(send) & set(members(action)))
    broken = moved(program, rank, position, data.draw(st.integers(0, producer)))
    (violation,) = named(broken, instance, channel, "V508", ("V510", "V601"))
    assert (violation.rank, violation.op) == (rank, str(send))
    if sum(map(len, program.rows)) <= 30:
        assert agrees(broken, instance, channel) != {"ok"}


@many
@given(st.data())
def test_a_receive_behind_the_op_that_uses_it_is_named(data):
    instance, program, channel = data.draw(programs())
    rank, position, receive = pick(data, program, is_receive)
    user = next(at for at, action in enumerate(program.rows[rank]) if makes(receive) & set(members(action)))
    broken = moved(program, rank, position, data.draw(st.integers(user, len(program.rows[rank]) - 1)))
    (violation,) = named(broken, instance, channel, "V509", ("V510", "V601"))
    assert (violation.rank, violation.op) == (rank, str(receive))
    if sum(map(len, program.rows)) <= 30:
        assert agrees(broken, instance, channel) != {"ok"}


@many
@given(st.data())
def test_two_exchanged_receives_are_silent_wrong_data(data):
    instance, program, channel = data.draw(programs(max_microbatches=4))
    apart = channel in ("per-direction", "even-odd")
    rank, position, receive = pick(data, program, is_receive)

    def lane(transfer):
        return instance.rank_of(transfer.peer_stage, transfer.microbatch), transfer.direction if apart else ""

    others = [
        at
        for at, action in enumerate(program.rows[rank])
        if at != position and is_receive(action) and lane(action) == lane(receive)
    ]
    assume(others)
    other = data.draw(st.sampled_from(others))

    def exchange(row):
        row[position], row[other] = row[other], row[position]

    broken = edited(program, rank, exchange)
    shapes = [(1,)] * instance.stages
    # a receive that moves back may come too late for its op; even-odd may call the two in their old order
    report = verify_program(broken, instance, channel=channel)
    assume(channel != "even-odd" or "V510" in report.counts or report.verdict is not Verdict.PROVED)
    (violation,) = named(broken, instance, channel, "V510", ("V509", "V601"), inputs=shapes, outputs=shapes)
    assert violation.rank == rank
    assert violation.message.startswith("silent wrong data")
    wrong = {entry["received"] for entry in violation.witness["wrong"]}
    assert wrong <= {str(receive), str(program.rows[rank][other])}
    if sum(map(len, program.rows)) <= 30:
        assert agrees(broken, instance, channel) & {"wrong", "hang", "crash"}


@many
@given(st.data())
def test_a_receive_that_waits_in_front_of_what_it_depends_on_is_a_deadlock(data):
    """A gradient is awaited in front of the send of the output that it comes from, in the same queue."""
    instance, schedule = data.draw(instances_with_schedules(**SIZES))
    program = lower(schedule, instance)
    channel = data.draw(st.sampled_from(["rendezvous-pair", "rendezvous-rank"]))
    rank, position, receive = pick(data, program, lambda action: is_receive(action) and action.kind == "RECV_B")
    send = program.rows[rank].index(Transfer("SEND_F", receive.stage, receive.microbatch))
    broken = moved(program, rank, position, data.draw(st.integers(0, send)))
    (violation,) = named(broken, instance, channel, "V601", ("V510",))
    waits = violation.witness["waits"]
    assert 2 <= len(waits) <= instance.ranks
    for wait, after in zip(waits, [*waits[1:], waits[0]], strict=True):
        assert wait["waits_for_rank"] == after["rank"]
        assert str(broken.rows[wait["rank"]][wait["position"]]) == wait["op"]
        assert str(broken.rows[wait["rank"]][wait["behind_position"]]) == wait["behind"]
    if sum(map(len, program.rows)) <= 30:
        assert "hang" in agrees(broken, instance, channel)


@many
@given(st.data())
def test_a_reduction_left_out_or_twice_or_early_or_elsewhere_is_named(data):
    instance, program, channel = data.draw(programs())
    rank, position, reduction = pick(data, program, lambda action: isinstance(action, Collective))
    row = program.rows[rank]
    fault = data.draw(st.sampled_from(["out", "twice", "early", "elsewhere"]))
    if fault == "out":
        broken = edited(program, rank, lambda row: row.pop(position))
        alone = sum(1 for _ in program.collectives()) == 1
        # without any, and for no runtime that would scale the gradients here, the runtime is taken to reduce
        options = {"target": "torch"} if alone else {}
        assume(not (alone and instance.microbatches == 1))
        (violation,) = named(broken, instance, channel, "V701", ("V705",), **options)
        assert violation.position is None
    elif fault == "twice":
        at = data.draw(st.integers(position + 1, len(row)))
        broken = edited(program, rank, lambda row: row.insert(at, reduction))
        (violation,) = named(broken, instance, channel, "V702")
        assert violation.position == at
    elif fault == "early":
        last = max(
            at
            for at, action in enumerate(row)
            for op in members(action)
            if op.kind in ("W", "BW") and op.stage == reduction.stage
        )
        at = data.draw(st.integers(0, last))
        broken = moved(program, rank, position, at)
        # it may part a group of transfers, or stand no longer between two groups
        (violation,) = named(broken, instance, channel, "V703", ("V601",) if channel in ("batched", "even-odd") else ())
        assert violation.position == at
    else:
        held = instance.placement.stages_of_rank
        others = [r for r in range(instance.ranks) if reduction.stage not in held[r]]
        assume(others)
        other = data.draw(st.sampled_from(others))
        at = data.draw(st.integers(0, len(program.rows[other])))
        broken = edited(program, other, lambda row: row.insert(at, reduction))
        (violation,) = named(broken, instance, channel, "V704", ("V601",) if channel in ("batched", "even-odd") else ())
        assert (violation.rank, violation.position) == (other, at)
        return
    assert (violation.rank, violation.op) == (rank, str(reduction))


@many
@given(st.data())
def test_a_shape_that_differs_on_one_edge_is_named(data):
    instance, program, channel = data.draw(programs())
    assume(instance.stages > 1)
    shapes = [(stage + 1, 8) for stage in range(instance.stages + 1)]
    inputs, outputs = list(shapes[:-1]), list(shapes[1:])
    assert verify_program(program, instance, channel=channel, inputs=inputs, outputs=outputs).verdict is Verdict.PROVED
    stage = data.draw(st.integers(0, instance.stages - 2))
    outputs[stage] = data.draw(st.sampled_from([(), (1,), (stage + 2, 9)]))
    (violation,) = named(program, instance, channel, "V802", inputs=inputs, outputs=outputs)
    assert violation.witness["stage"] == stage
    inputs[stage + 1] = None  # an unknown shape agrees with every other
    assert verify_program(program, instance, channel=channel, inputs=inputs, outputs=outputs).verdict is Verdict.PROVED


@many
@given(st.data())
def test_a_split_backward_of_a_stage_that_cannot_split_is_named(data):
    instance, program, channel = data.draw(programs())
    stage = data.draw(st.integers(0, instance.stages - 1))
    halves = [op for _, _, action in program.actions() for op in members(action) if op.stage == stage]
    halves = [op for op in halves if op.kind in ("B", "W")]
    assume(halves)
    found = named(program, instance, channel, "V706", fused_stages=[stage])
    assert sorted(violation.op for violation in found) == sorted(map(str, halves))


@many
@given(st.data())
def test_forwards_of_the_last_stage_out_of_order_are_wrong_for_torch_only(data):
    instance, program, channel = data.draw(programs(routes=False))
    last = instance.stages - 1
    forwards = [
        op.microbatch for _, _, a in program.actions() for op in members(a) if (op.kind, op.stage) == ("F", last)
    ]
    report = verify_program(program, instance, channel=channel, target="torch")
    assert ("V705" in report.counts) == (forwards != sorted(forwards))
    assert set(report.counts) <= {"V705"}


@many
@given(st.data())
def test_a_dropped_op_of_a_program_is_missing(data):
    instance, program, channel = data.draw(programs(pairs=False))
    rank, position, op = pick(data, program, lambda action: isinstance(action, Op))
    broken = edited(program, rank, lambda row: row.pop(position))
    # an op gone, groups of transfers around it may become one
    also = ("V601",) if channel in ("batched", "even-odd") else ()
    (violation,) = named(broken, instance, channel, "V101", also)
    usual = "B" if op.kind == "BW" and instance.costs.split else op.kind
    assert (violation.rank, violation.op) == (rank, str(op._replace(kind=usual)))


@pytest.mark.parametrize("channel", CHANNELS)
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_any_rows_are_judged_as_the_machine_runs_them(channel, data):
    """Transfers left out, copied, moved to any place, any number of them."""
    instance, schedule = data.draw(instances_with_schedules(max_ranks=3, max_chunks=1, max_microbatches=2))
    program = lower(schedule, instance, reduce=False)
    assume(any(True for _ in program.transfers()))
    for _ in range(data.draw(st.integers(1, 4))):
        rank, position, transfer = pick(data, program, is_transfer)
        at = data.draw(st.integers(0, len(program.rows[rank]) - 1))
        match data.draw(st.sampled_from(["drop", "copy", "move"])):
            case "drop" if sum(1 for _ in program.transfers()) > 1:
                program = edited(program, rank, lambda row, position=position: row.pop(position))
            case "copy":
                program = edited(program, rank, lambda row, at=at, transfer=transfer: row.insert(at, transfer))
            case _:
                program = moved(program, rank, position, at)
    agrees(program, instance, channel)


def peaks_with_buffers(program, instance, sizes, *, kept):
    """The peak of each rank: its level after every event of its row, as a list of events that are then added up."""
    peaks = []
    for rank, row in enumerate(program.rows):
        events = [instance.memory.static[rank]]
        for action in row:
            if isinstance(action, Transfer):
                size = sizes[min(action.stage, action.peer_stage)]
                events += [size] if kept or not action.sends else [size, -size]
            for op in members(action):
                change = instance.memory.of(op.kind, op.stage)
                receive = Transfer("RECV_F" if op.kind == "F" else "RECV_B", op.stage, op.microbatch)
                if op.kind != "W" and receive in row:
                    change -= sizes[min(receive.stage, receive.peer_stage)]
                events.append(change)
        peaks.append(max(accumulate(events)))
    return peaks


@many
@given(st.data())
def test_a_cap_one_below_the_peak_with_buffers_is_broken(data):
    instance, program, channel = data.draw(programs())
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=instance.stages, max_size=instance.stages))
    target = data.draw(st.sampled_from([None, "torch"]))
    peaks = peaks_with_buffers(program, instance, sizes, kept=target == "torch")
    options = {"channel": channel, "message_memory": sizes, "target": target}
    plain = verify_program(program, instance, channel=channel).facts.peak
    caps = tuple(map(max, peaks, plain))
    assert not {"V301", "V801"} & set(verify_program(program, instance.with_cap(caps), **options).counts)
    rank = data.draw(st.integers(0, instance.ranks - 1))
    assume(peaks[rank] > plain[rank])
    tight = instance.with_cap(tuple(cap - (r == rank) for r, cap in enumerate(caps)))
    (violation,) = named(program, tight, channel, "V801", ("V705",), message_memory=sizes, target=target)
    assert violation.rank == rank
    assert violation.witness == {"level": peaks[rank], "peak": peaks[rank], "cap": peaks[rank] - 1}
