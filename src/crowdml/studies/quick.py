"""Small versions of all studies: the same curves, rows and drawings on the few digits that come with crowdml.

They show that everything runs, in seconds. What they find says nothing about the papers: verdicts of a small version
are not recorded. Rows of people (Adult, activity) are quick enough to be themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from crowdml.studies.study import Study

SMALL_ENGINE = "numpy"
"""Compiling would take longer than running."""
LABELS = ", ".join(f'"{label}"' for label in range(10))


def _digits(*transforms: str, more: str = "") -> str:
    made = ", ".join(('{ kind = "scale", by = 0.0625 }', *transforms))
    return f'data={{ dataset = "digits", features = 64, labels = [{LABELS}], transform = [{made}]{more} }}'


SUM_OF_ONE = _digits('{ kind = "norm", order = 1, exactly = 1.0 }')
LENGTH_ONE = _digits('{ kind = "norm", order = 2, exactly = 1.0 }')
WITH_PUBLIC = _digits('{ kind = "norm", order = 2, exactly = 1.0 }', more=", public = 200")
SHORT = ("crowd.passes=1", "crowd.curve=2")
FEW = (*SHORT, "crowd.devices=20")
NET = (
    'model={ kind = "layers", layers = [{ kind = "dense", size = 40 }, { kind = "tanh" }, '
    '{ kind = "dense", size = 10 }] }'
)
IMAGES = (SUM_OF_ONE, *FEW)
ADULT = ("data.split={ train = 1000, test = 200 }", "crowd.passes=2", "crowd.curve=1")
SLICED = (_digits(), NET, *FEW, "crowd.curve=1", "algorithm.balance=3.0")
AVERAGES = (WITH_PUBLIC, "crowd.rows=400", "crowd.passes=2", "crowd.curve=2")

QUICK: Mapping[str, tuple[str, ...]] = {
    **{f"crowdml-2015/fig{number}": IMAGES for number in (4, 5, 6, 7, 8, 9)},
    "crowdml-2015/fig5-sound": IMAGES,
    "crowdml-2016/fig2": (LENGTH_ONE, *SHORT, "algorithm.local-batch=10", "stop.max-versions=1"),
    "crowdml-2016/devices": (LENGTH_ONE, *SHORT, "crowd.devices=10", "algorithm.local-batch=5", "stop.max-versions=10"),
    "crowdml-2016/trade-off": (LENGTH_ONE, *SHORT, "crowd.devices=1", "stop.max-versions=10"),
    "crowdml-2016/correlated": (LENGTH_ONE, *SHORT, "crowd.devices=10", "stop={ max-releases = 16 }"),
    "odpfl/fig1": AVERAGES,
    "odpfl/fig2": AVERAGES,
    "odpfl/own": (*AVERAGES, NET),
    "odpfl/own-all": (*AVERAGES, NET),
    "odpfl/mislabelled": AVERAGES,
    "odpfl/both": AVERAGES,
    "odpfl/mixed": AVERAGES,
    "odpfl/attacks": (WITH_PUBLIC, "crowd.passes=2", "crowd.curve=2"),
    "odpfl/writers": (
        LENGTH_ONE,
        *SHORT,
        'crowd.partition={ kind = "iid" }',
        "crowd.personal={ steps = 2, batch = 2, rate = 0.5, held-out = 0.5 }",
    ),
    "odpfl/private": (LENGTH_ONE, NET, "algorithm.local-batch=64", "stop.max-releases=1", *SHORT),
    "odpfl/fixed-features": (LENGTH_ONE, "algorithm.local-batch=64", "stop.max-releases=1", *SHORT),
    "slicenet/table1": SLICED,
    "slicenet/table2": SLICED,
    "slicenet/table3": SLICED,
    "slicenet/table3-uploads": SLICED,
    "slicenet/table4": SLICED,
    "slicenet/cnn": SLICED,
    "slicenet/cnn-all": SLICED,
    **{f"slicenet/fig{number}": (*SLICED, "crowd.passes=2", "crowd.curve=2") for number in (3, 4, 5, 6)},
    "slicenet/trade-off": (LENGTH_ONE, *SHORT),
    "admm/fig3": ADULT,
    "admm/fig4": ADULT,
    "admm/async": ADULT,
    "admm/total": (*ADULT, "crowd.passes=1"),
    "admm/unlike": (*ADULT, "crowd.passes=1"),
    "external/niid": (LENGTH_ONE, NET, "crowd.rows=400", *SHORT),
    "external/dpsgd": (LENGTH_ONE, NET, "crowd.rows=400", *SHORT),
}
"""By id, what a small version changes in every curve; those that are not here are small as they are."""


def in_small(study_id: str, study: Study) -> Study:
    """Return the small version of a study, with one trial."""
    changes = QUICK.get(study_id, ())
    # A curve may choose another algorithm, which has other keys: what is changed in the file's comes before.
    first = tuple(change for change in changes if change.startswith("algorithm."))
    last = tuple(change for change in changes if change not in first)
    curves = tuple(replace(curve, changes=(*first, *curve.changes, *last)) for curve in study.curves)
    return replace(study, curves=curves, trials=1)
