"""SliceNet, tables I to IV: how well groups of n devices learn, and what sharing between ten groups of twelve does.

A group of n devices trains one net in turns: one of them is the dominator, the others hold n - 1 pieces. The paper
forms as many groups (24, 12, 8, 6 of 120 devices) and speaks of n pieces. Slicing is exact, so errors do not depend on
the cut.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import Better, Floats, errors, level, not_run, shown, spread, statement
from crowdml.studies.figure import Figure, panel, series
from crowdml.studies.study import TASKS, Curve, Results, Row, Study, Unstated, curve

ALONE, CENTRAL = "S-SGD", "C-SGD"
SIZES = (5, 10, 15, 20)
METRIC, POINTS = "mean group error, %", 0.5
"""What is measured, and how far from the paper's it may be: half a point."""
TABLE1 = {ALONE: 5.15, "n = 5": 5.29, "n = 10": 3.63, "n = 15": 3.10, "n = 20": 2.62, CENTRAL: 1.73}
TABLE1_CNN = {ALONE: 46.88, "n = 5": 46.11, "n = 10": 37.65, "n = 15": 34.40, "n = 20": 32.40, CENTRAL: 29.54}
TABLE3 = {"τ = 0": 3.07, "τ = 0.2": 2.91, "τ = 0.4": 2.70, "τ = 0.6": 2.91, "τ = 0.8": 3.14, "τ = 1": 5.72}
TABLE3_CNN = {"τ = 0": 35.89, "τ = 0.2": 35.73, "τ = 0.4": 35.35, "τ = 0.6": 36.48, "τ = 0.8": 38.07, "τ = 1": 48.07}
HOURS = "hours on a processor: crowdml reproduce slicenet/cnn-all"
NOTES = (
    "a group of n devices has a dominator and n - 1 followers; errors are those of the groups' models, on average",
    "an upload holds the share θ of each device's weights with the largest Σ|gradient|, all biases, all normalisations",
    "the sliding window holds the last ω values of each weight; the paper can be read as the last ω uploads, too",
    "no formal guarantee",
)


def percent(result: Result) -> Floats:
    """Mean error of the groups in per cent, trial by trial."""
    return 100 * errors(result)


def means(results: Results) -> dict[str, float]:
    """Mean over trials of every result, in per cent."""
    return {name: float(percent(result).mean()) for name, result in results.items()}


def beside(setting: str, result: Result, paper: float | None, claim: bool, better: Better | None = "less") -> Row:
    """Set an error beside the paper's, in points; without one it is shown."""
    return level(setting, METRIC, percent(result), paper, tolerance=POINTS, claim=claim, better=better)


def shown_errors(results: Results) -> Iterator[Row]:
    """Show errors that nothing is claimed of by themselves."""
    return (shown(name, METRIC, percent(result)) for name, result in results.items())


def unfinished(paper: Mapping[str, float]) -> tuple[Row, ...]:
    """Name what the paper reports for its convolutional net on CIFAR-10, which was never trained here."""
    return tuple(not_run(f"cnn on CIFAR-10, {name}", METRIC, error, HOURS) for name, error in paper.items())


def published(results: Results) -> dict[str, float]:
    """Return the paper's errors for the settings that were run; for photographs (`--full`) it gives others."""
    photographs = next(iter(results.values())).task.data.dataset == "cifar10"
    known = TABLE1_CNN | TABLE3_CNN if photographs else TABLE1 | TABLE3
    return {name: error for name, error in known.items() if name in results}


def _table1(results: Results) -> Iterator[Row]:
    paper, found = published(results), means(results)
    least = min(found[left] - found[right] for left, right in itertools.pairwise(paper))
    falls = least > 0
    for name, error in paper.items():
        # A baseline that is better than the paper's says nothing for groups.
        yield beside(name, results[name], error, falls, None if name in (ALONE, CENTRAL) else "less")
    order = "order from S-SGD over n = 5 … 20 to C-SGD"
    yield statement(order, "smallest step down, %", least, falls, "above 0: the error falls with every step")


def draw_errors(results: Results) -> Figure:
    """Show the error of each setting with its spread, and the paper's beside it."""
    places = {name: float(at) for at, name in enumerate(results)}
    deviations = [spread(percent(result)) for result in results.values()]
    shown = [series("ours", "marks", places.values(), means(results).values(), deviations, colour=0)]
    if known := published(results):
        shown.append(series("paper", "marks", [places[name] for name in known], known.values(), colour=1))
    ticks = [(at, name) for name, at in places.items()]
    return Figure(panels=(panel(shown, ylabel=METRIC, bottom=0.0, ticks=ticks),))


crowd_study = functools.partial(
    Study,
    tuned="held back",
    task=TASKS / "slicenet-mlp.toml",
    draw=draw_errors,
    trials=3,
    full=TASKS / "slicenet-cnn.toml",
)
"""Groups of devices: digits by default; photographs and the convolutional net with `--full`."""


def group_sizes(*common: str) -> tuple[Curve, ...]:
    """Return devices alone, groups of every size, and all rows in one place."""
    groups = (curve(f"n = {size}", f"algorithm.pieces={size - 1}", *common) for size in SIZES)
    alone, central = ("algorithm.pieces=0",), ("algorithm.pieces=0", "crowd.devices=1")
    return (curve(ALONE, *alone, *common), *groups, curve(CENTRAL, *central, *common))


def _held_back(results: Results) -> tuple[float, str]:
    return float(np.mean([result.validation_error for result in results.values()])), ""


UNSTATED = Unstated(
    candidates={
        "rate 1, decay 1": ("algorithm.decay=1.0",),
        "rate 1, decay 0.95": ("algorithm.decay=0.95",),
        "rate 1, decay 0.85": (),
        "rate 1, decay 0.75": ("algorithm.decay=0.75",),
        "rate 1, decay 0.6": ("algorithm.decay=0.6",),
        "rate 0.3, decay 0.75": ("algorithm.rate=0.3", "algorithm.decay=0.75"),
        "rate 3, decay 0.75": ("algorithm.rate=3.0", "algorithm.decay=0.75"),
        "rate 0.3, decay 0.85": ("algorithm.rate=0.3",),
        "rate 3, decay 0.85": ("algorithm.rate=3.0",),
    },
    used="rate 1, decay 0.85",
    curves=("n = 10",),
    criterion="mean group error of groups of ten on rows held back",
    score=_held_back,
)
TABLE_1 = crowd_study(
    title="error for groups of n devices",
    curves=group_sizes(),
    rows=_table1,
    claim="the larger the group the smaller the error, between devices alone (S-SGD) and all rows in one place (C-SGD)",
    refuted_by=f"an error that does not fall with every step; more than {POINTS:g} points above the paper's is a trend",
    missing=unfinished(TABLE1_CNN),
    notes=(
        *NOTES,
        "batch, rate, decay and passes are not in the paper; rate and decay are those with the least error of groups "
        "of ten on rows held back (--search), for all settings alike; batch and passes were set once",
        "that search finds errors of 2.95 % with a rate of 1 and a decay of 0.85, in use, 3.05 % with 0.95, 3.07 % "
        "with 0.75 and 3.16 % with 1, each in one trial",
    ),
    unstated=UNSTATED,
)

SEARCHED = (
    "rate and decay are those of slicenet/table1, searched for groups of ten on rows held back (crowdml reproduce "
    "slicenet/table1 --search), and not again; batch and passes were set once"
)
"""Where settings of tables II to IV come from."""
THETAS = (0.1, 0.3, 0.5, 0.7, 0.9)
TAUS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
OMEGAS = (2, 5, 10, 20, 50)
BEST, NOT_SHARED = "ω = 10", "τ = 1"
RISE = 0.1
"""Points by which an error that should fall with every step may rise: a fifth of what levels may be off."""
SHORT = ("crowd.passes=4", "algorithm.decay=0.68")
"""Half the passes of table I, with the same rate in the last of them. What τ does shows later: it has all passes."""

_FEWER = "four passes instead of the eight of table I, the rate falling to the same"
_MISSING = "the paper's figures are missing from the text we have; it says that"
_NO_CNN = (not_run("cnn on CIFAR-10", METRIC, None, HOURS),)


def _table2(results: Results) -> Iterator[Row]:
    found = list(means(results).values())
    steps = [fewer - more for fewer, more in itertools.pairwise(found)]
    fall, least = found[0] - found[-1], min(steps)
    falls = fall > 0 and least >= -RISE
    yield from shown_errors(results)
    yield shown("from θ = 0.1 to θ = 0.9", "error falls by, %", fall)
    rule = f"at least -{RISE:g} with every step, and above 0 in all"
    yield statement("each θ against the one before", "smallest step down, %", least, falls, rule)


def _table3(results: Results) -> Iterator[Row]:
    paper = published(results)
    *shared, apart = (means(results)[name] for name in paper)
    gap, width = apart - max(shared), max(shared) - min(shared)
    for name, error in paper.items():
        # Groups that share nothing are a baseline here: doing better than the paper's says nothing for sharing.
        yield beside(name, results[name], error, gap > width, None if name == NOT_SHARED else "less")
    rule = "more than all others differ among themselves"
    yield statement(f"{NOT_SHARED} above all others", "gap, %", gap, gap > width, rule)


def _table4(results: Results) -> Iterator[Row]:
    found = means(results)
    lead = min(error for name, error in found.items() if name != BEST) - found[BEST]
    yield from shown_errors(results)
    yield statement(f"{BEST} below the best other", "lead, %", lead, lead > 0, "above 0")


OF_TWELVE, OF_SIX = "algorithm.pieces=11", "algorithm.pieces=5"
"""Ten groups of 120 devices, and of 60."""


def ten_groups(letter: str, key: str, values: Sequence[float], size: str, *changes: str) -> tuple[Curve, ...]:
    """Return a curve for every value of a setting of sharing."""
    return tuple(curve(f"{letter} = {value:g}", size, *changes, f"algorithm.{key}={value}") for value in values)


_borrowed = functools.partial(crowd_study, searched_in="slicenet/table1")
TABLE_2 = _borrowed(
    title="error for the share θ of weights that is uploaded, ten groups",
    curves=ten_groups("θ", "theta", THETAS, OF_TWELVE, *SHORT),
    full_curves=ten_groups("θ", "theta", THETAS, OF_TWELVE),
    rows=_table2,
    claim="the more weights are uploaded, the smaller the error",
    refuted_by=f"an error that rises by more than {RISE:g} points from one θ to the next, or does not fall in all",
    missing=_NO_CNN,
    notes=(*NOTES, SEARCHED, _FEWER, f"{_MISSING} a larger θ is better"),
)
TABLE_3 = _borrowed(
    title="error for the threshold τ of taking over, ten groups",
    curves=ten_groups("τ", "tau", TAUS, OF_TWELVE),
    rows=_table3,
    claim="the threshold matters little, but for τ = 1, where groups share nothing and the error is far higher",
    refuted_by="τ = 1 above all others by no more than they differ among themselves",
    missing=unfinished(TABLE3_CNN),
    notes=(*NOTES, SEARCHED, "τ = 1: groups share nothing"),
)
TABLE_3_UPLOADS = replace(
    TABLE_3,
    title="as table3, with a window of the last ω uploads",
    curves=ten_groups("τ", "tau", TAUS, OF_TWELVE, "algorithm.window=uploads"),
    notes=(*NOTES, SEARCHED, "the other reading of the sliding window", "τ = 1: groups share nothing"),
)
TABLE_4 = _borrowed(
    title="error for the window ω, ten groups",
    curves=ten_groups("ω", "omega", OMEGAS, OF_TWELVE, *SHORT),
    full_curves=ten_groups("ω", "omega", OMEGAS, OF_TWELVE),
    rows=_table4,
    claim="a window of about ten is best",
    refuted_by="another ω with a smaller error",
    missing=_NO_CNN,
    notes=(*NOTES, SEARCHED, _FEWER, f"{_MISSING} ω near 10 is best"),
)
