"""NIID-Bench: FedAvg and FedProx where devices hold the same mix of labels, and where they do not.

Li, Diao, Chen and He, "Federated learning on non-IID data silos: an experimental study", 2022, in the setting and with
the figures of Flower's baseline `niid_bench`. A cell takes about an hour of CPU time, and can be run by itself and
interrupted: `crowdml reproduce external/niid --full --curve LABEL --resume --record results`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from crowdml.simulation import Result
from crowdml.studies.comparisons import ACCURACY, as_published
from crowdml.studies.study import ByCurve, Curve, Row, Study, curve

TASK = Path(__file__).with_name("niid.toml")
CROWDS = {"IID": (), "Dirichlet 0.5": ('crowd.partition={ kind = "dirichlet", alpha = 0.5 }',)}
MU = 0.01
"""FedProx's μ: the baseline's default. The published figures are the best of 0.001, 0.01, 0.1 and 1."""
ALGORITHMS = {"FedAvg": (), "FedProx": ("algorithm.kind=fedprox", f"algorithm.mu={MU}")}
PUBLISHED = {
    "Fashion-MNIST": {
        "FedAvg": {"IID": 0.890, "Dirichlet 0.5": 0.884},
        "FedProx": {"IID": 0.895, "Dirichlet 0.5": 0.886},
    },
    "MNIST": {
        "FedAvg": {"IID": 0.991, "Dirichlet 0.5": 0.989},
        "FedProx": {"IID": 0.992, "Dirichlet 0.5": 0.990},
    },
}
TOLERANCE = {"Fashion-MNIST": 0.015, "MNIST": 0.003}
"""The baseline has one seed; devices' rows differ from seed to seed, and so do its figures by about so much."""
DIGITS = ("data.dataset=mnist", "data.labels=['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']")


def _label(dataset: str, algorithm: str, crowd: str) -> str:
    return f"{dataset}, {algorithm}, {crowd}"


def _curves(dataset: str, *common: str) -> tuple[Curve, ...]:
    return tuple(
        curve(_label(dataset, algorithm, crowd), *common, *ALGORITHMS[algorithm], *CROWDS[crowd])
        for algorithm, crowd in itertools.product(ALGORITHMS, CROWDS)
    )


CELLS = {_label(*names): names for names in itertools.product(PUBLISHED, ALGORITHMS, CROWDS)}
FASHION, MNIST = _curves("Fashion-MNIST"), _curves("MNIST", *DIGITS)
LEFT_OUT = _label("Fashion-MNIST", "FedProx", "IID")
"""The cell of Fashion-MNIST that says least, and takes as long as the others."""


def _published(label: str) -> float:
    dataset, algorithm, crowd = CELLS[label]
    return PUBLISHED[dataset][algorithm][crowd]


def _rows(label: str, result: Result) -> Iterator[Row]:
    yield as_published(label, result, _published(label), TOLERANCE[CELLS[label][0]])


BY_CURVE = ByCurve(rows=_rows, metric=ACCURACY, published={label: _published(label) for label in CELLS})

NIID = Study(
    title="FedAvg and FedProx on Fashion-MNIST, IID and Dirichlet, against Flower's baseline of NIID-Bench",
    claim="the same setting gives the accuracy that another system has published",
    refuted_by=f"an accuracy lower by more than {TOLERANCE['Fashion-MNIST']:g} ({TOLERANCE['MNIST']:g} on MNIST)",
    tuned="given",
    hours=True,
    task=TASK,
    curves=tuple(curve for curve in FASHION if curve.label != LEFT_OUT),
    rows=BY_CURVE,
    trials=1,
    full=TASK,
    full_curves=(*FASHION, *MNIST),
    missing=tuple(
        BY_CURVE.not_run(label, "--full has this cell") for label in (LEFT_OUT, *(curve.label for curve in MNIST))
    ),
    notes=(
        f"μ = {MU:g} for FedProx, the baseline's default; the published figure is the best of four values",
        "the baseline stops giving rows of a label to devices that have more than a tenth of all; here each label is "
        "dealt by its own draw, as in the paper",
        "epochs follow each other without a short batch between them; biases do not decay, at a decay of 1e-5",
    ),
)
