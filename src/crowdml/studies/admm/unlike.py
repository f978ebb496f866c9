"""ADMM and its relatives where devices hold different kinds of rows: in the worst case, of one label each.

Not a figure of the paper. All devices in every version do the same sums whoever holds which rows; a barrier hears quick
devices more often than slow ones.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

from crowdml.core.validation import write_whole
from crowdml.simulation import Result
from crowdml.simulation.plot import COLOURS
from crowdml.studies.admm import total
from crowdml.studies.admm.common import CENTRAL, SPLITS, TASK, TUNED, behind, gap, standard_error
from crowdml.studies.comparisons import shown, spread
from crowdml.studies.contract import Curve, Row, Study

DEALT = {
    "rows dealt at random": (),
    "one label per device": ('crowd.partition={ kind = "shards", per-device = 1 }',),
}
UNEVEN = "crowd.speeds={ sigma = 1.0 }"
DEVICES = "admm, masked, promise to devices, public scaling, ε = 1"


def _of_total(label: str) -> Curve:
    return next(curve for line in total.LINES for curve in line.curves() if curve.label == label)


def _methods() -> tuple[Curve, ...]:
    plain = Curve(label="admm without noise", changes=("crowd.curve=1",), chosen={"algorithm.rho": 0.02}, grid={})
    late = ("algorithm.barrier=50", "algorithm.max-delay=10", UNEVEN, "stop={}")
    private = _of_total(DEVICES)
    half = ("algorithm.barrier=500", "algorithm.max-delay=10", UNEVEN, "stop={ max-releases = 40 }")
    return (
        plain,
        Curve(label="admm without noise, ρ = 3", changes=plain.changes, chosen={"algorithm.rho": 3.0}, grid={}),
        _changed(plain, "admm without noise, s = 50 of 100", *late),
        _of_total("consensus-newton, public scaling, ε = 1"),
        _of_total("fedsgd, masked, ε = 1"),
        _of_total("ridge, one round, ε = 1"),
        private,
        _changed(private, DEVICES.replace("devices, ", "devices, s = 500 of 1000, "), *half),
    )


def _changed(curve: Curve, label: str, *changes: str) -> Curve:
    return Curve(label=label, changes=(*curve.changes, *changes), chosen=curve.chosen, grid={})


def _label(method: str, dealt: str) -> str:
    return f"{method}; {dealt}"


METHODS = _methods()


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = []
    for method in METHODS:
        rows += [gap(results, _label(method.label, dealt)) for dealt in DEALT]
        alike, unlike = (behind(results, _label(method.label, dealt)) for dealt in DEALT)
        lost = unlike - alike
        metric = f"lost by one label per device (s.e. {standard_error(lost):.4f})"
        rows.append(shown(method.label, metric, float(lost.mean()), spread(lost)))
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.8), dpi=150, layout="constrained")
    at = figure.subplots()
    for index, dealt in enumerate(DEALT):
        found = [behind(results, _label(method.label, dealt)) for method in METHODS]
        at.errorbar(
            [float(own.mean()) for own in found],
            [line + 0.14 * (2 * index - 1) for line in range(len(found))],
            xerr=[standard_error(own) for own in found],
            fmt="os"[index],
            color=COLOURS[index],
            label=dealt,
            markersize=6,
            capsize=3,
        )
    names = ["\n".join(textwrap.wrap(method.label.replace(" = ", "\u00a0=\u00a0"), 34)) for method in METHODS]
    at.set_yticks(range(len(names)), names, fontsize="small")
    at.invert_yaxis()
    at.set_xlabel("test accuracy behind the centralised fit")
    at.axvline(0, color="#555555", linewidth=1, linestyle=":")
    at.grid(alpha=0.25, axis="x")
    at.spines[["top", "right"]].set_visible(False)
    at.legend(frameon=False, loc="best")
    at.set_title("\n".join(textwrap.wrap(title, 78)), loc="right", fontsize="medium")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())


UNLIKE = Study(
    title="what it costs where every device holds rows of one label",
    claim="",
    refuted_by="",
    tuned="held back",
    task=TASK,
    curves=(
        CENTRAL,
        *(
            _changed(method, _label(method.label, dealt), *changes)
            for method in METHODS
            for dealt, changes in DEALT.items()
        ),
    ),
    compare=_compare,
    trials=SPLITS,
    notes=(
        TUNED,
        "not a figure of the paper; hyper-parameters are those of rows dealt at random, but for ρ = 3, which was the "
        "best of seven for one label per device",
        "100 devices of 300 rows, and 1000 of 30 where devices are promised something; barriers have uneven devices",
    ),
    draw=_draw,
)
