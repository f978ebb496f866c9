"""The machine: blocks of replicas, the thread that runs them, and memory."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from crowdml.simulation import run, simulate
from crowdml.simulation.engine import machine
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.prepare import prepare
from crowdml.task import Task

Make = Callable[..., Task]


def test_blocks_are_put_together_in_order() -> None:
    tree: dict[str, Any] = {"a": np.arange(12).reshape(6, 2), "b": (np.arange(6.0),), "none": ()}
    blocks = machine.cut(tree, 3)
    assert [block["a"].tolist() for block in blocks] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    whole = machine.join(blocks)
    assert whole["a"].tolist() == tree["a"].tolist()
    assert whole["b"][0].tolist() == tree["b"][0].tolist()
    assert whole["none"] == ()


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


def test_too_large_for_the_machine(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 1 << 20)
    with pytest.raises(BadInput, match="GiB"):
        simulate(digits())


def test_the_estimate_counts_past_versions(digits: Make) -> None:
    task = digits("crowd.delays={ law = 'fixed', check-in = 1000.0 }", "algorithm.batch=1")
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    timelines = run.make_timelines(task, dataset, 2, 0)
    slow = machine.estimate_memory(algorithm, dataset, cut_chunks(timelines, 5), 20)
    fresh = run.make_timelines(digits("algorithm.batch=1"), dataset, 2, 0)
    assert slow - machine.estimate_memory(algorithm, dataset, cut_chunks(fresh, 5), 20) >= 2 * 1001 * 640 * 4
