"""Correlated noise by a banded matrix: a device takes back part of the noise that it added before.

With noise x_1, x_2, … on a device's releases and a lower triangular matrix C with few bands, C x = z is fresh Gaussian
noise. The sum over releases then carries far less noise than with fresh noise on each.

Guarantee: releases g + C⁻¹z are computed from C g + z, also where later releases depend on earlier ones (Denisov,
McMahan, Rush, Smith and Thakurta 2022). So all of them together are one Gaussian release whose sensitivity is that of
C g: the largest ‖C u‖ over changes u of the releases that the unit enters. Where it enters one release, that is the
largest norm of a column, and columns have norm 1. Where it enters several, neighbouring columns are not orthogonal and
the square is at most Σ|CᵀC| over pairs of them (Choquette-Choo, McMahan, Rush and Thakurta 2023).

Matrices are kept by their columns, shape (releases, bands): `columns[i, a]` is C[i + a, i].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record

Floats = npt.NDArray[Any]


@record
class Banded:
    """The shape of the matrix; its numbers are handed in by the driver.

    Attributes:
        bands: Releases that one draw of noise reaches, its own included.
        releases: Releases a device makes at most: rows of the matrix.
    """

    bands: int
    releases: int


def rows_of(columns: Floats) -> Floats:
    """Return the matrix by its rows: `rows[t, j]` is C[t, t - j], 0 where there is no such column.

    >>> rows_of(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]])).tolist()
    [[1.0, 0.0], [3.0, 2.0], [5.0, 4.0]]
    """
    rows = np.zeros_like(columns)
    for band in range(columns.shape[1]):
        rows[band:, band] = columns[: len(columns) - band, band]
    return rows


def sensitivity_squared(columns: Floats, uses: int) -> float:
    """Return the squared sensitivity for a unit in any `uses` releases, each of which it changes by at most 1.

    The largest sum over `uses` rows of the largest sum over `uses` entries of |CᵀC|: the pairs need not belong to the
    same releases, so this is an upper bound, and exact for one release and for all of them.
    """
    near = np.abs(_gram(columns))
    best_of_row = np.sort(near, axis=1)[:, ::-1][:, :uses].sum(axis=1)
    return float(np.sort(best_of_row)[::-1][:uses].sum())


def noise_of_sum(columns: Floats) -> float:
    """Return the s.d. of the sum of all noises for fresh noise of scale 1: the norm of y with Cᵀy = (1, …, 1)."""
    count, bands = columns.shape
    y = np.zeros(count + bands)
    for i in reversed(range(count)):
        y[i] = (1 - columns[i, 1:] @ y[i + 1 : i + bands]) / columns[i, 0]
    return float(np.linalg.norm(y))


def _gram(columns: Floats) -> Floats:
    """Return CᵀC by rows: entries from `bands - 1` columns before to as many after; others are 0."""
    count, bands = columns.shape
    gram = np.zeros((count, 2 * bands - 1))
    for apart in range(bands):
        end = count - apart
        products = (columns[:end, apart:] * columns[apart:, : bands - apart]).sum(axis=1)
        gram[:end, bands - 1 + apart] = products
        gram[apart:, bands - 1 - apart] = products
    return gram
