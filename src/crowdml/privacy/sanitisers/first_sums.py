"""Noise on what crosses the first cut of a sliced net: bounded sums on the grid, drawn once for each row and kept.

A dominator sends its followers the sums of the first layer. Here they are clipped row by row, rounded to the grid,
checked, and get integer noise; the label is answered at random. Whoever calls this keeps both, and sends the same
numbers in every pass, replay and run.

Guarantee, for neighbours that differ in one row and its label (`replace`):

1. The layers before the cut stay as they are (`slicing.first_cut`), and nothing else is computed from a row itself. So
   all that anybody ever sees of a row is a function of its column and of its answer, of other rows, and of coins that
   know nothing of rows: the order of batches, keys, who sits where.
2. The weights of the first layer may be anything, chosen by a server that cheats and has seen all columns so far: the
   column of a row is made once, from integers that obey the limit of the grid. Replacing the row moves them by at most
   `grid.sensitivity`. Rounded Gaussian noise of `scale` levels has μ = sensitivity / scale (`gaussian` has the proof).
3. The answer is a release with pure ε of its own (`response`). Together they cost `event`.
4. A column that is sent again is the same column. One that were computed again would be a second release: after a
   change of weights its sums are others, and with fresh noise the mean of both says more. That is why columns are kept
   and not seeds.

Rows have columns of their own, so a row that is replaced changes one release. Where labels are open (`labels` is None)
the guarantee is for neighbours with the same label, which is no promise to a sample.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, Array, GridCoins, record
from crowdml.privacy.calibration.least_noise import exact_scale
from crowdml.privacy.cost import Cost, Pure
from crowdml.privacy.noise.grid import GridMechanism, make_grid, round_checked, to_levels
from crowdml.privacy.noise.laws import ROUNDED_GAUSSIAN
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.noise.rounded import rounded_gaussian
from crowdml.privacy.noise.samplers import Words
from crowdml.privacy.sanitisers.floats import Floats

Columns = npt.NDArray[np.float32]
"""One column per row."""


@record
class FirstCut(Floats):
    """Bound and noise of a row's first sums, and the answer in place of its label.

    Attributes:
        mechanism: Bound and noise of one row's sums.
        labels: How labels are answered; None where they are open.
    """

    mechanism: GridMechanism
    labels: RandomisedResponse | None = None

    simulated = False
    bounds_rows = True
    once = True
    weighs_rows = False

    @staticmethod
    def of_noise(size: int, clip: float, noise: float) -> FirstCut:
        """Make noise of a given size, as a multiple of the bound; labels are open.

        >>> cut = FirstCut.of_noise(48, 1.0, 0.5)
        >>> round(cut.mechanism.scale / cut.mechanism.grid.levels, 2), cut.labels
        (0.5, None)
        """
        grid = make_grid(2, size, clip, "example")
        return FirstCut(
            mechanism=GridMechanism(grid=grid, law=ROUNDED_GAUSSIAN, scale=exact_scale(noise * grid.levels))
        )

    def columns(self, sums: Array, words: Words) -> Columns:
        """Return what is sent of each row, a column each, from its sums, a line each; noise is drawn now."""
        grid, coins = self.mechanism.grid, _Rounding(words)
        levels = to_levels(grid, np.asarray(sums, np.float32), NUMPY)
        # Integers of 64 bits: nothing wraps around.
        checked = np.asarray(round_checked(grid, levels, cast(GridCoins, coins), "first cut", NUMPY), np.int64)
        noisy = checked + np.asarray(rounded_gaussian(words, Fraction(self.mechanism.scale), checked.size)).reshape(
            checked.shape
        )
        return np.ascontiguousarray((noisy.astype(np.float64) * grid.step).astype(np.float32).T)

    def answers(self, labels: Array, words: Words) -> npt.NDArray[np.int64]:
        """Return what is used in place of labels; drawn now, unless they are open."""
        given = np.asarray(labels, np.int64)
        return given if self.labels is None else np.asarray(self.labels.answer(words, given), np.int64)

    @property
    def scales(self) -> dict[str, float]:
        """Noise on each sum, in levels."""
        return {"noise": self.mechanism.scale}

    def structure(self) -> str:
        """Name grid and labels."""
        return f"first cut on {self.mechanism.grid}, {self.labels}"

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Add up column and answer; None where labels are open: then no sample is promised anything."""
        if self.labels is None:
            return None
        each = Cost.of_event(self.mechanism.event).plus(Cost.of(Pure(epsilon=self.labels.event.pure)))
        return (each if rows is None else each.grouped(rows)).times(uses)

    def deviation(self) -> float:
        """Return the standard deviation of the noise on each sum."""
        return self.mechanism.scale * self.mechanism.grid.step

    def describe(self) -> dict[str, str]:
        """Say bound and noise."""
        grid = self.mechanism.grid
        said = {
            "sums": f"at most {grid.radius:.3g} in L2, rounded to {grid.levels} levels, checked; gaussian noise of "
            f"s.d. {self.deviation():.3g}, rounded, drawn once for each row and kept"
        }
        if self.labels is not None:
            said["slopes"] = f"labels are kept with probability {float(self.labels.keep):.3g}, drawn once and kept"
        return said

    def plainly(self) -> dict[str, str]:
        """Say the same to owners."""
        said = {"sums": "limited, and noise is added on your device, once for each row"}
        if self.labels is not None:
            said["slopes"] = "of labels that your device has answered at random, once for each row"
        return said

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say law, scale and bound."""
        return {
            "noise": self.describe()["sums"],
            "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
        }


class _Rounding:
    """Coins that rounding to the grid asks for."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1), from the upper 24 bits of a word each."""
        words = self._words.take(math.prod(shape)) >> np.uint64(40)
        return ((words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)).reshape(shape)

    def retry(self, number: Array) -> _Rounding:
        """Return the same source: words are never used twice."""
        return self
