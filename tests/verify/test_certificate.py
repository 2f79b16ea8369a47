"""The checker of certificates accepts what its arithmetic gives and nothing above, and names what is wrong."""

from __future__ import annotations

import msgspec
import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.verify.certificate import Certificate, check

# p=4 m=12, F=3 B=4 W=2, a message takes 1, cap of 4 microbatches
LINEAR = Instance(linear(4), 12, Costs.make(4, F=3, B=4, W=2, comm=1), Memory.make(4, 4, cap=4), "span")
VEE = Instance(vee(4), 8, Costs.make(8, F=1, B=1, W=1), Memory.make(8, 4, cap=4), "span")

# each value is worked out by hand from the formula of its rule
CHAIN = Certificate(rule="chain", objective="span", value=4 * 3 + 4 * 4 + 6 * 1 + 2, via=0)
LOAD = Certificate(
    rule="load", objective="span", value=12 * 9 + 3 * (3 + 1) + 3 * 1 + 2 * 4 + (4 + 2) - 4 * 2, rank=3, via=0
)
WINDOW = Certificate(
    rule="window",
    objective="span",
    value=12 * 9 + (34 - 4 * 3 - 4) + 0 + (34 - 3 - 4 * 4 - 3 * 2),
    rank=0,
    via=0,
    windows=(0, 4, 11),
)
ARRIVAL = Certificate(rule="arrival", objective="span", value=8 * 6 + (7 - 3), rank=0, via=0)
RESIDENCE = Certificate(rule="residence", objective="span", value=8 * (17 + 3) // 4, rank=0, via=0)
# rank 3: head 3, work 48, first backward after 8 with room for 4 forwards; then 9 from the last forward to the last
# backward with at most 1 + 4 + 4 to run, or less by each W that is left for the 4 units after it
ENDS = Certificate(rule="ends", objective="span", value=3 + 8 * 6 + (8 - 4) + (9 - 9 + 4), rank=3, via=0)
# rank 0 holds stages 0 and 3, which take 1 and 2 of the cap of 3: two microbatches between the first forward and the
# last stage's backward, 3 + 2 units each, would wait for each other for ever
TIGHT = Instance(vee(2), 4, Costs.make(4, F=1, B=1, W=1), Memory.make(4, 2, F=[1, 1, 2, 2], cap=3), "span")
STAYS = Certificate(rule="stays", objective="span", value=4 * (3 + 2) + 1, rank=0, via=0, weights=(1, 1, 0, 0, 0))
EXAMPLES = [
    (LINEAR, CHAIN),
    (LINEAR, LOAD),
    (LINEAR, WINDOW),
    (VEE, ARRIVAL),
    (VEE, ENDS),
    (VEE, RESIDENCE),
    (TIGHT, STAYS),
]
each = pytest.mark.parametrize(("instance", "certificate"), EXAMPLES, ids=[c.rule for _, c in EXAMPLES])


def changed(certificate: Certificate, **changes: object) -> Certificate:
    return msgspec.structs.replace(certificate, **changes)


@each
def test_the_arithmetic_gives_the_value_worked_out_by_hand(instance: Instance, certificate: Certificate) -> None:
    verdict = check(instance, certificate)
    assert verdict.accepted, verdict.reason
    assert verdict.proved == certificate.value


@each
def test_the_reason_is_an_inequality_in_numbers(instance: Instance, certificate: Certificate) -> None:
    reason = check(instance, certificate).reason
    assert reason.startswith(f"rule {certificate.rule}: the span of rank 0 is at least ")
    assert f"= {certificate.value}" in reason


@each
def test_one_more_than_the_arithmetic_gives_is_refused(instance: Instance, certificate: Certificate) -> None:
    verdict = check(instance, changed(certificate, value=certificate.value + 1))
    assert not verdict.accepted
    assert verdict.proved == certificate.value
    assert f"below the claimed {certificate.value + 1}" in verdict.reason


@each
def test_a_weaker_bound_is_accepted(instance: Instance, certificate: Certificate) -> None:
    assert check(instance, changed(certificate, value=certificate.value - 1)).accepted
    assert check(instance, changed(certificate, value=0)).accepted


@each
def test_a_bound_on_the_span_of_a_rank_is_one_on_the_makespan(instance: Instance, certificate: Certificate) -> None:
    assert check(instance, changed(certificate, objective="makespan")).accepted


@each
def test_a_bound_on_the_whole_step_is_none_on_the_span(instance: Instance, certificate: Certificate) -> None:
    assert check(instance, changed(certificate, objective="makespan", via=-1)).accepted
    verdict = check(instance, changed(certificate, via=-1))
    assert not verdict.accepted
    assert "a bound on the span names the rank" in verdict.reason


@each
def test_the_same_claim_about_a_larger_cap_or_cheaper_ops_is_refused(
    instance: Instance, certificate: Certificate
) -> None:
    cheaper = instance.with_(costs=Costs.make(instance.stages, F=1, B=1, W=0))
    assert not check(cheaper, certificate).accepted
    if certificate.rule != "chain":
        assert not check(instance.with_cap(1000), certificate).accepted


@each
def test_claims_survive_the_way_through_a_file(instance: Instance, certificate: Certificate) -> None:
    text = msgspec.json.encode(certificate)
    assert b'"format":"bubbleproof-certificate/1"' in text
    assert msgspec.json.decode(text, type=Certificate) == certificate


@pytest.mark.parametrize(
    "text",
    [
        b'{"format":"bubbleproof-certificate/2","rule":"load","objective":"span","value":1}',
        b'{"format":"bubbleproof-certificate/1","rule":"hope","objective":"span","value":1}',
        b'{"format":"bubbleproof-certificate/1","rule":"load","objective":"span","value":1.5}',
        b'{"format":"bubbleproof-certificate/1","rule":"load","objective":"span","value":1,"trust":true}',
    ],
    ids=["other format", "unknown rule", "fraction", "unknown key"],
)
def test_other_files_are_no_certificates(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Certificate)


@pytest.mark.parametrize(
    ("certificate", "complaint"),
    [
        (changed(LOAD, rank=0), "below the claimed"),
        (changed(LOAD, rank=2), "below the claimed"),
        (changed(WINDOW, rank=1, via=1), "below the claimed"),
        (changed(LOAD, rank=0, via=3), "passes rank 3 before rank 0"),
        (changed(LOAD, rank=4), "ranks are 0 … 3"),
        (changed(LOAD, via=4), "ranks are 0 … 3"),
        (changed(LOAD, rank=-2), "ranks are 0 … 3"),
        (changed(LOAD, rank=-1), "a rank is named by every rule but chain"),
        (changed(CHAIN, rank=0), "a rank is named by every rule but chain"),
        (changed(CHAIN, via=1), "below the claimed"),
        (changed(LOAD, windows=(0,)), "only the rules window and crossing count windows"),
        (changed(WINDOW, rule="load"), "only the rules window and crossing count windows"),
        (changed(WINDOW, rule="load", windows=()), "below the claimed"),
        (changed(LOAD, rule="guess"), "no such rule"),
        (changed(LOAD, objective="mean"), "no such objective"),
        (changed(RESIDENCE, via=0, rank=1), "the makespan or the span of its own rank"),
    ],
    ids=str,
)
def test_a_tampered_certificate_is_refused_with_the_reason(certificate: Certificate, complaint: str) -> None:
    verdict = check(LINEAR, certificate)
    assert not verdict.accepted
    assert complaint in verdict.reason


@pytest.mark.parametrize(
    "windows", [(0, 3, 11), (0, 4, 4, 11), (4, 0, 11), (0, 4, 10, 11), (-4, 0, 11), (0, 4, 12)], ids=str
)
def test_windows_must_be_microbatches_that_lie_apart(windows: tuple[int, ...]) -> None:
    verdict = check(LINEAR, changed(WINDOW, windows=windows))
    assert not verdict.accepted
    assert "windows must be microbatches 0 … 11, at least 4 apart" in verdict.reason


@pytest.mark.parametrize("windows", [(), (0,), (11,), (4, 8), (1, 5, 11)], ids=str)
def test_fewer_or_other_windows_give_no_more(windows: tuple[int, ...]) -> None:
    proved = check(LINEAR, changed(WINDOW, windows=windows)).proved
    assert proved is not None
    assert proved < WINDOW.value


def test_the_window_rule_refuses_several_chunks_per_rank_and_two_routes() -> None:
    for placement in (vee(2), loop(2, 2), bidirectional(2)):
        stages = placement.stages
        posed = Instance(placement, 4, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, 2, cap=4), "span")
        verdict = check(posed, Certificate(rule="window", objective="span", value=0, rank=0, via=0))
        assert verdict.proved is None
        assert "one chunk per rank" in verdict.reason


def test_the_arrival_rule_refuses_two_routes_that_are_both_used() -> None:
    posed = Instance(bidirectional(2), 2, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 2), "span")
    claim = Certificate(rule="arrival", objective="span", value=0, rank=0, via=0)
    assert "single route" in check(posed, claim).reason
    assert check(posed.with_(microbatches=1), claim).accepted


def test_the_residence_rule_refuses_a_rank_whose_memory_cannot_be_counted() -> None:
    claim = Certificate(rule="residence", objective="span", value=0, rank=0, via=0)
    costs = Costs.make(1, F=1, B=1, W=1)
    no_cap = Instance(linear(1), 2, costs, Memory.make(1, 1), "span")
    growing = Instance(linear(1), 2, costs, Memory.make(1, 1, F=2, B=-3, W=1, cap=4), "span")
    nothing = Instance(linear(1), 2, costs, Memory.make(1, 1, F=0, B=0, cap=4), "span")
    assert "no cap" in check(no_cap, claim).reason
    assert "no cap, or a W that takes memory" in check(growing, claim).reason
    assert "hold no memory" in check(nothing, claim).reason


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ((1, 1, 0, 0), "5 phases"),
        ((1, 1, 0, 0, -1), "at least 0"),
        ((0, 0, 0, 0, 0), "no phase"),
    ],
)
def test_weights_of_stays_are_one_for_each_phase_and_not_negative(weights: tuple[int, ...], complaint: str) -> None:
    verdict = check(TIGHT, changed(STAYS, weights=weights))
    assert not verdict.accepted
    assert complaint in verdict.reason


@pytest.mark.parametrize("weights", [(1, 0, 0, 0, 0), (1, 1, 1, 0, 0), (2, 1, 0, 0, 0), (1, 1, 1, 1, 1)])
def test_other_weights_of_stays_give_no_more(weights: tuple[int, ...]) -> None:
    assert not check(TIGHT, changed(STAYS, weights=weights)).accepted


def test_with_weights_on_w_stays_bounds_no_other_rank() -> None:
    claim = changed(STAYS, rank=1, value=0, weights=(1, 1, 0, 1, 0))
    assert "W" in check(TIGHT, claim).reason
    assert not check(TIGHT, claim).accepted
    assert check(TIGHT, changed(claim, via=1)).accepted


def test_a_rank_that_no_microbatch_passes_has_no_bound() -> None:
    """One microbatch on two routes uses the first route only."""
    from bubbleproof.schedules.placement import custom

    posed = Instance(custom([[0, 0], [1, 1]]), 1, Costs.make(2, F=1, B=1), Memory.make(2, 2), "span")
    claim = Certificate(rule="load", objective="span", value=0, rank=1, via=1)
    assert "no microbatch passes rank 1" in check(posed, claim).reason
    chain = Certificate(rule="chain", objective="span", value=0, via=1)
    assert "no microbatch passes rank 1" in check(posed, chain).reason
