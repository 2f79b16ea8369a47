"""A million ops with communication, in every rule: the time and memory that the page of the benchmark promises."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_million_ops_with_communication_take_less_than_5_seconds_and_2_gigabytes():
    """64 ranks, 4096 microbatches: 786,432 ops and 1,032,192 transfers."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", "64", "4096"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert found["actions"] == 1_818_624
    assert found["cpu"] < 5
    assert found["peak"] < 2048


def test_the_program_of_the_benchmark_is_that_of_the_family():
    """Made as arrays, period by period, it must be the program that it is called."""
    from benchmarks.scale import instance_of
    from benchmarks.tables import lowered, zb_h1
    from bubbleproof.schedules.families.zero_bubble import zb_h1 as family
    from bubbleproof.schedules.table import Table
    from bubbleproof.verify import Verdict, verify_program

    for ranks, microbatches in ((1, 3), (4, 2), (4, 9)):
        instance = instance_of(ranks, microbatches)
        table = zb_h1(ranks, microbatches)
        assert table.schedule() == family(instance)
        program = lowered(table, instance)
        assert program.program().schedule == family(instance)
        assert len(program) == Table.of(program.program()).offsets[-1]
        assert verify_program(program.program(), instance).verdict == Verdict.PROVED
