"""Parts of a run, put together, are the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import checkpoint, simulate, simulate_cells
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.parts.part_file import Part, Shard, read_part, read_shard, write_part
from crowdml.simulation.parts.put_together import require_one_run, restore
from crowdml.simulation.parts.run_part import Groups, run_part
from crowdml.simulation.prepare import prepare
from crowdml.simulation.run import make_timelines
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]
REQUEST = {"command": "simulate", "name": "digits", "trials": 5, "seed": 3, "engine": "compiled"}


def parts_of(groups: Groups, folder: Path, count: int, trials: int) -> list[Part]:
    """Run all parts, each through its file."""
    found = []
    for number in range(1, count + 1):
        shard = Shard(number=number, of=count)
        part = run_part(groups, shard, REQUEST, trials=trials, seed=3, engine="compiled")
        write_part(folder / f"{number}.part", part)
        found.append(read_part(folder / f"{number}.part"))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        ("crowd.delays={ check-in = 300.0 }", "privacy.mode=paper", "privacy.epsilon=50.0", "crowd.drop-out=0.2"),
        ("stop.error-below=0.35", "stop.error-rows=50", "crowd.curve=20"),
    ],
    ids=["delays, noise and losses", "trials that stop early"],
)
def test_parts_together_are_the_run(
    digits: Make, changes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "0")  # both run in this process
    task = digits(*changes)
    whole = simulate(task, trials=5, seed=3, engine="compiled")
    parts = parts_of([[task]], tmp_path, 3, 5)
    assert [part.groups[0].replicas for part in parts] == [(0, 3), (1, 4), (2,)]
    assert not list((tmp_path / "crowdml" / "runs").glob("*.safetensors")), "parts leave files alone"
    require_one_run(parts[::-1])
    assert restore(parts[::-1], [[task]], 5, 3) == ()
    together = simulate(task, trials=5, seed=3, engine="compiled", resume=True)
    assert same_bits(whole, together) and whole.updates == together.updates
    np.testing.assert_array_equal(whole.samples, together.samples)
    np.testing.assert_array_equal(whole.times, together.times)
    assert whole.privacy == together.privacy and whole.course is not None and together.course is not None
    for name in ("versions", "sent", "uses", "releases"):
        np.testing.assert_array_equal(getattr(whole.course, name), getattr(together.course, name))


def test_cells_and_trials_are_dealt_out_over_all_groups(
    digits: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "0")
    pair = [digits("algorithm.rate.c=10.0"), digits("algorithm.rate.c=30.0")]
    groups = [pair, [digits("algorithm.batch=20")]]
    parts = parts_of(groups, tmp_path, 4, 1)
    held = [[group.replicas for group in part.groups] for part in parts]
    assert held == [[(0,)], [(1,)], [(0,)], []], "three cells of one trial, in turn; the last part has nothing to do"
    restore(parts, groups, 1, 3)
    for group in groups:
        whole = simulate_cells(group, trials=1, seed=3, engine="compiled")
        together = simulate_cells(group, trials=1, seed=3, engine="compiled", resume=True)
        assert all(same_bits(*both) for both in zip(whole, together, strict=True))


def test_what_leaves_no_checkpoint_is_left_for_the_end(digits: Make) -> None:
    part = run_part([[digits()]], Shard(number=1, of=1), REQUEST, trials=2, seed=0, engine="numpy")
    assert part.groups == ()


def test_a_part_has_the_shapes_of_all(digits: Make) -> None:
    task = digits("crowd.delays={ check-in = 300.0 }", "crowd.drop-out=0.3")
    whole = cut_chunks(make_timelines(task, prepare(task)[1], 4, 0), 5)
    part = whole.part([2])
    assert len(part) == len(whole) and len(part.timelines) == 1
    for name in ("ring", "width", "full", "per_commit", "choosing", "attacked", "even", "length"):
        assert getattr(part, name) == getattr(whole, name), name
    events, counts = part.events(1)
    all_events, all_counts = whole.events(1)
    np.testing.assert_array_equal(events.rows, all_events.rows[2:3])
    np.testing.assert_array_equal(counts, all_counts[2:3])


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/99999", "a/b", "1/2/3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no part of a run"):
        read_shard(text)


def planted(number: int = 1, of: int = 2, **changed: Any) -> Part:
    machine = {"versions": {"crowdml": "1"}, "processor": "one"}
    return Part(shard=Shard(number=number, of=of), request=REQUEST | changed, machine=machine, groups=())


@pytest.fixture
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.simulation.parts import put_together

    monkeypatch.setattr(put_together, "described_machine", lambda: planted().machine)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([planted(1), planted(2, of=3)], "another number of parts"),
        ([planted(1), planted(2, seed=4)], "another seed than part 1/2: 4, not 3"),
        ([planted(1), planted(2, trials=6)], "another trials"),
        ([planted(1), planted(2, task={"name": "other"})], "another task"),
        ([planted(1), planted(2, name="letters")], "another task than part 1/2: letters, not digits"),
        ([planted(1), planted(1)], "part 1/2 is there twice"),
        ([planted(1, of=3), planted(3, of=3)], "of 3 parts 1 are missing: 2/3"),
        (
            [planted(1), dataclasses.replace(planted(2), machine={"versions": {"crowdml": "2"}, "processor": "one"})],
            "another version of crowdml than part 1/2: 2, not 1",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[Part], said: str, one_version: None) -> None:
    with pytest.raises(BadInput) as refused:
        require_one_run(parts)
    assert said in refused.value.what and "\n" not in refused.value.what


def test_parts_of_other_versions_than_ours_are_refused() -> None:
    with pytest.raises(BadInput, match="another version of crowdml, "):
        require_one_run([planted(1), planted(2)])


def test_parts_of_a_task_whose_rows_were_changed_are_refused(digits: Make, tmp_path: Path) -> None:
    (part,) = parts_of([[digits()]], tmp_path, 1, 1)
    with pytest.raises(BadInput, match="another task than they say"):
        restore([part], [[digits("crowd.passes=1")]], 1, 3)
    damaged = tmp_path / "damaged.part"
    damaged.write_bytes((tmp_path / "1.part").read_bytes()[:-100])
    with pytest.raises(BadInput, match="is damaged"):
        read_part(damaged)
    with pytest.raises(BadInput, match="is no part of a run"):
        read_part(_saved(tmp_path, digits()))


def _saved(folder: Path, task: Task) -> Path:
    simulate(task).save(folder / "result")
    return folder / "result"


def test_a_part_goes_on_where_it_was_interrupted(digits: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "0")
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    options: dict[str, Any] = {"trials": 2, "seed": 3, "engine": "compiled"}
    whole = run_part([[digits()]], Shard(number=2, of=2), REQUEST, **options)

    def interrupt(share: float, error: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_part([[digits()]], Shard(number=2, of=2), REQUEST, **options, watch=interrupt)
    seen: list[float] = []
    watch = lambda share, error: seen.append(share)  # noqa: E731
    again = run_part([[digits()]], Shard(number=2, of=2), REQUEST, **options, resume=True, watch=watch)
    assert min(seen) > 0.5, "it began from the start"
    for one, other in zip(whole.groups[0].progress.leaves, again.groups[0].progress.leaves, strict=True):
        np.testing.assert_array_equal(one, other)


def test_words_of_a_part_are_plain(digits: Make, tmp_path: Path) -> None:
    parts_of([[digits()]], tmp_path, 1, 1)
    content = (tmp_path / "1.part").read_bytes()
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    words = json.loads(head["__metadata__"]["words"])
    assert words["shard"] == [1, 1] and words["request"] == REQUEST
