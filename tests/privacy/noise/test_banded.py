"""Correlated noise: its covariance, what it costs, and where it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from crowdml.core import NUMPY, BadInput, Batch
from crowdml.privacy.noise.banded import noise_of_sum, rows_of, sensitivity_squared
from crowdml.privacy.promise import gaussian_epsilon, gaussian_mu
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import banded_columns, numbers
from crowdml.task import Task, parse
from crowdml.task.explanation import explain

RELEASES, BANDS = 10, 4
TASK = """
crowdml = 1
name = "correlated"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 2, exactly = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "local-sgd"
local-steps = 0
local-batch = 7
rate = { kind = "constant", c = 1.0 }
[privacy]
mode = "paper"
mechanism = "gaussian"
epsilon = 4.0
delta = 1e-5
noise-sequence = "banded"
noise-bands = 4
[stop]
max-releases = 10
[crowd]
passes = 1
curve = 1
"""


def task(*changes: str) -> Task:
    return parse(TASK, changes=list(changes))


def dense(columns: Any) -> Any:
    return sum(np.diag(columns[: len(columns) - a, a], -a) for a in range(columns.shape[1]))


@pytest.fixture(scope="module")
def columns() -> Any:
    return banded_columns(RELEASES, BANDS)


@pytest.fixture(scope="module")
def matrix(columns: Any) -> Any:
    return dense(columns)


def test_the_matrix_is_the_one_that_jax_privacy_makes(columns: Any, matrix: Any) -> None:
    from jax_privacy.matrix_factorization import banded, sensitivity

    theirs = banded.optimize(RELEASES, bands=BANDS)
    np.testing.assert_allclose(matrix, theirs.materialize(), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=0), 1.0)
    np.testing.assert_array_equal(dense(columns)[np.triu_indices(RELEASES, 1)], 0.0)
    assert sensitivity.single_participation_sensitivity(matrix) == pytest.approx(1.0, rel=1e-6)


def test_rows_and_columns_are_the_same_matrix(columns: Any, matrix: Any) -> None:
    rows = rows_of(columns)
    for t in range(RELEASES):
        for j in range(BANDS):
            assert rows[t, j] == (matrix[t, t - j] if j <= t else 0.0)


@pytest.mark.parametrize("uses", [1, 2, 3, 9, 10, 99])
def test_sensitivity_agrees_with_jax_privacy(columns: Any, matrix: Any, uses: int) -> None:
    """A sample may be in neighbouring releases (the order of rows is drawn anew in each pass): separation 1."""
    from jax_privacy.matrix_factorization import sensitivity

    theirs = sensitivity.get_min_sep_sensitivity_upper_bound(matrix, 1, min(uses, RELEASES))
    assert sensitivity_squared(columns, uses) == pytest.approx(theirs**2, rel=1e-5)


def test_sensitivity_is_never_below_that_of_any_set_of_releases(columns: Any, matrix: Any) -> None:
    """Entries of CᵀC are positive here, so the worst change of a set of releases is the same in all of them."""
    generator = np.random.default_rng(0)
    for uses in (1, 2, 5, 10):
        bound = sensitivity_squared(columns, uses)
        for _ in range(50):
            chosen = generator.choice(RELEASES, uses, replace=False)
            assert np.linalg.norm(matrix[:, chosen].sum(axis=1)) ** 2 <= bound * (1 + 1e-12)
    assert sensitivity_squared(columns, 1) == pytest.approx(1.0)
    assert sensitivity_squared(columns, 10) == pytest.approx(np.linalg.norm(matrix.sum(axis=1)) ** 2)
    # Fresh noise would cost as many times as there are releases; this is more, as the same change adds up.
    assert sensitivity_squared(columns, 10) > 10


def test_sums_carry_less_noise(columns: Any, matrix: Any) -> None:
    inverse = np.linalg.inv(matrix)
    assert noise_of_sum(columns) == pytest.approx(np.linalg.norm(inverse.sum(axis=0)))
    assert noise_of_sum(columns) < 0.7 * np.sqrt(RELEASES)
    assert noise_of_sum(np.ones((9, 1))) == pytest.approx(3.0)  # a matrix of one band is fresh noise


def noises(made: Task, trials: int) -> Any:
    """What ten releases of a device carry, shape (10, numbers): the check-in less the release's gradient."""
    phase = made.build(NUMPY, numbers(made)).last
    batch = Batch(
        rows=np.zeros((7, 64), np.float32), targets=np.zeros(7, np.int32), mask=np.ones(7, np.float32)
    )  # rows of zeros have no gradient
    found = []
    for trial in range(trials):
        device, sent = phase.begin(), []
        broadcast = phase.server.check_out(phase.server.init(HashCoins(trial_seed(0, trial), 0, NUMPY)))
        for release in range(RELEASES):
            coins = HashCoins(trial_seed(5, trial), 1 + 3 * release, NUMPY)
            check_in, device = phase.contribute(broadcast, device, batch, coins)
            sent.append(np.asarray(check_in.update[0]["w"], np.float64).reshape(-1))
        found.append(np.stack(sent))
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ((), 2 * 2**0.5 / gaussian_mu(4.0, 1e-5) / 7),  # Δ₂ = 2√2 for softmax on rows of norm 1, a mean of 7
        (("privacy={ mode = 'paper', mechanism = 'gaussian', noise-scale = 0.3, noise-sequence = 'banded', "
          "noise-bands = 4 }",), 0.3),
    ],
)  # fmt: skip
def test_the_covariance_is_that_of_the_factorisation(
    columns: Any, matrix: Any, changes: tuple[str, ...], scale: float
) -> None:
    """C x / scale must be white. Entries of its scatter matrix, standardised, have a χ² sum: false alarm 1 in 10⁹.

    The same statistic refuses fresh noise, so the test can fail.
    """
    x = noises(task(*changes), trials=10)
    limit = stats.chi2.isf(1e-9, RELEASES * (RELEASES + 1) // 2)

    def distance(white: Any) -> float:
        count = white.shape[1]
        scatter = white @ white.T / count - np.eye(RELEASES)
        upper = np.triu(scatter, 1) ** 2 * count
        return float(upper.sum() + (np.diag(scatter) ** 2 * count / 2).sum())

    assert distance(matrix @ x / scale) < limit
    assert distance(x / scale) > 10 * limit
    assert distance(np.linalg.solve(matrix, x) / scale) > 10 * limit
    # The sum over releases has the spread that was announced; 5 % are 5.6 standard errors, passed 2 times in 10⁸.
    assert x.sum(axis=0).std() == pytest.approx(scale * noise_of_sum(columns), rel=0.05)


def test_one_pass_costs_what_fresh_noise_costs() -> None:
    told = simulate(task()).privacy
    fresh = simulate(task("privacy={ mode = 'paper', mechanism = 'gaussian', epsilon = 4.0, delta = 1e-5 }")).privacy
    assert told["sample"]["epsilon"] == pytest.approx(4.0, abs=1e-5) == fresh["sample"]["epsilon"]
    assert told["paper_claim"] == {"epsilon": 4.0, "delta": 1e-5}
    assert told["device"]["epsilon"] > fresh["device"]["epsilon"]
    assert "a matrix of 4 bands" in told["noise"]


def test_several_passes_cost_more_than_with_fresh_noise() -> None:
    """Two uses may fall into neighbouring releases: worked out by hand from the matrix."""
    told = simulate(task("crowd.passes=2", "stop.max-releases=20")).privacy
    gram = np.abs(dense(banded_columns(20, 4)).T @ dense(banded_columns(20, 4)))
    rows = np.sort(np.sort(gram, axis=1)[:, -2:].sum(axis=1))
    mu = gaussian_mu(4.0, 1e-5)
    assert told["sample"]["epsilon"] == pytest.approx(gaussian_epsilon(mu * rows[-2:].sum() ** 0.5, 1e-5), rel=1e-5)
    assert told["sample"]["epsilon"] > gaussian_epsilon(mu * 2**0.5, 1e-5)


def test_a_given_scale_states_no_epsilon() -> None:
    told = simulate(task(f"privacy={GIVEN}")).privacy
    assert told["sample"] is None and "no ε can be stated" in told["guarantee"]
    assert "s.d. 0.3" in told["noise"] and "correlated" in told["noise"]


GIVEN = "{ mode = 'paper', mechanism = 'gaussian', noise-scale = 0.3, noise-sequence = 'banded', noise-bands = 4 }"


@pytest.mark.parametrize(
    ("changes", "expected"), [((), "at most 1.41 in L2"), ((f"privacy={GIVEN}",), "gaussian noise of s.d. 0.3")]
)
def test_the_explanation_names_it(changes: tuple[str, ...], expected: str) -> None:
    found = explain(task(*changes))
    (gradient,) = (part for part in found.message_parts if part.name.startswith("update"))
    assert expected in gradient.protection and "correlated over messages" in gradient.protection
    assert "simulation only" in found.promise or "no ε can be stated" in found.promise


SOUND = "privacy.mode=sound"
REFUSED = [
    ((SOUND,), "privacy.noise-sequence", "matrix-factorisation noise is neither fresh nor on the grid", '"paper"'),
    (
        (SOUND, "privacy.mechanism=laplace"),
        "privacy.mechanism",
        "correlated noise without a matrix-mechanism bound",
        '"gaussian"',
    ),
    (
        (SOUND, "algorithm={ kind = 'crowd-sgd' }", "privacy.max-uses=1"),
        "privacy.noise-sequence",
        "matrix-factorisation noise",
        "simulation only",
    ),
    (("privacy.mechanism=laplace",), "privacy.mechanism", "without a matrix-mechanism bound", '"gaussian"'),
    (("privacy.mechanism=k-norm",), "privacy.mechanism", "without a matrix-mechanism bound", '"gaussian"'),
    (("privacy.noise-sequence=iid",), "privacy.noise-bands", "belong together", "noise-bands = 8"),
    (("privacy.noise-bands=11",), "privacy.noise-bands", "11 bands do not fit", "10"),
    (("stop={}",), "stop.max-releases", "how many", "max-releases = 20"),
    (("crowd.drop-out=0.1",), "crowd.drop-out", "only where every check-in is used", "noise-scale"),
    (("crowd.delays={ request = 9.0 }",), "crowd.delays", "only where every check-in is used", "noise-scale"),
    (("algorithm={ kind = 'crowd-sgd' }",), "privacy.noise-sequence", "same noise", "local-sgd"),
    (
        ("algorithm.local-steps=2", "algorithm.rate.counter=local-steps"),
        "privacy.epsilon",
        "no proven bound",
        "noise-scale",
    ),
]


@pytest.mark.parametrize(("changes", "where", "what", "hint"), REFUSED, ids=lambda part: str(part)[:40])
def test_refusals_say_where_what_and_what_would_be_right(
    changes: tuple[str, ...], where: str, what: str, hint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        task(*changes)
    assert where in caught.value.where
    assert what in caught.value.what and hint in caught.value.hint


@pytest.mark.parametrize(
    ("key", "value"), [("noise-scale", "0.1"), ("noise-factor", "0.5"), ("noise-sequence", '"rate"')]
)
def test_sound_mode_takes_no_given_noise(key: str, value: str) -> None:
    sound = f"privacy={{ epsilon = 1.0, max-uses = 1, {key} = {value} }}"
    with pytest.raises(BadInput, match="works the noise out from epsilon") as caught:
        task("algorithm={ kind = 'crowd-sgd' }", sound)
    assert caught.value.where.endswith(f"privacy.{key}")


def test_a_driver_without_the_matrix_is_a_mistake_and_no_fresh_noise() -> None:
    phase = task().build(NUMPY).last
    batch = Batch(rows=np.zeros((7, 64), np.float32), targets=np.zeros(7, np.int32), mask=np.ones(7, np.float32))
    coins = HashCoins(trial_seed(0, 0), 1, NUMPY)
    with pytest.raises(ValueError, match="needs its matrix"):
        phase.contribute(phase.server.check_out(phase.server.init(coins)), phase.begin(), batch, coins)
