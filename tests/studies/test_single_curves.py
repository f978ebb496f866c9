"""Studies curve by curve: each is run by itself, can be interrupted, and comes into the record of the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.simulation import Result, checkpoint, simulate_cells
from crowdml.studies import STUDIES, records
from crowdml.studies.comparisons import ACCURACY, COMMONEST, as_published
from crowdml.studies.study import ByCurve, Row, Study, curve
from crowdml.task import load
from docs.writers.papers import papers_page

DIGITS = Path(__file__).parents[2] / "examples" / "digits.toml"
ID = "external/small"
QUICK, SLOW = "quick, b = 5", "slow, b = 20"
PUBLISHED = {QUICK: 0.8, SLOW: 0.5, "b = 10": 0.8}
SHORT = ("crowd.passes=1", "crowd.curve=4")


def rows(label: str, result: Result) -> Iterator[Row]:
    """Compare one curve."""
    yield as_published(label, result, PUBLISHED[label], 0.2)


CURVES = tuple(
    curve(label, *SHORT, f"algorithm.batch={batch}") for label, batch in zip(PUBLISHED, (5, 20, 10), strict=True)
)
SMALL = Study(
    title="a small study",
    claim="it learns",
    refuted_by="not learning",
    tuned="given",
    task=DIGITS,
    curves=CURVES,
    rows=ByCurve(rows=rows, metric=ACCURACY, published=PUBLISHED),
    trials=1,
)
SOME = replace(
    SMALL,
    curves=CURVES[:1],
    full=DIGITS,
    full_curves=CURVES,
    missing=tuple(SMALL.by_curve.not_run(each.label, "--full has this cell") for each in CURVES[1:]),
)
"""The same, of which the study itself runs one curve and `--full` the others."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A study that takes seconds, compiled so that it leaves checkpoints; caches of its own."""
    monkeypatch.setitem(STUDIES._entries, ID, SMALL)
    monkeypatch.setitem(COMMONEST, "digits", ("the same label", 0.9))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(*words: str) -> Any:
    """Type a command in a wide terminal."""
    return CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"}).invoke(app, ["reproduce", ID, *words])


def path_of(label: str) -> Path:
    """Return where the checkpoint of a curve is."""
    changes = next(curve.changes for curve in SMALL.curves if curve.label == label)
    return checkpoint.run_path([load(DIGITS, list(changes))], 1, 0)


def test_curves_come_into_the_record_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    ran = command("--curve", QUICK, "--record", str(folder))
    assert ran.exit_code == 0, ran.output
    first = records.read_record(folder, ID)
    assert first.source == "curves" and list(first.curves) == [QUICK]
    verdicts = {row.setting: row.verdict for row in first.rows}
    assert verdicts[QUICK] in ("holds", "beyond") and verdicts[SLOW] == verdicts["b = 10"] == "not run"
    assert "2 not run" in first.verdict and path_of(QUICK).exists()
    assert not path_of(SLOW).exists()
    ran = command("--curve", SLOW, "--record", str(folder), "--seed", "3", "--trials", "2")
    assert ran.exit_code == 0, ran.output
    both = records.read_record(folder, ID)
    assert [row for row in both.rows if row.setting == QUICK] == [row for row in first.rows if row.setting == QUICK]
    assert both.curves[QUICK] == first.curves[QUICK] and both.seeds == [0, 3]
    run = both.curves[SLOW]
    assert (run.seed, run.trials) == (3, 2) and run.cpu_seconds is not None and run.cpu_seconds > 0
    assert both.cpu_seconds == pytest.approx(run.cpu_seconds + (both.curves[QUICK].cpu_seconds or 0), abs=0.2)
    assert [row.setting for row in both.rows[:3]] == list(PUBLISHED) and both.rows[2].verdict == "not run"
    assert sum(row.setting.startswith("constant predictor") for row in both.rows) == 1
    page, printed = papers_page(folder), command("--recorded", str(folder)).output
    for line in records.curve_lines(both):
        assert line in page and line in printed
    assert "2 trials from seed 3" in page and "Run curve by curve." in page and "settings have changed" not in page


def test_what_an_interrupted_part_took_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task = load(DIGITS, list(SMALL.curves[0].changes))
    monkeypatch.setattr(checkpoint, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr("crowdml.simulation.checkpoint.commit", lambda: "earlier")

    def interrupt(share: float, error: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_cells([task], seed=0, keep=True, watch=interrupt)
    progress = checkpoint.load(path_of(QUICK))
    assert progress.spent.commits == ("earlier",) and progress.spent.cpu_seconds
    hour = checkpoint.Spent(cpu_seconds=3600.0, commits=progress.spent.commits)
    checkpoint.save(path_of(QUICK), checkpoint.Progress(**vars(progress) | {"spent": hour}))
    monkeypatch.setattr("crowdml.simulation.checkpoint.commit", lambda: "later")
    ran = command("--curve", QUICK, "--resume", "--record", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    run = records.read_record(tmp_path, ID).curves[QUICK]
    assert run.commits == ["earlier", "later"] and 3600 < (run.cpu_seconds or 0) < 3700
    again = command("--curve", QUICK, "--resume", "--record", str(tmp_path))
    assert again.exit_code == 0, again.output
    assert records.read_record(tmp_path, ID).curves[QUICK] == run, "nothing was run, so nothing was spent"


def test_a_checkpoint_that_did_not_note_its_time_says_so(tmp_path: Path) -> None:
    simulate_cells([load(DIGITS, list(SMALL.curves[0].changes))], keep=True)
    path = path_of(QUICK)
    progress = checkpoint.load(path)
    checkpoint.save(path, checkpoint.Progress(**vars(progress) | {"spent": checkpoint.UNKNOWN}))
    ran = command("--curve", QUICK, "--resume", "--record", str(tmp_path))
    assert "CPU time unknown, a part of it was not noted" in ran.output and "commit unknown" in ran.output
    kept = json.loads((tmp_path / f"{ID}.json").read_text(encoding="utf-8"))
    assert kept["curves"][QUICK]["cpu_seconds"] is None and kept["cpu_seconds"] is None


def test_an_unknown_curve_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    from crowdml.cli.reproduce import reproduce

    with pytest.raises(BadInput, match=f'there are: "{QUICK}", "{SLOW}", "b = 10"'):
        reproduce(ID, curve=["quick"])
    with pytest.raises(BadInput, match="need several curves each"):
        reproduce("crowdml-2015/fig5", curve=[STUDIES["crowdml-2015/fig5"].curves[0].label])
    for options in ({"search": True}, {"recorded": tmp_path}):
        with pytest.raises(BadInput):
            reproduce(ID, curve=[QUICK], **options)


def test_a_curve_run_anew_replaces_that_of_a_whole_run(tmp_path: Path) -> None:
    assert command("--record", str(tmp_path)).exit_code == 0
    whole = records.read_record(tmp_path, ID)
    assert whole.source == "run" and not whole.curves
    assert command("--curve", SLOW, "--seed", "7", "--record", str(tmp_path)).exit_code == 0
    mixed = records.read_record(tmp_path, ID)
    assert mixed.source == "run" and list(mixed.curves) == [SLOW] and mixed.seeds == [0]
    ours = {row.setting: (row.ours, other.ours) for row, other in zip(whole.rows, mixed.rows, strict=True)}
    assert [label for label, (before, after) in ours.items() if before != after] == [SLOW]


def test_curves_of_the_full_setting_come_into_the_same_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES._entries, ID, SOME)
    ran = command("--full", "--curve", SLOW, "--resume", "--record", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    first = records.read_record(tmp_path, ID)
    assert list(first.curves) == [SLOW] and [row.setting for row in first.rows[:3]] == list(PUBLISHED)
    assert [row.verdict == "not run" for row in first.rows[:3]] == [True, False, True]
    assert "--full --curve" in first.rows[0].rule and not records.has_changed(SOME, first)
    # What the study itself runs leaves the others where they are, whether it is asked for by name or not.
    for words in (("--curve", QUICK), ()):
        assert command(*words, "--resume", "--record", str(tmp_path)).exit_code == 0
        both = records.read_record(tmp_path, ID)
        assert list(both.curves) == [QUICK, SLOW] and both.curves[SLOW] == first.curves[SLOW]
        assert both.rows[1] == first.rows[1] and both.rows[0].verdict != "not run"
    ran = command("--full", "--resume", "--record", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    whole = records.read_record(tmp_path, ID)
    assert list(whole.curves) == list(PUBLISHED) and "not run" not in whole.verdict
    assert whole.curves[SLOW] == first.curves[SLOW] and not records.has_changed(SOME, whole)


def test_a_full_setting_of_its_own_has_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.cli.reproduce import reproduce

    others = replace(SOME, full_curves=(curve("another", *SHORT),))
    for study in (others, replace(SOME, full=DIGITS.with_name("phone.toml")), replace(SOME, rows=lambda _: ())):
        assert not study.shares_its_record
        monkeypatch.setitem(STUDIES._entries, ID, study)
        with pytest.raises(BadInput, match="only the study itself has a record") as refused:
            reproduce(ID, full=True, record=tmp_path)
        assert refused.value.where == "--full"
    assert not list(tmp_path.rglob("*.json"))


def test_parts_of_a_full_run_are_not_written_over_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "results"
    for study, words in ((SOME, "made curve by curve"), (replace(SMALL, full=DIGITS), "only the study itself")):
        monkeypatch.setitem(STUDIES._entries, ID, study)
        assert command("--curve", QUICK, "--resume", "--record", str(kept)).exit_code == 0
        before = records.read_record(kept, ID)
        assert command("--full", "--shard", "1/1").exit_code == 0
        merged = CliRunner(env={"COLUMNS": "300"}).invoke(
            app, ["merge", "external-small-1-of-1.part", "--record", "results"]
        )
        assert isinstance(merged.exception, BadInput) and words in str(merged.exception)
        assert records.read_record(kept, ID) == before
