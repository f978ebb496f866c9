"""The activity recordings in the form in which their authors publish them: folders of text files.

HAPT (UCI): `RawData/labels.txt` and `RawData/acc_expEE_userUU.txt`, 50 lines of three numbers a second, in g.
TMD: `raw_data/U*/sensorfile_U*_LABEL_TIME.csv`, lines of milliseconds, sensor name and values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.records import record
from crowdml.data.activity_pipeline import Recording
from crowdml.data.dataset import Ints
from crowdml.data.loaders.reading import DAMAGED, read_plain_or_gz

GRAVITY = 9.80665
FILE_LIMIT = 64 << 20
HAPT_RATE = 50.0
TMD_CLASSES = {"Still": 0, "Walking": 1, "Car": 2, "Bus": 2, "Train": 2}
HAPT_CLASSES = {
    "UNLABELLED": -1,
    "WALKING": 1,
    "WALKING_UPSTAIRS": 1,
    "WALKING_DOWNSTAIRS": 1,
    "SITTING": 0,
    "STANDING": 0,
    "LAYING": 0,
    "STAND_TO_SIT": -1,
    "SIT_TO_STAND": -1,
    "SIT_TO_LIE": -1,
    "LIE_TO_SIT": -1,
    "STAND_TO_LIE": -1,
    "LIE_TO_STAND": -1,
}
"""Activities in the order of their numbers; -1 for samples that are not used."""


@record
class Labelled:
    """A recording with the class and the owner of each sample."""

    recording: Recording
    labels: Ints
    owners: Ints


def runs(*columns: Ints) -> Ints:
    """Number the runs in which no column changes.

    >>> runs(np.array([1, 1, 1]), np.array([0, 4, 4])).tolist()
    [0, 1, 1]
    """
    changed = np.zeros(len(columns[0]), bool)
    for column in columns:
        if column.shape != changed.shape:
            raise BadInput(f"columns of a recording differ in shape: {column.shape} and {changed.shape}", hint=DAMAGED)
        changed[1:] |= np.diff(column) != 0
    return np.cumsum(changed).astype(np.int32)


def checked(
    path: Path, recording: Recording, label: npt.NDArray[Any], user: npt.NDArray[Any], classes: dict[str, int]
) -> Labelled:
    """Check that all columns fit together, and drop the samples without a class.

    Args:
        path: Where the recording comes from, for messages.
        recording: The samples.
        label: The number of each sample's activity.
        user: Who recorded each sample.
        classes: The class of each activity, in the order of their numbers.
    """
    size = len(recording.seconds)
    columns = (recording.acceleration, recording.session, label, user)
    if not size or any(len(column) != size for column in columns) or recording.acceleration.shape[1] != 3:
        raise BadInput("its columns differ in length", where=str(path), hint=DAMAGED)
    if label.min() < 0 or label.max() >= len(classes) or not np.isfinite(recording.acceleration).all():
        raise BadInput("holds a label or a value that cannot be", where=str(path), hint=DAMAGED)
    labels = np.array(list(classes.values()), np.int32)[label]
    keep = labels >= 0
    return Labelled(
        recording=Recording(
            seconds=recording.seconds[keep],
            acceleration=recording.acceleration[keep],
            session=recording.session[keep],
        ),
        labels=labels[keep],
        owners=user[keep].astype(np.int32),
    )


def read_hapt(folder: Path) -> Labelled:
    """Read the `RawData` folder of HAPT."""
    raw = folder / "RawData"
    spans = _numbers(raw / "labels.txt", 5).astype(np.int64)
    parts = [_hapt_file(path, spans) for path in sorted(raw.glob("acc_exp*_user*.txt"))]
    if not parts:
        raise BadInput("holds no file acc_exp*_user*.txt", where=str(raw), hint=DAMAGED)
    acceleration, experiment, user, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    seconds = np.arange(len(label)) / HAPT_RATE
    recording = Recording(seconds=seconds, acceleration=acceleration, session=runs(experiment, label))
    return checked(raw, recording, label, user, HAPT_CLASSES)


def _hapt_file(path: Path, spans: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float32], Ints, Ints, Ints]:
    experiment, user = (int("".join(filter(str.isdigit, part)) or 0) for part in path.stem.split("_")[1:3])
    values = (_numbers(path, 3) * GRAVITY).astype(np.float32)
    label = np.zeros(len(values), np.int32)
    for _, _, activity, first, last in spans[spans[:, 0] == experiment]:
        label[max(first - 1, 0) : last] = activity
    size = len(values)
    return values, np.full(size, experiment, np.int32), np.full(size, user, np.int32), label


def _numbers(path: Path, columns: int) -> npt.NDArray[np.float64]:
    text = read_plain_or_gz(path, FILE_LIMIT).decode("ascii", errors="replace")
    try:
        return np.loadtxt(text.splitlines(), ndmin=2, usecols=range(columns))
    except ValueError as fault:
        raise BadInput(f"is not a table of {columns} columns: {fault}", where=str(path), hint=DAMAGED) from None


def read_tmd(folder: Path) -> Labelled:
    """Read the `raw_data` folder of TMD, one session per file."""
    raw = folder / "raw_data"
    paths = sorted(raw.glob("U*/sensorfile_U*_*_*.csv"), key=lambda path: path.stem.rsplit("_", 1)[-1])
    parts = [part for number, path in enumerate(paths) for part in _tmd_file(path, number)]
    if not parts:
        raise BadInput("holds no file U*/sensorfile_U*_*_*.csv", where=str(raw), hint=DAMAGED)
    seconds, acceleration, session, user, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    recording = Recording(seconds=seconds, acceleration=acceleration, session=session)
    return checked(raw, recording, label, user, TMD_CLASSES)


def _tmd_file(path: Path, number: int) -> list[tuple[npt.NDArray[Any], ...]]:
    _, user, name, _ = path.stem.split("_", 3)
    if name not in TMD_CLASSES:
        return []
    text = read_plain_or_gz(path, FILE_LIMIT).decode("ascii", errors="replace")
    words = [line.split(",") for line in text.splitlines() if ",android.sensor.accelerometer," in line]
    # A phone that was switched off in mid-line leaves a short line; it says nothing.
    whole = [[line[0], *line[2:5]] for line in words if len(line) >= 5 and all(line[2:5])]
    if not whole:
        return []
    try:
        table = np.array(whole, dtype=np.float64)
        table, owner = table[np.argsort(table[:, 0], kind="stable")], int(user[1:])
    except ValueError as fault:
        raise BadInput(f"has a line that is not data: {fault}", where=str(path), hint=DAMAGED) from None
    size = len(table)
    columns = (np.full(size, value, np.int32) for value in (number, owner, list(TMD_CLASSES).index(name)))
    return [(table[:, 0] / 1000, table[:, 1:4].astype(np.float32), *columns)]
