"""Byzantine devices: five attacks and an adaptive one, with and without a root set.

Accuracy lost against the same crowd with all devices honest and a plain mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from crowdml.studies.comparisons import gaps, learns, shown_accuracies, statement
from crowdml.studies.figure import Figure
from crowdml.studies.figure_makers import bars
from crowdml.studies.study import TASKS, Results, Row, Study, curve, searched_rate

ATTACKS = ("label-flip", "sign", "noise", "alie", "inner-product", "adaptive")
HONEST, PLAIN = "honest, mean", "20 %, mean: sign"
LOSSES = {"20 %, geometric median": 0.02, "40 %, root set": 0.03, "one device, geometric median": 0.002}
"""What Byzantine devices may cost, by share and rule."""

_RULES = {
    "20 %, geometric median": ('kind = "geometric-median"', 0.2),
    "40 %, root set": ('kind = "root-cosine", rows = 100', 0.4),
    "one device, geometric median": ('kind = "geometric-median"', 0.02),
}


def _label(setting: str, attack: str) -> str:
    return f"{setting}: {attack}"


def _rows(results: Results) -> Iterator[Row]:
    yield from shown_accuracies(results, HONEST, PLAIN)
    for (setting, most), attack in itertools.product(LOSSES.items(), ATTACKS):
        lost = -gaps(results[HONEST], results[_label(setting, attack)])
        little = float(lost.mean()) <= most and learns(results[HONEST])
        rule = f"at most {most:g}, and the honest crowd learns"
        yield statement(_label(setting, attack), "accuracy lost", lost, little, rule)


def _draw(results: Results) -> Figure:
    """Draw the points lost as bars: one group per attack, one bar per setting, and what is allowed as lines."""
    groups = {
        attack: {setting: -100 * gaps(results[HONEST], results[_label(setting, attack)]) for setting in LOSSES}
        for attack in ATTACKS
    }
    lines = [(100 * most, f"allowed: {setting.partition(',')[0]}") for setting, most in LOSSES.items()]
    return bars(groups, "points of accuracy lost", lines, whole=True)


ATTACKED = Study(
    title="accuracy with Byzantine devices, by rule and attack",
    claim="(ours, not the paper's) robust rules keep the loss small: 0.02 with 20 % Byzantine devices, 0.03 with 40 %, "
    "0.002 with a single one",
    refuted_by="an attack that costs more",
    tuned="held back",
    unstated=searched_rate(HONEST, (10.0, 100.0, 300.0, 1000.0), given=10.0, used=300.0),
    task=TASKS / "mnist-attacks.toml",
    curves=(
        curve(HONEST),
        curve(PLAIN, 'crowd.attack={ kind = "sign", share = 0.2 }'),
        *(
            curve(
                _label(setting, attack),
                f"robust.rule={{ {rule} }}",
                f'crowd.attack={{ kind = "{attack}", share = {share} }}',
            )
            for (setting, (rule, share)), attack in itertools.product(_RULES.items(), ATTACKS)
        ),
    ),
    rows=_rows,
    trials=3,
    draw=_draw,
    notes=(
        "not a figure of the paper; the root set is 100 of the 1000 public rows on which PCA is fitted",
        "attackers know all honest check-ins of a round; the adaptive one also tries forgeries on the server's rule",
    ),
)
