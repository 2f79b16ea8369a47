"""The verdict on programs against SPIN, an independent model checker, on generated Promela models."""

import random
from collections import Counter

import pytest

from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.schedules.program import CHANNELS, Program, Transfer
from bubbleproof.verify import Verdict, verify_program
from tests.verify.model import pipeline
from tests.verify.promela import AVAILABLE, Model, check
from tests.verify.test_operational import FUSED, SPLIT, disturbed, random_safe_rows

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="spin or gcc is not installed (Debian: apt-get install spin gcc)")

WORLDS = [
    (linear(2), FUSED, 2),
    (linear(2), SPLIT, 2),
    (bidirectional(2), FUSED, 2),
    (vee(2), FUSED, 2),
    (loop(2, 2), FUSED, 2),
    (linear(3), FUSED, 2),
]


def faulty(rows, chance):
    """The rows with one transfer left out, or one twice."""
    rows = [list(row) for row in rows]
    row = chance.choice(rows)
    at = chance.choice([at for at, action in enumerate(row) if isinstance(action, Transfer)])
    if chance.random() < 0.5:
        del row[at]
    else:
        row.insert(chance.randrange(len(row) + 1), row[at])
    return rows


def compare(channel, number, chance, folder):
    """One random program, its verdict and SPIN's."""
    placement, kinds, m = WORLDS[number % len(WORLDS)]
    instance = pipeline(placement=placement, m=m, **({"F": 1, "B": 2} if kinds == FUSED else {}))
    rows = disturbed(random_safe_rows(instance, kinds, m, chance), chance, number % 4)
    if number % 5 == 4:
        rows = faulty(rows, chance)
    program = Program.of(rows)
    report = verify_program(program, instance, channel=channel)
    found = check(Model(program, instance, channel).text(), folder)
    told = f"{channel}: SPIN says {found}, the judge {dict(report.counts)}\n{program}"
    if found == "ok":
        # what is sent and never received ends well where sends wait for nothing
        assert report.verdict is Verdict.PROVED or set(report.counts) == {"V503"}, told
    else:
        assert report.verdict is Verdict.VIOLATED, told
    named = {
        "ok": set(),
        "hang": {"V202", "V601", "V501", "V502", "V503"},
        "wrong": {"V501", "V502", "V503", "V508", "V510"},
        "crash": {"V201", "V502", "V509"},
    }
    assert found == "ok" or named[found] & set(report.counts), told
    return found


@pytest.mark.parametrize("channel", CHANNELS)
def test_spin_agrees_on_a_few_programs(channel, tmp_path):
    chance = random.Random(channel)
    for number in (1, 4):
        compare(channel, number, chance, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("channel", CHANNELS)
def test_spin_agrees_on_many_programs(channel, tmp_path):
    chance = random.Random(f"many {channel}")
    found = Counter(compare(channel, number, chance, tmp_path) for number in range(48))
    print(f"{channel}: {found.total()} programs, {dict(found)}")
    assert {"ok", "hang"} <= set(found)
