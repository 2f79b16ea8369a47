"""Megatron's pipeline layout strings and split flags."""

from __future__ import annotations

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.megatron_layout import (
    dumps,
    gaps,
    layers_of,
    layout_of,
    loads,
    refuse,
    split_flags,
)

REAL = {
    "Et*3|(t*6|)*2t*3L": (4, 18),
    "Et|(t*2|)*6tL": (4, 14),
    "E|(t*2|)*6L": (4, 12),
    "Et*12|(t*12|)*2t*11L": (4, 47),
    "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL": (8, 80),
}


@pytest.mark.parametrize("text", REAL)
def test_layouts_in_use_are_read_and_written_without_loss(text: str) -> None:
    ranks, layers = REAL[text]
    words = loads(text)
    assert loads(dumps(words)) == words
    assert sum(layers_of(words)) == layers
    assert not gaps(words)
    refuse(words, ranks, layers=layers)


def test_the_short_text_is_the_one_people_write() -> None:
    assert dumps(layout_of([3, 6, 6, 3])) == "Et*3|(t*6|)*2t*3L"
    assert dumps(layout_of([0, 2, 2, 2, 2, 2, 2, 0])) == "E|(t*2|)*6L"
    assert dumps(layout_of([2, 3])) == "Et*2|t*3L"
    assert dumps(layout_of([4])) == "Et*4L"


@for_all(st.lists(st.text("Etm", max_size=5), min_size=1, max_size=9))
def test_any_words_survive_writing_and_reading(words: list[str]) -> None:
    assert loads(dumps(words)) == tuple(words)


@pytest.mark.parametrize(
    ("text", "ranks", "said"),
    [
        ("Et|tL", 3, "multiple of 3 ranks"),
        ("tE|tL", 2, "exactly one E"),
        ("Et|EtL", 2, "exactly one E"),
        ("Et|Lt", 2, "exactly one L"),
        ("Et|t", 2, "exactly one L"),
        ("Et|mt|tL", 3, "every t before"),
        ("Et|m|mL", 3, r"m in stages \[1, 2\]"),
        ("Ett|m|t", 3, "exactly one L"),
        ("Et|m||L", 2, "last chunk of its rank"),
    ],
)
def test_what_megatron_refuses_is_refused(text: str, ranks: int, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        refuse(loads(text), ranks)


def test_numbers_of_layers_are_compared_with_the_model() -> None:
    with pytest.raises(FormatError, match="3 × t in the layout, but the model has 4"):
        refuse(loads("Et|ttL"), 2, layers=4)
    with pytest.raises(FormatError, match="1 × m in the layout, but the model has 0"):
        refuse(loads("Et|tmL"), 2, extra=0)


def test_what_megatron_accepts_and_should_not_is_told() -> None:
    hole = loads("Et*2|(t*3|)*2t*3|t*2|tL||")
    refuse(hole, 4, layers=14)
    assert gaps(hole)[0].startswith("L is not in the last stage")
    assert gaps(hole)[1] == "stages 6, 7 hold nothing"
    assert gaps(loads("|Et|tL")) == (
        "E is not in the first stage, where Megatron builds the embedding all the same",
        "stages 0 hold nothing",
    )


@pytest.mark.parametrize(("text", "said"), [("Et|x", "'x' in stage 1"), ("(t|", "'\\('"), ("t*999999999", "more than")])
def test_texts_that_are_no_layout_are_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        loads(text)


@pytest.mark.parametrize(
    ("layers", "ranks", "flags"),
    [
        ([3, 3, 3, 3], 4, "--num-layers 12"),
        ([3, 3, 3, 3], 2, "--num-layers 12 --num-virtual-stages-per-pipeline-rank 2"),
        ([2, 3, 3, 3], 4, "--num-layers 11 --account-for-embedding-in-pipeline-split"),
        ([3, 3, 3, 2], 4, "--num-layers 11 --account-for-loss-in-pipeline-split"),
        ([1, 6, 6, 3], 4, "--num-layers 16 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3"),
        ([1, 6, 5, 3], 4, "--num-layers 15 --pipeline-model-parallel-layout Et|t*6|t*5|t*3L"),
        ([1, 6, 6, 3], 2, "--num-layers 16 --pipeline-model-parallel-layout Et|(t*6|)*2t*3L"),
    ],
)
def test_the_plainest_flags_that_split_the_model_so_are_chosen(layers: list[int], ranks: int, flags: str) -> None:
    assert " ".join(split_flags(layers, ranks)) == flags


def test_splits_that_megatron_does_not_have_are_refused() -> None:
    with pytest.raises(FormatError, match="same number on each"):
        split_flags([1, 2, 3], 2)
    with pytest.raises(FormatError, match="stage 1 holds nothing"):
        split_flags([1, 0, 3], 3)
