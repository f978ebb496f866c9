"""Correlated noise: a wrapper. Part of what a device added before is taken back.

With the banded matrix C that the driver hands in, C x = z: the noise of release t is
x_t = (z_t − Σ_{j≥1} C[t, t−j] x_{t−j}) / C[t, t], where z_t is fresh. So a device remembers its last `bands - 1` noises
and no draw is ever needed twice. It wraps `paper` or `fixed` with Gaussian noise: bound, scale and words are theirs;
its cost is that of all releases together, never a multiple of one (`crowdml.privacy.noise.banded`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from crowdml.core import Array, Coins, Release, record, tree_record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.accounting import Terms
from crowdml.privacy.cost import Cost, Gaussian
from crowdml.privacy.noise.banded import Banded, noise_of_sum, sensitivity_squared
from crowdml.privacy.noise.banded import Floats as Columns
from crowdml.privacy.sanitisers.base import Use
from crowdml.privacy.sanitisers.floats import Fixed, Floats
from crowdml.privacy.sanitisers.local_work import ExampleGradients, LocalWork, Walk
from crowdml.privacy.sanitisers.paper import Paper

MATRIX = "matrix"
"""Among the scales: the matrix by its rows, shape (releases, bands), float32; handed in by the driver."""


@tree_record
class Noises:
    """Number of the next release, from 0, and the last noises, the newest first."""

    release: Array
    kept: Tree


@record
class Correlated(Floats):
    """Noise that is correlated over a device's releases.

    Attributes:
        inner: Bound and scale.
        banded: The shape of the matrix.
        columns: The matrix by its columns, where a driver has handed it in: costs depend on it.
    """

    inner: Paper | Fixed
    banded: Banded
    columns: Columns | None = dataclasses.field(default=None, compare=False)

    @property
    def wants_matrix(self) -> Banded | None:
        """The driver works it out."""
        return self.banded

    def with_matrix(self, columns: Columns) -> Correlated:
        """Take the matrix."""
        return dataclasses.replace(self, columns=columns)

    @property
    def promises(self) -> bool:
        """As what is wrapped."""
        return self.inner.promises

    @property
    def bounds_rows(self) -> bool:
        """As what is wrapped."""
        return self.inner.bounds_rows

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """All releases together are one Gaussian release: never a multiple of one."""
        alone = self.inner.cost(1, rows)
        if alone is None:
            return None
        squared = sensitivity_squared(self._matrix(), uses)
        together = [
            (Gaussian(mu_squared=found.mu_squared * squared), times)
            if isinstance(found, Gaussian)
            else (found, times * uses)  # counts have fresh noise
            for found, times in alone.events
        ]
        return Cost(events=tuple(together))

    def words(self, terms: Terms) -> str:
        """As what is wrapped."""
        return self.inner.words(terms)

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say what the matrix makes of the noise."""
        said = self.inner.summary(releases, batch)
        matrix = (
            f", then correlated over a device's {self.banded.releases} messages by a matrix of {self.banded.bands} "
            f"bands: their sum has {noise_of_sum(self._matrix()):.3g} times that, where fresh noise has "
            f"{math.sqrt(self.banded.releases):.3g} times"
        )
        return said | {"noise": said["noise"] + matrix}

    def _matrix(self) -> Columns:
        if self.columns is None:
            raise ValueError("what correlated noise costs depends on its matrix: a driver hands it in")
        return self.columns

    @property
    def scales(self) -> dict[str, float]:
        """As what is wrapped; the matrix comes from the driver."""
        return self.inner.scales

    def bind(self, use: Use) -> Correlated:
        """Bind what is wrapped, too."""
        return dataclasses.replace(self, bound_to=use, inner=self.inner.bind(use))

    def memory(self) -> Tree:
        """Remember no noise yet."""
        xp = self.use.ops.xp
        kept = trees.map(lambda leaf: xp.zeros((self.banded.bands - 1, *leaf.shape), leaf.dtype), self.use.like())
        return Noises(release=xp.int32(0), kept=kept)

    def walk(self, work: LocalWork) -> Walk:
        """As what is wrapped: for an ε it refuses local steps."""
        return self.inner.walk(work)

    def clipping(self, found: ExampleGradients) -> Array:
        """As what is wrapped."""
        return self.inner.clipping(found)

    def perturbed(self, release: Release, memory: Noises, coins: Coins) -> tuple[Tree, Tree]:
        """Draw the noise of this release and add it at the scale of what is wrapped."""
        xp = self.use.ops.xp
        if MATRIX not in self.use.scales:
            raise ValueError(f'correlated noise needs its matrix: the driver hands it in as "{MATRIX}"')
        row = self.use.scales[MATRIX][memory.release]

        def one(path: str, kept: Array) -> Array:
            fresh = coins.gaussian(f"{self.use.stage}/{path}", kept.shape[1:])
            return (fresh - xp.tensordot(row[1:], kept, axes=1)) / row[0]

        noise = trees.map_paths(one, memory.kept)
        kept = trees.map(lambda new, old: xp.concatenate([new[None], old[:-1]]), noise, memory.kept)
        scale = self.inner.scale_of(release)
        update = trees.map(lambda leaf, drawn: leaf + drawn * scale, release.update, noise)
        return update, Noises(release=memory.release + xp.int32(1), kept=kept)

    def describe(self) -> dict[str, str]:
        """Say that it is correlated."""
        said = self.inner.describe()
        return said | {"update": said["update"].replace(", simulated", ", correlated over messages, simulated")}
