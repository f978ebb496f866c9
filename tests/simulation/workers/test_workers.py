"""Worker processes: the same bits as in one process, every core busy, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import checkpoint, lanes, simulate
from crowdml.simulation.workers import pool
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]
EXAMPLES = Path(__file__).parents[3] / "examples"
STALE = "crowd.delays={ check-in = 300.0 }"
FEDAVG = "algorithm={ kind = 'fedavg', per-round = 4, local-batch = 8, rate = { kind = 'constant', c = 0.3 } }"


def fields(process: int) -> list[str]:
    """Return what the kernel says of a process, from its state on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(process: int) -> float:
    return sum(map(int, fields(process)[11:13])) / os.sysconf("SC_CLK_TCK")


def lives(process: int) -> bool:
    try:
        return fields(process)[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def ending() -> Iterator[None]:
    yield
    pool.close()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, ending: None) -> None:
    """Two workers, however little the work and however many the cores."""
    monkeypatch.setenv("CROWDML_WORKERS", "2")
    monkeypatch.setattr(lanes, "CORES", 2)
    monkeypatch.setattr(lanes, "SHARED_WORK", 0.0)


@pytest.mark.parametrize(
    ("changes", "trials"),
    [
        ((STALE, "privacy.mode=paper", "privacy.epsilon=50.0"), 3),
        ((FEDAVG, "model={ kind = 'mlp', layers = [12] }"), 2),
        (("stop.error-below=0.4", "stop.error-rows=50"), 2),
        (("data.split={ train = 1000, test = 300 }",), 2),
        (("crowd.drop-out=0.3",), 3),
    ],
    ids=["noise, delays, one trial twice", "rounds", "stops early", "rows of its own for each trial", "drop-out"],
)
def test_the_same_bits_as_in_one_process(
    digits: Make, two: None, changes: tuple[str, ...], trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = digits(*changes)
    apart = simulate(task, trials=trials)
    assert apart.processes == 2
    for processes in (0, 1):
        monkeypatch.setenv("CROWDML_WORKERS", str(processes))
        other = simulate(task, trials=trials)
        assert other.processes == processes
        assert same_bits(apart, other)
        assert apart.updates == other.updates
        np.testing.assert_array_equal(apart.samples, other.samples)
        np.testing.assert_array_equal(apart.measured["test_error"], other.measured["test_error"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_is_a_task_for_a_worker(path: Path) -> None:
    task = Task.load(path)
    assert (
        Task.model_validate(lanes.plain_task(task)).structure()
        == task.model_copy(update={"data": task.data.model_copy(update={"dataset": None})}).structure()
    )


def test_a_number_is_learnt_in_workers(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.load(EXAMPLES / "diabetes.toml", ["crowd.passes=2"])
    apart = simulate(task, trials=2)
    monkeypatch.setenv("CROWDML_WORKERS", "0")
    assert same_bits(apart, simulate(task, trials=2))


def test_every_worker_does_its_share(digits: Make, two: None) -> None:
    """What counts is the CPU time of the processes: threads can all be there and wait for one."""
    task = digits("algorithm.batch=20", "crowd.passes=400", "model={ kind = 'mlp', layers = [64] }")
    simulate(digits("crowd.passes=1"), trials=2)
    processes = pool.processes()
    before, counted = [cpu_seconds(process) for process in processes], pool.cpu_seconds()
    assert simulate(task, trials=4).processes == 2
    spent = [cpu_seconds(process) - start for process, start in zip(processes, before, strict=True)]
    assert min(spent) > 0.5, "too little to tell"
    assert min(spent) > 0.35 * sum(spent), spent
    # What workers say of themselves is what the system says: within ticks, and the answer's own cost.
    assert pool.cpu_seconds() - counted == pytest.approx(sum(spent), rel=0.1, abs=0.1)


@pytest.mark.parametrize("per_round", [4, 5], ids=["even", "uneven"])
def test_devices_of_a_round_work_in_several_processes(
    digits: Make, two: None, per_round: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single trial of rounds: the same bits as in one process, and both are busy."""
    changes = (f"algorithm.per-round={per_round}", "crowd.passes=3", "model={ kind = 'mlp', layers = [300] }")
    task = digits(FEDAVG, "privacy={ mode = 'paper', noise-scale = 0.01 }", *changes)
    simulate(task)
    processes = pool.processes()
    before = [cpu_seconds(process) for process in processes]
    apart = simulate(task)
    spent = [cpu_seconds(process) - start for process, start in zip(processes, before, strict=True)]
    assert apart.processes == 2
    assert min(spent) > 0.25 * sum(spent), spent
    monkeypatch.setenv("CROWDML_WORKERS", "0")
    assert same_bits(apart, simulate(task))


def test_a_shared_trial_goes_on_where_it_was_interrupted(
    digits: Make, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = digits(FEDAVG, "crowd.passes=3")
    whole = simulate(task)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)

    def interrupt(share: float, error: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(task, watch=interrupt)
    seen: list[float] = []
    assert same_bits(whole, simulate(task, resume=True, watch=lambda share, error: seen.append(share)))
    assert min(seen) > 0.4, "it began from the start"


def test_a_run_goes_on_in_workers_where_it_was_interrupted(
    digits: Make, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = digits(STALE)
    whole = simulate(task, trials=3)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)

    def interrupt(share: float, error: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(task, trials=3, watch=interrupt)
    monkeypatch.setenv("CROWDML_WORKERS", "1")  # as on a machine with fewer cores
    seen: list[float] = []
    resumed = simulate(task, trials=3, resume=True, watch=lambda share, error: seen.append(share))
    assert min(seen) > 0.4, "it began from the start"
    assert same_bits(whole, resumed)


def test_a_worker_that_is_killed_is_named_and_replaced(digits: Make, two: None) -> None:
    simulate(digits(), trials=2)
    gone = pool.processes()[0]

    def kill(share: float, error: float) -> None:
        os.kill(gone, signal.SIGKILL)

    with pytest.raises(BadInput, match=r"worker process has ended by itself \(signal 9\)"):
        simulate(digits(), trials=2, watch=kill)
    assert simulate(digits(), trials=2).processes == 2


def test_an_interrupt_while_rows_are_laid_out_keeps_no_worker(
    digits: Make, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lanes, "make_tables", interrupted)
        simulate(digits(), trials=2)
    simulate(digits(), trials=2)
    assert len(pool.processes()) == 2


def test_runs_at_the_same_time_have_workers_of_their_own(digits: Make, two: None) -> None:
    task = digits(STALE)
    alone = simulate(task, trials=2)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(simulate, task, trials=2) for _ in range(2)]
        assert all(same_bits(alone, run.result()) for run in both)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_fork_leaves_its_parents_workers_alone(digits: Make, two: None) -> None:
    simulate(digits(), trials=2)
    before = pool.processes()
    child = os.fork()
    if not child:
        pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert simulate(digits(), trials=2).processes == 2
    assert pool.processes() == before


def test_what_a_task_cannot_do_is_said_as_in_one_process(digits: Make, two: None) -> None:
    with pytest.raises(BadInput, match="no device ever fills a batch"):
        simulate(digits("algorithm.batch=500"), trials=2)


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from crowdml.simulation.workers import start\n"
        "print(start.start().process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert lives(worker)
        process.kill()
    deadline = time.monotonic() + 60
    while lives(worker):
        assert time.monotonic() < deadline, "it goes on by itself"
        time.sleep(0.1)


def test_a_command_that_refuses_its_task_leaves_no_worker(tmp_path: Path) -> None:
    """Whoever reads its output through a pipe would wait for the worker."""
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "crowdml", "simulate", str(tmp_path / "none.toml")],
        capture_output=True,
        check=False,
        env=os.environ | {"CROWDML_WORKERS": "2"},
    )
    assert ran.returncode == 2
    assert b"Traceback" not in ran.stderr
    assert time.monotonic() - began < 60


def test_what_was_registered_here_runs_here(digits: Make, two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.task import plugins

    monkeypatch.setattr(plugins, "_BY_HAND", {(plugins.KINDS["datasets"].what, "mine")})
    assert simulate(digits(), trials=2).processes == 2, "rows are handed to workers"
    monkeypatch.setattr(plugins, "_BY_HAND", {(plugins.KINDS["rates"].what, "mine")})
    assert simulate(digits(), trials=2).processes == 0


def test_a_number_of_workers_that_is_none(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "many")
    with pytest.raises(BadInput, match="CROWDML_WORKERS=many"):
        simulate(digits(), trials=2)
