"""The page of papers: what each study found, from the records in `results`."""

from __future__ import annotations

from pathlib import Path

from docs.writers.paper_figures import picture_line
from docs.writers.paper_items import figures_table, items_table
from docs.writers.phrases import GENERATED

RESULTS = Path(__file__).parents[2] / "results"

INTRODUCTION = """\
crowdml carries five published systems on one set of ideas. A reproduction id names one figure or table, and
`crowdml reproduce ID` runs it again. This page and its pictures are made from the records in `results/`, which
`crowdml reproduce ID --record results` writes; `crowdml reproduce ID --recorded results` prints one of them.
[Another page](paper-notes.md) says where ours differ from the papers, and why.

| paper | our algorithm | exists |
|---|---|---|
| **Crowd-ML 2015.** J. Hamm, A. Champion, G. Chen, M. Belkin, D. Xuan. Crowd-ML: A privacy-preserving learning \
framework for a crowd of smart devices. ICDCS 2015 | `crowd-sgd`; baselines `central-sgd`, `central-batch`, \
`decentral` | simulated and live |
| **Crowd-ML library 2016.** J. Hamm, J. Luken, Y. Xie. Crowd-ML: A library for privacy-preserving machine learning on \
smart devices | `local-sgd`; `fedavg` and `fedsgd` beside it | simulated and live |
| **SliceNet.** L. Chen, T. Jung, H. Du, J. Qian, J. Hou, X.-Y. Li. Crowdlearning: Crowded deep learning with data \
privacy | `slicenet`; `crowdml slice`, `crowdml audit` | simulated and live |
| **ODPFL.** Private collaborative machine learning. Project report, 2017 | `fedavg` with `averaging = "learned"`, \
noise in every local step (`noise-at = "steps"`), convolutions and an ε of each owner's choice; \
`inverse-variance` and `finetune` beside it | simulated and live |
| **Async ADMM.** Y. Guo, Y. Gong. Practical collaborative learning for crowdsensing in the Internet of Things with \
differential privacy | `admm`; `consensus-newton`, `ridge` and `fedsgd` with secure aggregation beside it; baseline \
`local-fit` | simulated and live |"""

WORDS = """\
| verdict | means |
|---|---|
| *holds* | the paper's figure within the stated tolerance, and its claim |
| *beyond* | the claim, and a figure better than the paper's by more than the tolerance, where better is possible |
| *trend* | the claim, at another level |
| *differs* | anything else |
| *shown* | nothing is claimed of this figure |
| *not run* | nobody has run this |

A study's word is the worst of its rows. Where nothing was run in the paper's own setting, what stands in for it is
said beside the word: "reduced setting", "other features". Whoever always says the commonest label passes no row; that
constant predictor is shown with every study. Tuning is not charged to any ε."""


ITEMS_INTRODUCTION = """\
Beside figures: parts of the five systems that are easily overlooked, where each is, and which are left out on purpose.
A test stands behind every line."""


def papers_page(results: Path = RESULTS) -> str:
    """Put all records on one page: a line for each study, then its rows."""
    from crowdml.studies import STUDIES

    parts = [GENERATED, "# Papers", INTRODUCTION, "## Verdicts", WORDS, "## Reproductions"]
    lines, sections = ["| id | claim | verdict |", "|---|---|---|"], []
    for name, study in STUDIES.items():
        claim = study.claim or "figures only"
        link = f"[`{name}`](#{name.replace('/', '')})"
        verdict, body = _section(name, results)
        lines.append(f"| {link} | {claim} | {verdict} |")
        sections += [f"### {name}", body]
    items = ["## Figures and tables of the papers", figures_table()]
    items += ["## What the papers have", ITEMS_INTRODUCTION, items_table()]
    return "\n\n".join([*parts, "\n".join(lines), *items, "## Figures", *sections]) + "\n"


def _section(name: str, results: Path) -> tuple[str, str]:
    """Return a study's word, and everything that its record says."""
    from crowdml.studies import STUDIES
    from crowdml.studies.records import cells, curve_lines, has_changed, place, provenance, read_record

    study = STUDIES[name]
    intro = f"{study.title[0].upper()}{study.title[1:]}."
    if study.claim:
        intro += f" Claim: {study.claim}. Refuted by {study.refuted_by}."
    if not place(results, name).is_file():
        return "not run", f"{intro}\n\nNot run: there is no record of it."
    record = read_record(results, name)
    rows = ["| setting | metric | paper | ours | s.d. | verdict | holds when |", "|---|---|---|---|---|---|---|"]
    for row in record.rows:
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells(row), row.rule)) + " |")
    notes = [f"- {note}" for note in (*curve_lines(record), *record.notes)]
    if has_changed(study, record):
        notes.append("- **settings have changed since this was run**")
    said = [
        intro,
        f"**{record.verdict}.** {provenance(record)}",
        picture_line(record),
        "\n".join(rows),
        "\n".join(notes),
    ]
    return record.verdict, "\n\n".join(part for part in said if part)
