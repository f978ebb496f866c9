"""Norms of single gradients: equal to those of the gradient written out, whatever the model does with its matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.models.adapters.row_norms import gradient_norm

# isort: split
import jax
import jax.numpy as jnp

LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "a vector times a matrix": lambda at, x: jnp.sum(jnp.tanh(x @ at["w"]) ** 2),
    "a matrix times a vector": lambda at, x: jnp.sum(jnp.tanh(at["w"].T @ x) ** 3),
    "a batch of one": lambda at, x: jnp.sum(jnp.tanh(x[None] @ at["w"] + at["b"]) ** 2),
    "layers": lambda at, x: jnp.sum(jnp.sin(jax.nn.relu(x @ at["w"] + at["b"]) @ at["v"])),
    "used twice": lambda at, x: jnp.sum(jnp.tanh(x @ at["w"])) + jnp.sum(jnp.cos(x**2 @ at["w"])),
    "its own transpose": lambda at, x: jnp.sum(jnp.tanh(jnp.tanh(x @ at["w"]) @ at["w"].T) ** 2),
    "a penalty besides": lambda at, x: jnp.sum(jnp.tanh(x @ at["w"])) + jnp.sum(at["w"] ** 2),
    "several vectors": lambda at, x: jnp.sum(jnp.tanh(x.reshape(3, 2) @ at["u"]) ** 2),
    "an inner call": lambda at, x: jnp.sum(jax.jit(lambda w: jnp.tanh(x @ w))(at["w"])),
    "a loop": lambda at, x: jnp.sum(jax.lax.scan(lambda h, _: (jnp.tanh(h @ at["s"]), None), x, None, length=3)[0]),
    "pieces": lambda at, x: jnp.sum(jnp.tanh(x @ at["w"][:, :2])) + jnp.sum(x @ at["w"][:, 2:]),
    "numbers alone": lambda at, x: jnp.sum(x) * at["c"] ** 2,
    "not used at all": lambda at, x: jnp.sum(x),
    "a picture": lambda at, x: jnp.sum(jnp.convolve(x, at["k"]) ** 2),
}


def parameters() -> dict[str, Any]:
    shapes = {"w": (6, 4), "b": (4,), "v": (4, 3), "u": (2, 5), "s": (6, 6), "c": (), "k": (3,)}
    generator = np.random.default_rng(1)
    return {name: jnp.asarray(generator.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


def expected(gradient: Any, order: int) -> float:
    flat = np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(gradient)])
    return float((flat**2).sum() if order == 2 else np.abs(flat).sum())


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_the_norm_is_that_of_the_whole_gradient(name: str, order: int) -> None:
    gradient, at = jax.grad(LOSSES[name]), parameters()
    rows = jnp.asarray(np.random.default_rng(2).normal(size=(5, 6)), jnp.float32)
    found = jax.jit(jax.vmap(lambda x: gradient_norm(gradient, order, at, x)))(rows)
    for row, norm in zip(rows, found, strict=True):
        assert float(norm) == pytest.approx(expected(gradient(at, row), order), rel=1e-5)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("row", "slope"), [(1e-25, 1e25), (1e25, 1e-25), (0.0, 1e30), (1e18, 1.0)])
def test_neither_short_nor_long_vectors_hide_a_gradient(row: float, slope: float, order: int) -> None:
    at, x = {"w": jnp.ones((6, 4))}, jnp.full(6, row, jnp.float32)
    gradient = jax.grad(lambda at, x: slope * jnp.sum(x @ at["w"]))
    entry = np.float64(np.float32(row)) * np.float64(np.float32(slope))
    found = float(jax.jit(lambda x: gradient_norm(gradient, order, at, x))(x))
    assert found == pytest.approx(24 * abs(entry) ** order, rel=1e-4)


def test_outer_products_are_not_written_out() -> None:
    gradient, at = jax.grad(LOSSES["a vector times a matrix"]), {"w": jnp.ones((600, 400))}

    def work(function: Any) -> float:
        found: Any = jax.jit(function).lower(jnp.ones(600)).compile().cost_analysis()
        return float(found["flops"])

    whole = work(lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient(at, x))))
    assert work(lambda x: gradient_norm(gradient, 2, at, x)) < 0.8 * whole
