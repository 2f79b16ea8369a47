"""What each version of PyTorch reads, and what is written for it."""

from __future__ import annotations

import pytest

from bubbleproof import Instance
from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.torch_versions import (
    Version,
    check,
    check_channel,
    oldest_for,
    parse,
    with_final_reductions,
)
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, linear, vee
from bubbleproof.schedules.program import Program
from bubbleproof.verify import Verdict, verify_program


def instance(placement: Placement, m: int = 4) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    return Instance(placement, m, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))


@pytest.mark.parametrize(("text", "version"), [("2.8", (2, 8)), ("2.13.0+cpu", (2, 13)), ("2.16.0a0+git1", (2, 16))])
def test_a_version_is_two_numbers_and_what_may_follow_them(text: str, version: tuple[int, int]) -> None:
    assert parse(text) == version


@pytest.mark.parametrize(
    ("family", "placement", "scaled", "version"),
    [
        ("1f1b", linear(2), True, (2, 8)),
        ("zb-h1", linear(2), True, (2, 10)),
        ("zb-h1", linear(2), False, (2, 8)),
        ("dualpipev", vee(2), False, (2, 9)),
        ("dualpipev", vee(2), True, (2, 10)),
    ],
)
def test_the_oldest_version_for_a_schedule_is_the_first_that_takes_it(
    family: str, placement: Placement, scaled: bool, version: tuple[int, int]
) -> None:
    schedule = FAMILIES[family].build(instance(placement))
    oldest = oldest_for(schedule, scale_grads=scaled)
    assert oldest == version
    check(schedule, oldest, scale_grads=scaled)
    if oldest > (2, 8):
        with pytest.raises(FormatError):
            check(schedule, Version(2, oldest.minor - 1), scale_grads=scaled)


@pytest.mark.parametrize("text", ["2", "2.7", "1.13.1", "two", "2.13x", ""])
def test_what_is_no_version_or_too_old_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse(text)


def test_pairs_are_for_2_9_and_later() -> None:
    given = instance(vee(2))
    paired = FAMILIES["dualpipev"].build(given)
    check(paired, Version(2, 9), scale_grads=False)
    with pytest.raises(FormatError, match="each pair as its forward followed by its backward"):
        check(paired, Version(2, 8), scale_grads=False)


def test_reductions_are_in_the_file_from_2_10_on_and_only_then() -> None:
    given = instance(linear(2))
    schedule = FAMILIES["1f1b"].build(given)
    for reduce, right, wrong in ((True, Version(2, 10), Version(2, 9)), (False, Version(2, 9), Version(2, 10))):
        program = lower(schedule, given, reduce=reduce)
        check(program, right)
        with pytest.raises(FormatError, match="REDUCE_GRAD"):
            check(program, wrong)
    check(Program.of(schedule.orders), Version(2, 10))  # compute-only: PyTorch adds it


def test_split_backwards_before_2_10_need_a_loss_that_is_scaled_outside() -> None:
    schedule = FAMILIES["zb-h1"].build(instance(linear(2)))
    check(schedule, Version(2, 10))
    check(schedule, Version(2, 9), scale_grads=False)
    with pytest.raises(FormatError, match="scale_grads=False"):
        check(schedule, Version(2, 9))


def test_communicators_of_their_own_came_with_2_14_and_2_15() -> None:
    for channel, oldest in (("per-direction", Version(2, 14)), ("per-edge", Version(2, 15))):
        check_channel(channel, oldest)
        with pytest.raises(FormatError, match=str(oldest)):
            check_channel(channel, Version(oldest.major, oldest.minor - 1))
    check_channel("rendezvous-pair", Version(2, 8))


def test_a_program_without_reductions_is_judged_as_an_old_version_runs_it() -> None:
    given = instance(vee(2))
    program = lower(FAMILIES["zb-v"].build(given), given, reduce=False)
    judged = verify_program(with_final_reductions(program), given, target="torch")
    assert judged.verdict is Verdict.PROVED
    assert verify_program(program, given, target="torch").counts == {"V701": 4}


def test_the_command_line_writes_and_judges_for_a_version(tmp_path, capsys) -> None:
    schedule, out = str(tmp_path / "1f1b.json"), str(tmp_path / "1f1b.comms.csv")
    assert main(["families", "1f1b", "--ranks", "2", "--microbatches", "3", "-o", schedule]) == 0
    assert main(["export", schedule, "--to", "torch-comms", "--target-version", "2.9", "-o", out]) == 0
    assert "REDUCE_GRAD" not in (tmp_path / "1f1b.comms.csv").read_text()
    assert main(["verify", out, "--target", "torch", "--target-version", "2.9.1"]) == 0
    assert main(["verify", out, "--target", "torch"]) == 1
    capsys.readouterr()
    assert main(["verify", out, "--target", "torch", "--target-version", "2.13"]) == 2
    assert "gradients would be as many times too large" in capsys.readouterr().err
    assert main(["verify", out, "--target-version", "2.9"]) == 2
    assert "goes with --target torch" in capsys.readouterr().err
    assert main(["export", schedule, "--to", "svg", "--target-version", "2.9"]) == 2


def test_import_refuses_what_the_version_cannot_run(tmp_path, capsys) -> None:
    file, out = tmp_path / "pair.csv", str(tmp_path / "out.json")
    file.write_text("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n")
    words = ["import", str(file), "--from", "torch-csv", "-o", out, "--target-version"]
    assert main([*words, "2.9"]) == 0
    assert main([*words, "2.8"]) == 2
    assert "no overlapped pairs" in capsys.readouterr().err
