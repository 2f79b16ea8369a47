"""1F1B, ZB-H1 and ZB-H2 in the twelve settings of the zero-bubble paper's Table 5, to the microsecond."""

import json
from pathlib import Path

import pytest

from tests.schedules.families.sizes import peaks, timed

ROWS = json.loads((Path(__file__).parents[2] / "data" / "zb_table5.json").read_text())["rows"]


@pytest.mark.parametrize("name", ["1F1B", "ZB-H1", "ZB-H2"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_paper_costs_are_replayed_to_the_microsecond(row, name):
    memory = {"F": row["mem_F"], "B": row["mem_B"], "W": row["mem_W"]}
    line = timed(name.lower(), row["p"], row["m"], row["F"], row["B"], row["W"], comm=row["comm"], memory=memory)
    known = row["schedules"][name]
    assert (line.span, line.makespan) == (known["span"], known["makespan"])
    assert max(peaks(line)) == known["peak_mem_max"]
    rate = (line.span - row["m"] * (row["F"] + row["B"] + row["W"])) / line.span
    assert round(10_000 * rate) == known["paper_bubble_rate_1e4"]


def test_the_table_has_twelve_rows():
    assert len(ROWS) == 12
