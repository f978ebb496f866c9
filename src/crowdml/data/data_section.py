"""The `[data]` section of a task file: what a row looks like on every device, and where a simulation gets rows."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from crowdml.core import Labels, Number, Settings, Target
from crowdml.core.registry import nearest
from crowdml.core.settings import OneOf, Shown
from crowdml.core.targets import BINS
from crowdml.data.held_out import TEST_SHARE
from crowdml.data.rows.row_contract import DEFAULT_COLUMN, Contract
from crowdml.data.rows.word_columns import width_of
from crowdml.data.sensing.sensors import SENSORS
from crowdml.data.transforms import TRANSFORMS


class SplitSettings(Settings):
    """Another split of a dataset than that of its files: all rows together, some drawn, and split anew."""

    train: int = Field(gt=0, description="training rows")
    test: int = Field(gt=0, description="test rows")
    seed: int | None = Field(
        None, ge=0, description="which of all possible splits; not given: every trial has a split of its own"
    )


class TargetSettings(Settings):
    """A number that rows are mapped to, between two bounds that everybody knows."""

    name: Shown = Field(
        min_length=1, description="what the number is, in a word: a file's column of this name holds it"
    )
    low: float = Field(ge=-1e30, le=1e30, description="smallest value; what is below counts as it")
    high: float = Field(ge=-1e30, le=1e30, description="largest value; what is above counts as it")
    bins: int = Field(BINS, ge=2, le=1000, description="bins of equal width in which devices count their values")
    unit: Shown = Field("", description='the unit, for whoever reads results, such as "°C"')
    outside: Literal["clip", "refuse"] = Field(
        "clip",
        description="what becomes of rows whose value is below low or above high: they count as the nearer one, with a "
        "warning; or they are refused as a mistake",
    )

    @model_validator(mode="after")
    def _has_a_range(self) -> TargetSettings:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} is not below high = {self.high:g}: nothing lies between them")
        # Files that other tools run decode in float32.
        if self.high - self.low < 1e-5 * max(abs(self.low), abs(self.high), 1e-30):
            raise ValueError(f"low = {self.low:g} and high = {self.high:g} are too close to be told apart")
        return self

    def build(self) -> Number:
        """Make the target."""
        return Number(low=self.low, high=self.high, bins=self.bins, name=self.name, unit=self.unit)


class DataSettings(Settings):
    """The `[data]` section: what a row looks like on every device."""

    dataset: str | None = Field(None, description="a named dataset, for simulation and demo")
    file: str | None = Field(
        None,
        min_length=1,
        description="instead of a dataset: your own rows, for simulation; a .csv, .npz or .parquet file, whose path is "
        "relative to the task file",
    )
    owner: str | None = Field(
        None,
        min_length=1,
        description="column of that file (in .npz: array) that says whose each row is: every owner is a device; not "
        "given: crowd.partition deals the rows",
    )
    label_column: Shown = Field(
        DEFAULT_COLUMN,
        min_length=1,
        description="column of a file that holds the labels, unless a device says another by --label-column; that of a "
        "number has the target's name",
    )
    test: float | str | None = Field(
        None,
        description="rows of your own to test on: a share of that file's rows, drawn by a fixed seed, or another file; "
        f"not given: {TEST_SHARE:g}",
    )
    features: int = Field(
        0,
        gt=0,
        le=100_000_000,
        description="numbers in a row, before transforms; not given: as many as there are columns",
    )
    columns: list[str] = Field(
        [],
        description="names of the numbers in a row, in their order: files with a header are matched by name; without "
        "them a row is known by position",
    )
    words: dict[str, list[str]] = Field(
        {},
        description='columns that hold words, each with all its words, such as { sex = ["Female", "Male"] }: two words '
        "are one number, more are a number each; or the path of a TOML file with this table, as crowdml data words "
        "writes it",
    )
    missing: Literal["refuse", "leave-out"] = Field(
        "refuse",
        description="what becomes of rows of a file that lack a value: they are a mistake; or they are left out, with "
        "a note. Empty fields, ?, NA and their like are missing, unless they are listed among the words",
    )
    units: dict[str, Shown] = Field({}, description='unit of a column in words, such as { age = "years" }')
    id: Shown | None = Field(
        None,
        min_length=1,
        description="column that tells samples apart: rows with the same id are one sample, whatever else is in them; "
        "not given: rows with the same numbers and label are",
    )
    labels: list[Shown] = Field(
        [],
        min_length=2,
        description="names of the labels, in the order of their numbers; every task has labels, or a target",
    )
    target: TargetSettings | None = Field(
        None,
        description="instead of labels: the number that is predicted, such as "
        '{ name = "temperature", low = 5.0, high = 35.0, unit = "°C" }',
    )
    transform: list[Annotated[Any, OneOf(TRANSFORMS)]] = Field(
        [], description="what each device does to a row, in order"
    )
    sensor: Annotated[Any, OneOf(SENSORS)] | None = Field(
        None,
        description="how a phone makes rows; not given: its owner opens a file of rows. Python devices bring rows in "
        "any case",
    )
    split: SplitSettings | None = Field(
        None, description="simulation: split all rows of the dataset anew; not given: as its files do"
    )
    public: int = Field(
        0,
        ge=0,
        description="so many of the training rows are public: transforms are fitted on them alone, and no device holds "
        "them; sound mode needs them for pca and standardise",
    )
    validation: int = Field(
        0,
        ge=0,
        description="hold back so many of the training rows and measure on them too: to watch a task and to choose "
        "hyper-parameters without the test rows",
    )

    @field_validator("labels")
    @classmethod
    def _distinct(cls, labels: list[str]) -> list[str]:
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"labels must differ from each other; {', '.join(twice)} stands twice")
        return labels

    @model_validator(mode="before")
    @classmethod
    def _count_columns(cls, values: Any) -> Any:
        if isinstance(values, dict) and "features" not in values and isinstance(values.get("columns"), list):
            words = values.get("words", {})
            known = words if isinstance(words, dict) and all(isinstance(some, list) for some in words.values()) else {}
            return values | {"features": width_of(map(str, values["columns"]), known)}
        return values

    @field_validator("words", mode="before")
    @classmethod
    def _listed(cls, words: Any) -> Any:
        if isinstance(words, str):
            raise ValueError(
                f'"{words}" is read from the folder of a task file, and there is none here: give the table itself'
            )
        return words

    @field_validator("words")
    @classmethod
    def _at_least_two(cls, words: dict[str, list[str]]) -> dict[str, list[str]]:
        for name, some in words.items():
            if len(some) < 2 or len(set(some)) < len(some):
                raise ValueError(f"{name}: a column of words has two or more, all different, not {some}")
            if any(word != word.strip() for word in some):
                raise ValueError(f"{name}: spaces around words do not count: leave them out")
        return words

    @field_validator("columns")
    @classmethod
    def _names(cls, columns: list[str]) -> list[str]:
        for name in columns:
            if not name or name != name.strip() or not name.isprintable():
                raise ValueError(f"{name!r} cannot stand in a header: a name is printable and has no spaces around it")
        twice = sorted(name for name, count in Counter(columns).items() if count > 1)
        if twice:
            raise ValueError(f"columns must differ from each other; {', '.join(twice)} stands twice")
        return columns

    @model_validator(mode="after")
    def _fits(self) -> DataSettings:
        if not self.features:
            raise ValueError('say what a row is: columns = ["age", "steps"], or features = 2 where they have no names')
        if not self.labels and self.target is None:
            raise ValueError(
                'say what is predicted: labels = ["no", "yes"], or for a number '
                'target = { name = "temperature", low = 5.0, high = 35.0 }'
            )
        if self.labels and self.target is not None:
            raise ValueError("a task predicts labels or a number: give labels or target, not both")
        if self.target is not None and self.target.name in self.columns:
            raise ValueError(
                f'the target "{self.target.name}" is one of the columns: it would be predicted from itself, so take '
                "it out of them"
            )
        for name in self.words:
            if name not in self.columns:
                raise ValueError(f'words: no column is called "{name}"; {nearest(name, self.columns)}')
        if self.columns and (width := width_of(self.columns, self.words)) != self.features:
            made = f"{len(self.columns)} columns have names" + (f" and make {width} numbers" if self.words else "")
            raise ValueError(f"features = {self.features}, but {made}: leave features out")
        for name in sorted(set(self.units) - set(self.columns)):
            raise ValueError(f'units: no column is called "{name}"; {nearest(name, self.columns)}')
        if self.target is not None and self.id == self.target.name:
            raise ValueError(f'the id and the target cannot both be "{self.id}"')
        if self.sensor is not None and (self.features != self.sensor.features or not self.labels or self.id):
            raise ValueError(
                f'sensor = {{ kind = "{self.sensor.kind}" }} makes rows of {self.sensor.features} numbers and asks '
                f"for a label: give features = {self.sensor.features} and labels, and no id"
            )
        if self.id in self.columns:
            raise ValueError(f'the id "{self.id}" is one of the columns: nothing is learnt from an id, so take it out')
        return self

    @model_validator(mode="after")
    def _has_rows_of_its_own(self) -> DataSettings:
        if self.file is not None and self.dataset is not None:
            raise ValueError(
                "rows come from a named dataset or from a file of your own: give dataset or file, not both"
            )
        if self.test is not None and self.split is not None:
            raise ValueError("test and split both say which rows to test on: give one of them")
        if isinstance(self.test, float) and not 0 < self.test < 1:
            raise ValueError(f"test = {self.test:g} is no share of the rows: give one between 0 and 1, or a file")
        if self.label_column != DEFAULT_COLUMN and self.label_column in self.columns:
            raise ValueError(
                f'label-column = "{self.label_column}" is one of the columns: it would be predicted from itself, so '
                "take it out of them"
            )
        if self.owner is not None and self.owner in (*self.columns, self.column_of_targets):
            raise ValueError(f'the owner "{self.owner}" is learnt from or predicted: it stands in a column of its own')
        return self

    @property
    def column_of_targets(self) -> str:
        """The column of a file that holds the targets."""
        return self.contract.column_of_targets()

    @property
    def contract(self) -> Contract:
        """What a row must look like, on a device and in a simulation."""
        return Contract(
            features=self.features,
            target=self.predicted,
            columns=tuple(self.columns),
            described=self.described,
            id=self.id,
            refuses_outside=self.target is not None and self.target.outside == "refuse",
            label_column=self.label_column,
            words=tuple((name, tuple(words)) for name, words in self.words.items()),
            leaves_out=self.missing == "leave-out",
        )

    @property
    def predicted(self) -> Target:
        """What a row is mapped to, from `labels` or `target`."""
        return Labels(names=tuple(self.labels)) if self.target is None else self.target.build()

    @property
    def described(self) -> tuple[str, ...]:
        """The columns, each with its unit where one is given, or how many words it may hold."""
        more = {name: f"one of {len(words)} words" for name, words in self.words.items()} | self.units
        return tuple(f"{name} ({more[name]})" if name in more else name for name in self.columns)

    @property
    def row_in_words(self) -> str:
        """What an owner's row must have."""
        numbers = ", ".join(self.described) or f"{self.features} number{'s' * (self.features > 1)}"
        return numbers + (f"; {self.id} tells samples apart" if self.id else "")
