"""What is read off a schedule without an instance, and what is checked against it."""

import pytest

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.infer import infer_instance, named_placement
from bubbleproof.schedules.placement import loop, vee, wave
from bubbleproof.schedules.schedule import Schedule

FUSED = Schedule.parse(["0F0 0BW0", "1F0 1BW0"])
SPLIT = Schedule.parse(["0F0 0B0 0W0", "1F0 1B0 1W0"])


def test_the_backward_is_split_exactly_if_the_file_splits_one():
    fused, split = infer_instance(FUSED, "f").instance, infer_instance(SPLIT, "f").instance
    assert (fused.costs.split, fused.costs.BW) == (False, (2, 2))
    assert (split.costs.split, split.costs.B, split.costs.W) == (True, (1, 1), (1, 1))


def test_everything_inferred_is_said():
    notes = "\n".join(infer_instance(FUSED, "f").notes)
    for words in (
        "2 ranks",
        "2 stages, linear placement 0,1",
        "1 microbatches",
        "assumed: costs F = 1, BW = 2, comm = 0",
    ):
        assert words in notes


def test_what_is_given_is_not_said_to_be_inferred():
    given = infer_instance(FUSED, "f", ranks=2, microbatches=1, rank_of_stage=(0, 1), costs={"F": 3, "B": 4, "comm": 5})
    notes = "\n".join(given.notes)
    assert "ranks, one" not in notes
    assert "stages" not in notes
    assert "microbatches" not in notes
    assert "given: costs F = 3, BW = 4, comm = 5" in notes
    assert given.instance.costs.message(0, 1) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 3}, "f: 2 ranks in the file, but 3 given"),
        ({"stages": 3}, "f: no op of stage 2, so its rank is not known"),
        ({"stages": 3, "rank_of_stage": (0, 1)}, "f: the placement given has 2 stages, but 3 given"),
    ],
)
def test_what_is_given_must_agree_with_the_file(options, message):
    with pytest.raises(FormatError, match=message):
        infer_instance(FUSED, "f", **options)


def test_a_stage_on_two_ranks_is_named_with_both_ops():
    wrong = Schedule.parse(["0F0 0BW0", "1F0 1BW0 0F1"])
    with pytest.raises(FormatError, match="stage 0 is on two ranks, 0F0 on rank 0 and 0F1 on rank 1"):
        infer_instance(wrong, "f")


def test_a_gap_in_the_stages_is_named():
    with pytest.raises(FormatError, match="no op of stage 1"):
        infer_instance(Schedule.parse(["0F0", "2F0"]), "f")


def test_a_huge_stage_number_is_refused_before_anything_is_built_for_it():
    with pytest.raises(FormatError, match="beyond 100000 stages"):
        infer_instance(Schedule.parse(["999999999F0"]), "f")


@pytest.mark.parametrize("placement", [loop(3, 2), vee(3), wave(2, 3)])
def test_placements_get_their_names_back(placement):
    assert named_placement(placement.routes[0], placement.ranks) == placement


def test_any_other_map_is_a_custom_placement():
    assert named_placement((0, 1, 1), 2).kind == "custom"


def test_too_many_microbatches_are_refused_with_the_name_of_the_file():
    with pytest.raises(FormatError, match=r"^f\.csv: microbatches × stages = 1000001 × 2"):
        infer_instance(Schedule.parse(["0F0 0BW1000000", "1F0 1BW0"]), "f.csv")


def test_a_rank_without_a_stage_is_refused_with_the_name_of_the_file():
    with pytest.raises(FormatError, match=r"^f\.csv: .*holds no stage"):
        infer_instance(Schedule.of([FUSED.orders[0], ()]), "f.csv")
