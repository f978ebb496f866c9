"""Accuracy against the *total* ε over all rounds: ADMM and its relatives, with the discrete noise of devices.

Not a figure of the paper. Samples: 100 devices of 300 rows. Devices: 1000 of 30 rows. All at δ = 1e-5, replace-one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from crowdml.core import record
from crowdml.privacy.promise import classical_scale, gaussian_mu
from crowdml.studies.admm.common import CENTRAL, CENTRALISED, SECURE, SPLITS, adult_study, gap
from crowdml.studies.comparisons import accuracies, shown_accuracies
from crowdml.studies.figure import Figure
from crowdml.studies.figure_makers import by_number
from crowdml.studies.study import Curve, Results, Row, curve

DELTA = 1e-5
_END = '{ kind = "intercept" }, { kind = "norm", order = 2, exactly = 1.0 }'


def _span(first: int, last: int, by: float) -> str:
    return f"{{ first = {first}, last = {last}, by = {by} }}"


def _weighed(*spans: str) -> tuple[str, ...]:
    return (f'data.transform=[{{ kind = "scale-columns", columns = [{", ".join(spans)}] }}, {_END}]',)


SCALED = _weighed(_span(60, 60, 10.0), _span(61, 61, 3.0))
"""Capital gain × 10 and capital loss × 3, before rows get length 1: public constants."""

WEIGHED = _weighed(
    _span(0, 0, 2.0),
    _span(1, 8, 0.5),
    _span(48, 53, 2.0),
    _span(54, 58, 0.35),
    _span(60, 60, 20.0),
    _span(61, 61, 6.0),
    _span(63, 103, 0.02),
)
"""Age and relationship × 2, work class × 0.5, race × 0.35, capital gain × 20 and loss × 6, native country × 0.02."""


def _around(cell: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    """Return half, once and twice each value: whether what is in use could be bettered nearby."""
    return {key: (value / 2, value, 2 * value) for key, value in cell.items()}


@record
class Line:
    """One line of the figure.

    Attributes:
        name: Its name.
        changes: What it changes in the task file.
        cells: Hyper-parameters by total ε.
        wanted: Largest gap to the centralised fit that is wanted, by total ε.
        grid: What `--search` tries, by key; empty: for each ε half, once and twice what is in use.
    """

    name: str
    changes: tuple[str, ...]
    cells: Mapping[float, Mapping[str, float]]
    wanted: Mapping[float, float]
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def label(self, epsilon: float) -> str:
        """Name one curve."""
        return f"{self.name}, ε = {epsilon:g}"

    def curves(self) -> tuple[Curve, ...]:
        """Return one curve per ε."""
        return tuple(
            curve(
                self.label(epsilon),
                *self.changes,
                chosen={"privacy.epsilon": epsilon} | dict(cell),
                grid=self.grid or _around(cell),
            )
            for epsilon, cell in self.cells.items()
        )


def _sound(unit: str, clip: float, uses: int, first: int = 1) -> tuple[str, ...]:
    limits = f", max-uses = {uses + first - 1}" if unit == "sample" else ""
    return (
        f'privacy={{ mode = "sound", unit = "{unit}", mechanism = "gaussian", clip = {clip}, epsilon = 1.0, '
        f"delta = {DELTA}{limits} }}",
        "stop={ " + ("" if unit == "sample" else f"max-releases = {uses}, ") + f"max-versions = {uses} }}",
        f"crowd.passes={uses}",
        "crowd.curve=1",
    )


def _newton(
    name: str,
    data: tuple[str, ...],
    cells: Mapping[float, tuple[float, float, float]],
    wanted: Mapping[float, float],
    clip: float = 0.5,
    first: int = 2,
) -> Line:
    algorithm = f'algorithm={{ kind = "consensus-newton", per-round = 100, first-uses = {first}, average-from = 6 }}'
    return Line(
        name=name,
        changes=(algorithm, *_sound("sample", clip, 11, first), SECURE, *data),
        cells={
            epsilon: {"algorithm.floor": floor, "algorithm.rate": rate, "algorithm.curvature": curvature}
            for epsilon, (floor, rate, curvature) in cells.items()
        },
        wanted=wanted,
    )


def _fedsgd(name: str, changes: tuple[str, ...], rates: Mapping[float, float], unit: str = "sample") -> Line:
    """Gradients with momentum; for devices the mean of all rows is clipped, which is short, and versions averaged."""
    devices, clip, uses, mean = (100, 0.5, 60, "") if unit == "sample" else (1000, 0.03, 150, ", average-from = 75")
    rate = 'rate = { kind = "momentum", c = 1.0, momentum = 0.9 }'
    return Line(
        name=name,
        changes=(
            f'algorithm={{ kind = "fedsgd", per-round = {devices}, {rate}, max-rows = {30_000 // devices}{mean} }}',
            *_sound(unit, clip, uses),
            f"crowd.devices={devices}",
            *changes,
        ),
        cells={epsilon: {"algorithm.rate.c": c} for epsilon, c in rates.items()},
        wanted={} if unit == "sample" else {1.0: 0.020},
    )


def _admm(
    name: str,
    data: tuple[str, ...],
    cells: Mapping[float, tuple[float, float]],
    *,
    versions: int,
    average_from: int,
    wanted: float,
    grid: Mapping[str, tuple[float, ...]] | None = None,
) -> Line:
    """One vector from each device; by total ε there are ρ and the clip."""
    return Line(
        name=name,
        changes=(
            "algorithm.kind=admm-sums",
            "algorithm.barrier=1000",
            f"algorithm.average-from={average_from}",
            *_sound("device", 3.0, versions),
            SECURE,
            "crowd.devices=1000",
            *data,
        ),
        cells={
            epsilon: {"algorithm.rho": rho, "privacy.clip": clip, "algorithm.beta": 0.1}
            for epsilon, (rho, clip) in cells.items()
        },
        wanted={1.0: wanted},
        grid=grid or {},
    )


def claim_for(total: float, versions: int = 20, delta: float = 1e-3) -> float:
    """Return the paper's ε per iteration with which so many add up to a total, if its lemma held in all of them."""
    return float(classical_scale(1.0, delta) * gaussian_mu(total, DELTA) / versions**0.5)


TO_DEVICES = "promise to devices"
PAPER = "admm as in the paper, added up (unproven)"
LINES = (
    _newton(
        "consensus-newton, wider public weights",
        WEIGHED,
        {0.1: (0.0075, 0.5, 0.08), 0.3: (0.0015, 0.8, 0.12), 1.0: (0.0005, 0.8, 0.12), 3.0: (0.0003, 1.0, 0.12)},
        {0.3: 0.005, 1.0: 0.004},
    ),
    _newton(
        "consensus-newton, public scaling",
        SCALED,
        {0.1: (0.0075, 0.5, 0.08), 0.3: (0.0015, 0.8, 0.12), 1.0: (0.0006, 0.8, 0.12), 3.0: (0.0003, 1.0, 0.12)},
        {0.3: 0.005, 1.0: 0.004},
    ),
    _newton(
        "consensus-newton",
        (),
        {0.1: (0.009, 0.8, 0.16), 0.3: (0.0025, 1.0, 0.08), 1.0: (9e-5, 1.0, 0.08), 3.0: (9e-5, 1.0, 0.08)},
        {1.0: 0.015},
        clip=0.4,
        first=1,
    ),
    _fedsgd("fedsgd, secure aggregation", (SECURE,), {0.1: 1.5, 0.3: 5.0, 1.0: 12.0, 3.0: 20.0}),
    Line(
        name="ridge, one round",
        changes=('algorithm={ kind = "ridge", per-round = 100 }', *_sound("sample", 0.5, 1), SECURE),
        cells={
            epsilon: {"algorithm.floor": floor}
            for epsilon, floor in {0.1: 0.01, 0.3: 0.006, 1.0: 0.0015, 3.0: 4e-4}.items()
        },
        wanted={},
    ),
    _fedsgd("fedsgd, each device by itself", (), {0.3: 0.5, 1.0: 1.0, 3.0: 1.5}),
    _admm(
        "admm, secure aggregation, promise to devices",
        (),
        {0.3: (0.03, 3.0), 1.0: (0.03, 15.0), 3.0: (0.015, 40.0)},
        versions=30,
        average_from=10,
        wanted=0.018,
        grid={
            "algorithm.rho": (0.0075, 0.015, 0.03, 0.1, 0.3),
            "privacy.clip": (1.5, 3.0, 6.0, 15.0, 40.0, 80.0),
        },
    ),
    _admm(
        "admm, secure aggregation, promise to devices, public scaling",
        SCALED,
        {0.3: (0.5, 3.0), 1.0: (0.3, 3.0), 3.0: (0.2, 3.0)},
        versions=40,
        average_from=20,
        wanted=0.020,
    ),
    _fedsgd("fedsgd, secure aggregation, promise to devices", (SECURE,), {0.3: 1.0, 1.0: 16.0, 3.0: 50.0}, "device"),
)
PAPER_RHO = {0.1: 10.0, 0.3: 6.0, 1.0: 3.0, 3.0: 1.5}


def _paper_label(total: float) -> str:
    return f"{PAPER}, ε = {total:g}"


def _paper(total: float, rho: float) -> Curve:
    return curve(
        _paper_label(total),
        'privacy={ mode = "paper", mechanism = "gaussian", epsilon = 0.1, delta = 1e-3 }',
        "algorithm.barrier=100",
        "algorithm.average-from=11",
        "crowd.curve=1",
        chosen={"privacy.epsilon": claim_for(total), "algorithm.rho": rho, "algorithm.beta": 0.1},
        grid={"algorithm.rho": (rho / 3, rho, rho * 3)},
    )


def _rows(results: Results) -> Iterator[Row]:
    yield from shown_accuracies(results, CENTRALISED)
    for line in LINES:
        for epsilon in line.cells:
            label = line.label(epsilon)
            yield from shown_accuracies(results, label)
            yield gap(results, label, line.wanted.get(epsilon))
    yield from shown_accuracies(results, *map(_paper_label, PAPER_RHO))


def _draw(results: Results) -> Figure:
    lines = {
        line.name: [(epsilon, accuracies(results[line.label(epsilon)])) for epsilon in line.cells] for line in LINES
    }
    lines[PAPER] = [(total, accuracies(results[_paper_label(total)])) for total in PAPER_RHO]
    devices = {name: points for name, points in lines.items() if TO_DEVICES in name}
    samples = {name: points for name, points in lines.items() if name not in devices}
    groups = {
        "a promise to each sample; 100 devices of 300 rows": samples,
        "a promise to each device; 1000 devices of 30 rows": devices,
    }
    return by_number(groups, {CENTRALISED: accuracies(results[CENTRALISED])}, "total ε (δ = 1e-5)")


TOTAL = adult_study(
    title="accuracy against total ε: ADMM and its relatives on Adult",
    claim="(ours, not the paper's) at ε = 1 in all a crowd stays within 0.015 of the centralised fit, with public "
    "scaling within 0.004; devices within 0.020, and by ADMM within 0.018",
    refuted_by="a method more than what is wanted of it behind the centralised fit",
    curves=(
        CENTRAL,
        *(of_line for line in LINES for of_line in line.curves()),
        *(_paper(total, rho) for total, rho in PAPER_RHO.items()),
    ),
    tuned="not recorded",
    rows=_rows,
    notes=(
        "of ADMM for devices without public scaling --search was run, on rows held back, and its outcome is in the "
        "notes on the papers; all other settings, weights of columns included, were chosen before --search had these "
        "lines, and what was tried is not noted: --search now tries values around those in use",
        SPLITS,
        "not a figure of the paper; the centralised fit has rows without weights and no noise",
        "promises are to samples (100 devices of 300 rows) unless the name says devices (1000 of 30 rows)",
        "the paper's line stands at the ε that 20 iterations add up to if lemma 1 held in all; no ε is proven for it",
        "secure aggregation with γ = 1 and without losses, as in the paper's evaluation; other terms need more noise",
    ),
    draw=_draw,
)
