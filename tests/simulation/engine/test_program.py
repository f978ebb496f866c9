"""The compiled loop: it got its flags, and it copies no table."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.program import Program, compile_program
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.prepare import prepare
from crowdml.simulation.run import make_timelines
from crowdml.task import Task

Make = Callable[..., Task]
MLP = 'model={ kind = "mlp", layers = [16] }'


def compiled(task: Task, trials: int, ring: int) -> Program:
    _, dataset = prepare(task)
    chunks = cut_chunks(make_timelines(task, dataset, trials, 0), 5)
    seeds = np.stack([trial_seed(0, trial) for trial in range(trials)])
    numbers = task.hyper(task.calibrated)
    hyper = {name: np.full(trials, value, np.float32) for name, value in numbers.items()}
    return compile_program(task, dataset, Replicas(hyper=hyper, seeds=seeds), chunks.events(0)[0], ring, chunks.even)


@pytest.mark.parametrize(("devices", "ring"), [(37, 53), (1311, 53), (37, 2027)], ids=["small", "devices", "ring"])
def test_no_step_copies_a_table(digits: Make, devices: int, ring: int) -> None:
    """Past versions (ring, 10, 64) and rows per device (devices, …) are updated in place, never copied."""
    task = digits(f"crowd.devices={devices}", "algorithm.batch=1", "crowd.passes=1")
    text = compiled(task, trials=1, ring=ring).code()
    bodies = re.findall(r"^%?[\w.\-]*(?:body|region|while)[\w.\-]* .*?^}", text, flags=re.MULTILINE | re.DOTALL)
    assert bodies, "no loop body was found in the compiled code"
    tables = re.compile(rf"= \w+\[(?:1,)?(?:{devices}|{ring})(?:,[\d,]*)?\]\S* copy\(")
    found = [line for body in bodies for line in body.splitlines() if tables.search(line)]
    assert not found, found


@pytest.mark.parametrize("batch", [1, 20])
def test_small_batches_run_as_one_kernel(digits: Make, batch: int) -> None:
    """The flags took: XLA marks the loop as a small call, and no library call stands in its way."""
    text = compiled(digits(f"algorithm.batch={batch}", "crowd.passes=1"), trials=1, ring=0).code()
    assert 'xla_cpu_small_call="true"' in text
    assert "__ynn_fusion" not in text
    assert batch == 1 or not re.search(r"\bdot\(", text), "a product was not written out"


@pytest.mark.parametrize("changes", [("algorithm.batch=70",), ("algorithm.batch=20", MLP)], ids=["rows", "layers"])
def test_large_batches_and_models_keep_library_calls(digits: Make, changes: tuple[str, ...]) -> None:
    text = compiled(digits(*changes, "crowd.passes=1"), trials=1, ring=0).code()
    assert "ynn" in text
