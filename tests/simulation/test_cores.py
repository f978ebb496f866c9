"""Spreading lanes over cores: blocks, their order, and the threads that run them."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crowdml.simulation import cores


@pytest.mark.parametrize(("lanes", "available", "used"), [(1, 2, 1), (10, 2, 2), (9, 4, 3), (7, 4, 1)])
def test_as_many_cores_as_divide_the_lanes(
    lanes: int, available: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "CORES", available)
    assert cores.count_blocks(lanes) == used


def test_blocks_are_put_together_in_order() -> None:
    tree: dict[str, Any] = {"a": np.arange(12).reshape(6, 2), "b": (np.arange(6.0),), "none": ()}
    blocks = cores.cut(tree, 3)
    assert [block["a"].tolist() for block in blocks] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    whole = cores.join(blocks)
    assert whole["a"].tolist() == tree["a"].tolist()
    assert whole["b"][0].tolist() == tree["b"][0].tolist()
    assert whole["none"] == ()


def test_results_keep_the_order_of_blocks() -> None:
    assert cores.on_all(lambda a, b: a * 10 + b, (1, 2, 3), (4, 5, 6)) == (14, 25, 36)


def test_a_failure_on_one_core_is_raised() -> None:
    def fail(number: object) -> object:
        if int(np.asarray(number)) == 2:
            raise ZeroDivisionError
        return number

    with pytest.raises(ZeroDivisionError):
        cores.on_all(fail, (1, 2))


def test_one_xla_device_whose_programs_run_in_the_calling_thread() -> None:
    """Otherwise blocks would wait for each other; the callback sees in which thread a program runs."""
    seen: list[int] = []

    def look(x: object) -> np.ndarray[tuple[()], np.dtype[np.float32]]:
        seen.append(threading.get_ident())
        return np.float32(0) + np.zeros((), np.float32)

    program = jax.jit(lambda x: x + jax.pure_callback(look, jnp.float32(0), x))
    np.asarray(program(jnp.float32(1)))
    assert jax.device_count() == 1
    assert set(seen) == {threading.get_ident()}
