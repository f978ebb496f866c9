"""scale-columns, by hand: which columns it multiplies, which bounds follow, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from crowdml.core.errors import BadInput
from crowdml.data.transforms import Bounds
from crowdml.data.transforms.columns import ScaleColumns

ROWS = np.array([[1, 2, 3, 4, 5], [0, -1, 0, 2, 7]], np.float64)


def scaled(*spans: tuple[int, int, float]) -> ScaleColumns:
    return ScaleColumns.model_validate({"columns": [{"first": a, "last": b, "by": by} for a, b, by in spans]})


def test_spans_are_multiplied_and_the_rest_stays() -> None:
    made = scaled((1, 2, 10.0), (4, 4, -0.5)).fit(ROWS).apply(ROWS)
    assert made.tolist() == [[1, 20, 30, 4, -2.5], [0, -10, 0, 2, -3.5]]
    assert ROWS[0].tolist() == [1, 2, 3, 4, 5]  # not in place


@pytest.mark.parametrize(("by", "grown"), [(10.0, 10.0), (-10.0, 10.0), (0.25, 1.0)])
def test_bounds_grow_by_the_largest_factor_and_never_shrink(by: float, grown: float) -> None:
    found = scaled((0, 1, by)).bounds(Bounds(l1=2.0, l2=1.0, features=5))
    assert found.features == 5
    assert found.l1 is not None and 2.0 * grown <= found.l1 < 2.0 * grown * 1.001
    assert found.l2 is not None and grown <= found.l2 < grown * 1.001


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="no column 5 in rows of 5"):
        scaled((2, 5, 2.0)).bounds(Bounds(features=5))


@pytest.mark.parametrize("spans", [[(2, 1, 1.0)], [(0, 2, 1.0), (2, 3, 1.0)], [(3, 3, 1.0), (0, 0, 1.0)], []])
def test_spans_that_meet_or_go_back_are_refused(spans: list[tuple[int, int, float]]) -> None:
    with pytest.raises(ValidationError):
        scaled(*spans)
