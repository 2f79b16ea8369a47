"""Leaps over steady states: taken where they can be, and taken back where a guess is wrong."""

import numpy as np
import pytest

from benchmarks.scale import case
from bubbleproof.verify import bulk, bulk_leap, bulk_run
from bubbleproof.verify.bulk_program import prove_program
from bubbleproof.verify.exchange import Setting


@pytest.fixture
def entered(monkeypatch):
    """How many runs each leap has entered, or −1 where it was taken back."""
    found = []
    enter = bulk_leap._enter

    def watched(runs, starts, here, step, times, time):
        good = enter(runs, starts, here, step, times, time)
        found.append(int(step.sum()) * times if good else -1)
        return good

    monkeypatch.setattr(bulk_leap, "_enter", watched)
    return found


def test_most_of_a_long_schedule_is_leapt_over(entered):
    table, instance = case(32, 600)
    entered.clear()  # making the program takes its times as well
    facts = bulk.prove(table.ops(), instance)
    assert len(entered) == 1
    assert entered[0] > 0.6 * 32 * 600
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_leap, "_LONGEST", 1 << 30)
        assert bulk.prove(table.ops(), instance) == facts
        assert len(entered) == 1


@pytest.mark.parametrize("channel", ["rendezvous-pair", "rendezvous-rank", "eager"])
def test_figures_do_not_depend_on_leaps(entered, channel):
    table, instance = case(20, 400)
    entered.clear()
    with_leaps = prove_program(table, instance, Setting(channel=channel))
    assert entered
    assert max(entered) > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_leap, "_LONGEST", 1 << 30)
        assert prove_program(table, instance, Setting(channel=channel)) == with_leaps


def test_a_guess_that_goes_too_far_is_taken_back(entered, monkeypatch):
    """Beyond the steady state the order is another, so the times there are no longer those of the period."""
    table, instance = case(32, 300)
    facts = bulk.prove(table.ops(), instance)
    assert min(entered) > 0
    periods = bulk_leap._periods

    def too_many(runs, here, step, end):
        return min(int(((end - here) // step).min()), periods(runs, here, step, end) + 40)

    monkeypatch.setattr(bulk_leap, "_periods", too_many)
    assert bulk.prove(table.ops(), instance) == facts
    assert -1 in entered


def test_times_that_could_overflow_are_not_multiplied():
    """Runs without length need the factor; at 10^15 per run a thousand of them have no room for it."""
    none = np.full((1000, 1), 1000)
    runs = bulk_run.Runs(none, np.zeros_like(none), np.full(1000, 10**15), np.array([0, 1000]))
    assert bulk_leap.strict(runs) == (runs, 1)
    some = runs._replace(durations=np.where(np.arange(1000) == 5, 0, 10**15))
    assert bulk_leap.strict(some) is None
    small, factor = bulk_leap.strict(some._replace(durations=some.durations // 10**9))
    assert factor > 1000
    assert small.durations.min() == 1
    starts = bulk_run.earliest_starts(some)
    assert starts[-1] == 998 * 10**15
