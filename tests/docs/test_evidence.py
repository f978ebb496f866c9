"""The pages of evidence say what the records say, and of what was not run that it was not."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import environments
from benchmarks.peers.run import CLAIMS, RECORDS
from crowdml.studies import STUDIES
from crowdml.studies.records import Record, has_changed, settings_of, write_record
from crowdml.studies.study import Row
from docs.writers.benchmarks import QUESTIONS, benchmarks_page, ratios
from docs.writers.measured import QUESTIONS as ASKED
from docs.writers.measured import figures, measured_page
from docs.writers.others import TABLES, others_page

NIID = STUDIES["external/niid"]
NEEDING_FETCH = ("mnist", "cifar10")
"""Data sets of benchmarks that are no part of the installation."""

FOUND: dict[str, Any] = {
    "command": "make bench-peers CLAIM=fedavg",
    "commit": "0123abcd",
    "date": "2026-01-02",
    "machine": "Linux x86_64, some processor",
    "cores": 2,
    "load": 0.1,
    "python": "3.11.7",
    "jax": "0.1",
    "numpy": "2.0",
    "unit": "ms of CPU per round",
    "seed": 0,
    "setting": "a net",
    "rows": [
        {"name": "crowdml", "value": 10.0, "accuracy": 0.9},
        {"name": "crowdml, whole rows", "value": 15.0},
        {"name": "Peer", "value": 25.0, "accuracy": 0.8},
        {"name": "Slow", "value": 1234.0, "beside": "counted otherwise"},
    ],
    "versions": {"peer": {"peer": "1.2.3"}},
    "absent": {"fedjax": "ERROR: no such wheel"},
}


def record_of(rows: list[Row], **changes: Any) -> Record:
    known = {
        "id": "external/niid",
        "title": NIID.title,
        "claim": NIID.claim,
        "refuted_by": NIID.refuted_by,
        "tuned": NIID.tuned,
        "verdict": "holds",
        "source": "run",
        "commit": "0123456789ab",
        "judged_by": "0123456789ab",
        "date": "2026-01-02",
        "seeds": [0],
        "trials": 1,
        "cpu_seconds": 3600.0,
        "machine": None,
        "settings": settings_of(NIID),
        "rows": rows,
        "notes": [],
    }
    return Record.model_validate(known | changes)


def row(setting: str, ours: float | None, verdict: Any, metric: str = "test accuracy") -> Row:
    return Row(
        setting=setting, metric=metric, paper=0.89, ours=ours, std=0.0, verdict=verdict, rule="not lower by more"
    )


def test_without_records_every_published_figure_says_that_it_was_not_run(tmp_path: Path) -> None:
    page = others_page(tmp_path)
    published = sum(len(study.by_curve.published) for name, study in STUDIES.items() if name in TABLES)
    assert page.count("| not run |") == published == 14
    assert f"none of the {published} published figures was run" in page
    assert set(TABLES) == {name for name in STUDIES if name.startswith("external/")}


def test_what_was_run_stands_beside_what_is_published(tmp_path: Path) -> None:
    met, missed, left = (curve.label for curve in NIID.curves)
    rows = [row(met, 0.8912, "holds"), row(missed, 0.8, "differs"), row(left, None, "not run")]
    write_record(record_of(rows), tmp_path)
    page = others_page(tmp_path)
    assert f"| {met} | test accuracy | 0.8900 | 0.8912 | holds |" in page
    assert f"| {missed} | test accuracy | 0.8900 | 0.8000 | differs |" in page
    assert page.count("| not run |") == 14 - 2
    assert "2 of 14 published figures were run, and ours met 1 of them; it did not meet " + missed in page
    assert "settings have changed" not in page and "3600 s of CPU time" in page


def test_a_record_of_all_or_a_part_of_the_larger_setting_has_not_changed() -> None:
    whole = settings_of(NIID.in_full)
    assert len(whole) > len(settings_of(NIID))
    part = {key: value for key, value in whole.items() if key in ("task", NIID.full_curves[-1].label)}
    for settings in (settings_of(NIID), whole, part):
        assert not has_changed(NIID, record_of([], settings=settings))
    other = {label: [*changes, "algorithm.mu=7"] for label, changes in whole.items()}
    assert has_changed(NIID, record_of([], settings=other))
    grown = replace(NIID, full=None, full_curves=())
    assert has_changed(grown, record_of([], settings=part)), "a curve that was not run"


def test_the_page_of_benchmarks_has_figures_ratios_and_all_that_is_needed_to_rerun(tmp_path: Path) -> None:
    (tmp_path / "fedavg.json").write_text(json.dumps(FOUND))
    page = benchmarks_page(tmp_path)
    assert ratios(FOUND) == [1.0, 1.5, 2.5, 123.4]
    assert "| Peer | 25 | 2.5 | 0.8 |" in page and "| Slow | 1,234 | 123 |  |" in page
    assert "| `make bench-peers CLAIM=fedavg` | Peer 2.5; Slow 123 |" in page
    for said in (
        "counted otherwise",
        "fedjax was left out: ERROR: no such wheel",
        "environments: crowdml: `jax` 0.1, `numpy` 2.0; peer: `peer` 1.2.3",
        "commit 0123abcd",
        "`crowdml data get mnist`",
        f"how it was counted: {QUESTIONS['fedavg'].fairness}",
        "seed 0",
    ):
        assert said in page
    assert page.count("Nobody has recorded this yet") == len(CLAIMS) - 1
    assert set(QUESTIONS) == set(CLAIMS)


def test_ratios_are_of_the_row_that_is_named_or_of_the_same_group() -> None:
    rows = [{"name": name, "value": value} for name, value in (("crowdml, plain", 1.0), ("crowdml, private", 2.0))]
    assert ratios({"rows": rows, "ours": "crowdml, private"}) == [0.5, 1.0]
    pairs = [("crowdml a", 1.0, "a"), ("tfjs a", 3.0, "a"), ("crowdml b", 4.0, "b"), ("tfjs b", 2.0, "b")]
    grouped = [{"name": name, "value": value, "of": of} for name, value, of in pairs]
    assert ratios({"rows": grouped}) == [1.0, 3.0, 1.0, 0.5]


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_stored_comparison_is_whole(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert set(FOUND) <= {*found, "seed"} and path.stem in CLAIMS
    assert all(row["value"] > 0 for row in found["rows"]) and len(ratios(found)) == len(found["rows"])
    assert not re.search(r"/(?:work|home|root|tmp)/", path.read_text(encoding="utf-8"))


def test_every_claim_says_how_everybody_was_measured_and_what_must_be_fetched(root: Path) -> None:
    for name, claim in CLAIMS.items():
        folder = (root / "benchmarks" / claim.script).parent
        source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
        question = QUESTIONS[name]
        assert "compile" in question.fairness
        fetched = {each for each in NEEDING_FETCH if f'dataset = "{each}"' in source}
        assert set(question.needs) == fetched, name


def test_federated_averaging_is_compared_with_rows_that_nobody_makes_shorter() -> None:
    found = json.loads((RECORDS / "fedavg.json").read_text(encoding="utf-8"))
    named = dict(zip((row["name"] for row in found["rows"]), ratios(found), strict=True))
    assert named["crowdml, whole rows"] == 1.0 > named["crowdml"]


def test_every_claim_names_a_script_and_environments_that_exist(root: Path) -> None:
    for claim in CLAIMS.values():
        assert (root / "benchmarks" / claim.script).is_file()
        assert set(claim.peers) <= set(environments.REQUIREMENTS)
    verbs = (root / "Makefile").read_text(encoding="utf-8")
    assert "bench-peers: setup" in verbs and "benchmarks.peers.run $(CLAIM)" in verbs


@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.study)
def test_every_figure_that_advice_rests_on_is_in_its_record(question: Any) -> None:
    assert set(figures(question)) == set(question.settings)


def test_what_we_measured_says_what_was_not_run_and_marks_the_best(tmp_path: Path) -> None:
    assert measured_page(tmp_path).count("| not run |") == sum(len(question.settings) for question in ASKED)
    tables = re.findall(r"^\| \| .*?\n\n", measured_page(), re.M | re.S)
    assert len(tables) == len(ASKED) and all("**" in table for table in tables)
