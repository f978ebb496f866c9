"""The first cut: sums as the net forms them, and noise that bounds what they tell."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import BadInput, Batch
from crowdml.models import Model
from crowdml.simulation.slices.sliced import first_parameters
from crowdml.slicing import cost_graph, cut, sliced_net
from crowdml.slicing.first_cut import CutNoise, first_sums, release
from crowdml.slicing.sliced_net import as_columns


def test_sums_are_those_the_net_passes_on(small: Model) -> None:
    generator, graph = np.random.default_rng(0), cost_graph(small)
    batch = Batch(rows=generator.random((4, 108)), targets=generator.integers(0, 3, 4), mask=np.ones(4))
    net = sliced_net(small, cut(graph, 2, balance=3.0), graph)
    passed: list[np.ndarray] = []

    def first_cut(sums: np.ndarray) -> np.ndarray:
        passed.append(sums.copy())
        return sums

    net.gradients(first_parameters(small, 0, 0), batch, first_cut)
    np.testing.assert_allclose(first_sums(small, graph, first_parameters(small, 0, 0), batch), passed[0], rtol=1e-6)
    assert as_columns(passed[0]).shape == (6 * 6 * 8, 4)


def test_what_is_released_is_bounded_for_any_row(plain: Model) -> None:
    rows = np.random.default_rng(1).standard_normal((50, 12)).astype(np.float32) * 100
    still = CutNoise(clip=0.7, noise=1e-9)
    sent = release(still, plain, cost_graph(plain), first_parameters(plain, 0, 0), [rows], np.random.default_rng(2))
    norms = np.linalg.norm(sent.columns[0], axis=0)
    assert norms.max() <= 0.7 * (1 + 1e-5) and norms.min() >= 0.7 * (1 - 1e-5)
    assert still.mu == pytest.approx(2e9) and sent.frozen == (0,)


def test_noise_has_the_stated_deviation(plain: Model) -> None:
    """8 · 4000 draws: within 3 % but for 1e-13 of all seeds."""
    noise = CutNoise(clip=2.0, noise=3.0)
    sent = release(
        noise,
        plain,
        cost_graph(plain),
        first_parameters(plain, 0, 0),
        [np.zeros((4000, 12), np.float32)],
        np.random.default_rng(3),
    )
    assert abs(sent.columns[0].std() / 6.0 - 1) < 0.03


def test_normalisation_over_the_batch_before_the_cut_is_refused(small: Model) -> None:
    with pytest.raises(BadInput, match="one row would change the sums of others"):
        release(
            CutNoise(clip=1.0, noise=1.0),
            small,
            cost_graph(small),
            first_parameters(small, 0, 0),
            [np.zeros((2, 108), np.float32)],
            np.random.default_rng(0),
        )
