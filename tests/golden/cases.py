"""The settings whose final numbers are kept: every recipe in every privacy mode that it has, on few rows.

A name says the recipe first. Most cases learn the digits that come with scikit-learn; those that separate two labels
need the dataset `adult`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crowdml import Task

ROOT = Path(__file__).parents[2]
DIGITS = "examples/digits.toml"
PICTURES = "examples/private-pictures.toml"
MASKED = "examples/secagg-digits.toml"
MASKED_ADMM = "examples/secagg-admm.toml"
SLICED = "examples/sliced-digits.toml"
ADULT = "src/crowdml/studies/tasks/adult.toml"

TRIALS = 2

DELAYS = "crowd.delays={ request = 50.0, check-out = 50.0, check-in = 50.0 }"
PCA = 'data.transform=[{ kind = "scale", by = 0.0625 }, { kind = "pca", components = 20 }, \
{ kind = "norm", order = 2, exactly = 1.0 }]'
L1 = 'data.transform=[{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 1, at-most = 1.0 }]'
MLP = 'model={ kind = "mlp", layers = [16] }'
FEW = ("data.split={ train = 2000, test = 1000 }", "crowd.devices=20", "crowd.curve=2")
SMALL = ("model.layers=[16, 8]", "crowd.passes=2", "crowd.curve=2", "crowd.devices=8")
SPEEDS = "crowd.speeds={ sigma = 1.0 }"


def _privacy(mode: str, **settings: object) -> str:
    """Return the whole section of a task file."""
    given = {"mode": mode, **{name.replace("_", "-"): value for name, value in settings.items()}}
    return f"privacy={{ {', '.join(f'{name} = {_toml(value)}' for name, value in given.items())} }}"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _crowd(*changes: str, passes: int = 2) -> tuple[str, tuple[str, ...]]:
    return DIGITS, (f"crowd.passes={passes}", "crowd.curve=2", *changes)


def _local(*changes: str) -> tuple[str, tuple[str, ...]]:
    """Gradients of twenty devices, five to a version; `algorithm.local-steps` makes them steps."""
    rate = '{ kind = "inverse-sqrt", c = 10.0, counter = "versions" }'
    algorithm = f'{{ kind = "local-sgd", local-steps = 0, local-batch = 18, server-batch = 5, rate = {rate} }}'
    return _crowd(f"algorithm={algorithm}", PCA, *changes, passes=3)


def _fedavg(*changes: str) -> tuple[str, tuple[str, ...]]:
    rate = '{ kind = "constant", c = 1.0 }'
    algorithm = f'{{ kind = "fedavg", per-round = 10, local-batch = 10, rate = {rate} }}'
    return _crowd(f"algorithm={algorithm}", MLP, "crowd.devices=10", "data.public=200", *changes, passes=2)


def _fedsgd(*changes: str) -> tuple[str, tuple[str, ...]]:
    algorithm = '{ kind = "fedsgd", per-round = 20, max-rows = 60, rate = { kind = "constant", c = 10.0 } }'
    return _crowd(f"algorithm={algorithm}", "data.public=100", *changes, passes=5)


def _adult(algorithm: str, *changes: str, passes: int = 4) -> tuple[str, tuple[str, ...]]:
    return ADULT, (*FEW, "stop={}", f"crowd.passes={passes}", f"algorithm={algorithm}", *changes)


ADMM = '{ kind = "admm", rho = 0.1, beta = 0.01 }'
BARRIER = '{ kind = "admm", rho = 0.1, beta = 0.01, barrier = 8, max-delay = 4 }'
NEWTON = '{ kind = "consensus-newton", per-round = 20 }'
RIDGE = '{ kind = "ridge", per-round = 20 }'
SOUND_SAMPLE = {"unit": "sample", "mechanism": "gaussian", "clip": 1.0, "epsilon": 8.0, "delta": 1e-5}
SOUND_CROWD = SOUND_SAMPLE | {"max_uses": 10}

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "crowd-sgd none": _crowd(),
    "crowd-sgd none, regularised, delays, stale weight": _crowd(
        "model.regularisation=0.01", DELAYS, "algorithm.stale=weight"
    ),
    "crowd-sgd none, adagrad, shards, drop-out": _crowd(
        'algorithm.rate={ kind = "adagrad", c = 1.0 }', 'crowd.partition={ kind = "shards" }', "crowd.drop-out=0.2"
    ),
    "crowd-sgd paper laplace, counts, held out": _crowd(
        _privacy("paper", epsilon=50.0, statistics_epsilon=5.0, clip=1.0),
        "algorithm.held-out=0.2",
        "model.regularisation=0.001",
    ),
    "crowd-sgd paper gaussian, delays": _crowd(
        _privacy("paper", epsilon=20.0, delta=1e-5, mechanism="gaussian"), DELAYS
    ),
    "crowd-sgd paper k-norm": _crowd(_privacy("paper", epsilon=100.0, mechanism="k-norm")),
    "crowd-sgd fixed noise": _crowd(_privacy("paper", noise_scale=0.01, mechanism="gaussian")),
    "crowd-sgd sound, counts": _crowd(
        # With more noise some rows are so nearly on the edge that another processor counts their errors differently.
        _privacy("sound", **SOUND_CROWD | {"epsilon": 20.0}, statistics_epsilon=0.5),
        "model.regularisation=0.001",
    ),
    "crowd-sgd sound, owners choose": _crowd(
        _privacy("sound", **SOUND_CROWD, owner_range=[1.0, 8.0]),
        "crowd.owner-epsilon={ values = [2.0, 8.0], shares = [0.5, 0.5] }",
    ),
    "crowd-sgd sound laplace, device": _crowd(
        _privacy("sound", unit="device", mechanism="laplace", clip=1.0, epsilon=100.0), "stop.max-releases=40"
    ),
    "crowd-sgd none, dual averaging": _crowd('algorithm.rate={ kind = "dual-averaging", c = 3.0 }'),
    "local-sgd none": _local("stop.max-versions=10"),
    "local-sgd fixed noise, geometric": _local(
        _privacy("paper", noise_scale=0.01, mechanism="gaussian", noise_sequence="geometric", noise_factor=0.9)
    ),
    "local-sgd fixed noise, rate": _local(
        _privacy("paper", noise_scale=0.01, mechanism="gaussian", noise_sequence="rate")
    ),
    "local-sgd paper banded": _local(
        _privacy("paper", epsilon=4.0, delta=1e-5, mechanism="gaussian", noise_sequence="banded", noise_bands=3),
        "stop.max-releases=6",
    ),
    "local-sgd mlp, fixed noise": _local(
        MLP,
        _privacy("paper", mechanism="gaussian", noise_scale=0.001, noise_unit="vector"),
        "algorithm.local-steps=3",
        'algorithm.rate={ kind = "inverse-sqrt", c = 1.0, counter = "local-steps" }',
    ),
    "local-sgd sound, stable steps": _local(
        _privacy("sound", **SOUND_CROWD | {"clip": 8.0}),
        "data.public=300",
        "algorithm.local-steps=3",
        'algorithm.rate={ kind = "constant", c = 4.0 }',
        "algorithm.stale=accept",
        "stop.max-releases=10",
    ),
    "fedavg none": _fedavg(),
    "fedavg dp-sgd": (
        PICTURES,
        ("algorithm.local-steps=3", "stop.max-releases=2", "crowd.passes=2", "crowd.curve=2", "model.convolutions=[4]"),
    ),
    "fedavg learned averaging, finetune": _fedavg(
        "algorithm.averaging=learned", "algorithm.finetune={ steps = 3, rate = 0.1 }"
    ),
    "fedavg inverse-variance": _fedavg("algorithm.averaging=inverse-variance"),
    "fedavg mlp, sparse inputs": _fedavg(
        'model={ kind = "mlp", layers = [200] }',
        'data.transform=[{ kind = "scale", by = 0.0625 }]',
        "algorithm.local-batch=100",  # wide and long enough that leaving zeros out is worth its while
        'algorithm.rate={ kind = "constant", c = 1.0 }',
    ),
    "fedprox none, momentum reset, shards": _fedavg(
        "algorithm.kind=fedprox",
        "algorithm.mu=0.1",
        'algorithm.rate={ kind = "momentum", c = 0.2 }',
        "algorithm.rate-memory=reset",
        'crowd.partition={ kind = "shards" }',
    ),
    "fedavgm sound, device": _fedavg(
        "algorithm.kind=fedavgm",
        _privacy("sound", unit="device", mechanism="gaussian", clip=1.0, epsilon=100.0, delta=1e-5),
        "stop.max-releases=4",
    ),
    "fedadam none": _fedavg("algorithm.kind=fedadam"),
    "fedyogi none": _fedavg("algorithm.kind=fedyogi"),
    "fedbuff none, delays": _crowd(
        'algorithm={ kind = "fedbuff", local-steps = 2, local-batch = 5, buffer-size = 4 }', DELAYS
    ),
    "scaffold none": _crowd('algorithm={ kind = "scaffold", per-round = 5 }', passes=3),
    "scaffold sound, sample": _crowd(
        'algorithm={ kind = "scaffold", per-round = 5 }',
        _privacy("sound", **SOUND_CROWD | {"epsilon": 100.0}),
        "stop.max-releases=10",
    ),
    "ditto none": _crowd('algorithm={ kind = "ditto", per-round = 5 }', "crowd.personal={ held-out = 0.2 }"),
    "dp-fedavg sound, device": _crowd(
        'algorithm={ kind = "dp-fedavg", per-round = 10, first-clip = 0.5 }',
        _privacy("sound", unit="device", mechanism="gaussian", epsilon=100.0, delta=1e-5),
        "stop.max-releases=4",
    ),
    "fedsgd none, average-from": _fedsgd("algorithm.average-from=2"),
    "fedsgd paper gaussian": _fedsgd(_privacy("paper", epsilon=20.0, delta=1e-5, mechanism="gaussian")),
    "fedsgd sound, sample": _fedsgd(_privacy("sound", **SOUND_CROWD)),
    "fedsgd median": _fedsgd('robust.rule={ kind = "median" }'),
    "fedsgd multi-krum, attack sign": _fedsgd('robust.rule={ kind = "multi-krum" }', 'crowd.attack={ kind = "sign" }'),
    "fedsgd median, attack adaptive": _fedsgd('robust.rule={ kind = "median" }', 'crowd.attack={ kind = "adaptive" }'),
    "fedsgd masked sound gaussian": (MASKED, ("crowd.passes=3", "crowd.curve=2")),
    "fedsgd masked sound skellam": (MASKED, ("crowd.passes=3", "crowd.curve=2", "secure-aggregation.law=skellam")),
    "admm none": _adult(ADMM),
    "admm none, masked": (MASKED_ADMM, ("stop.max-versions=3", "crowd.passes=3", "crowd.curve=2")),
    "admm paper, barrier": _adult(
        BARRIER,
        "stop.max-versions=6",
        SPEEDS,
        "algorithm.average-from=2",
        _privacy("paper", epsilon=0.9, delta=1e-3, mechanism="gaussian"),
    ),
    "admm sound": _adult(
        BARRIER,
        "stop={ max-releases = 4 }",
        SPEEDS,
        _privacy("sound", unit="device", mechanism="gaussian", clip=1.0, epsilon=20.0, delta=1e-5),
        "algorithm.kind=admm-sums",
    ),
    "consensus-newton none": _adult(NEWTON, "algorithm.average-from=3", "model.regularisation=0.001"),
    "consensus-newton sound": _adult(
        NEWTON, "model.regularisation=0.001", _privacy("sound", **SOUND_SAMPLE, max_uses=6)
    ),
    "ridge none": _adult(RIDGE, passes=1),
    "ridge sound": _adult(RIDGE, _privacy("sound", **SOUND_SAMPLE, max_uses=1), passes=1),
    "central-sgd paper, inputs": _crowd(
        'algorithm={ kind = "central-sgd", batch = 5 }', _privacy("paper", epsilon=100.0), L1
    ),
    "central-batch none": _crowd('algorithm={ kind = "central-batch", iterations = 20 }', "model.regularisation=0.001"),
    "central-batch paper, inputs": _crowd(
        'algorithm={ kind = "central-batch", iterations = 20 }', _privacy("paper", epsilon=100.0), L1
    ),
    "decentral none": _crowd('algorithm={ kind = "decentral", batch = 5 }', passes=1),
    "local-fit none": _adult('{ kind = "local-fit" }', "crowd.curve=1", passes=1),
    "slicenet none": (SLICED, SMALL),
    "slicenet noise at cut and upload": (
        SLICED,
        (*SMALL, "algorithm.cut-noise=0.01", "algorithm.upload-noise=0.01"),
    ),
    "slicenet metis, micro-batches, weights": (
        SLICED,
        (*SMALL, "algorithm.slicer=metis", "algorithm.micro-batches=2", "algorithm.window=weights"),
    ),
}


def load_case(name: str) -> Task:
    """Read the task of a case."""
    path, changes = CASES[name]
    return Task.load(ROOT / path, list(changes))


def matching(part: str) -> Iterable[str]:
    """Return the cases with this in their name, in order."""
    return [name for name in CASES if part in name]
