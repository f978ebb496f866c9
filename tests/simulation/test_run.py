import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.cli.output import print_result
from crowdml.core import NUMPY, BadInput, trees
from crowdml.simulation import Result, memory, run, simulate, simulate_cells
from crowdml.simulation.checkpoint import KEPT_DAYS, clean, in_use, run_path
from crowdml.simulation.chunks import cut_chunks
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline import make_timeline

Make = Callable[..., Task]


def leaves(result: Result) -> list[Any]:
    return trees.leaves(result.parameters)


def same_bits(left: Result, right: Result) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(leaves(left), leaves(right), strict=True)) and all(
        np.array_equal(left.measured[name], right.measured[name]) for name in left.measured
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_digits_are_learnt(digits: Make) -> None:
    task = digits("algorithm.batch=20", "algorithm.rate.c=30.0", "crowd.passes=10")
    result = simulate(task, trials=4)
    assert result.test_error <= 0.07
    assert result.updates == 4 * 600
    curve = result.measured["test_error"].mean(axis=1)
    assert curve[0] > curve[-1]


def test_same_seed_same_bits_other_seed_other_bits(digits: Make) -> None:
    task = digits("privacy.mode=paper", "privacy.epsilon=50.0")
    first, second, other = (simulate(task, trials=2, seed=seed) for seed in (1, 1, 2))
    assert same_bits(first, second) and not same_bits(first, other)


def test_trials_do_not_depend_on_their_number(digits: Make) -> None:
    few, many = simulate(digits(), trials=2), simulate(digits(), trials=4)
    np.testing.assert_allclose(leaves(few)[0], leaves(many)[0][:2], rtol=1e-4, atol=1e-5)


def test_trials_that_do_not_divide_by_cores(digits: Make) -> None:
    three, four = simulate(digits(), trials=3), simulate(digits(), trials=4)
    assert three.parameters[0]["w"].shape[0] == 3 and three.updates == 3 * 280
    np.testing.assert_allclose(leaves(three)[0], leaves(four)[0][:3], rtol=1e-4, atol=1e-5)


def test_the_server_counts_for_every_device(digits: Make) -> None:
    """Without noise the counts are the truth: what each device holds, once per pass."""
    task = digits()
    result = simulate(task, trials=2)
    _, dataset = prepare(task)
    for trial in range(2):
        timeline = make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, trial]))
        for device in range(20):
            labels = dataset.train_labels[timeline.rows[timeline.device == device]].reshape(-1)
            assert result.counts["labels"][trial, device].tolist() == np.bincount(labels, minlength=10).tolist()
            assert result.counts["rows"][trial, device] == len(labels)
    errors = result.counts["errors"].sum(axis=1) / result.counts["counted"].sum(axis=1)
    np.testing.assert_allclose(errors, result.measured["estimated_error"][-1], rtol=1e-6)
    shares = np.bincount(dataset.train_labels, minlength=10) / 1400
    assert [values[0] for values in result.estimated_labels.values()] == pytest.approx(shares.tolist())


def test_noisy_counts_estimate_the_labels(digits: Make) -> None:
    """Noise of scale 2/2.5 on each count of 280 releases: a deviation of 0.0068 of 2800 rows.

    The bound is seven deviations: a false alarm in 4e11.
    """
    noisy = digits("privacy.mode=paper", "privacy.epsilon=100.0", "privacy.statistics-epsilon=50.0")
    result = simulate(noisy, trials=2)
    _, dataset = prepare(noisy)
    shares = np.bincount(dataset.train_labels, minlength=10) / 1400
    for label, values in enumerate(result.estimated_labels.values()):
        assert np.abs(values - shares[label]).max() < 0.05
        assert not np.allclose(values, shares[label], atol=1e-6), "no noise was added"


def test_an_interrupted_run_goes_on_bit_for_bit(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    task = digits("crowd.delays={ check-in = 300.0 }", "privacy.mode=paper", "privacy.epsilon=50.0")
    whole = simulate(task, trials=2)
    monkeypatch.setattr(run, "SAVE_EVERY_S", 0.0)

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


def test_a_damaged_checkpoint_is_named(digits: Make) -> None:
    path = run_path([digits()], 1, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BadInput, match="without --resume"):
        simulate(digits(), resume=True)


def test_cells_equal_separate_runs(digits: Make) -> None:
    tasks = [digits(f"algorithm.rate.c={c}", f"model.regularisation={r}") for c, r in ((3.0, 0.0), (30.0, 1e-3))]
    together = simulate_cells(tasks, trials=2)
    for task, cell in zip(tasks, together, strict=True):
        alone = simulate(task, trials=2)
        np.testing.assert_allclose(leaves(cell)[0], leaves(alone)[0], rtol=1e-4, atol=1e-5)
        assert cell.task is task


def test_cells_of_different_structure_are_refused(digits: Make) -> None:
    with pytest.raises(ValueError, match="hyper-parameters only"):
        simulate_cells([digits(), digits("algorithm.batch=5")])


def test_error_below_stops_at_the_first_version_that_meets_it(digits: Make) -> None:
    task = digits("stop.error-below=0.25", "stop.error-rows=300", "crowd.passes=3")
    result = simulate(task, trials=2)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    updates = 0
    for trial in range(2):
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([0, trial]))
        met: list[Any] = []

        def look(version: int, server: Any, measurements: Any, met: list[Any] = met) -> None:
            if not met and server.totals["counted"] >= 300 and measurements["estimated_error"] <= 0.25:
                met.append((version, server.parameters))

        run_stepwise(algorithm, timeline, dataset, trial_seed(0, trial), look)
        assert met and met[0][0] < len(timeline)
        updates += met[0][0]
        np.testing.assert_allclose(leaves(result)[0][trial], met[0][1][0]["w"], rtol=1e-4, atol=1e-5)
    assert result.updates == updates


def test_json_has_the_promised_layout(digits: Make) -> None:
    result = simulate(digits("privacy.mode=paper", "privacy.epsilon=10.0", "privacy.statistics-epsilon=1.0"), trials=3)
    content = json.loads(json.dumps(result.to_json()))
    keys = {"task", "seed", "trials", "final", "curve", "estimated_labels", "privacy", "seconds", "updates", "notes"}
    assert set(content) == keys | {"warnings"} and content["warnings"] == []
    assert set(content["final"]["test_error"]) == {"mean", "std"}
    assert [point["samples"] for point in content["curve"]] == sorted(point["samples"] for point in content["curve"])
    assert content["curve"][-1]["samples"] == 2800
    # Two passes: each release costs ε_g = 9, ε_e/2 = 0.25 and ε_y = 0.05; a device is in 14 releases of 10 rows.
    assert content["privacy"]["paper_claim"] == {"epsilon": 10.0, "delta": 0.0}
    assert content["privacy"]["sample"] == {"epsilon": 18.6, "delta": 0.0, "by": "Σε"}
    assert content["privacy"]["device"] == {"epsilon": 1302.0, "delta": 0.0, "by": "Σε"}
    frame = result.to_pandas()
    assert len(frame) == 15 and frame["test_error"].between(0, 1).all()


def test_too_large_for_the_machine(digits: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)
    with pytest.raises(BadInput, match="GiB"):
        simulate(digits())


def test_the_estimate_counts_past_versions(digits: Make) -> None:
    task = digits("crowd.delays={ law = 'fixed', check-in = 1000.0 }", "algorithm.batch=1")
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    timelines = run.make_timelines(task, dataset, 2, 0)
    slow = memory.estimate(algorithm, dataset, cut_chunks(timelines, 5), 20)
    fresh = run.make_timelines(digits("algorithm.batch=1"), dataset, 2, 0)
    assert slow - memory.estimate(algorithm, dataset, cut_chunks(fresh, 5), 20) >= 2 * 1001 * 640 * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.dataset=digit"], 'did you mean "digits"'),
        (["data.features=65"], "has 64 numbers"),
        (['data.labels=["0", "1"]'], "2 labels for a dataset"),
        (["crowd.devices=2000"], "2000 devices cannot share 1400"),
    ],
)
def test_a_task_that_does_not_fit_its_data(digits: Make, changes: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        simulate(digits(*changes))


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


@pytest.mark.parametrize(
    "changes, told",
    [
        (("algorithm.rate={ kind = 'constant', c = 1e6 }",), "ran away in 2 of 2 trials"),
        (("algorithm.rate={ kind = 'constant', c = 1e30 }",), "ran away in 2 of 2 trials"),
        (
            ("algorithm={ kind = 'fedavg', rate = { kind = 'constant', c = 1e20 } }", "model.kind=mlp"),
            "no longer finite",
        ),
        (("algorithm.rate={ kind = 'constant', c = 1e-9 }", "model.kind=mlp"), "too large or too small"),
    ],
)
def test_a_rate_that_makes_everything_diverge_is_warned_about(
    changes: tuple[str, ...], told: str, digits: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulate(digits(*changes), trials=2)
    (warning,) = result.warnings
    assert told in warning and "algorithm.rate" in warning
    text = json.dumps(result.to_json(), allow_nan=False)  # NaN is no JSON
    assert json.loads(text)["warnings"] == [warning]
    print_result(result)
    assert "warning: " in capsys.readouterr().out


def test_a_delta_without_meaning_is_warned_about_where_it_is_not_refused(digits: Make) -> None:
    changes = ("privacy.mode=paper", "privacy.mechanism=gaussian", "privacy.epsilon=2.0")
    quiet, loud = (simulate(digits(*changes, f"privacy.delta={delta}")).warnings for delta in (1e-6, 0.01))
    assert not any("delta" in own for own in quiet)
    assert any("privacy.delta = 0.01 is not below 1 / 1400" in own for own in loud)


@pytest.mark.parametrize("seed", [-5, 2**63])
def test_a_seed_that_is_none_is_refused_in_words(digits: Make, seed: int) -> None:
    with pytest.raises(BadInput, match=f"^seed: {seed} is no seed"):
        simulate(digits(), seed=seed)
    with pytest.raises(BadInput, match=r"^trials: 0 trials"):
        simulate(digits(), trials=0)


def test_a_path_instead_of_a_task_is_answered_with_the_call_that_reads_it() -> None:
    with pytest.raises(BadInput, match=r"should be a Task, not str\n  read a file: crowdml\.Task\.load"):
        simulate("digits.toml")  # type: ignore[arg-type]
