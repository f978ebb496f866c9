"""Sharing between groups: what is chosen, what the window holds, what comes back, and noise on it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.models import Model, flatten
from crowdml.slicing import cost_graph, cut, sliced_net
from crowdml.slicing.sharing import (
    ALWAYS,
    WINDOWS,
    UploadNoise,
    UploadWindow,
    WeightWindow,
    choose,
    owners_of_parameters,
)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("kind", list(WINDOWS))
def test_the_window_forgets_and_averages_what_it_holds(kind: str) -> None:
    window = WINDOWS[kind](2, size=2)
    for value in (1.0, 3.0, 5.0):
        window.upload(np.array([0]), floats(value))
    numbers, values = window.download(0.0)
    assert numbers.tolist() == [0] and values.tolist() == [4.0]


def test_a_window_of_weights_keeps_what_is_seldom_uploaded() -> None:
    uploads, weights = UploadWindow(2, size=2), WeightWindow(2, size=2)
    for window in (uploads, weights):
        window.upload(np.array([0, 1]), floats(1.0, 7.0))
        window.upload(np.array([0]), floats(2.0))
        window.upload(np.array([0]), floats(3.0))
    assert [column.tolist() for column in uploads.download(0.0)] == [[0], [2.5]]
    assert [column.tolist() for column in weights.download(0.0)] == [[0, 1], [2.5, 7.0]]
    assert weights.download(0.5)[0].tolist() == [0] and weights.download(1.0)[0].tolist() == []


@pytest.mark.parametrize(("tau", "found"), [(0.0, [0, 1, 2]), (0.25, [0, 1]), (0.5, [0]), (0.75, [0]), (1.0, [])])
def test_a_number_comes_back_when_more_uploads_than_the_threshold_contain_it(tau: float, found: list[int]) -> None:
    window = UploadWindow(4, size=4)
    for numbers in ([0, 1, 2], [0, 1], [0], [0]):
        window.upload(np.array(numbers), floats(*[1.0] * len(numbers)))
    assert window.download(tau)[0].tolist() == found


def test_every_owner_uploads_its_share_of_what_matters_most() -> None:
    owners = np.array([0, 0, 0, 0, 1, 1, ALWAYS])
    chosen = choose(floats(1, 9, 2, 8, 0.1, 0.2, 0), owners, 0.5)
    assert sorted(chosen.tolist()) == [1, 3, 5, 6]
    assert choose(floats(*[0] * 7), owners, 0.0).tolist() == [6]


def test_weights_belong_to_the_owner_of_their_source_and_the_rest_is_always_shared(small: Model) -> None:
    graph = cost_graph(small)
    pieces = cut(graph, 3, balance=3.0)
    like = small.zeros()
    owners = owners_of_parameters(sliced_net(small, pieces, graph), like)
    weights = flatten(tuple({name: np.full(leaf.shape, name == "w") for name, leaf in layer.items()} for layer in like))
    assert ((owners == ALWAYS) == ~weights.astype(bool)).all()
    dense = trees.map(np.array, like)[10]["w"].shape
    assert dense == (12, 6) and set(owners.tolist()) == {ALWAYS, -1, 0, 1, 2}


def test_an_upload_with_noise_is_bounded_and_has_the_stated_deviation() -> None:
    """20000 draws: the measured deviation is within 5 % but for 1e-20 of all seeds."""
    noise, generator = UploadNoise(clip=2.0, noise=0.5), np.random.default_rng(0)
    known = np.zeros(20_000, np.float32)
    sent = noise.released(np.full(20_000, 7.0, np.float32), known, generator)
    assert abs(sent.std() - 1.0) < 0.05 and noise.mu == 4.0
    still = UploadNoise(clip=2.0, noise=1e-9)
    assert np.linalg.norm(still.released(np.full(9, 7.0, np.float32), known[:9], generator)) == pytest.approx(2.0)
    # What moves less than the bound is sent as it is.
    assert still.released(floats(0.5, 1.0), floats(0.0, 1.0), generator) == pytest.approx([0.5, 1.0])


def test_what_everybody_knows_is_the_window_and_first_values_elsewhere() -> None:
    window = UploadWindow(3, size=3)
    window.upload(np.array([1]), floats(8.0))
    assert window.known(floats(1, 2, 3)).tolist() == [1, 8, 3]
