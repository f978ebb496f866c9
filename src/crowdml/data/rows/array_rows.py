"""Arrays and data frames as people have them: rows as float32, targets as a model sees them, owners by number.

Whoever has arrays need not say what their targets mean: words are labels, whole numbers are class numbers or values,
and other numbers are values. `translate` makes what a task says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Labels, Number, Target, record
from crowdml.core.registry import nearest
from crowdml.data.held_out import Ints, OwnerNumbers
from crowdml.data.rows.row_columns import (
    FILL,
    Floats,
    column_values,
    frame_columns,
    frame_floats,
    is_frame,
    is_missing,
    require_finite,
    to_floats,
)

MOST_NUMBERS = 10_000
"""Whole numbers below this are class numbers, those that do not occur included; larger ones are names."""


@record
class Encoded:
    """Targets as a model sees them.

    Attributes:
        values: Class numbers, or numbers from -1 to 1.
        target: What they mean.
        outside: How many were beyond the bounds, and count as the nearer one.
    """

    values: npt.NDArray[Any]
    target: Target
    outside: int = 0


def read_rows(rows: Any, name: str = "rows") -> tuple[Floats, tuple[str, ...]]:
    """Return rows as float32, and the names of their columns where they have some."""
    if is_frame(rows):
        return frame_floats(rows, range(len(rows.columns)), name), tuple(frame_columns(rows))
    if np.ma.isMaskedArray(rows) and np.ma.is_masked(rows):
        at, column = (int(one) for one in np.argwhere(np.ma.getmaskarray(rows).reshape(len(rows), -1))[0])
        raise BadInput("a value is masked", where=_place(name, column)(at), hint=FILL)
    if hasattr(rows, "toarray"):
        raise BadInput(f"{name} are a sparse matrix", hint="a table of all numbers: rows.toarray()")
    try:
        given = np.asarray(rows)
    except ValueError:
        raise BadInput(
            f"{name} differ in length", hint="a row per example and a column per number: shape (rows, features)"
        ) from None
    if given.ndim != 2:
        raise BadInput(
            f"{name} have shape {given.shape}", hint="a row per example and a column per number: shape (rows, features)"
        )
    if given.dtype.kind not in "fiub":
        columns = [to_floats(given[:, at], _place(name, at)) for at in range(given.shape[1])]
        return np.stack(columns, axis=1) if columns else np.zeros(given.shape, np.float32), ()
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        found = given.astype(np.float32)
    require_finite(found, lambda at, column: _place(name, column)(at), given)
    return found, ()


def _place(name: str, column: int) -> Any:
    return lambda at: f"{name}, row {at + 1}, number {column + 1} of the row"


def read_targets(values: Any, labels: Sequence[str] = (), target: Target | None = None) -> Encoded:
    """Encode targets.

    Args:
        values: One for each row.
        labels: Names of the classes in the order of their numbers, where they are known.
        target: What they mean, where that is known.
    """
    if isinstance(labels, str) or len(set(labels)) < len(labels):
        raise BadInput(
            f"labels are names that differ from each other, not {labels!r}",
            where="labels",
            hint='such as ["no", "yes"]',
        )
    given = column_values(values) if hasattr(values, "dtype") else np.asarray(values)
    if given.ndim != 1:
        raise BadInput(f"targets have shape {given.shape}", hint="one for each row: shape (rows,)")
    known = Labels(names=tuple(labels)) if labels else target
    listed = given.tolist()
    if known is not None:
        encoded = known.parse_all(listed, lambda at: f"targets, row {at + 1}")
        return Encoded(values=encoded, target=known, outside=known.outside(listed))
    for at, value in enumerate(listed):
        if is_missing(value):
            raise BadInput(
                "a target is missing", where=f"targets, row {at + 1}", hint="fill it in, or leave the row out"
            )
    return _with_guessed_target(given, listed)


def _with_guessed_target(given: npt.NDArray[Any], listed: list[Any]) -> Encoded:
    """Encode what nobody has named: words and few whole numbers are labels, other numbers lie between the extremes."""
    if given.dtype.kind not in "fiub" and {type(value) for value in listed} <= {int, float}:
        given = np.asarray(listed)  # as frames hold numbers of which some might be missing, and categories
    if given.dtype.kind not in "fiub":
        return _named([str(value).strip() for value in listed])
    if given.dtype.kind == "b":
        return Encoded(values=given.astype(np.int32), target=Labels(names=("False", "True")))
    numbers = given.astype(np.float64)
    if not np.isfinite(numbers).all():
        at = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise BadInput(f"{listed[at]!r} is not a finite number", where=f"targets, row {at + 1}")
    if not np.array_equal(numbers, np.round(numbers)):
        spare = max(1e-3, 1e-3 * float(np.abs(numbers).max())) if numbers.min() == numbers.max() else 0.0
        between = Number(low=float(numbers.min()) - spare, high=float(numbers.max()) + spare)
        return Encoded(values=between.encode(numbers), target=between)
    if len(numbers) and numbers.min() >= 0 and numbers.max() < MOST_NUMBERS:
        count = max(2, int(numbers.max()) + 1)
        return Encoded(values=numbers.astype(np.int32), target=Labels(names=tuple(map(str, range(count)))))
    return _named([str(int(value)) for value in listed])


def _named(words: list[str]) -> Encoded:
    names = tuple(sorted(set(words)))
    number = {name: at for at, name in enumerate(names)}
    return Encoded(values=np.array([number[word] for word in words], np.int32), target=Labels(names=names))


def read_owners(owners: Any, count: int) -> Ints | None:
    """Number the owners of rows by their names; None where nobody says whose they are."""
    if owners is None:
        return None
    listed = (column_values(owners) if hasattr(owners, "dtype") else np.asarray(owners)).tolist()
    if not isinstance(listed, list) or len(listed) != count:
        raise BadInput(f"owners for {np.size(listed)} of {count} rows", where="owners", hint="one for each row")
    for at, owner in enumerate(listed):
        if is_missing(owner):
            raise BadInput(
                "the owner is missing", where=f"owners, row {at + 1}", hint="fill it in, or leave the row out"
            )
    numbers = OwnerNumbers()
    return numbers.by_name(numbers.of(str(owner).strip() for owner in listed))


def translate(values: npt.NDArray[Any], have: Target, want: Target, name: str) -> Encoded:
    """Make targets that mean one thing mean what a task says.

    Args:
        values: Encoded targets, all there are: labels that do not occur among them need no meaning.
        have: What they mean.
        want: What the task predicts.
        name: What the rows are called in messages.
    """
    if isinstance(have, Labels) and isinstance(want, Labels):
        return Encoded(values=_label_numbers(np.unique(values).tolist(), have, want, name)[values], target=want)
    if isinstance(want, Number):
        numbers = _numbers(have, name)[values] if isinstance(have, Labels) else have.decode(values)
        return Encoded(values=want.encode(numbers), target=want, outside=want.outside(numbers))
    raise BadInput(
        f"the targets of {name} are numbers with fractions, and the task has labels",
        where="data.labels",
        hint="give class numbers or names as targets; or target = { name = …, low = …, high = … } instead of labels",
    )


def _label_numbers(occurring: list[int], have: Labels, want: Labels, name: str) -> Ints:
    """Return the task's number for each label: by its name, or where labels are numbers and the task's are not, that.

    Args:
        occurring: Labels that there are rows of.
        have: Their names.
        want: The task's labels.
        name: What the rows are called in messages.
    """
    digits = have.names == tuple(map(str, range(have.bins)))
    unknown = [have.names[at] for at in occurring if have.names[at] not in want.names]
    by_name = np.array([want.names.index(label) if label in want.names else 0 for label in have.names], np.int32)
    numbered = digits and not want.are_numbers and max(occurring, default=0) < want.bins
    if not unknown and numbered and any(by_name[at] != at for at in occurring):
        raise BadInput(
            f"targets of {name} are the numbers 0 to {have.bins - 1}, which the task has as labels in another order",
            where="data.labels",
            hint="give labels in the order of their numbers, or targets as text",
        )
    if unknown and not numbered:
        raise BadInput(
            f'"{unknown[-1]}" is not a label of the task, and {name} has it',
            where="data.labels",
            hint=f"a number from 0 to {want.bins - 1}, or a name: {', '.join(want.names[:10])}"
            if digits and not want.are_numbers
            else nearest(unknown[-1], list(want.names)),
        )
    return np.arange(have.bins, dtype=np.int32) if unknown else by_name


def _numbers(have: Labels, name: str) -> npt.NDArray[np.float64]:
    """Return the numbers that labels stand for."""
    try:
        return np.array([float(label) for label in have.names])
    except ValueError:
        raise BadInput(
            f"the task predicts a number, and the targets of {name} are words: {', '.join(have.names[:3])}",
            where="data.target",
            hint='give labels = ["…", "…"] instead of target, or numbers as targets',
        ) from None
