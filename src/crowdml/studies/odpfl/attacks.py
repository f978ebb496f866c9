"""Devices that lie: five attacks and an adaptive one, with and without a root set.

Accuracy lost against the same crowd with all devices honest and a plain mean.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crowdml.core.validation import write_whole
from crowdml.simulation import Result
from crowdml.simulation.plot import COLOURS
from crowdml.studies.comparisons import accuracy, spread, statement
from crowdml.studies.contract import Curve, Row, Study
from crowdml.studies.odpfl.averages import curve, gain

TASK = Path(__file__).parents[1] / "tasks" / "mnist-attacks.toml"
FIVE = ("label-flip", "sign", "noise", "alie", "inner-product")
HONEST = "honest, mean"
LOSSES = {"20 %, geometric median": 0.02, "40 %, root set": 0.03, "one device, geometric median": 0.002}
"""What liars may cost, by share and rule."""

_RULES = {
    "20 %, geometric median": ('kind = "geometric-median"', 0.2),
    "40 %, root set": ('kind = "root-cosine", rows = 100', 0.4),
    "one device, geometric median": ('kind = "geometric-median"', 0.02),
}


def _label(setting: str, attack: str) -> str:
    return f"{setting}: {attack}"


def _curves() -> tuple[Curve, ...]:
    found = [curve(HONEST), curve("20 %, mean: sign", 'crowd.attack={ kind = "sign", share = 0.2 }')]
    for setting, (rule, share) in _RULES.items():
        for attack in (*FIVE, "adaptive"):
            found.append(
                curve(
                    _label(setting, attack),
                    f"robust.rule={{ {rule} }}",
                    f'crowd.attack={{ kind = "{attack}", share = {share} }}',
                )
            )
    return tuple(found)


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [accuracy(HONEST, results[HONEST], None), accuracy("20 %, mean: sign", results["20 %, mean: sign"], None)]
    for setting, most in LOSSES.items():
        for attack in (*FIVE, "adaptive"):
            lost = -gain(results, _label(setting, attack), HONEST)
            mean = float(lost.mean())
            metric = f"accuracy lost, ≤ {most:g}"
            rows.append(statement(_label(setting, attack), metric, None, mean, mean <= most, spread(lost)))
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw the accuracy lost as bars: one group per attack, one bar per setting, and what is allowed as a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.6), dpi=150, layout="constrained")
    axes, attacks = figure.subplots(), (*FIVE, "adaptive")
    width = 0.8 / len(LOSSES)
    for at, (setting, most) in enumerate(LOSSES.items()):
        places = np.arange(len(attacks)) + (at - (len(LOSSES) - 1) / 2) * width
        lost = [-100 * float(gain(results, _label(setting, attack), HONEST).mean()) for attack in attacks]
        axes.bar(places, lost, width * 0.92, color=COLOURS[at], label=setting)
        axes.axhline(100 * most, color=COLOURS[at], linewidth=0.8, linestyle=":")
    axes.set_xticks(np.arange(len(attacks)), attacks)
    axes.set_ylabel("points of accuracy lost")
    axes.legend(frameon=False, fontsize="small", title="dotted: what is allowed", title_fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())


ATTACKED = Study(
    title="accuracy with devices that lie, by rule and attack",
    task=TASK,
    curves=_curves(),
    compare=_compare,
    trials=2,
    draw=_draw,
    notes=(
        "not a figure of the paper; the root set is 100 of the 1000 public rows on which PCA is fitted",
        "liars know all honest check-ins of a round; the adaptive attack also tries its lies on the server's own rule",
    ),
)
