"""The options with which torchtitan builds the stages that the file runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from bubbleproof import Instance
from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import torchtitan
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee, wave


def instance(placement: Placement, m: int = 4) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    return Instance(placement, m, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))


def test_the_name_tells_the_placement() -> None:
    assert torchtitan.schedule_name(linear(4)) == "1F1B"
    assert torchtitan.schedule_name(loop(4, 2)) == "PipelineScheduleMulti"
    assert torchtitan.schedule_name(loop(2, 5)) == "PipelineScheduleMulti"
    assert torchtitan.schedule_name(vee(4)) == "ZBVZeroBubble"
    assert torchtitan.schedule_name(custom([0, 1, 1, 0])) == "ZBVZeroBubble"


@pytest.mark.parametrize(
    "placement", [custom([1, 0]), custom([0, 0, 1]), wave(2, 3), bidirectional(2), custom([0, 0, 1, 1])]
)
def test_other_placements_are_refused(placement: Placement) -> None:
    with pytest.raises(FormatError, match="torch-csv"):
        torchtitan.schedule_name(placement)


def test_the_arguments_of_each_version() -> None:
    common = [
        "--parallelism.pipeline_parallel_degree=4",
        "--parallelism.pipeline_parallel_schedule=ZBVZeroBubble",
        "--parallelism.pipeline_parallel_schedule_csv=a.csv",
    ]
    sizes = ["--parallelism.pipeline_parallel_microbatch_size=3", "--training.local_batch_size=18"]
    given = instance(vee(4), 6)
    for version in ("0.2", "0.3"):
        assert torchtitan.arguments(given, "a.csv", version=version, microbatch_size=3) == [*common, *sizes]
    assert torchtitan.arguments(given, "a.csv", version="main") == [*common, "--parallelism.num_pp_microbatches=6"]
    with pytest.raises(FormatError, match="the options of 0.2, 0.3, main are known"):
        torchtitan.arguments(given, "a.csv", version="9")


def test_more_than_two_stages_per_rank_need_the_number_of_layers() -> None:
    with pytest.raises(FormatError, match="--layers"):
        torchtitan.arguments(instance(loop(2, 3)), "a.csv")
    found = torchtitan.arguments(instance(loop(2, 3)), "a.csv", layers=10)
    assert found[-1] == "--parallelism.pipeline_parallel_layers_per_stage=2"


@for_all(st.integers(1, 40), st.integers(1, 80))
def test_layers_per_stage_give_the_number_of_stages_or_nothing_does(stages: int, layers: int) -> None:
    possible = [each for each in range(1, layers + 3) if math.ceil((layers + 2) / each) == stages]
    if possible:
        assert torchtitan.layers_per_stage(stages, layers) in possible
    else:
        with pytest.raises(FormatError, match="module_fqns_per_model_part"):
            torchtitan.layers_per_stage(stages, layers)


def test_export_writes_the_file_and_the_arguments_next_to_it(tmp_path, capsys) -> None:
    schedule, out = str(tmp_path / "zb-v.json"), tmp_path / "mine.csv"
    assert main(["families", "zb-v", "--ranks", "2", "--microbatches", "3", "-o", schedule]) == 0
    assert main(["export", schedule, "--to", "torchtitan", "--microbatch-size", "2", "-o", str(out)]) == 0
    assert (tmp_path / "mine.csv.args").read_text().splitlines() == [
        "--parallelism.pipeline_parallel_degree=2",
        "--parallelism.pipeline_parallel_schedule=ZBVZeroBubble",
        f"--parallelism.pipeline_parallel_schedule_csv={out}",
        "--parallelism.pipeline_parallel_microbatch_size=2",
        "--training.local_batch_size=6",
    ]
    assert main(["verify", str(out)]) == 0
    capsys.readouterr()
    assert main(["export", schedule, "--to", "torch-csv", "--layers", "3"]) == 2
    assert "--layers is for torchtitan" in capsys.readouterr().err
