"""Async ADMM: how much sooner a server gets there that does not wait for everybody, by simulated time.

Not a figure of the paper, which has no measurement of its main idea. The unit of time is what a device of middling
speed needs for a check-in. Uneven devices differ by a factor whose logarithm has s.d. 1; each keeps its own speed.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crowdml.core.validation import write_whole
from crowdml.simulation import Result
from crowdml.simulation.plot import COLOURS
from crowdml.studies.admm.common import (
    CENTRAL,
    CENTRALISED,
    MASKED,
    SPLITS,
    TASK,
    TUNED,
    Floats,
    accuracies,
    gap,
    standard_error,
)
from crowdml.studies.comparisons import learns, shown, spread, statement
from crowdml.studies.contract import Curve, Row, Study

SHORT, WANTED = 0.009, 2.5
UNEVEN, ALIKE = "uneven devices", "devices alike"
WAITS, GOES = "synchronous", "s = 50, τ = 10"
PRIVATE = "ε = 1 for a device, 1000 uneven devices"
_SPEEDS = {UNEVEN: "crowd.speeds={ sigma = 1.0 }", ALIKE: "crowd.speeds={ sigma = 0.0 }"}


def _label(how: str, crowd: str) -> str:
    return f"{how}, {crowd}"


def _curve(how: str, crowd: str) -> Curve:
    barrier = ("algorithm.barrier=50", "algorithm.max-delay=10") if how == GOES else ()
    return Curve(
        label=_label(how, crowd),
        changes=(_SPEEDS[crowd], "stop={}", "crowd.passes=12", f"crowd.curve={120 if barrier else 12}", *barrier),
        chosen={"algorithm.rho": 0.03},
        grid={},
    )


def _private(how: str) -> Curve:
    barrier = ("algorithm.barrier=1000",) if how == WAITS else ("algorithm.barrier=500", "algorithm.max-delay=10")
    return Curve(
        label=_label(how, PRIVATE),
        changes=(
            _SPEEDS[UNEVEN],
            'privacy={ mode = "sound", unit = "device", mechanism = "gaussian", clip = 3.0, epsilon = 1.0, '
            "delta = 1e-5 }",
            MASKED,
            "stop={ max-releases = 40 }",
            "algorithm.average-from=20",
            "crowd.devices=1000",
            "crowd.passes=40",
            "crowd.curve=40",
            *barrier,
        ),
        chosen={"algorithm.rho": 0.3, "algorithm.beta": 0.1},
        grid={},
    )


HALF = "s = 500, τ = 10"


def reached(result: Result, wanted: Floats) -> Floats:
    """Return when each trial first has the accuracy that is wanted of it; infinite where it never has."""
    assert result.times is not None  # noqa: S101  only central training has no time
    enough = 1 - result.measured["test_error"] >= wanted
    return np.where(enough.any(axis=0), result.times[enough.argmax(axis=0), np.arange(len(wanted))], np.inf)


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    wanted, rows = accuracies(results[CENTRALISED]) - SHORT, []
    for crowd in (UNEVEN, ALIKE):
        times = {how: reached(results[_label(how, crowd)], wanted) for how in (WAITS, GOES)}
        for how, found in times.items():
            rows.append(_row(_label(how, crowd), f"time to centralised - {SHORT:g}", found))
        # Where nobody ever gets there, nobody is sooner.
        both = np.isfinite(times[WAITS]) & np.isfinite(times[GOES])
        sooner = np.where(both, times[WAITS], np.nan) / np.where(both, times[GOES], 1.0)
        setting, metric = f"{GOES} against {WAITS}, {crowd}", f"times sooner (s.e. {standard_error(sooner):.2f})"
        if crowd == ALIKE:
            rows.append(_row(setting, metric, sooner))
            continue
        quick = float(sooner.mean()) >= WANTED and learns(*(results[_label(how, crowd)] for how in (WAITS, GOES)))
        rule = f"at least {WANTED:g}, and both learn"
        rows.append(statement(setting, metric, float(sooner.mean()), quick, rule, spread(sooner)))
    for how in (WAITS, HALF):
        rows.append(gap(results, _label(how, PRIVATE)))
        result = results[_label(how, PRIVATE)]
        assert result.times is not None  # noqa: S101  only central training has no time
        rows.append(_row(_label(how, PRIVATE), "time for 40 check-ins per device", result.times[-1]))
    return tuple(rows)


def _row(setting: str, metric: str, values: Floats) -> Row:
    return shown(setting, metric, float(values.mean()), spread(values))


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 8.4), dpi=150, layout="constrained")
    axes = figure.subplots(3, 1)
    columns = {
        UNEVEN: [_label(how, UNEVEN) for how in (WAITS, GOES)],
        ALIKE: [_label(how, ALIKE) for how in (WAITS, GOES)],
        PRIVATE: [_label(how, PRIVATE) for how in (WAITS, HALF)],
    }
    central = accuracies(results[CENTRALISED])
    for at, (heading, labels) in zip(axes, columns.items(), strict=True):
        for index, name in enumerate(labels):
            result = results[name]
            assert result.times is not None  # noqa: S101  only central training has no time
            x, y = result.times.mean(axis=1), (1 - result.measured["test_error"] - central).mean(axis=1)
            kind = "--" if index else "-"
            at.plot(x, y, kind, color=COLOURS[index], label=name.rsplit(", " + heading)[0], linewidth=1.6)
        at.axhline(-SHORT, color="#555555", linewidth=1, linestyle=":", label=f"centralised - {SHORT:g}")
        at.set(xscale="log", ylim=(-0.06, 0.005), ylabel="accuracy minus centralised")
        at.set_title(heading, fontsize="medium")
        at.grid(alpha=0.25)
        at.spines[["top", "right"]].set_visible(False)
        at.legend(frameon=False, loc="lower right" if heading != PRIVATE else "lower left")
    axes[-1].set_xlabel("time, where a check-in takes 1 at middling speed")
    figure.suptitle("\n".join(textwrap.wrap(title, 76)), x=0.01, ha="left", fontsize="medium")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())


ASYNC = Study(
    title="asynchronous against synchronous ADMM by simulated time",
    claim="a server that waits for half of the devices gets there sooner where devices are uneven",
    refuted_by=f"less than {WANTED:g} times sooner, or one of the two that never gets there",
    tuned="held back",
    task=TASK,
    curves=(
        CENTRAL,
        *(_curve(how, crowd) for crowd in (UNEVEN, ALIKE) for how in (WAITS, GOES)),
        _private(WAITS),
        _private(HALF),
    ),
    compare=_compare,
    trials=SPLITS,
    notes=(
        TUNED,
        "not a figure of the paper, which does not measure time",
        "speeds are lognormal with s.d. 1 of the logarithm, once per device; a check-in takes 1 at middling speed",
    ),
    draw=_draw,
)
