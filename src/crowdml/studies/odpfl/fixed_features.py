"""Private learning on features that nobody has trained: scattering for digits, random filters for photographs.

The paper froze its convolutions; here nothing before the last layer learns at all. Features are projected onto
directions of rows that are declared public, half whitened, and a linear model learns by DP-SGD. Few numbers need
little noise.
"""

from __future__ import annotations

from collections.abc import Iterator

from crowdml.simulation import Result
from crowdml.studies.comparisons import ACCURACY, accuracies, learns, level, shown, statement
from crowdml.studies.study import TASKS, ByCurve, Curve, Row, Study, curve

DIGITS, PHOTOGRAPHS = "MNIST, scattering, ε = 3", "CIFAR-10, random features, ε = 8"
WANTED = {DIGITS: 0.98, PHOTOGRAPHS: 0.63}
PUBLISHED = {DIGITS: 0.987}
"""Scattering features and a linear model with a promise of about that ε (Tramèr and Boneh 2021). Of photographs they
have 67 % at ε = 3, which is another promise than the 8 here: no figure of ours stands beside that."""
NEAR = 0.01
"""How far from the published figure is still the same."""
PUBLIC, BATCH, STEPS, PASSES = 1000, 4096, 100, 3
RATE = "algorithm.rate.c"
RATES = (30.0, 100.0, 200.0, 300.0)
LABELS = ", ".join(f"'{label}'" for label in range(10))


def _curve(label: str, rows: int, data: str, features: str, rate: float, epsilon: float, components: int) -> Curve:
    transform = (
        f"[{features}, {{ kind = 'pca', components = {components}, whiten = 0.5 }}, "
        "{ kind = 'norm', order = 2, exactly = 1.0 }]"
    )
    return curve(
        label,
        f"data={{ {data}, public = {PUBLIC}, transform = {transform} }}",
        f"algorithm={{ kind = 'fedavg', per-round = 1, local-batch = {BATCH}, local-steps = {STEPS}, group = 1024, "
        "rate = { kind = 'momentum', c = 100.0, momentum = 0.9 } }",
        f"privacy.sampling-rate={BATCH / (rows - PUBLIC):.6f}",
        "privacy.clip=0.1",
        f"privacy.epsilon={epsilon}",
        f"stop.max-releases={PASSES}",
        f"crowd.passes={PASSES}",
        f"crowd.curve={PASSES}",
        chosen={RATE: rate},
        grid={RATE: RATES},
        others={
            "clip 0.05, twice the rate": ("privacy.clip=0.05", f"{RATE}={2 * rate}"),
            "clip 0.2, half the rate": ("privacy.clip=0.2", f"{RATE}={rate / 2}"),
            "half the steps": ("algorithm.local-steps=50",),
            "twice the steps": ("algorithm.local-steps=200",),
        },
    )


OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CURVES = (
    _curve(
        DIGITS,
        60_000,
        f"dataset = 'mnist', features = 784, labels = [{LABELS}]",
        "{ kind = 'scattering', size = 28, colours = 1, grid = 7 }",
        rate=200.0,
        epsilon=3.0,
        components=400,
    ),
    _curve(
        PHOTOGRAPHS,
        50_000,
        "dataset = 'cifar10', features = 3072, labels = [" + ", ".join(f"'{name}'" for name in OBJECTS) + "]",
        "{ kind = 'random-features', filters = 320 }",
        rate=200.0,
        epsilon=8.0,
        components=400,
    ),
)


def _rows(label: str, result: Result) -> Iterator[Row]:
    epsilon = float(result.privacy["sample"]["epsilon"])
    values, least = accuracies(result), WANTED[label]
    kept = epsilon <= result.privacy["paper_claim"]["epsilon"] and learns(result)
    enough = bool(kept and float(values.mean()) >= least)
    rule = f"ε as promised, and at least {least:g}"
    if label in PUBLISHED:
        paper = PUBLISHED[label]
        yield level(label, ACCURACY, values, paper, tolerance=NEAR, claim=enough, better="more", claimed=rule)
    else:
        yield statement(label, ACCURACY, values, enough, rule)
    yield shown(label, "ε at δ = 1e-5", epsilon)


FIXED_FEATURES = Study(
    title="private learning on fixed features: digits at ε = 3, photographs at ε = 8",
    claim="(ours, not the paper's) 0.98 on MNIST at ε = 3 and 0.63 on CIFAR-10 at ε = 8, in minutes on a processor",
    refuted_by="a lower accuracy, or an ε above the promise",
    tuned="not recorded",
    task=TASKS / "pictures-private.toml",
    curves=CURVES,
    rows=ByCurve(rows=_rows, metric=ACCURACY, published=PUBLISHED),
    trials=1,
    notes=(
        f"principal components are fitted on {PUBLIC} of the training rows, declared public and not trained on",
        "rates by --search --trials 1, on rows held back; directions, clip and steps by the same arithmetic in NumPy, "
        "which is not in the repository: on 5000 rows held back, as far as was noted (0.986 for digits, 0.667 for "
        "photographs); --search tries other clips and steps as well, of which no outcome is recorded: tuning not "
        "charged",
        "for photographs the best published figure of the kind is 0.67 at ε = 3; at ε = 8 there is none to stand "
        "beside ours, and what was wanted is asked for",
        "neighbours differ in one row that is there or not; δ = 1e-5; noise in floating point, simulation only",
    ),
)
