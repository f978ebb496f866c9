"""Every cross-reference leads somewhere: in pages, in docstrings and comments, in task files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs import references

ROOT = references.ROOT
FINDERS = {
    "module": references.missing_modules,
    "file": references.missing_files,
    "command": references.missing_commands,
    "setting": references.missing_settings,
    "study": references.missing_studies,
}
SOURCES = sorted(
    path
    for folder in ("src", "examples", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".toml", ".html") and "__pycache__" not in path.parts
)


@pytest.mark.parametrize("kind", FINDERS)
def test_every_reference_in_a_page_exists(kind: str, pages: list[Any]) -> None:
    wrong = {page.name: FINDERS[kind](_without_blocks(page.text)) for page in pages}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("kind", FINDERS)
def test_every_reference_in_a_source_file_exists(kind: str) -> None:
    wrong = {str(path.relative_to(ROOT)): FINDERS[kind](path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: found for name, found in wrong.items() if found} == {}


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


PLANTED = {
    "module": ("see `crowdml.privacy.promise` and `crowdml.Device`", "see `crowdml.privacy.promises`"),
    "file": ("(docs/how-to/secure-aggregation.md), `privacy/plan.py`, `app.py`", "(docs/concepts/masked-sums.md)"),
    "command": ("`crowdml task list`, `crowdml task create|show`, `make test`", "`crowdml task lists`"),
    "setting": ("`privacy.clip`, `crowd.speeds`, `data.split`", "`privacy.cliping`"),
    "study": ("`crowdml-2015/fig4`", "`crowdml-2015/fig44`"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_reference_that_leads_nowhere_is_found(kind: str) -> None:
    right, wrong = PLANTED[kind]
    assert FINDERS[kind](right) == [] and len(FINDERS[kind](wrong)) == 1


def test_options_and_verbs_that_do_not_exist_are_found() -> None:
    assert references.missing_commands("`crowdml simulate --sed 3`") and references.missing_commands("`make tests`")
    assert references.missing_files("`algorithms/averagings.py` or `averagings.py`") == [
        "algorithms/averagings.py",
        "averagings.py",
    ]


def test_no_key_stands_twice_in_a_table_of_json(root: Path) -> None:
    text = (root / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        keys = [key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])]
        assert len(keys) == len(set(keys)), sorted(key for key in set(keys) if keys.count(key) > 1)


def test_contributing_says_what_the_demo_is(root: Path) -> None:
    from crowdml.cli.demos.demo import DEVICES

    row = re.search(r"^\| `make demo` \| (.+) \|$", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    assert row and DEVICES == 20 and "real server and twenty device" in row[1] and "simulated" not in row[1]


def test_verbs_of_contributing_are_those_of_the_makefile(root: Path) -> None:
    verbs = re.findall(r"^\| `make ([a-z-]+)", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    assert verbs and set(verbs) <= references._verbs()


def test_what_exists_is_not_on_the_roadmap(root: Path) -> None:
    """Robust rules were said to be still to come, long after they had come."""
    from crowdml.task import Task

    assert "robust" in Task.model_fields
    for path in (root / "docs").rglob("*.md"):
        for line in re.split(r"(?<=[.:])\s", path.read_text(encoding="utf-8")):
            assert not ("roadmap" in line.lower() and "robust" in line.lower()), f"{path.name}: {line}"


def test_no_page_says_that_test_rows_were_never_seen(root: Path) -> None:
    """Some settings were chosen with them in sight, and the studies say which."""
    from crowdml.studies import STUDIES

    told = {name for name, study in STUDIES.items() if study.tuned == "test rows"}
    assert told == {"crowdml-2015/fig3", "crowdml-2016/fig2", "odpfl/private"}
    for path in (root / "docs").rglob("*.md"):
        assert "test rows are never seen" not in path.read_text(encoding="utf-8")
    notes = (root / "docs" / "paper-notes.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in notes for name in told)


def test_the_papers_own_setting_of_odpfl_is_what_it_states() -> None:
    """Ten devices with 10 % each, 5 % public; two convolutions, two dense layers, a linear one; 130 and 200 rounds."""
    from crowdml.core import NUMPY
    from crowdml.studies import STUDIES
    from crowdml.task import load

    for name, rounds in (("fig1", 130), ("fig2", 200)):
        study = STUDIES[f"odpfl/{name}"]
        assert study.full is not None and "does not state its" not in study.full.read_text(encoding="utf-8")
        curves = study.full_curves or study.curves
        task = load(study.full, curves[1].changes)
        assert (task.crowd.devices, task.crowd.passes, task.data.public) == (10, rounds, 0.05 * 50_000)
        assert task.crowd.rows is None and task.crowd.partition.kind == "iid"
        layers = [layer["w"].ndim for layer in task.model_for(NUMPY).zeros() if layer]
        assert layers == [4, 4, 2, 2, 2]
