"""One record for command and page: what is run, what is stored, what is printed, what the page says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.studies import STUDIES, reproduce
from crowdml.studies import records as kept
from crowdml.studies.slicenet import cost_tables, noise_trade_off
from crowdml.studies.study import ByCurve
from docs.writers.papers import RESULTS, papers_page
from docs.writers.speed import SECTIONS
from tests.studies.planted import planted

RECORDED = [name for name in STUDIES if kept.place(RESULTS, name).is_file()]


@pytest.fixture(scope="module")
def made() -> kept.Record:
    """The record of a study that trains nothing."""
    for each in vars(cost_tables).values():  # what another test has cut already would cost nothing
        getattr(each, "cache_clear", lambda: None)()
    return kept.record_of(reproduce("slicenet/table6", STUDIES["slicenet/table6"], None))


def test_a_record_says_who_made_it_where_and_how(made: kept.Record, tmp_path: Path) -> None:
    path = kept.write_record(made, tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "slicenet" / "table6.json" and kept.read_record(tmp_path, "slicenet/table6") == made
    assert set(content) == set(kept.Record.model_fields)
    assert content["seeds"] == [0] and content["trials"] == 1 and content["cpu_seconds"] > 0
    assert content["machine"]["cores"] >= 1 and content["machine"]["memory_gib"] > 0
    assert content["settings"] == {"task": ["slicenet-mlp.toml"]}


def test_command_and_page_print_the_same_words(made: kept.Record, tmp_path: Path) -> None:
    kept.write_record(made, tmp_path)
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    printed = runner.invoke(app, ["reproduce", made.id, "--recorded", str(tmp_path)])
    assert printed.exit_code == 0, printed.output
    page = papers_page(tmp_path).split(f"### {made.id}\n")[1].split("\n### ")[0]
    assert f"verdict: {made.verdict}" in printed.output and f"**{made.verdict}.**" in page
    for row in made.rows:
        words = [cell for cell in kept.cells(row) if cell]
        lines = [line for text in (printed.output, page) for line in text.splitlines() if row.setting in line]
        assert sum(all(word in line for word in words) for line in lines) >= 2, row


def test_a_record_is_drawn_without_running_anything(made: kept.Record, tmp_path: Path) -> None:
    from crowdml.studies.drawing import svg

    assert made.figure is not None
    kept.write_record(made, tmp_path)
    runner, asked = CliRunner(), ["reproduce", made.id, "--recorded", str(tmp_path), "--plot"]
    assert runner.invoke(app, [*asked, str(tmp_path / "drawn.svg")]).exit_code == 0
    words = set(re.findall(r">([^<>]+)</t", svg(made.figure, f"{made.id}: {made.title}")))
    assert words and words == set(re.findall(r">([^<>]+)</t", (tmp_path / "drawn.svg").read_text(encoding="utf-8")))
    assert isinstance(runner.invoke(app, [*asked, str(tmp_path / "drawn.txt")]).exception, BadInput)
    kept.write_record(made.model_copy(update={"figure": None}), tmp_path)
    refused = runner.invoke(app, [*asked, str(tmp_path / "other.svg")]).exception
    assert isinstance(refused, BadInput) and "this record has no figure" in str(refused)
    assert not (tmp_path / "other.svg").exists()


def test_figures_of_an_earlier_page_say_that_they_were_not_run_since(made: kept.Record) -> None:
    older = made.model_copy(update={"source": "page", "cpu_seconds": None, "machine": None, "commit": "abc"})
    assert kept.provenance(older).startswith("Not run since commit abc, whose page had these figures")
    assert "Not run since" not in kept.provenance(made) and "s of CPU time on" in kept.provenance(made)


def test_what_was_never_run_says_so_on_the_page(tmp_path: Path) -> None:
    page = papers_page(tmp_path)
    assert page.count("Not run: there is no record of it.") == len(STUDIES)


def test_settings_that_changed_since_are_told(made: kept.Record, tmp_path: Path) -> None:
    told = "settings have changed since this was run"
    kept.write_record(made, tmp_path)
    assert told not in papers_page(tmp_path)
    kept.write_record(made.model_copy(update={"settings": {"task": ["other.toml"]}}), tmp_path)
    assert told in papers_page(tmp_path)


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no record there"):
        kept.read_record(tmp_path, "admm/fig3")
    path = kept.place(tmp_path, "admm/fig3")
    path.parent.mkdir()
    path.write_text('{"id": 3}')
    with pytest.raises(BadInput, match="no record of a study: id"):
        kept.read_record(tmp_path, "admm/fig3")
    path.write_bytes(b" " * (kept.LARGEST + 1))
    with pytest.raises(BadInput, match="bytes"):
        kept.read_record(tmp_path, "admm/fig3")


@pytest.mark.parametrize("words", [["--search"], ["--full"]])
def test_only_the_study_itself_has_a_record(words: list[str], tmp_path: Path) -> None:
    from crowdml.cli.reproduce import reproduce as command

    search, full = "--search" in words, "--full" in words
    with pytest.raises(BadInput, match="only the study itself"):
        command("slicenet/table1", record=tmp_path, search=search, full=full)
    with pytest.raises(BadInput, match="nothing is run here"):
        command("slicenet/table1", recorded=tmp_path, search=search, full=full)


@pytest.mark.parametrize("name", RECORDED)
def test_stored_records_are_whole_and_name_no_place(name: str) -> None:
    record, study = kept.read_record(RESULTS, name), STUDIES[name]
    assert (record.id, record.title, record.claim, record.refuted_by) == (
        name,
        study.title,
        study.claim,
        study.refuted_by,
    )
    assert record.commit and not record.commit.endswith("+"), "recorded with changes that no commit has"
    assert record.verdict == kept.study_verdict(record.rows, study.stands_in) and record.tuned == study.tuned
    text = kept.place(RESULTS, name).read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|work|root|tmp|Users)\b|localhost", text)
    figure = record.figure.model_dump_json() if record.figure else ""
    assert len(figure) < 80_000 and len(text) - len(figure) < 80_000


@pytest.mark.parametrize("name", RECORDED)
def test_stored_records_have_the_settings_that_studies_have_now(name: str) -> None:
    record = kept.read_record(RESULTS, name)
    assert not kept.has_changed(STUDIES[name], record), f"crowdml reproduce {name} --record results"


@pytest.mark.parametrize("name", [name for name in RECORDED if STUDIES[name].curves])
def test_stored_rows_were_judged_by_the_rules_that_studies_have_now(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the page has a word that nobody would say today, beside a claim that it was not asked about."""
    monkeypatch.setattr(noise_trade_off, "_best_reading", lambda result: 0.1)
    record, study = kept.read_record(RESULTS, name), STUDIES[name]
    study = study.in_full if study.shares_its_record else study
    ran = {row.setting for row in record.rows if row.verdict != "not run"}
    made = planted(study)
    if isinstance(study.rows, ByCurve):
        made = {label: result for label, result in made.items() if label in ran}
    now, then = (
        Counter(row.rule for row in rows if row.verdict not in ("shown", "not run"))
        for rows in (study.compare(made), record.rows)
    )
    assert now == then, f"crowdml reproduce {name} --record results"
    assert set(study.notes) <= set(record.notes), f"crowdml reproduce {name} --record results"


@pytest.fixture(scope="module")
def history() -> set[str]:
    """Every commit that led to the one that is checked out."""

    def told(*words: str) -> str | None:
        git = shutil.which("git")
        done = git and subprocess.run([git, *words], cwd=RESULTS, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done and done.returncode == 0 else None

    if told("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no checkout with its whole history")
    return set((told("rev-list", "HEAD") or "").split())


@pytest.mark.parametrize("name", RECORDED)
def test_stored_records_name_commits_of_this_history(name: str, history: set[str]) -> None:
    record = kept.read_record(RESULTS, name)
    named = {record.commit, record.judged_by}
    for run in record.curves.values():
        named |= {*run.commits, run.judged_by}
    assert {commit for commit in named if commit} <= history, "nobody can look up which code that was"


def test_every_stored_file_is_the_record_of_a_study() -> None:
    stored = {str(path.relative_to(RESULTS).with_suffix("")) for path in RESULTS.rglob("*.json")}
    others = ("speed/", "audit/", "fronts/", "peers/", "cluster/", "soak/")
    studies = {name for name in stored if not name.startswith(others)}
    assert studies and studies <= set(STUDIES)
    told = {f"speed/{name}" for name, _, _ in SECTIONS}
    assert {name for name in stored if name.startswith("speed/")} <= told, "a benchmark that no page shows"
