from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Tally, trees
from crowdml.simulation import Result, simulate, simulate_cells
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline.timeline import make_timeline
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]


def leaves(result: Result) -> list[Any]:
    return trees.leaves(result.parameters)


def test_digits_are_learnt(digits: Make) -> None:
    task = digits("algorithm.batch=20", "algorithm.rate.c=30.0", "crowd.passes=10")
    result = simulate(task, trials=4)
    assert result.test_error <= 0.07
    assert result.updates == 4 * 600
    curve = result.measured["test_error"].mean(axis=1)
    assert curve[0] > curve[-1]


def test_same_seed_same_bits_other_seed_other_bits(digits: Make) -> None:
    task = digits("privacy.mode=paper", "privacy.epsilon=50.0")
    first, second, other = (simulate(task, trials=2, seed=seed) for seed in (1, 1, 2))
    assert same_bits(first, second) and not same_bits(first, other)


def test_trials_do_not_depend_on_their_number(digits: Make) -> None:
    few, many = simulate(digits(), trials=2), simulate(digits(), trials=4)
    np.testing.assert_allclose(leaves(few)[0], leaves(many)[0][:2], rtol=1e-4, atol=1e-5)


def test_trials_that_do_not_divide_by_cores(digits: Make) -> None:
    three, four = simulate(digits(), trials=3), simulate(digits(), trials=4)
    assert three.parameters[0]["w"].shape[0] == 3 and three.updates == 3 * 280
    np.testing.assert_allclose(leaves(three)[0], leaves(four)[0][:3], rtol=1e-4, atol=1e-5)


def test_the_server_counts_for_every_device(digits: Make) -> None:
    """Without noise the counts are the truth: what each device holds, once per pass."""
    task = digits()
    result = simulate(task, trials=2)
    counts = result.counts
    assert isinstance(counts, Tally)
    _, dataset = prepare(task)
    for trial in range(2):
        timeline = make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, trial]))
        for device in range(20):
            labels = dataset.train_targets[timeline.rows[timeline.device == device]].reshape(-1)
            assert counts.spread[trial, device].tolist() == np.bincount(labels, minlength=10).tolist()
            assert counts.rows[trial, device] == len(labels)
    errors = counts.errors.sum(axis=1) / counts.counted.sum(axis=1)
    np.testing.assert_allclose(errors, result.measured["estimated_error"][-1], rtol=1e-6)
    shares = np.bincount(dataset.train_targets, minlength=10) / 1400
    assert [values[0] for values in result.estimated_labels.values()] == pytest.approx(shares.tolist())


def test_noisy_counts_estimate_the_labels(digits: Make) -> None:
    """Noise of scale 2/2.5 on each count of 280 releases: a deviation of 0.0068 of 2800 rows.

    The bound is seven deviations: a false alarm in 4e11.
    """
    noisy = digits("privacy.mode=paper", "privacy.epsilon=100.0", "privacy.statistics-epsilon=50.0")
    result = simulate(noisy, trials=2)
    _, dataset = prepare(noisy)
    shares = np.bincount(dataset.train_targets, minlength=10) / 1400
    for label, values in enumerate(result.estimated_labels.values()):
        assert np.abs(values - shares[label]).max() < 0.05
        assert not np.allclose(values, shares[label], atol=1e-6), "no noise was added"


def test_cells_equal_separate_runs(digits: Make) -> None:
    tasks = [digits(f"algorithm.rate.c={c}", f"model.regularisation={r}") for c, r in ((3.0, 0.0), (30.0, 1e-3))]
    together = simulate_cells(tasks, trials=2)
    for task, cell in zip(tasks, together, strict=True):
        alone = simulate(task, trials=2)
        np.testing.assert_allclose(leaves(cell)[0], leaves(alone)[0], rtol=1e-4, atol=1e-5)
        assert cell.task is task


def test_cells_of_different_structure_are_refused(digits: Make) -> None:
    with pytest.raises(ValueError, match="hyper-parameters only"):
        simulate_cells([digits(), digits("algorithm.batch=5")])


def test_error_below_stops_at_the_first_version_that_meets_it(digits: Make) -> None:
    task = digits("stop.error-below=0.25", "stop.error-rows=300", "crowd.passes=3")
    result = simulate(task, trials=2)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    updates = 0
    for trial in range(2):
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([0, trial]))
        met: list[Any] = []

        def look(version: int, server: Any, measurements: Any, met: list[Any] = met) -> None:
            if not met and server.totals.counted >= 300 and measurements["estimated_error"] <= 0.25:
                met.append((version, server.parameters))

        run_stepwise(algorithm, timeline, dataset, trial_seed(0, trial), look)
        assert met and met[0][0] < len(timeline)
        updates += met[0][0]
        np.testing.assert_allclose(leaves(result)[0][trial], met[0][1][0]["w"], rtol=1e-4, atol=1e-5)
    assert result.updates == updates


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.dataset=digit"], 'did you mean "digits"'),
        (["data.features=65"], "has 64 numbers"),
        (['data.labels=["0", "1"]'], "2 labels for a dataset"),
        (["crowd.devices=2000"], "no device ever fills a batch of 10"),
        (
            ["algorithm={ kind = 'local-sgd', local-steps = 50 }"],
            r"^algorithm.local-batch: no device ever .*\n  algorithm.local-batch times local-steps of at most",
        ),
        (["crowd.devices=2000", "crowd.rows=1999"], "2000 devices cannot share 1999"),
        (["crowd.rows=2800", "crowd.personal={ held-out = 0.5 }"], "2800 rows are handed out of 1400: what one device"),
    ],
)
def test_a_task_that_does_not_fit_its_data(digits: Make, changes: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        simulate(digits(*changes))


@pytest.mark.parametrize("seed", [-5, 2**63])
def test_a_seed_that_is_none_is_refused_in_words(digits: Make, seed: int) -> None:
    with pytest.raises(BadInput, match=f"^seed: {seed} is no seed"):
        simulate(digits(), seed=seed)
    with pytest.raises(BadInput, match=r"^trials: 0 trials"):
        simulate(digits(), trials=0)


def test_a_path_instead_of_a_task_is_answered_with_the_call_that_reads_it() -> None:
    with pytest.raises(BadInput, match=r"should be a Task, not str\n  read a file: crowdml\.Task\.load"):
        simulate("digits.toml")  # type: ignore[arg-type]
