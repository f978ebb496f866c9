"""Engines: NumPy gives what compiled code gives, and is taken only where it is sooner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput, trees
from crowdml.simulation import engines, run, simulate
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task

Make = Callable[..., Task]
FEDAVG = "algorithm={ kind = 'fedavg', per-round = 4, local-batch = 8, rate = { kind = 'constant', c = 0.3 } }"
ROBUST = "robust={ rule = { kind = 'median' } }"


@pytest.mark.parametrize(
    "changes",
    [
        ("crowd.delays={ check-in = 300.0 }", "privacy={ mode = 'paper', epsilon = 50.0 }"),
        ("crowd.passes=4", "stop.error-below=0.4", "stop.error-rows=50"),
        (FEDAVG, "model={ kind = 'mlp', layers = [12] }", "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }"),
        (FEDAVG, ROBUST, "crowd.attack={ kind = 'sign', share = 0.2 }"),
        ("data.split={ train = 1000, test = 300 }", "data.validation=100"),
        (
            "privacy={ mode = 'sound', epsilon = 20.0, max-uses = 2, owner-range = [1.0, 30.0] }",
            "crowd.owner-epsilon={ values = [5.0, 20.0], shares = [0.5, 0.5] }",
        ),
        ("algorithm={ kind = 'decentral', batch = 10, rate = { kind = 'inverse-sqrt', c = 3.0 } }",),
    ],
    ids=["noise, delays", "stops early", "uneven rounds", "attacked", "own splits", "owners choose", "own models"],
)
def test_numpy_gives_what_compiled_code_gives(digits: Make, changes: tuple[str, ...]) -> None:
    """Curve, counts, times and parameters; 1e-5 relative, as sums are made in another order."""
    task = digits(*changes)
    plain, compiled = (simulate(task, trials=2, engine=engine) for engine in ("numpy", "compiled"))
    assert (plain.engine, compiled.engine) == ("numpy", "compiled")
    assert plain.updates == compiled.updates
    np.testing.assert_array_equal(plain.samples, compiled.samples)
    np.testing.assert_array_equal(plain.times, compiled.times)
    assert plain.measured.keys() == compiled.measured.keys()
    for name, values in plain.measured.items():
        np.testing.assert_allclose(values, compiled.measured[name], atol=0.006, err_msg=name)
    for ours, theirs in zip(trees.leaves(plain.parameters), trees.leaves(compiled.parameters), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    for ours, theirs in zip(trees.leaves(plain.counts), trees.leaves(compiled.counts), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1.5)


def test_a_stop_in_rounds_of_varying_size_waits_for_the_commit() -> None:
    """Also step by step; what was absorbed is counted in check-ins."""
    task = Task.load(
        Path(__file__).parents[2] / "examples" / "secagg-digits.toml",
        [
            "algorithm.statistics=true",
            "stop.error-below=0.6",
            "stop.error-rows=100",
            "privacy.epsilon=60.0",
            "privacy.statistics-epsilon=20.0",
            "crowd.passes=4",
            "crowd.curve=5",
        ],
    )
    compiled, plain = (simulate(task, engine=engine) for engine in ("compiled", "numpy"))
    stepwise = simulate_stepwise(task)
    assert compiled.updates == plain.updates == stepwise.updates
    for ours, theirs in zip(trees.leaves(plain.parameters), trees.leaves(compiled.parameters), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())
    whole = simulate(task.model_copy(update={"stop": task.stop.model_copy(update={"error_below": None})}))
    assert compiled.updates < whole.updates


def test_short_runs_take_numpy_whatever_the_number_of_trials(digits: Make) -> None:
    for trials in (1, 3):
        assert simulate(digits(), trials=trials, engine="auto").engine == "numpy"
    assert engines.choose([digits("crowd.passes=100")], 1400, "auto") == "compiled"
    assert engines.choose([digits(FEDAVG)], 1400, "auto") == "compiled"
    assert engines.choose([digits("model={ kind = 'mlp', layers = [2000] }")], 1400, "auto") == "compiled"
    assert engines.choose([digits(), digits("crowd.passes=100")], 1400, "auto") == "compiled"


def test_the_result_says_what_ran_it(digits: Make) -> None:
    content = simulate(digits(), engine="numpy").to_json()
    assert (content["engine"], content["processes"]) == ("numpy", 0)


def test_an_engine_that_is_none(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match='unknown engine "nunpy"'):
        simulate(digits(), engine="nunpy")
    monkeypatch.setenv("CROWDML_ENGINE", "fast")
    with pytest.raises(BadInput, match='unknown engine "fast"') as caught:
        simulate(digits())
    assert caught.value.where == "CROWDML_ENGINE"


def test_a_changed_number_of_rows_reuses_a_program(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.simulation.engine import program

    monkeypatch.setattr(program, "_kept", type(program._kept)())
    split = "data.split={{ train = {}, test = 300, seed = 0 }}"
    for rows in (1191, 1195, 1200):
        run.simulate(digits(split.format(rows)), trials=2)
    assert len(program._kept) == 3, "the split is part of the task"
    kinds = {key[1:] for key in program._kept}
    assert len(kinds) == 1, "shapes differ"
