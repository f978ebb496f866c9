"""Rows that were read, and where the columns of a file stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record


@record
class Table:
    """Rows as the owner has them, before the task's transforms.

    Attributes:
        rows: float32, shape (count, features).
        targets: What they are mapped to, as the model sees it: class numbers, or numbers from -1 to 1.
        ids: Which sample each row is; None where its content says so.
        outside: How many targets were beyond the task's bounds, and count as the nearer one.
        owners: Whose each row is, in a simulation whose task says where that stands.
    """

    rows: npt.NDArray[np.float32]
    targets: npt.NDArray[Any]
    ids: tuple[str, ...] | None = None
    outside: int = 0
    owners: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.targets)

    def take(self, at: npt.NDArray[Any]) -> Table:
        """Return some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[int(one)] for one in at)
        return Table(rows=self.rows[at], targets=self.targets[at], ids=ids)


@record
class Places:
    """Where the columns of a file stand.

    Attributes:
        label: The target.
        features: The numbers of a row, in the task's order.
        id: The id of a sample, where there is one.
        owner: Whose a row is, where a file says so.
    """

    label: int
    features: tuple[int, ...]
    id: int | None = None
    owner: int | None = None
