"""Targets: what a row is to be mapped to, a label or a number.

    Labels   class numbers, int32; the model says which of several names fits
    Number   a number between two public bounds; the model sees it as -1 (low) to 1 (high), float32

Everybody else asks the target instead of asking which kind it is. Rows come in through `parse` and `encode`; a device
brings what it is about to use into range with `clean`, since a proof must hold whatever rows say; statistics are made
by `wrong` and `spread`; results are measured by `measures` and shown by `decode`.

Both kinds are counted alike: a row is wrong (1) or not (0), and it falls into one of a few bins. A number is *wrong*
with the probability of its relative error |prediction - target| / (high - low), by a coin. So the count of errors is a
whole number to which one row adds at most 1, and its mean is the mean absolute error as a share of the range: bound,
noise and privacy cost of counts are those of labels.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.ops import Array, Coins, Ops
from crowdml.core.records import record
from crowdml.core.registry import nearest

BINS = 10
"""Bins of a number where nothing else is said."""


def one_hot(numbers: Array, count: int, ops: Ops) -> Array:
    """Write numbers below `count` as columns with a single one, by comparison (a gather is slower in compiled code)."""
    return (ops.xp.arange(count)[:, None] == numbers).astype(ops.xp.float32)


def _is_whole(name: str) -> bool:
    """Tell whether a text is a whole number, as one is written."""
    try:
        return str(int(name)) == name
    except ValueError:
        return False


@record
class Labels:
    """One of several names. The encoded target is the number of the name.

    >>> sizes = Labels(names=("small", "large"))
    >>> sizes.parse("large"), sizes.encode([0, 1, 1]).tolist(), sizes.decode([1, 0]).tolist()
    (1, [0, 1, 1], ['large', 'small'])

    Attributes:
        names: The labels, in the order of their numbers.
    """

    dtype: ClassVar[type[np.int32]] = np.int32
    has_accuracy: ClassVar[bool] = True
    noun: ClassVar[str] = "label"
    """What a row's target is called where there is one for each row."""

    column: ClassVar[str] = "label"
    """Name of the column of a file that holds targets."""

    error_in_words: ClassVar[str] = ""
    """What an error of 0.1 means; empty where that is clear."""

    names: tuple[str, ...]

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels; a number has none."""
        return self.names

    @property
    def bins(self) -> int:
        """Number of bins in which targets are counted: one for each label."""
        return len(self.names)

    @property
    def bin_names(self) -> tuple[str, ...]:
        """What each bin holds, in words."""
        return self.names

    @property
    def described(self) -> str:
        """What is predicted, in words for an owner."""
        return "one of: " + ", ".join(self.names)

    @property
    def counted(self) -> dict[str, str]:
        """What counts of errors and of the spread say, in words for an owner."""
        return {"errors": "how many of them the model got wrong", "spread": "how often each label occurs"}

    def error_of(self, share: float) -> str:
        """Write a mean error for a reader: the share of rows that are wrong."""
        return f"{share:.2f}"

    @property
    def metadata(self) -> dict[str, str]:
        """What a file with a model says of its target."""
        return {"labels": json.dumps(self.names)}

    @property
    def are_numbers(self) -> bool:
        """Whether all names are whole numbers: then a whole number is a name, as it is in a file of text."""
        return all(_is_whole(name) for name in self.names)

    def parse(self, value: Any, where: str = "") -> int:
        """Read one label as an owner gives it: a text is its name, a whole number is its number.

        Where all names are whole numbers, a whole number is one of them, whatever it is read from:

        >>> Labels(names=("1", "2", "3")).parse(1), Labels(names=("1", "2", "3")).parse("1")
        (0, 0)

        Args:
            value: Text from a file, or a number from an array.
            where: File and line, for the message.
        """
        if isinstance(value, bool | np.bool_) and str(bool(value)) in self.names:
            value = str(bool(value))
        if isinstance(value, str):
            name = value if value in self.names else value.strip()
            if name in self.names:
                return self.names.index(name)
            raise BadInput(f"{value!r} is not a label", where=where, hint=nearest(value, list(self.names)))
        whole = isinstance(value, int | np.integer)
        whole |= isinstance(value, float | np.floating) and float(value).is_integer()
        if whole and not isinstance(value, bool | np.bool_):
            if self.are_numbers:
                return self.parse(str(int(value)), where)
            if 0 <= value < self.bins:
                return int(value)
            raise BadInput(f"label {int(value)} is not a number from 0 to {self.bins - 1}", where=where)
        raise BadInput(f"{value!r} is not a label", where=where, hint="a name, or a whole number from 0")

    def parse_all(self, values: Sequence[Any], where: Callable[[int], str]) -> npt.NDArray[np.int32]:
        """Read labels one after the other, each different one once; `where(n)` names the n-th in messages."""
        known: dict[Any, int] = {}
        found = np.empty(len(values), np.int32)
        for at, value in enumerate(values):
            key = (type(value), value) if isinstance(value, str | int | float) else at  # true equals 1, but is none
            if key not in known:
                known[key] = self.parse(value, where(at))
            found[at] = known[key]
        return found

    def outside(self, values: Iterable[Any]) -> int:
        """Count values beyond the bounds: a label has none."""
        return 0

    def encode(self, values: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Turn class numbers of any integer type into targets; numbers that are no class are a `ValueError`."""
        with np.errstate(invalid="ignore"):  # what is no number is found by comparison
            encoded = np.asarray(values).astype(np.int32)
        if (problem := self.problem(encoded)) or not np.array_equal(encoded, values):
            raise ValueError(problem or "labels must be whole numbers")
        return encoded

    def decode(self, encoded: Array) -> npt.NDArray[Any]:
        """Return the names of class numbers."""
        names: npt.NDArray[Any] = np.array(self.names)[np.asarray(encoded)]
        return names

    def problem(self, encoded: npt.NDArray[Any]) -> str:
        """Say what is wrong with targets that should be encoded; empty where nothing is."""
        if encoded.size and not (encoded.min() >= 0 and encoded.max() < self.bins):
            return f"labels must lie in 0..{self.bins - 1}"
        return ""

    def clean(self, targets: Array, ops: Ops) -> Array:
        """Bring targets into range, whatever they are: a proof needs that."""
        return ops.xp.clip(targets, 0, self.bins - 1)

    def wrong(self, predicted: Array, targets: Array, coins: Coins, ops: Ops) -> Array:
        """Tell which predictions are another label than the target; no coin is used."""
        return predicted != targets

    def signed(self, targets: Array, ops: Ops) -> Array:
        """Return -1 or 1 for the first and the second of two labels, whatever the targets are."""
        return 2 * ops.xp.clip(targets, 0, 1).astype(ops.xp.float32) - 1

    def flipped(self, targets: Array) -> Array:
        """Return what a device learns from that calls the first label the last, and so on."""
        return self.bins - 1 - targets

    def guessing(self, targets: npt.NDArray[Any]) -> float:
        """Return the error of whoever always says the most frequent label."""
        return 1.0 - float(np.bincount(targets).max(initial=0)) / max(len(targets), 1)

    def bin_of(self, targets: Array, ops: Ops) -> Array:
        """Return the bin of each row: the class number itself."""
        return targets

    def spread(self, targets: Array, ops: Ops) -> Array:
        """Return a column for each row, with a single 1 in its bin: shape (bins, size), float32."""
        return one_hot(targets, self.bins, ops)

    def measures(self, predicted: Array, targets: Array, ops: Ops, of: str = "test") -> dict[str, Array]:
        """Measure predictions: `test_error` is the share that is wrong.

        Args:
            predicted: Class numbers as the model predicts them, shape (size,).
            targets: What they should be.
            ops: Array operations.
            of: Which rows these are: `test` or `validation`.
        """
        return {f"{of}_error": ops.xp.mean(predicted != targets)}


@record
class Number:
    """A number between two bounds that everybody knows. The encoded target is -1 at `low` and 1 at `high`.

    Values beyond a bound count as that bound. The bounds belong to the task: they are never learnt from rows, because
    a range found in rows would tell of its most unusual owner.

    >>> heat = Number(low=10.0, high=30.0, name="temperature", unit="°C")
    >>> heat.encode([10.0, 25.0, 99.0]).tolist(), heat.decode(np.array([0.5])).tolist(), heat.described
    ([-1.0, 0.5, 1.0], [25.0], 'temperature in °C, from 10 to 30')

    Attributes:
        low: Smallest value.
        high: Largest value.
        bins: Bins of equal width in which targets are counted.
        name: What the number is, in a word; files have a column of this name.
        unit: Its unit, for whoever reads results.
    """

    dtype: ClassVar[type[np.float32]] = np.float32
    label_names: ClassVar[tuple[str, ...]] = ()
    has_accuracy: ClassVar[bool] = False
    noun: ClassVar[str] = "target"
    """What a row's target is called where there is one for each row."""

    low: float
    high: float
    bins: int = BINS
    name: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        """Refuse bounds between which there is nothing."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"a number lies between two finite bounds, low below high, not {self.low} and {self.high}")
        if not self.half_range > 0 or not math.isfinite(self.half_range):
            raise ValueError(f"{self.low} and {self.high} are too close to each other")
        if self.bins < 2:
            raise ValueError(f"a number is counted in at least 2 bins, not {self.bins}")

    @property
    def middle(self) -> float:
        """The value that is encoded as 0."""
        return self.low / 2 + self.high / 2

    @property
    def half_range(self) -> float:
        """How many units of the target one encoded unit is."""
        return self.high / 2 - self.low / 2

    @property
    def bin_names(self) -> tuple[str, ...]:
        """What each bin holds, in words, such as `10 to 12`."""
        edges = [f"{edge:.6g}" for edge in np.linspace(self.low, self.high, self.bins + 1)]
        return tuple(f"{begin} to {end}" for begin, end in itertools.pairwise(edges))

    @property
    def described(self) -> str:
        """What is predicted, in words for an owner."""
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.name or 'a number'}{unit}, from {self.low:g} to {self.high:g}"

    @property
    def counted(self) -> dict[str, str]:
        """What counts of errors and of the spread say, in words for an owner."""
        return {
            "errors": "how many of them a coin called wrong, as likely as the model was far off",
            "spread": f"how the targets are spread: how many fall into each of {self.bins} bins",
        }

    @property
    def error_in_words(self) -> str:
        """What an error of 0.1 means; empty where that is clear."""
        return f"a mean distance as a share of the range: 0.1 is {self.error_of(0.1)}"

    def error_of(self, share: float) -> str:
        """Write a mean error for a reader: a share of the range, in the unit."""
        return f"{2 * self.half_range * share:.3g}" + (f" {self.unit}" if self.unit else "")

    @property
    def column(self) -> str:
        """Name of the column of a file that holds targets."""
        return self.name or "target"

    @property
    def metadata(self) -> dict[str, str]:
        """What a file with a model says of its target."""
        return {"target": json.dumps({"name": self.name, "unit": self.unit, "low": self.low, "high": self.high})}

    def parse(self, value: Any, where: str = "") -> float:
        """Read one number as an owner gives it, and encode it.

        Args:
            value: Text from a file, or a number from an array.
            where: File and line, for the message.
        """
        hint = f"{self.described}; values beyond count as {self.low:g} or {self.high:g}"
        try:
            number = math.nan if isinstance(value, bool | np.bool_) else float(value)
        except OverflowError:  # a whole number has as many digits as it likes
            number = math.inf
        except (TypeError, ValueError):
            raise BadInput(f"{value!r} is not a number", where=where, hint=hint) from None
        if not math.isfinite(number):
            raise BadInput(f"{value!r} is not a finite number", where=where, hint=hint)
        return float(self.encode([number])[0])

    def parse_all(self, values: Sequence[Any], where: Callable[[int], str]) -> npt.NDArray[np.float32]:
        """Read numbers as `parse` does, all at once; `where(n)` names the n-th in messages."""
        try:
            given = np.array([math.nan if isinstance(value, bool) else float(value) for value in values], np.float64)
        except (TypeError, ValueError, OverflowError):
            given = np.full(len(values), math.nan)
        if not np.isfinite(given).all():
            return np.array([self.parse(value, where(at)) for at, value in enumerate(values)], np.float32)
        return self.encode(given)

    def outside(self, values: Iterable[Any]) -> int:
        """Count values, as `parse` takes them, beyond the bounds: many mean another unit, or a wrong column."""
        given = np.array([float(value) for value in values], np.float64)
        rounding = 2e-6 * self.half_range
        return int(np.count_nonzero((given < self.low - rounding) | (given > self.high + rounding)))

    def encode(self, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Turn numbers in the target's unit into targets between -1 and 1; infinity and NaN are a `ValueError`."""
        given = np.asarray(values, np.float64)
        if not np.isfinite(given).all():
            raise ValueError("targets must be finite numbers")
        scaled = (np.clip(given, self.low, self.high) - self.middle) / self.half_range
        return np.clip(scaled, -1, 1).astype(np.float32)

    def decode(self, encoded: Array) -> npt.NDArray[Any]:
        """Turn targets, or a model's predictions, into numbers in the target's unit; never beyond the bounds."""
        return np.clip(np.asarray(encoded, np.float64), -1, 1) * self.half_range + self.middle

    def problem(self, encoded: npt.NDArray[Any]) -> str:
        """Say what is wrong with targets that should be encoded; empty where nothing is."""
        if encoded.dtype.kind != "f":
            return f"targets of a number are encoded as floats from -1 to 1, not as {encoded.dtype}"
        if encoded.size and not (encoded.min() >= -1 and encoded.max() <= 1):  # false for NaN
            return "encoded targets must lie from -1 to 1"
        return ""

    def clean(self, targets: Array, ops: Ops) -> Array:
        """Bring targets into range, whatever they are, and NaN to the middle: a proof needs that."""
        xp = ops.xp
        return xp.clip(xp.where(targets == targets, targets, xp.zeros_like(targets)), -1, 1)

    def wrong(self, predicted: Array, targets: Array, coins: Coins, ops: Ops) -> Array:
        """Call each row wrong with the probability of its relative error; a prediction that is NaN is wrong."""
        share = ops.xp.abs(ops.xp.clip(predicted, -1, 1) - targets) / 2
        return ~(coins.uniform("wrong", targets.shape) >= share)

    def signed(self, targets: Array, ops: Ops) -> Array:
        """Return numbers from -1 to 1, whatever the targets are."""
        return self.clean(targets, ops).astype(ops.xp.float32)

    def flipped(self, targets: Array) -> Array:
        """Return what a device learns from that takes low for high."""
        return -targets

    def guessing(self, targets: npt.NDArray[Any]) -> float:
        """Return the error of whoever always says the middle one of all numbers."""
        return float(np.mean(np.abs(targets - np.median(targets)))) / 2 if len(targets) else 1.0

    def bin_of(self, targets: Array, ops: Ops) -> Array:
        """Return the bin of each row, int32: bins have equal width; whatever a target is, it falls into one."""
        xp = ops.xp
        return xp.clip(xp.floor((self.clean(targets, ops) + 1) * (self.bins / 2)), 0, self.bins - 1).astype(xp.int32)

    def spread(self, targets: Array, ops: Ops) -> Array:
        """Return a column for each row, with a single 1 in its bin: shape (bins, size), float32."""
        return one_hot(self.bin_of(targets, ops), self.bins, ops)

    def measures(self, predicted: Array, targets: Array, ops: Ops, of: str = "test") -> dict[str, Array]:
        """Measure predictions, in the target's own unit where there is one.

        The primary measure is `test_error`, the mean absolute error as a share of the range: from 0 to 1 like that of
        labels, and what the counts of devices estimate. Beside it stand `mae` and `rmse`, the mean absolute and the
        root mean square error in the target's unit, and `r2`, the share of the variance that is explained.

        Args:
            predicted: Encoded numbers as the model predicts them, shape (size,).
            targets: What they should be.
            ops: Array operations.
            of: Which rows these are: `test`, or another word that then stands before every name.
        """
        xp = ops.xp
        apart = xp.clip(predicted, -1, 1) - targets
        absolute, squares = xp.mean(xp.abs(apart)), xp.mean(apart * apart)
        centred = targets - xp.mean(targets)
        variance = xp.mean(centred * centred)
        # Where all targets are the same, 1 for who predicts them and 0 for who does not, as elsewhere.
        explained = 1 - squares / xp.where(variance > 0, variance, xp.ones_like(variance))
        r2 = xp.where(variance > 0, explained, (squares == 0).astype(squares.dtype))
        prefix = "" if of == "test" else f"{of}_"
        return {
            f"{of}_error": absolute / 2,
            f"{prefix}mae": absolute * self.half_range,
            f"{prefix}rmse": xp.sqrt(squares) * self.half_range,
            f"{prefix}r2": r2,
        }


Target: TypeAlias = Labels | Number
