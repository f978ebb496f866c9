"""Rows read part by part are the rows read all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crowdml.core import Array, Batch
from crowdml.simulation.jax_ops import JAX
from crowdml.simulation.lazy_rows import LazyRows, read_lazy

TABLE = jnp.arange(40.0).reshape(10, 4)
NUMBERS = jnp.array([7, 1, 9, 2, 2, 0])


def test_a_fold_reads_the_rows_of_each_part() -> None:
    def total(numbers: Array) -> Array:
        rows = LazyRows(TABLE, numbers).reshape(3, 2, 4)
        parts = Batch(rows=rows, labels=numbers.reshape(3, 2), mask=jnp.ones((3, 2)))
        return JAX.fold(lambda sum_, part: 2 * sum_ + part.rows, jnp.zeros((2, 4)), parts)

    rows = np.asarray(TABLE)[np.asarray(NUMBERS)].reshape(3, 2, 4)
    np.testing.assert_array_equal(jax.jit(total)(NUMBERS), 4 * rows[0] + 2 * rows[1] + rows[2])


def test_some_rows_by_their_place_in_the_batch() -> None:
    lazy = LazyRows(TABLE, NUMBERS)
    np.testing.assert_array_equal(lazy[jnp.array([2, 0])], np.asarray(TABLE)[[9, 7]])
    assert lazy.shape == (6, 4)


def test_everything_else_in_a_tree_stays_as_it_is() -> None:
    found = read_lazy((LazyRows(TABLE, NUMBERS), NUMBERS))
    np.testing.assert_array_equal(found[0], np.asarray(TABLE)[np.asarray(NUMBERS)])
    assert found[1] is NUMBERS


def test_a_row_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="rows of 4 numbers"):
        LazyRows(TABLE, NUMBERS).reshape(6, 2, 2)
