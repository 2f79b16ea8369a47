"""Every family: each op once, on its rank, no deadlock, whatever the costs; errors that say what is wanted."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.families import FAMILIES, build, get
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import bidirectional, custom, linear, loop, vee, wave
from bubbleproof.verify import Verdict, verify
from tests.schedules.families.sizes import equal

NAMES = [
    "naive",
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "interleaved-1f1b",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "interleaved-zb",
    "chimera",
    "hanayo",
    "dualpipe",
    "dualpipev",
]
FUSED = ["naive", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "chimera", "hanayo"]
SPLIT = ["zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-zb"]


def test_all_families_are_registered_under_their_names():
    assert list(FAMILIES) == NAMES
    assert [family.name for family in FAMILIES.values()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_judge_proves_every_schedule_of_a_family(name):
    family = FAMILIES[name]
    built = 0
    for p in (1, 2, 3, 4, 6):
        for v in (1, 2, 3, 4) if name in ("interleaved-1f1b", "interleaved-zb", "looped-bfs", "hanayo") else (2,):
            for m in {1, 2, 3, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 3, 4 * p, 4 * p + 2}:
                instance = equal(family.placement(p, v), m, 3, 4, 2, comm=1)
                if family.applicable(instance) is None:
                    report = verify(family.build(instance), instance)
                    assert report.verdict is Verdict.PROVED, (p, v, m, report.violations[:1])
                    built += 1
    assert built >= 5


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_applicable_exactly_where_it_can_be_built(name):
    family = FAMILIES[name]
    placements = [linear(4), loop(4, 2), vee(4), wave(4, 4), bidirectional(4), bidirectional(3), custom([0, 1, 1], 2)]
    answers = set()
    for placement in placements:
        for m in (1, 4, 7, 8, 9):
            for w in (1, None):
                instance = equal(placement, m, W=w)
                reason = family.applicable(instance)
                answers.add(reason is None)
                if reason is None:
                    assert family.build(instance).ranks == placement.ranks
                else:
                    with pytest.raises(FamilyError) as error:
                        family.build(instance)
                    assert str(error.value) == f"{name} {reason}"
    assert answers == ({True} if name == "naive" else {True, False})


@settings(deadline=None)
@given(
    name=st.sampled_from(NAMES),
    p=st.integers(1, 6),
    v=st.integers(1, 4),
    m=st.integers(1, 20),
    times=st.tuples(*[st.integers(0, 9)] * 4),
)
def test_an_order_does_not_depend_on_the_costs(name, p, v, m, times):
    placement = FAMILIES[name].placement(p, v)
    plain, other = (
        equal(placement, m),
        equal(placement, m, *times[:3], comm=times[3], memory={"F": 3, "B": -2, "W": -1}),
    )
    if FAMILIES[name].applicable(plain) is None:
        schedule = build(name, plain)
        assert schedule == build(name, other)
        counts = Counter(op for _, _, op in schedule.ops())
        assert set(counts.values()) == {1}
        for stage in range(placement.stages):
            for j in range(m):
                assert Op("F", stage, j) in counts
                halves = [Op(kind, stage, j) in counts for kind in ("BW", "B", "W")]
                assert halves in ([True, False, False], [False, True, True])


def test_families_of_fused_backwards_use_bw_and_zero_bubble_families_b_and_w():
    for name in FUSED + SPLIT:
        placement = FAMILIES[name].placement(4, FAMILIES[name].chunks)
        kinds = build(name, equal(placement, 4)).kinds
        assert kinds == ({"F", "BW"} if name in FUSED else {"F", "B", "W"})
        if name in FUSED:
            assert build(name, equal(placement, 4, W=None)) == build(name, equal(placement, 4))


def test_pairs_overlap_a_forward_with_a_fused_backward_of_another_microbatch():
    for name in ("dualpipe", "dualpipev"):
        schedule = build(name, equal(FAMILIES[name].placement(4, 2), 12))
        pairs = [slot for _, _, slot in schedule.slots() if isinstance(slot, Overlap)]
        assert pairs
        assert all(f.kind == "F" and b.kind == "BW" and f.microbatch != b.microbatch for f, b in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_needs_split_says_whether_a_fused_instance_is_refused(name):
    family = FAMILIES[name]
    fused = equal(family.placement(4, family.chunks), 4 if name == "hanayo" else 8, W=None)
    assert (family.applicable(fused) is not None) == family.needs_split
    if family.needs_split:
        assert "split" in family.applicable(fused)


def test_the_ranks_of_a_one_chunk_family_may_come_in_any_order():
    order = [2, 0, 3, 1]
    for name in ("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"):
        straight = build(name, equal(linear(4), 6))
        permuted = build(name, equal(custom(order), 6))
        assert [permuted.orders[rank] for rank in order] == list(straight.orders)


def test_a_placement_counts_by_its_map_and_not_by_its_name():
    assert build("zb-v", equal(wave(3, 2), 5)) == build("zb-v", equal(vee(3), 5))
    assert build("1f1b", equal(loop(3, 1), 5)) == build("1f1b", equal(linear(3), 5))


@pytest.mark.parametrize(
    ("name", "instance", "said"),
    [
        ("1f1b", equal(loop(4, 2), 8), "one stage per rank .a linear placement.*loop with 8 stages on 4 ranks"),
        ("gpipe", equal(bidirectional(4), 8), "bidirectional with 4 stages on two routes"),
        ("interleaved-1f1b", equal(vee(4), 8), "loop placement"),
        ("interleaved-1f1b", equal(loop(4, 2), 3), "m ≥ p .*m = 3, p = 4"),
        ("interleaved-zb", equal(loop(4, 2), 8, W=None), "split"),
        ("looped-bfs", equal(vee(4), 8), "loop placement"),
        ("zb-h1", equal(linear(4), 8, W=None), "split"),
        ("zb-v", equal(loop(4, 2), 8), "vee placement"),
        ("v-half", equal(linear(4), 8), "vee placement"),
        ("v-min", equal(vee(4), 8, W=None), "split"),
        ("chimera", equal(linear(4), 8), "bidirectional placement"),
        ("chimera", equal(bidirectional(3), 6), "even p and even m.*p = 3, m = 6"),
        ("chimera", equal(bidirectional(4), 7), "even p and even m.*m = 7"),
        ("chimera", equal(bidirectional(2), 4).with_(route_of_microbatch=(0, 0, 0, 1)), "half .* 3 and 1"),
        ("hanayo", equal(wave(4, 3), 4), "even number 2w of chunks per rank; this one has 3"),
        ("hanayo", equal(wave(4, 2), 8), "m = p.*m = 8, p = 4"),
        ("dualpipe", equal(bidirectional(4), 6), "m ≥ 2p.*p = 4, m = 6"),
        ("dualpipe", equal(bidirectional(3), 6), "even p"),
        ("dualpipe", equal(bidirectional(2), 4).with_(route_of_microbatch=(0, 1, 1, 1)), "half .* 1 and 3"),
        ("dualpipev", equal(vee(4), 7), "m ≥ 2p.*m = 7, p = 4"),
    ],
)
def test_an_unmet_precondition_is_named_with_the_values(name, instance, said):
    with pytest.raises(FamilyError, match=f"^{name} needs .*{said}"):
        build(name, instance)


def test_an_unknown_name_gets_the_nearest_known_one():
    with pytest.raises(FamilyError, match="'zbh1'; did you mean 'zb-h1'"):
        build("zbh1", equal(linear(2), 2))
    with pytest.raises(FamilyError, match="did you mean 'interleaved-1f1b'"):
        get("Interleaved_1F1B")
    with pytest.raises(FamilyError, match="known: naive, gpipe"):
        get("xyzzy")


def test_an_unknown_option_is_refused():
    with pytest.raises(FamilyError, match="1f1b takes no option 'group'; its options: none"):
        build("1f1b", equal(linear(2), 2), group=2)
    with pytest.raises(FamilyError, match="'n'; its options: group"):
        build("interleaved-1f1b", equal(loop(2, 2), 2), n=2)


def test_families_import_no_heavy_library():
    heavy = ["numpy", "networkx", "ortools", "rich", "msgspec"]
    code = f"import sys, bubbleproof.schedules.families; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
