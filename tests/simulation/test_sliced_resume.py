"""Sliced runs go on where they were interrupted, bit for bit; what cannot says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import checkpoint, simulate, simulate_cells
from crowdml.task import Task, parse
from tests.simulation.test_sliced import SOUND, SOURCE
from tests.support.simulated import same_bits

PICTURE = (
    "model={ kind = 'layers', shape = [8, 8, 1], layers = [{ kind = 'convolution', size = 4, kernel = 3 }, "
    "{ kind = 'batch-norm' }, { kind = 'relu' }, { kind = 'pooling' }, { kind = 'flatten' }, "
    "{ kind = 'dense', size = 12 }, { kind = 'batch-norm' }, { kind = 'relu' }, { kind = 'dense', size = 10 }] }"
)
LOSSES = "crowd.relay={ leg = 0.01, loss-every = 20.0, away = 3.0 }"
KINDS = {
    "alone": ("algorithm.pieces=0", "crowd.devices=1"),
    "a window of weights": ("algorithm.window=weights", "algorithm.omega=2"),
    "a window of uploads": ("algorithm.window=uploads", "algorithm.omega=3"),
    "normalised convolutions": (PICTURE, "algorithm.balance=3.0"),
    "devices that come and go": (LOSSES, "crowd.drop-out=0.3", "algorithm.pieces=1", "algorithm.dummies=2"),
    "noise on uploads": ("algorithm.upload-noise=2.0",),
    "noise on the first cut": SOUND,
}


def task(*changes: str) -> Task:
    few = "data.split={ train = 400, test = 100, seed = 0 }"
    return parse(SOURCE, changes=["crowd.passes=4", "crowd.curve=4", few, *changes])


def interrupted(tasks: list[Task], trials: int, after: float) -> None:
    """Run tasks until a share of everything is done."""

    def interrupt(share: float, error: float) -> None:
        if share > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        simulate_cells(tasks, trials=trials, watch=interrupt)
    assert "--resume" in caught.value.__notes__[0]
    assert checkpoint.run_path(tasks, trials, 0).exists()


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_goes_on_bit_for_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(*KINDS[kind])
    whole = simulate(made, trials=2)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    # In the second trial, in the midst of its third pass: the first one is done, two passes of the second are saved.
    interrupted([made], 2, 0.8)
    seen: list[float] = []
    resumed = simulate(made, trials=2, resume=True, watch=lambda share, error: seen.append(share))
    assert min(seen) > 0.75, "it began from the start"
    assert same_bits(whole, resumed)
    assert (whole.updates, whole.notes, whole.relay) == (resumed.updates, resumed.notes, resumed.relay)
    np.testing.assert_array_equal(whole.samples, resumed.samples)
    assert (whole.times is None) == (resumed.times is None)
    if whole.times is not None and resumed.times is not None:
        np.testing.assert_array_equal(whole.times, resumed.times)
    assert not checkpoint.run_path([made], 2, 0).exists()


def test_what_is_saved_has_changed_since_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves something of the state out would go on with that of the start: each part matters."""
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    made = task("algorithm.window=weights", "algorithm.omega=2")
    interrupted([made], 1, 0.6)
    path = checkpoint.run_path([made], 1, 0)
    progress = checkpoint.load(path)
    whole = simulate(made)
    for at in range(1, len(progress.leaves)):
        leaves = [np.zeros_like(leaf) if place == at else leaf for place, leaf in enumerate(progress.leaves)]
        checkpoint.save(path, checkpoint.Progress(**vars(progress) | {"leaves": tuple(leaves)}))
        assert not same_bits(whole, simulate_cells([made], resume=True)[0]), at


def test_cells_side_by_side_share_a_checkpoint_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    cells = [task(f"algorithm.tau={tau}") for tau in (0.2, 1.0)]
    whole = simulate_cells(cells)
    interrupted(cells, 1, 0.7)
    resumed = simulate_cells(cells, resume=True, keep=True)
    assert all(same_bits(one, other) for one, other in zip(whole, resumed, strict=True))
    spent = checkpoint.spent_at(checkpoint.run_path(cells, 1, 0))
    seen: list[float] = []
    again = simulate_cells(cells, resume=True, keep=True, watch=lambda share, error: seen.append(share))
    assert not seen and all(same_bits(one, other) for one, other in zip(whole, again, strict=True))
    assert checkpoint.spent_at(checkpoint.run_path(cells, 1, 0)) == spent, "nothing was run, so nothing was spent"


def test_a_damaged_checkpoint_of_groups_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    interrupted([task()], 1, 0.6)
    path = checkpoint.run_path([task()], 1, 0)
    progress = checkpoint.load(path)
    text = np.frombuffer(b'{"done": []', np.uint8)
    checkpoint.save(path, checkpoint.Progress(**vars(progress) | {"leaves": (text, *progress.leaves[1:])}))
    with pytest.raises(BadInput, match="without --resume"):
        simulate(task(), resume=True)


def test_where_nothing_can_be_written_a_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert any("would have to begin anew" in note for note in simulate(task("crowd.passes=1", "crowd.curve=1")).notes)


def test_a_pooled_run_says_that_there_was_nothing_to_resume() -> None:
    pooled = parse(
        SOURCE, changes=["algorithm={ kind = 'central-batch' }", "model={ kind = 'softmax' }", "crowd={ devices = 1 }"]
    )
    assert any("runs as a whole" in note for note in simulate(pooled, resume=True).notes)
    assert not any("runs as a whole" in note for note in simulate(pooled).notes)
