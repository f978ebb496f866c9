"""The page "What we measured": questions that a choice of algorithm turns on, from records in `results`."""

from __future__ import annotations

from pathlib import Path

from crowdml.core import record
from crowdml.studies import STUDIES
from crowdml.studies.records import place, provenance, read_record
from docs.writers.papers import RESULTS
from docs.writers.phrases import GENERATED


@record
class Question:
    """What somebody asks who has to choose.

    Attributes:
        asked: The question.
        study: The study that answers it.
        metric: What is compared.
        better: Whether more or less of it is better.
        settings: Rows of the record, by what they mean to the reader.
        advice: What follows, without figures: those come from the record.
    """

    asked: str
    study: str
    metric: str
    better: str
    settings: dict[str, str]
    advice: str


ACCURACY, ERROR = "test accuracy", "test error"
QUESTIONS = (
    Question(
        asked="Devices send gradients with noise: how large a batch?",
        study="crowdml-2015/fig5",
        metric=ERROR,
        better="less",
        settings={
            "`crowd-sgd`, batch 1": "crowd, b=1",
            "`crowd-sgd`, batch 10": "crowd, b=10",
            "`crowd-sgd`, batch 20": "crowd, b=20",
            "`central-batch`: rows themselves get the noise": "central batch, private",
        },
        advice="The same noise is added once for a batch, so it weighs less on a larger one. Make `algorithm.batch` as "
        "large as a device's rows allow before anything else is changed.",
    ),
    Question(
        asked="Which noise: Laplace or Gaussian?",
        study="crowdml-2015/fig5-sound",
        metric=ERROR,
        better="less",
        settings={
            "mode `sound`, `laplace`, ε = 50 in all": "sound, b=20",
            "mode `sound`, `gaussian`, ε = 50 in all": "sound Gaussian, b=20",
            "mode `sound`, `laplace`, ε = 10 in all": "sound, b=20, ε = 10",
            "mode `sound`, `gaussian`, ε = 10 in all": "sound Gaussian, b=20, ε = 10",
        },
        advice='`privacy.mechanism = "gaussian"` wherever a δ is acceptable and a model has more than a few numbers. '
        "The proven mode costs nothing beside the paper's (`crowdml reproduce crowdml-2015/fig5-sound`).",
    ),
    Question(
        asked="Is it worth being a crowd at all?",
        study="crowdml-2016/devices",
        metric=ACCURACY,
        better="more",
        settings={
            "80 devices together": "80 devices together, after 100 versions",
            "each device alone, its own best rate": "each device alone, after 25 contacts",
            "each device alone, the crowd's rate": "each device alone, with the crowd's rate, after 25 contacts",
        },
        advice="Compare with `decentral` or `local-fit` on your rows before you ask anybody to join: how much "
        "there is to gain depends on how much a device holds.",
    ),
    Question(
        asked="Some devices hold wrong labels: which average?",
        study="odpfl/mislabelled",
        metric=ACCURACY,
        better="more",
        settings={
            "all alike": "equal",
            "by the number of rows": "by size",
            '`averaging = "inverse-variance"`': "inverse variance",
            '`averaging = "learned"`': "learned",
            "the server's public rows alone": "public rows only",
        },
        advice="Learned weights need public rows on the server, and pay where devices differ in quality. Where they do "
        "not differ, they gain little: see `odpfl/fig2`.",
    ),
    Question(
        asked="Owners choose different ε: which average?",
        study="odpfl/mixed",
        metric=ACCURACY,
        better="more",
        settings={
            "everybody at ε = 8": "all at ε = 8: equal",
            "half at ε = 1, all alike": "ε 1 and 8, own rate: equal",
            "half at ε = 1, inverse variance": "ε 1 and 8, own rate: inverse variance",
            "half at ε = 1, learned": "ε 1 and 8, own rate: learned",
            "half at ε = 1, fine-tuned on public rows": "ε 1 and 8, own rate: fine-tuned",
        },
        advice="Without weights the noise of the careful half is everybody's. Inverse variance needs no rows of the "
        "server's, but assumes that devices hold alike; learned weights do not.",
    ),
    Question(
        asked="Only sums may be seen, a convex model, ε = 1 in all: which algorithm?",
        study="admm/total",
        metric=ACCURACY,
        better="more",
        settings={
            "all rows in one place, no noise": "centralised",
            "`consensus-newton`, wide public weights": "consensus-newton, wider public weights, ε = 1",
            "`consensus-newton`, public scaling": "consensus-newton, public scaling, ε = 1",
            "`ridge`, one round": "ridge, one round, ε = 1",
            "`fedsgd`, secure aggregation": "fedsgd, secure aggregation, ε = 1",
            "`fedsgd`, each device adds all its noise": "fedsgd, each device by itself, ε = 1",
        },
        advice="Few sums suffice where each says how the loss bends. `admm` with a promise to whole "
        "devices, and other ε, stand in [the study](../papers.md#admmtotal).",
    ),
    Question(
        asked="Devices are fast and slow: wait for all of them?",
        study="admm/async",
        metric="time to centralised - 0.009",
        better="less",
        settings={
            "uneven devices, wait for all": "synchronous, uneven devices",
            "uneven devices, wait for half": "s = 50, τ = 10, uneven devices",
            "devices alike, wait for all": "synchronous, devices alike",
            "devices alike, wait for half": "s = 50, τ = 10, devices alike",
        },
        advice="Go on with whoever is there (`barrier`, `crowd-sgd`, `fedbuff`) where speeds differ much; "
        "where devices are alike, waiting for all is quicker.",
    ),
    Question(
        asked="The net is too large for one device: what do more devices to a group cost?",
        study="slicenet/table1",
        metric="mean group error, %",
        better="less",
        settings={
            "every device alone": "S-SGD",
            "groups of 5": "n = 5",
            "groups of 10": "n = 10",
            "groups of 20": "n = 20",
            "all rows in one place": "C-SGD",
        },
        advice="Slices are exact: larger groups pool more rows and learn better, at the price of more messages. They "
        "promise nothing; read [what leaks](slicing.md#what-leaks).",
    ),
)

INTRODUCTION = """\
[Which algorithm when](choosing-an-algorithm.md) gives reasons. This page gives figures: for every question the rows of
one study of ours, from its record in `results`. The best figure is bold. They hold for that data, model and noise; the
command under each table runs it again, and with `--set` in `crowdml compare` you ask the same of your own rows."""


def measured_page(results: Path = RESULTS) -> str:
    """Answer every question from its record."""
    parts = [GENERATED, "# What we measured", INTRODUCTION]
    for question in QUESTIONS:
        parts += [f"## {question.asked}", *_answer(question, results)]
    return "\n\n".join(parts) + "\n"


def figures(question: Question, results: Path = RESULTS) -> dict[str, float]:
    """Return what was found, by what it means to the reader; what was not run is not there."""
    if not place(results, question.study).is_file():
        return {}
    rows = {(row.setting, row.metric): row.ours for row in read_record(results, question.study).rows}
    found = {name: rows.get((setting, question.metric)) for name, setting in question.settings.items()}
    return {name: value for name, value in found.items() if value is not None}


def _answer(question: Question, results: Path) -> list[str]:
    found = figures(question, results)
    best = (max if question.better == "more" else min)(found.values(), default=None)
    lines = [f"| | {question.metric} |", "|---|--:|"]
    for name in question.settings:
        value = found.get(name)
        told = "not run" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"
        lines.append(f"| {name} | {f'**{told}**' if value is not None and value == best else told} |")
    command = f"`{' '.join(('crowdml', 'reproduce', question.study))}`"
    source = f"{command}: {STUDIES[question.study].title}."
    if found:
        source += f" {provenance(read_record(results, question.study))}"
    return ["\n".join(lines), question.advice, f"*{source}*"]
