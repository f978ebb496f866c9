"""The page of benchmarks: one command per claim, and what it found beside others, from `results/peers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.run import CLAIMS, RECORDS
from crowdml.core import record
from docs.writers.phrases import GENERATED
from docs.writers.speed import RECORDS as SPEED
from docs.writers.speed import SECTIONS

INTRODUCTION = """\
Every claim about speed has one command that anybody can run. The record that it wrote is in `results/peers`, with
versions, seed, machine, date and commit; this page is made from those records. All frameworks do the same work, in
one run on one machine. Figures are CPU time unless they say otherwise, and ratios take crowdml as *1*: *2* takes
twice as much, *0.5* half. Other machines, nets and sizes will give other ratios. `make bench-peers` installs each
peer in an environment of its own, below `.venv-peers`; a peer that did not install is named. Two claims need a data
set that is not part of crowdml: `crowdml data get mnist` and `crowdml data get cifar10` fetch them.

Under each claim stands how many samples were taken of each framework, which of them count, and how compiling was
counted.

What these figures do not say: crowdml is written for the processor, and nothing here was run on a GPU, for which
PyTorch, pfl-research and FedJAX are made. Flower spends its time on keeping devices apart from each other, in
processes, which a simulation in one compiled program does not do. If a comparison wrongs a project, please open an
issue."""


@record
class Question:
    """What the page says of a claim beside its figures.

    Attributes:
        heading: Its heading.
        words: What is compared.
        fairness: How compiling was treated, and which of how many samples counts, for each.
        needs: Data sets that must be on the machine.
    """

    heading: str
    words: str
    fairness: str
    needs: tuple[str, ...] = ()


QUESTIONS = {
    "fedavg": Question(
        heading="A round of federated averaging",
        words="The same net, batches and rate, and as many rows, with crowdml, with a plain PyTorch loop and in other "
        "frameworks' simulations. The comparison is with *whole rows*: the first row is crowdml with its trick of "
        "leaving out columns that are zero in nearly all rows, which could be done elsewhere too.",
        fairness="crowdml compiles before the clock starts; its row is the best of 10 samples, each a mean over 10 "
        "rounds. FedJAX compiles in its first two rounds, which do not count. PyTorch and pfl-research compile "
        "nothing (`torch.compile` was not tried); of them and FedJAX it is the better of two runs, each a mean over "
        "all rounds but the first two. Flower ran once: a mean over all rounds but the first three, of at most 30 "
        "with training and 12 with idle devices. Accuracy is that of one run each.",
        needs=("mnist",),
    ),
    "dpsgd": Question(
        heading="A private training step",
        words="DP-SGD: every row's gradient is clipped, then noise is added. Opacus by its two ways, and both "
        "frameworks without privacy beside it. PyTorch without privacy was tried with channels last too, its faster "
        "way; Opacus was not.",
        fairness="crowdml compiles before the clock starts, and takes four steps in one call: the best of four calls, "
        "each a mean of four steps. PyTorch and Opacus compile nothing (`torch.compile` was not tried): the best of "
        "16 single steps, after two that do not count. Everybody ran once, in a process of their own, on made-up "
        "pictures.",
    ),
    "cnn": Question(
        heading="A training step of a convolutional net",
        words="Without privacy, beside PyTorch with its channels last, its faster way on this kind of processor.",
        fairness="crowdml compiles before the clock starts; what that costs stands beside. It takes ten steps in one "
        "call: the best of six calls, each a mean of ten steps, in each of three processes. PyTorch compiles nothing "
        "(`torch.compile` was not tried): the best of 60 single steps, after five that do not count, in each of three "
        "processes. Its rows are made up, as many as ours and of the same shape.",
        needs=("cifar10",),
    ),
    "secagg": Question(
        heading="A secure sum",
        words="All that a device does in one sum, and the server's part. Flower's functions are called in the order "
        "of its own workflow; it agrees on keys anew for every sum, crowdml once for each pair of devices: the first "
        "row is of devices that have met before, and a first contact comes on top. A sum is exact in crowdml, which "
        "is given whole numbers here: what rounding to them costs comes before the sum, and is not in the figures. "
        "Flower is given fractions, rounds them as part of its work, and folds seeds into 32 bits.",
        fairness="Nothing is compiled on either side. One sum each: a device's figure is the median over all devices "
        "that were not lost.",
    ),
    "serving": Question(
        heading="A message of a device, taken by a server",
        words="CPU time of the server's process. crowdml keeps 500 numbers in a SQLite file before it answers, and "
        "folds them into the model. The SuperLink hands out the message that is replied to as well, eleven calls in "
        "all, and leaves averaging to a ServerApp; without `--database` it keeps everything in memory. So it is the "
        "cost of one contribution, not of one call. Most of theirs is Python around the database, which a server in "
        "the middle of long training rounds may not notice. With 200 devices at a time more check-ins share a "
        "transaction, and one costs crowdml [less than half of that](concepts/capacity.md).",
        fairness="Nothing is compiled on either side. The median of three turns each, after one that does not count: "
        "of 4,000 check-ins, and of 80 replies.",
    ),
    "browser": Question(
        heading="A gradient in the browser",
        words="The browser device's own engine beside TensorFlow.js with WebAssembly, in one process.",
        fairness="Both are called 30 times before the clock starts, so what the engine of `node` compiles at first "
        "use is in neither figure. Then in turns, the best of 40 rounds each; a round is as many calls as fit in 25 "
        "ms.",
    ),
}
"""Heading and words, by claim."""


def benchmarks_page(records: Path = RECORDS) -> str:
    """Put all claims on one page; what nobody has recorded says so."""
    parts = [GENERATED, "# Benchmarks", INTRODUCTION, "## One command per claim", _overview(records)]
    for name in CLAIMS:
        question = QUESTIONS[name]
        parts += [f"## {question.heading}", question.words, *_section(name, records)]
    parts += ["## Without peers", *_own()]
    return "\n\n".join(parts) + "\n"


def _read(name: str, records: Path) -> dict[str, Any] | None:
    path = records / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _overview(records: Path) -> str:
    lines = ["| claim | command | what others take, where crowdml takes 1 |", "|---|---|---|"]
    for name in CLAIMS:
        found = _read(name, records)
        told = "not run" if found is None else "; ".join(_beside(found))
        heading = QUESTIONS[name].heading
        anchor = heading.lower().replace(",", "").replace(" ", "-")
        lines.append(f"| [{heading}](#{anchor}) | `make bench-peers CLAIM={name}` | {told} |")
    return "\n".join(lines)


def ratios(found: dict[str, Any]) -> list[float]:
    """Return what each row takes as a multiple of ours: of the row that is named, or the first of its group."""
    rows = found["rows"]
    ours = {}
    for row in reversed(rows):
        if row["name"] == found.get("ours") or ("ours" not in found and row["name"].startswith("crowdml")):
            ours[row.get("of")] = row["value"]
    return [row["value"] / ours[row.get("of")] for row in rows]


def _beside(found: dict[str, Any]) -> list[str]:
    """Name every peer with its ratio, ours left out."""
    pairs = zip(found["rows"], ratios(found), strict=True)
    return [f"{row['name']} {_figure(ratio)}" for row, ratio in pairs if not row["name"].startswith("crowdml")]


def _section(name: str, records: Path) -> list[str]:
    found = _read(name, records)
    if found is None:
        return [f"Nobody has recorded this yet: `make bench-peers CLAIM={name}`."]
    fixed = ("name", "value", "of", "beside")
    more = list(dict.fromkeys(key for row in found["rows"] for key in row if key not in fixed))
    lines = [
        "| " + " | ".join(["", found["unit"], "beside crowdml's", *more]) + " |",
        "|---|--:|--:|" + "--:|" * len(more),
    ]
    for row, ratio in zip(found["rows"], ratios(found), strict=True):
        others = ["" if row.get(key) is None else _figure(row[key]) for key in more]
        lines.append("| " + " | ".join([row["name"], _figure(row["value"]), _figure(ratio), *others]) + " |")
    notes = [f"{row['name']}: {row['beside']}" for row in found["rows"] if "beside" in row]
    notes += [f"{peer} was left out: {why}" for peer, why in found["absent"].items()] + found.get("notes", [])
    setting = found["setting"][0].upper() + found["setting"][1:]
    needs = [f"`crowdml data get {each}`" for each in QUESTIONS[name].needs]
    if needs:
        notes.append(f"the data set must be on the machine before: {', '.join(needs)}")
    notes += [f"how it was counted: {QUESTIONS[name].fairness}", *_provenance(found)]
    return [f"{setting}.", "\n".join(lines), "\n".join(f"- {note}" for note in notes)]


def _provenance(found: dict[str, Any]) -> list[str]:
    """Say what ran where, and what was installed in the environment of each."""
    ours = {"crowdml": {each: found[each] for each in ("jax", "numpy")}}
    installed = [
        f"{environment}: {', '.join(f'`{name}` {version}' for name, version in packages.items())}"
        for environment, packages in (ours | found["versions"]).items()
    ]
    seed = "" if found["seed"] is None else f"seed {found['seed']}; "
    return [
        f"`{found['command']}`, {found['date']}, commit {found['commit']}; {seed}{found['machine']}, {found['cores']} "
        f"cores, load {found['load']} before it; Python {found['python']}",
        f"environments: {'; '.join(installed)}",
    ]


def _own() -> list[str]:
    """List what crowdml measures of itself."""
    lines = ["| what | command |", "|---|---|"]
    for name, heading, _ in SECTIONS:
        found = _read(name, SPEED)
        if found:
            anchor = heading.lower().replace(",", "").replace(" ", "-")
            lines.append(f"| [{heading}](concepts/speed.md#{anchor}) | `{found['command']}` |")
    words = "What crowdml costs by itself stands, with what each command printed, on [speed](concepts/speed.md)"
    return [f"{words}; what that means for a server, on [capacity](concepts/capacity.md).", "\n".join(lines)]


def _figure(value: float) -> str:
    """Write three digits: more are not known."""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
