"""Devices that lie: five attacks and an adaptive one, with and without a root set.

Accuracy lost against the same crowd with all devices honest and a plain mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crowdml.simulation import Result
from crowdml.studies.comparisons import accuracy, learns, spread, statement
from crowdml.studies.contract import Curve, Row, Study
from crowdml.studies.odpfl.averages import curve, gain
from crowdml.studies.odpfl.drawing import draw_bars

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
    rows = [accuracy(name, results[name]) for name in (HONEST, "20 %, mean: sign")]
    for setting, most in LOSSES.items():
        for attack in (*FIVE, "adaptive"):
            lost = -gain(results, _label(setting, attack), HONEST)
            little = float(lost.mean()) <= most and learns(results[HONEST])
            rule = f"at most {most:g}, and the honest crowd learns"
            rows.append(
                statement(_label(setting, attack), "accuracy lost", float(lost.mean()), little, rule, spread(lost))
            )
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw the points lost as bars: one group per attack, one bar per setting, and what is allowed as lines."""
    groups = {
        attack: {setting: -100 * gain(results, _label(setting, attack), HONEST) for setting in LOSSES}
        for attack in (*FIVE, "adaptive")
    }
    lines = [(100 * most, f"allowed: {setting.partition(',')[0]}") for setting, most in LOSSES.items()]
    draw_bars(groups, path, title, "points of accuracy lost", lines, whole=True)


ATTACKED = Study(
    title="accuracy with devices that lie, by rule and attack",
    claim="(ours, not the paper's) robust rules keep the loss small: 0.02 with 20 % liars, 0.03 with 40 %, 0.002 with "
    "a single one",
    refuted_by="an attack that costs more",
    tuned="not recorded",
    task=TASK,
    curves=_curves(),
    compare=_compare,
    trials=3,
    draw=_draw,
    notes=(
        "not a figure of the paper; the root set is 100 of the 1000 public rows on which PCA is fitted",
        "liars know all honest check-ins of a round; the adaptive attack also tries its lies on the server's own rule",
    ),
)
