"""The verdict on programs against every interleaving of a machine that runs them, under every channel model."""

import random
from collections import Counter
from functools import cache
from itertools import pairwise, product

import pytest

from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.schedules.program import CHANNELS, Program, Transfer
from bubbleproof.verify import Verdict, verify_program
from tests.verify.model import pipeline
from tests.verify.operational import Machine

SPLIT, FUSED = ("F", "B", "W"), ("F", "BW")


def actions(instance, kinds, m):
    """For each rank its ops and transfers, and the pairs of them that a sane row keeps in order."""
    rows = [[] for _ in range(instance.ranks)]
    keep = [[] for _ in range(instance.ranks)]
    back = kinds[1]
    for j in range(m):
        for s in range(instance.stages):
            rank = instance.rank_of(s, j)
            ops = [Op(kind, s, j) for kind in kinds]
            rows[rank] += ops
            keep[rank] += list(pairwise(ops))
            for peer, before, after in ((s - 1, "RECV_F", "SEND_B"), (s + 1, "RECV_B", "SEND_F")):
                if not 0 <= peer < instance.stages:
                    continue
                if instance.rank_of(peer, j) == rank:
                    if peer < s:
                        keep[rank] += [(Op("F", peer, j), Op("F", s, j)), (Op(back, s, j), Op(back, peer, j))]
                    continue
                receive, send = Transfer(before, s, j), Transfer(after, s, j)
                rows[rank] += [receive, send]
                keep[rank].append((receive, Op("F" if before == "RECV_F" else back, s, j)))
                keep[rank].append((Op("F" if after == "SEND_F" else back, s, j), send))
    return rows, keep


def extensions(items, keep):
    """Every order of the items that keeps the given pairs in order."""
    index = {item: number for number, item in enumerate(items)}
    before = [0] * len(items)
    for a, b in keep:
        before[index[b]] |= 1 << index[a]

    @cache
    def rest(used):
        if used == (1 << len(items)) - 1:
            return [()]
        return [
            (number, *tail)
            for number in range(len(items))
            if not used >> number & 1 and before[number] & ~used == 0
            for tail in rest(used | 1 << number)
        ]

    return [tuple(items[number] for number in order) for order in rest(0)]


def agrees(rows, instance, channel):
    """Hold one verdict against all interleavings; what becomes of the program."""
    program = Program.of(rows)
    machine = Machine(program, instance, channel)
    found, _ = machine.explore()
    report = verify_program(program, instance, channel=channel)
    named = set(report.counts)
    told = f"{channel}: {sorted(found)}, but the judge says {dict(report.counts)}\n{program}"
    assert (report.verdict is Verdict.PROVED) == (found == {"ok"}), told
    # what races can only be whether a message is made before it leaves; everything else is the same every time
    assert len(found - {"wrong"}) <= 1 or "V508" in named, told
    if "crash" in found:
        assert named & {"V201", "V509"}, told
        return " or ".join(sorted(found))
    assert machine.stops == {report.channel.stops}, told
    assert not found & {"wrong"} or named & {"V508", "V510"}, told
    if "hang" in found:
        assert named & {"V202", "V601"}, told
    else:
        # the ops of crossed messages may wait in a circle by their names, and run all the same
        assert "V601" not in named, told
        assert "V202" not in named or "V510" in named, told
    return " and ".join(sorted(found)) if "hang" in found else " or ".join(sorted(found))


def orders(placement, kinds, m, sane):
    instance = pipeline(placement=placement, m=m, **({"F": 1, "B": 2} if kinds == FUSED else {}))
    rows, keep = actions(instance, kinds, m)
    return instance, [extensions(row, pairs if sane else []) for row, pairs in zip(rows, keep, strict=True)]


SAFE = {
    "rendezvous-pair": 1,
    "rendezvous-rank": 1,
    "batched": 2,
    "even-odd": 2,
    "eager": 3,
    "per-direction": 3,
    "per-edge": 3,
}
"""Rank 1 has one row that works. Rank 0 has 0F0 0SEND_F0 0RECV_B0 0BW0; its receive may stand before the send where
groups of transfers are not served in that order, and before the forward where nothing at all waits behind it."""


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_order_of_one_microbatch_on_two_ranks(channel):
    instance, (first, second) = orders(linear(2), FUSED, 1, sane=False)
    verdicts = Counter(agrees(rows, instance, channel) for rows in product(first, second))
    assert verdicts.total() == 24 * 24
    assert verdicts["ok"] == SAFE[channel]


def random_safe_rows(instance, kinds, m, chance):
    """Rows out of one random order of everything, in which both ends of a message are one."""
    rows, keep = actions(instance, kinds, m)
    rank_of = {action: rank for rank, row in enumerate(rows) for action in row}
    before = {action: set() for action in rank_of}
    for pairs in keep:
        for a, b in pairs:
            before[b].add(a)
    made = [[] for _ in rows]
    done = set()
    while len(done) < len(before):
        ready = []
        for action, needs in before.items():
            if action in done or (isinstance(action, Transfer) and not action.sends):
                continue
            if needs <= done:
                ready.append(action)
        action = chance.choice(ready)
        ends = [action, action.other_end] if isinstance(action, Transfer) else [action]
        for end in ends:
            made[rank_of[end]].append(end)
            done.add(end)
    return made


def disturbed(rows, chance, swaps):
    """The rows with some neighbours exchanged."""
    rows = [list(row) for row in rows]
    for _ in range(swaps):
        row = chance.choice(rows)
        at = chance.randrange(len(row) - 1)
        row[at], row[at + 1] = row[at + 1], row[at]
    return rows


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(
    ("placement", "kinds", "m"),
    [
        (linear(2), FUSED, 2),
        (linear(2), SPLIT, 2),
        (bidirectional(2), FUSED, 2),
        (vee(2), FUSED, 2),
        (loop(2, 2), FUSED, 2),
        (linear(3), FUSED, 2),
        (loop(3, 2), FUSED, 1),
    ],
    ids=["linear", "split", "bidirectional", "vee", "loop", "three ranks", "loop of three"],
)
def test_random_rows_with_neighbours_exchanged(placement, kinds, m, channel):
    instance = pipeline(placement=placement, m=m, **({"F": 1, "B": 2} if kinds == FUSED else {}))
    chance = random.Random(f"{placement}{kinds}{channel}")
    verdicts = Counter()
    for number in range(40):
        rows = random_safe_rows(instance, kinds, m, chance)
        verdict = agrees(disturbed(rows, chance, number % 4), instance, channel)
        if number % 4 == 0 and channel != "even-odd":  # which exchanges calls
            assert verdict == "ok"
        verdicts[verdict] += 1
    assert len(verdicts) > 1


def machine_says(rows, instance, channel):
    return Machine(Program.of(rows), instance, channel).explore()[0]


def small_worlds():
    """A third of the sane rows of one microbatch on a vee, and random rows of larger worlds; whether surely sane."""
    instance, (first, second) = orders(vee(2), FUSED, 1, sane=True)
    for rows in product(first[::3], second):
        yield rows, instance, True
    chance = random.Random(8)
    for placement in (linear(3), loop(2, 2), bidirectional(2)):
        instance = pipeline(placement=placement, m=2, F=1, B=2)
        for number in range(60):
            yield disturbed(random_safe_rows(instance, FUSED, 2, chance), chance, number % 3), instance, False


def test_what_runs_with_blocking_calls_runs_under_every_model_that_keeps_their_order():
    """Theorem 8 of docs/semantics.md, and the remark on one queue for all transfers of a rank."""
    safe = hangs = 0
    for rows, instance, sane in small_worlds():
        blocking = machine_says(rows, instance, "rendezvous-rank")
        if "crash" in blocking or "wrong" in blocking:
            continue
        if blocking == {"hang"}:
            hangs += 1
            # a message may meet another fault first where one is not whole
            assert machine_says(rows, instance, "one-queue") & ({"hang"} if sane else {"hang", "crash", "wrong"})
            continue
        safe += 1
        for channel in (*CHANNELS, "one-queue"):
            if channel != "even-odd":
                assert machine_says(rows, instance, channel) == {"ok"}, (channel, str(Program.of(rows)))
    assert safe > 50
    assert hangs > 500


WORLDS = {
    # placement, kinds, microbatches, whether only rows in which a send stands after its producer and a receive before
    # its consumer, how many rows each rank has
    "linear, one microbatch, split, any order": (linear(2), SPLIT, 1, False, (120, 120)),
    "linear": (linear(2), FUSED, 2, True, (1750, 70)),
    "bidirectional": (bidirectional(2), FUSED, 2, True, (350, 350)),
    "vee": (vee(2), FUSED, 1, True, (350, 17)),
}


@pytest.mark.slow
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("world", WORLDS)
def test_every_placement_of_transfers_on_two_ranks(world, channel):
    placement, kinds, m, sane, counts = WORLDS[world]
    instance, (first, second) = orders(placement, kinds, m, sane)
    assert (len(first), len(second)) == counts
    left_out = 0
    verdicts = Counter()
    for rows in product(first, second):
        # the other half is this one with other names
        other = mirrored(world, channel, rows)
        if other < rows:
            left_out += 1
        else:
            verdicts[agrees(rows, instance, channel)] += 1
    print(f"{world}, {channel}: {verdicts.total()} of {len(first) * len(second)} programs, {dict(verdicts)}")
    assert verdicts.total() + left_out == len(first) * len(second)
    assert {"ok", "hang"} <= set(verdicts)


def mirrored(world, channel, rows):
    """The same program with the microbatches renamed (and the ranks with them where each has its own); or itself."""
    if world == "linear":
        return tuple(tuple(action._replace(microbatch=1 - action.microbatch) for action in row) for row in rows)
    if world == "bidirectional" and channel != "even-odd":
        return tuple(
            tuple(action._replace(microbatch=1 - action.microbatch) for action in row) for row in reversed(rows)
        )
    return rows
