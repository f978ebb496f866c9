"""The fields of the form for a new task: those keys of a task file that most tasks need, with proposals.

All other keys go into one further field, as changes on the command line do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crowdml.algorithms.rates import RATES
from crowdml.algorithms.recipes import RECIPES
from crowdml.core import record
from crowdml.models import MODELS
from crowdml.privacy import MECHANISMS

Kind = Literal["text", "words", "number", "lines", "choice", "toml"]

FURTHER = "further"
"""The field for all other keys."""


@record
class Field:
    """A field of the form.

    Attributes:
        key: The key of the task file that it is.
        label: What it is called.
        kind: text; words, several lines of it; number; lines, one entry each; one of several; a value as TOML.
        hint: What it is for.
        proposal: What stands there at first.
        options: Of a choice: values with their words.
    """

    key: str
    label: str
    kind: Kind = "text"
    hint: str = ""
    proposal: str = ""
    options: tuple[tuple[str, str], ...] = ()


@record
class Group:
    """Fields that belong together, in one section of the file; `folded`: out of sight until somebody looks for them."""

    title: str
    section: str
    fields: tuple[Field, ...]
    words: str = ""
    folded: bool = False


def _options(names: Sequence[str], empty: str = "") -> tuple[tuple[str, str], ...]:
    return (*((("", empty),) if empty else ()), *((name, name) for name in names))


_ABOUT = Group(
    title="What it is about",
    section="",
    fields=(
        Field(key="name", label="Name", hint="Short: small letters, digits, hyphens. It is part of addresses."),
        Field(key="objective", label="Objective", hint="What the crowd learns, in words for owners."),
    ),
)

_ROWS = Group(
    title="What a row looks like",
    section="data",
    words="Owners bring rows of this shape. Give labels, or a number that is predicted.",
    fields=(
        Field(
            key="data.columns",
            label="Columns",
            kind="lines",
            hint="Names of the numbers in a row, one a line. Files of owners are matched by these names.",
        ),
        Field(
            key="data.features",
            label="Numbers in a row",
            kind="number",
            hint="Only without names of columns: then a row is known by position.",
        ),
        Field(
            key="data.labels",
            label="Labels",
            kind="lines",
            hint="What rows are told apart by, one label a line, two at least.",
        ),
        Field(key="data.target.name", label="Instead of labels: name of the number", hint="Such as temperature."),
        Field(key="data.target.low", label="Its smallest value", kind="number"),
        Field(key="data.target.high", label="Its largest value", kind="number"),
        Field(key="data.target.unit", label="Its unit", hint="Such as °C."),
        Field(
            key="data.transform",
            label="What each device does to a row first",
            kind="toml",
            hint="A list of tables. The proposal shortens rows to length 1, which bounds what a row can do.",
            proposal='[{ kind = "norm", order = 2, at-most = 1.0 }]',
        ),
    ),
)

_ENDING = Group(
    title="When it ends",
    section="stop",
    words="Left empty, a task goes on until you stop it.",
    fields=(
        Field(key="stop.max-releases", label="Check-ins of one device", kind="number", proposal="100"),
        Field(key="stop.max-versions", label="Versions", kind="number"),
        Field(key="stop.error-below", label="When the estimated error is below", kind="number"),
    ),
)

_OTHERS = Group(
    title="All other keys",
    section=FURTHER,
    folded=True,
    fields=(
        Field(
            key=FURTHER,
            label="Further keys",
            kind="words",
            hint="One change a line, as --set has them: secure-aggregation.enabled=true",
        ),
    ),
)


def _learning() -> Group:
    """Ask what is learnt and how, with whatever models, algorithms and rates there are."""
    live = [name for name, recipe in RECIPES.items() if recipe.live]
    too_many_keys = ("layers", "cnn", "own")
    return Group(
        title="What is learnt, and how",
        section="algorithm",
        fields=(
            Field(
                key="model.kind",
                label="Model",
                kind="choice",
                options=_options([name for name in MODELS if name not in too_many_keys]),
                proposal="softmax",
                hint="softmax tells labels apart, linear predicts a number.",
            ),
            Field(key="model.regularisation", label="Regularisation", kind="number"),
            Field(
                key="model.layers",
                label="Hidden layers",
                kind="toml",
                hint="Of mlp: their widths, such as [32, 16].",
            ),
            Field(
                key="algorithm.kind",
                label="Algorithm",
                kind="choice",
                options=_options(live),
                proposal="crowd-sgd",
                hint="crowd-sgd: each check-in is a gradient. fedavg: rounds in which devices learn by themselves.",
            ),
            Field(
                key="algorithm.batch",
                label="Rows in a check-in",
                kind="number",
                hint="Of crowd-sgd.",
                proposal="20",
            ),
            Field(key="algorithm.per-round", label="Devices in a round", kind="number", hint="Where there are rounds."),
            Field(key="algorithm.epochs", label="Epochs in a round", kind="number", hint="Where there are rounds."),
            Field(key="algorithm.local-batch", label="Rows in a local step", kind="number", hint="Of local steps."),
            Field(
                key="algorithm.rate.kind",
                label="Learning rate",
                kind="choice",
                options=_options(list(RATES), "as the algorithm proposes"),
                proposal="inverse-sqrt",
            ),
            Field(key="algorithm.rate.c", label="Its constant", kind="number", proposal="10.0"),
        ),
    )


def _promise() -> Group:
    """Ask what is promised, with whatever noise there is."""
    return Group(
        title="What is promised to owners",
        section="privacy",
        words="Once the task is signed its terms cannot change. You see what owners are told before it is made.",
        fields=(
            Field(
                key="privacy.mode",
                label="Mode",
                kind="choice",
                options=(
                    ("sound", "sound: proven, kept by a ledger"),
                    ("none", "none: no noise, no promise"),
                ),
                proposal="sound",
            ),
            Field(
                key="privacy.unit",
                label="What one promise protects",
                kind="choice",
                options=(("sample", "one sample"), ("device", "a device with all its samples")),
                proposal="sample",
            ),
            Field(
                key="privacy.mechanism",
                label="Noise",
                kind="choice",
                options=_options(list(MECHANISMS)),
                proposal="gaussian",
            ),
            Field(key="privacy.epsilon", label="ε in all", kind="number", hint="Over the whole task.", proposal="8.0"),
            Field(key="privacy.delta", label="δ", kind="number", hint="0 is pure ε.", proposal="1e-6"),
            Field(
                key="privacy.clip",
                label="Longest gradient of one example",
                kind="number",
                hint="Empty: the model's own bound.",
                proposal="1.0",
            ),
            Field(
                key="privacy.max-uses",
                label="Releases one sample may enter",
                kind="number",
                hint="More need more noise in each.",
                proposal="10",
            ),
            Field(
                key="privacy.statistics-epsilon",
                label="Part of ε for error and label counts",
                kind="number",
                hint="0: none are sent, and no error is shown.",
                proposal="0.5",
            ),
        ),
    )


def groups() -> tuple[Group, ...]:
    """Return the form, with whatever kinds there are."""
    return (_ABOUT, _ROWS, _learning(), _promise(), _ENDING, _OTHERS)


def fields() -> list[Field]:
    """Return all fields, in their order."""
    return [field for group in groups() for field in group.fields]


def proposals() -> dict[str, str]:
    """Return what stands in the fields at first."""
    return {field.key: field.proposal for field in fields()}
