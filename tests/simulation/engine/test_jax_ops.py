"""Rows read part by part are the rows read all at once; sums in parts and convolutions are those of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crowdml.core import NUMPY, Array, Batch, Ops
from crowdml.models.layers.pooling import Padding, windows
from crowdml.simulation.engine.jax_ops import JAX, LazyRows, fenced, read_lazy

TABLE = jnp.arange(40.0).reshape(10, 4)
NUMBERS = jnp.array([7, 1, 9, 2, 2, 0])


def test_a_fold_reads_the_rows_of_each_part() -> None:
    def total(numbers: Array) -> Array:
        rows = LazyRows(TABLE, numbers).reshape(3, 2, 4)
        parts = Batch(rows=rows, targets=numbers.reshape(3, 2), mask=jnp.ones((3, 2)))
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


@pytest.mark.parametrize("size", [1, 4, 5, 6, 7])
def test_rows_in_parts_are_joined_in_their_order(size: int) -> None:
    def sums(rows: Array) -> Array:
        return jnp.stack([rows.sum(axis=1), rows[:, 0]])

    rows = np.asarray(TABLE)[np.asarray(NUMBERS)]
    expected = np.stack([rows.sum(axis=1), rows[:, 0]])
    for given in (jnp.asarray(rows), LazyRows(TABLE, NUMBERS)):
        found = jax.jit(lambda given=given: JAX.in_parts(sums, given, size))()
        np.testing.assert_array_equal(found, expected)
    flat = jax.jit(lambda: JAX.in_parts(lambda some: some[:, 1], LazyRows(TABLE, NUMBERS), size))()
    np.testing.assert_array_equal(flat, rows[:, 1])


@pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
@pytest.mark.parametrize("size", [1, 4, 6, 10])
def test_a_sum_in_parts_has_every_entry_once(ops: Ops, size: int) -> None:
    weights = ops.xp.arange(10, dtype=ops.xp.float32)
    found = ops.sum_in_parts(lambda rows, some: ops.long_t_dot(some[:, None], rows), (TABLE, weights), size)
    np.testing.assert_array_equal(found, np.asarray(weights)[None] @ np.asarray(TABLE))


@pytest.mark.parametrize("channels", [1, 3, 4, 6])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 1, "same"), (2, 1, "same"), (3, 2, "same"), (5, 3, "valid")]
)
def test_a_convolution_multiplies_every_window(channels: int, kernel: int, stride: int, padding: Padding) -> None:
    random = np.random.default_rng(0)
    pictures = random.normal(size=(2, 9, 8, channels)).astype(np.float32)
    filters = random.normal(size=(kernel, kernel, channels, 5)).astype(np.float32)
    at = windows(pictures.shape[1:], kernel, stride, padding)
    expected = at.unfold(pictures, NUMPY) @ filters.reshape(-1, 5)
    assert JAX.convolve is not None
    found = JAX.convolve(jnp.asarray(pictures), jnp.asarray(filters), stride, at.margin)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_loop_over_parts_leaves_products_to_the_library() -> None:
    """One kernel for the whole loop would multiply at a fiftieth of the speed."""
    windows_of, slopes = jnp.zeros((8, 256, 288)), jnp.zeros((8, 256, 64))

    def product(seen: Array, slope: Array) -> Array:
        return JAX.long_t_dot(slope.reshape(-1, 64), seen.reshape(-1, 288))

    compiled = jax.jit(lambda *both: JAX.sum_in_parts(product, both, 1).T).lower(windows_of, slopes).compile()
    code = str(compiled.as_text())
    assert "while(" in code and 'xla_cpu_small_call="true"' not in code


@pytest.mark.parametrize(("rows", "terms", "columns"), [(10, 50, 20), (3, 3, 3), (17, 64, 33), (10, 65, 20), (1, 5, 4)])
def test_products_written_out_are_the_products(rows: int, terms: int, columns: int) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=shape).astype(np.float32) for shape in ((rows, terms), (terms, columns)))
    asked = []

    def fence(array: Array) -> Array:
        asked.append(array.shape)
        return array

    def products(a: Array, b: Array) -> tuple[Array, Array]:
        with fenced(fence):
            return JAX.dot(a, b), JAX.dot_t(a, b.T)

    for found in jax.jit(products)(a, b):
        np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)
    assert bool(asked) == (rows > 2 and terms <= 64)
    asked.clear()
    JAX.dot(a, b)
    assert not asked, "products outside the loop are left to the library"
