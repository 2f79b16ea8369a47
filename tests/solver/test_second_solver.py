"""A sample of the random instances of benchmarks/second_solver.py: two solvers on two models do not contradict."""

import pytest

from benchmarks.second_solver import compare, instances


@pytest.mark.parametrize("block", range(3))
def test_a_second_solver_on_a_model_of_its_own_agrees(block):
    decided = 0
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        _, reached, below = compare(instances(seed), 1.0)
        assert reached != "refuted", seed
        assert below not in ("found", "proof not accepted"), seed
        decided += below == "refuted"
    assert decided >= 7
