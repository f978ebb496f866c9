"""The page "Do we reproduce others?": figures that other systems have published, beside ours."""

from __future__ import annotations

from pathlib import Path

from crowdml.studies import STUDIES
from crowdml.studies.comparisons import ACCURACY
from crowdml.studies.records import Record, cells, curve_lines, has_changed, place, provenance, read_record
from crowdml.studies.study import Row, Study
from docs.writers.papers import RESULTS
from docs.writers.phrases import GENERATED

PREFIX = "external/"

INTRODUCTION = """\
[Papers](papers.md) compares crowdml with the papers that it carries. This page asks a harder question: does it
reach what *other systems* have published of *their own* runs, in the same setting, with nothing tuned here? A
setting is a task file; `crowdml reproduce external/dpsgd --resume --record results` runs it and writes the record from
which this page is made, and `--curve LABEL` runs one line of a table alone. A line that nobody has run says so, and
counts for nothing.

**So far: {summary}.**

| verdict | means |
|---|---|
| *holds* | the published figure within the stated tolerance |
| *beyond* | better than the published figure by more than the tolerance |
| *trend* | lower than the published figure by more than the tolerance, but within it of what the other system gave \
when it was run again |
| *differs* | anything else, and whatever has learnt nothing |
| *not run* | nobody has run this |"""

TABLES = {
    "external/dpsgd": """\
The examples of Opacus and of TF-Privacy train the same small convolutional net on MNIST with DP-SGD, and their
pages give the accuracy of three settings each. The ε that those pages print beside it is of older accounting; the
one to meet here is that of dp-accounting 0.6, by privacy loss distributions, at δ = 1e-5.""",
    "external/niid": """\
NIID-Bench (Li, Diao, Chen and He, *Federated learning on non-IID data silos: an experimental study*, 2022) in the
setting and with the figures of Flower's baseline `niid_bench`: ten devices, fifty rounds of ten epochs, a
convolutional net with 6 and 16 filters, rows dealt alike (IID) or by label (Dirichlet 0.5). Published figures for
SCAFFOLD contradict each other, so none is set here as a bar.""",
}
"""What is published, by study; every study below `external` has an entry."""


def others_page(results: Path = RESULTS) -> str:
    """Put every published figure on the page, with ours where somebody has run it."""
    sections, every = [], list[Row]()
    for name, study in STUDIES.items():
        if name.startswith(PREFIX):
            record = read_record(results, name) if place(results, name).is_file() else None
            rows = published_rows(study, record)
            every += rows
            sections += [f"## {study.title}", TABLES[name], _table(rows), *_told(name, study, record)]
    return "\n\n".join([GENERATED, "# Do we reproduce others?", introduction(every), *sections]) + "\n"


def introduction(rows: list[Row]) -> str:
    """Say first what it comes to."""
    published = [row for row in rows if row.metric == ACCURACY]
    ran = [row for row in published if row.verdict != "not run"]
    met = sum(row.verdict in ("holds", "beyond") for row in ran)
    missed = ", ".join(f"{row.setting} ({row.metric})" for row in rows if row.verdict in ("trend", "differs"))
    summary = f"{len(ran)} of {len(published)} published figures were run, and ours met {met} of them"
    if not ran:
        summary = f"none of the {len(published)} published figures was run"
    return INTRODUCTION.format(summary=summary + (f"; it did not meet {missed}" if missed else ""))


def published_rows(study: Study, record: Record | None) -> list[Row]:
    """Return a row for everything that is published: from the record, or saying that nobody has run it."""
    by_curve = study.by_curve
    # A record also shows a constant predictor, which nobody has published.
    kept = [row for row in record.rows if row.setting in by_curve.published] if record else []
    ran = [row for row in kept if row.verdict != "not run"]
    there = {row.setting for row in ran}
    left = [by_curve.not_run(label, "nobody has run it") for label in by_curve.published if label not in there]
    order = list(by_curve.published)
    return sorted([*ran, *left], key=lambda row: order.index(row.setting))


def _table(rows: list[Row]) -> str:
    lines = ["| setting | figure | published | ours | verdict | holds when |", "|---|---|--:|--:|---|---|"]
    for row in rows:
        setting, metric, paper, ours, _, verdict = cells(row)
        rule = "" if row.verdict == "not run" else row.rule.replace("the paper's", "the published figure")
        lines.append(f"| {setting} | {metric} | {paper} | {ours} | {verdict} | {rule} |")
    return "\n".join(lines)


def _told(name: str, study: Study, record: Record | None) -> list[str]:
    """Say how it was run, how to run it again, and what differs from the published setting."""
    size = " --full" if study.shares_its_record else ""
    command = f"`crowdml reproduce {name}{size} --resume --record results`"
    if record is None:
        return [f"Nobody has run this yet: {command}.", _list(study.notes)]
    said = [*curve_lines(record), *record.notes]
    if has_changed(study, record):
        said.append("**settings have changed since this was run**")
    return [f"{provenance(record)} {command} runs it again.", _list(tuple(said))]


def _list(notes: tuple[str, ...]) -> str:
    return "\n".join(f"- {note}" for note in notes)
