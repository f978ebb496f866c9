"""Scattering against filters written out, and what it promises about every row."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data.transforms.scattering import PATHS, Scattering, _sizes, bank
from crowdml.data.transforms.transform import Bounds

PICTURES = np.random.default_rng(0).integers(0, 256, (3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize("width", [0, 1])
def test_two_matrix_products_are_the_filters_written_out(width: int) -> None:
    kernels, reach = bank(width).kernels, (3, 6)[width]
    found = _sizes(PICTURES, width)
    padded = np.pad(PICTURES.astype(np.float64), ((0, 0), (reach, reach), (reach, reach)), mode="reflect")
    for place in ((0, 0), (3, 5), (found.shape[2] - 1, 2)):
        row, column = (number * (1 + width) for number in place)
        window = padded[:, row : row + 2 * reach + 1, column : column + 2 * reach + 1]
        expected = np.abs(np.einsum("nij,dij->nd", window, kernels))
        np.testing.assert_allclose(found[:, :, place[0], place[1]], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("width", [0, 1])
def test_wavelets_do_not_answer_to_a_constant_and_tell_directions_apart(width: int) -> None:
    assert np.abs(_sizes(np.full((1, 16, 16), 200.0, np.float32), width)).max() < 1e-3
    stripes = np.cos(0.75 * np.pi / 2**width * np.arange(16)).astype(np.float32)
    across, down = _sizes(np.stack([np.tile(stripes, (16, 1)), np.tile(stripes[:, None], (1, 16))]), width)
    assert np.argmax(across.mean(axis=(1, 2))) == 0  # waves that go across
    assert np.argmax(down.mean(axis=(1, 2))) == 4  # a quarter turn further


@pytest.mark.parametrize("colours", [1, 3])
def test_the_promised_length_holds_for_every_row(colours: int) -> None:
    made = Scattering(size=16, colours=colours, grid=2)  # type: ignore[arg-type]
    random = np.random.default_rng(1)
    rows = [random.integers(0, 256, (4, 256 * colours)), np.zeros((1, 256 * colours)), np.full((1, 256 * colours), 255)]
    rows.append(np.eye(256 * colours)[:3] * 255)
    found = made.fit(np.concatenate(rows).astype(np.uint8)).apply(np.concatenate(rows).astype(np.uint8))
    known = made.bounds(Bounds(features=256 * colours))
    assert found.shape == (9, 4 * PATHS * colours) and found.shape[1] == known.features
    assert known.l2 is not None and np.linalg.norm(found, axis=1).max() <= known.l2
    assert np.isfinite(found).all()


def test_a_grid_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="do not fit"):
        Scattering(size=28, colours=1, grid=4).restore({})
