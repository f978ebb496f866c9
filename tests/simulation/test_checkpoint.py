"""Checkpoints: a run that was interrupted goes on bit for bit, and nothing is left behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from crowdml.core import BadInput
from crowdml.simulation import checkpoint, run, simulate
from crowdml.simulation.checkpoint import KEPT_DAYS, clean, in_use, run_path
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]


def test_an_interrupted_run_goes_on_bit_for_bit(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    task = digits("crowd.delays={ check-in = 300.0 }", "privacy.mode=paper", "privacy.epsilon=50.0")
    whole = simulate(task, trials=2)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)

    def interrupt(share: float, error: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        simulate(task, trials=2, watch=interrupt)
    assert "--resume" in caught.value.__notes__[0]
    assert run_path([task], 2, 0).exists()
    seen: list[float] = []
    resumed = simulate(task, trials=2, resume=True, watch=lambda share, error: seen.append(share))
    assert min(seen) > 0.4, "it began from the start"
    assert same_bits(whole, resumed)
    assert not run_path([task], 2, 0).exists()


def test_a_settings_key_that_is_added_orphans_no_checkpoint() -> None:
    known: dict[str, Any] = {"kind": (str, "plain"), "rate": (float, 1.0)}
    before: Any = create_model("Settings", __module__="settings", **known)
    after: Any = create_model("Settings", __module__="settings", **known, added=(int | None, None))
    outer: Any = create_model("Outer", __module__="settings", parts=(tuple[before | after, ...], ()))

    def named(settings: Any) -> Path:
        return run_path([settings], 1, 0)

    assert named(before(rate=2.0)) == named(after(rate=2.0))
    assert named(outer(parts=(before(),))) == named(outer(parts=(after(),)))
    others = [after(rate=2.0, added=3), after(rate=3.0), after(kind="other", rate=2.0), outer(parts=(after(rate=2.0),))]
    assert len({named(each) for each in (after(rate=2.0), *others)}) == 5


def test_a_checkpoint_is_named_by_what_was_chosen_and_by_the_kind_whose_defaults_hold(digits: Make) -> None:
    assert run_path([digits()], 1, 0) == run_path([digits("crowd.delays.check-in=0.0", "crowd.drop-out=0.0")], 1, 0)
    plain = [digits(f'algorithm={{ kind = "{kind}" }}') for kind in ("crowd-sgd", "local-sgd", "fedavg", "fedsgd")]
    paths = {run_path([task], 1, 0) for task in (*plain, digits())}
    assert len(paths) == 5
    assert not paths & {run_path([digits()], 2, 0), run_path([digits()], 1, 1), run_path([digits()], 1, 0, part=(0,))}


def test_a_damaged_checkpoint_is_named(digits: Make) -> None:
    path = run_path([digits()], 1, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BadInput, match="without --resume"):
        simulate(digits(), resume=True)


def test_checkpoints_that_nobody_resumes_are_cleaned_up_after_a_while(tmp_path: Path) -> None:
    names = ("left.safetensors", "left.lock", ".left.safetensors.x1y2", "living.safetensors", "new.safetensors")
    for name in names:
        (tmp_path / name).write_bytes(b"")
    written = (tmp_path / "left.lock").stat().st_mtime
    with in_use(tmp_path / "living.safetensors"):
        clean(tmp_path, written + (KEPT_DAYS - 1) * 86400)
        assert set(names) < {path.name for path in tmp_path.iterdir()}, "too early"
        os.utime(tmp_path / "new.safetensors", (written + 86400, written + 86400))
        clean(tmp_path, written + KEPT_DAYS * 86400 + 60)
        assert {path.name for path in tmp_path.iterdir()} == {"living.safetensors", "living.lock", "new.safetensors"}
    clean(tmp_path, written + KEPT_DAYS * 86400 + 60)
    assert {path.name for path in tmp_path.iterdir()} == {"new.safetensors"}


def test_a_simulation_cleans_up_behind_others_and_itself(digits: Make, tmp_path: Path) -> None:
    folder = run_path([digits()], 1, 0).parent
    folder.mkdir(parents=True)
    (folder / "old.safetensors").write_bytes(b"")
    os.utime(folder / "old.safetensors", (1.0, 1.0))
    simulate(digits())
    assert list(folder.iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_the_checkpoint_and_nothing_else(digits: Make, tmp_path: Path) -> None:
    (tmp_path / "crowdml").write_text("a file where the folder should be")
    result = simulate(digits())
    assert "begin anew" in result.notes[-1] and result.test_error < 0.5


def test_a_finished_run_may_be_kept_and_is_not_run_again(digits: Make) -> None:
    task, seen = digits(), list[float]()
    whole = run.simulate_cells([task], engine="compiled", keep=True)[0]
    assert run_path([task], 1, 0).exists()

    def watch(share: float, error: float) -> None:
        seen.append(share)

    again = run.simulate_cells([task], engine="compiled", resume=True, watch=watch)[0]
    assert seen == [] and same_bits(whole, again)
    assert not run_path([task], 1, 0).exists(), "nobody asked to keep it any longer"
