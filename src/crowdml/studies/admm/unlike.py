"""ADMM and its relatives where devices hold different kinds of rows: in the worst case, of one label each.

Not a figure of the paper. All devices in every version do the same sums whoever holds which rows; a barrier hears quick
devices more often than slow ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from crowdml.studies.admm import total
from crowdml.studies.admm.common import CENTRAL, SPLITS, adult_study, behind, gap
from crowdml.studies.comparisons import shown, standard_error
from crowdml.studies.figure import Figure, level, panel, series
from crowdml.studies.study import Curve, Results, Row, curve

UNALIKE = "one label per device"
DEALT = {
    "rows dealt at random": (),
    UNALIKE: ('crowd.partition={ kind = "shards", per-device = 1 }',),
}
UNEVEN = "crowd.speeds={ sigma = 1.0 }"
RHO, STIFF = "algorithm.rho", "admm without noise, ρ = 3"
DEVICES = "admm, secure aggregation, promise to devices, public scaling, ε = 1"


def _of_total(label: str) -> Curve:
    return next(found for line in total.LINES for found in line.curves() if found.label == label)


def _methods() -> tuple[Curve, ...]:
    plain = curve("admm without noise", "crowd.curve=1", chosen={RHO: 0.02})
    late = ("algorithm.barrier=50", "algorithm.max-delay=10", UNEVEN, "stop={}")
    private = _of_total(DEVICES)
    half = ("algorithm.barrier=500", "algorithm.max-delay=10", UNEVEN, "stop={ max-releases = 40 }")
    return (
        plain,
        curve(STIFF, *plain.changes, chosen={RHO: 3.0}),
        _changed(plain, "admm without noise, s = 50 of 100", *late),
        _of_total("consensus-newton, public scaling, ε = 1"),
        _of_total("fedsgd, secure aggregation, ε = 1"),
        _of_total("ridge, one round, ε = 1"),
        private,
        _changed(private, DEVICES.replace("devices, ", "devices, s = 500 of 1000, "), *half),
    )


def _changed(method: Curve, label: str, *changes: str) -> Curve:
    # What admm/fig3 and admm/total chose is not searched again; for rows dealt at random ρ = 3 shows what it costs.
    grid = {RHO: (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)} if label == _label(STIFF, UNALIKE) else {}
    return curve(label, *method.changes, *changes, chosen=method.chosen, grid=grid)


def _label(method: str, dealt: str) -> str:
    return f"{method}; {dealt}"


METHODS = _methods()


def _rows(results: Results) -> Iterator[Row]:
    for method in METHODS:
        for dealt in DEALT:
            yield gap(results, _label(method.label, dealt))
        alike, unlike = (behind(results, _label(method.label, dealt)) for dealt in DEALT)
        lost = unlike - alike
        yield shown(method.label, f"lost by one label per device (s.e. {standard_error(lost):.4f})", lost)


def _draw(results: Results) -> Figure:
    """Show how far behind each method is, with its standard error, for both ways to deal rows."""
    shown = [level("", 0.0)]
    for index, dealt in enumerate(DEALT):
        found = [behind(results, _label(method.label, dealt)) for method in METHODS]
        places = [at + 0.14 * (2 * index - 1) for at in range(len(found))]
        gaps = [float(each.mean()) for each in found]
        shown.append(series(dealt, "marks", places, gaps, map(standard_error, found), colour=index))
    ticks = [(float(at), method.label) for at, method in enumerate(METHODS)]
    words = "test accuracy behind the centralised fit"
    return Figure(panels=(panel(shown, ylabel=words, ticks=ticks, turned=True),))


UNLIKE = adult_study(
    title="what it costs where every device holds rows of one label",
    claim="",
    refuted_by="",
    curves=(
        CENTRAL,
        *(
            _changed(method, _label(method.label, dealt), *changes)
            for method, (dealt, changes) in itertools.product(METHODS, DEALT.items())
        ),
    ),
    tuned="not recorded",
    rows=_rows,
    notes=(
        "not a figure of the paper; hyper-parameters are those of admm/fig3 and admm/total for rows dealt at random, "
        "but for ρ = 3, which was the best of seven for one label per device: on which rows was not noted, and test "
        "rows may have been seen",
        SPLITS,
        "100 devices of 300 rows, and 1000 of 30 where devices are promised something; barriers have uneven devices",
    ),
    draw=_draw,
)
