"""Activity: is the owner of a phone still, on foot or in a vehicle? Accelerometer recordings of real people.

`activity` is the US-TransportationMode recording (TMD), `activity-hapt` the HAPT one, which has no vehicles. Their
classes are never mixed: phone and pocket would give the class away. Each is read from a compact archive, or from the
folders of text files that its authors publish:

HAPT (UCI): `RawData/labels.txt` and `RawData/acc_expEE_userUU.txt`, 50 lines of three numbers a second, in g.
TMD: `raw_data/U*/sensorfile_U*_LABEL_TIME.csv`, lines of milliseconds, sensor name and values.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.records import record
from crowdml.core.targets import Labels
from crowdml.data.dataset import Dataset, Ints
from crowdml.data.loaders.activity_windows import Recording, keep_changes, keep_slots, split_sessions, windows_of
from crowdml.data.loaders.reading import DAMAGED, damaged, read_npz, read_plain_or_gz

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
        raise damaged(path, "its columns differ in length")
    if label.min() < 0 or label.max() >= len(classes) or not np.isfinite(recording.acceleration).all():
        raise damaged(path, "holds a label or a value that cannot be")
    labels = np.array(list(classes.values()), np.int32)[label]
    keep = labels >= 0
    kept = Recording(
        seconds=recording.seconds[keep], acceleration=recording.acceleration[keep], session=recording.session[keep]
    )
    return Labelled(recording=kept, labels=labels[keep], owners=user[keep].astype(np.int32))


def _checked_hapt(
    path: Path, rate_hz: float, acceleration: npt.NDArray[Any], experiment: Ints, user: Ints, label: Ints
) -> Labelled:
    """As `checked`; a session of HAPT is a run of one activity in one experiment."""
    seconds = np.arange(len(acceleration)) / rate_hz
    recording = Recording(seconds=seconds, acceleration=acceleration, session=runs(experiment, label))
    return checked(path, recording, label, user, HAPT_CLASSES)


def read_hapt(folder: Path) -> Labelled:
    """Read the `RawData` folder of HAPT."""
    raw = folder / "RawData"
    spans = _numbers(raw / "labels.txt", 5).astype(np.int64)
    parts = [_hapt_file(path, spans) for path in sorted(raw.glob("acc_exp*_user*.txt"))]
    if not parts:
        raise damaged(raw, "holds no file acc_exp*_user*.txt")
    return _checked_hapt(raw, HAPT_RATE, *(np.concatenate(column) for column in zip(*parts, strict=True)))


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
        raise damaged(path, f"is not a table of {columns} columns: {fault}") from None


def read_tmd(folder: Path) -> Labelled:
    """Read the `raw_data` folder of TMD, one session per file."""
    raw = folder / "raw_data"
    paths = sorted(raw.glob("U*/sensorfile_U*_*_*.csv"), key=lambda path: path.stem.rsplit("_", 1)[-1])
    parts = [part for number, path in enumerate(paths) for part in _tmd_file(path, number)]
    if not parts:
        raise damaged(raw, "holds no file U*/sensorfile_U*_*_*.csv")
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
        raise damaged(path, f"has a line that is not data: {fault}") from None
    size = len(table)
    columns = (np.full(size, value, np.int32) for value in (number, owner, list(TMD_CLASSES).index(name)))
    return [(table[:, 0] / 1000, table[:, 1:4].astype(np.float32), *columns)]


LABELS = ("Still", "On Foot", "In Vehicle")
LIMIT = 64 << 20
AT_LEAST = 8
SLOT_S = 30.0
HAPT_FIRST_TEST_USER = 22
TMD_NOTE = (
    f"TMD accelerometer, 2 to 18 samples a second, interpolated to 20; windows of 3.2 s with at least {AT_LEAST} "
    "samples. Of each owner's sessions of a class every third is tested on, so no session is in both halves. The "
    "rate differs by owner and class, and a model may learn the rate instead of the motion."
)
HAPT_NOTE = "HAPT accelerometer, no vehicles: nearly trivial. Tested on users 22 to 30, who are not in training."


def load_tmd(folder: Path) -> Dataset:
    """Load the three-class activity rows, owners included."""
    return _load_tmd(folder, "activity", every_s=None)


def load_tmd_slots(folder: Path) -> Dataset:
    """Load one row per half minute, as a phone that samples now and then would make them (Crowd-ML 2015, V.B)."""
    return _load_tmd(folder, "activity-slots", every_s=SLOT_S)


def load_tmd_changes(folder: Path) -> Dataset:
    """Load a row of training only when its owner's label has changed, as the paper collects; test rows by slots."""
    slots = _load_tmd(folder, "activity-changes", every_s=SLOT_S)
    assert slots.train_owners is not None  # noqa: S101  recordings say whose they are
    keep = keep_changes(np.asarray(slots.train_targets, np.int32), slots.train_owners)
    return replace(
        slots,
        train_rows=slots.train_rows[keep],
        train_targets=slots.train_targets[keep],
        train_owners=slots.train_owners[keep],
    )


def _load_tmd(folder: Path, name: str, every_s: float | None) -> Dataset:
    archive = folder / "activity_tmd.npz"
    found = _tmd_archive(archive) if archive.is_file() else read_tmd(folder)
    windows = windows_of(found.recording)
    keep = np.flatnonzero(windows.samples >= AT_LEAST)
    if every_s is not None:
        keep = keep[keep_slots(windows.start_s[keep], windows.session[keep], every_s)]
    session = windows.session[keep]
    labels, owners = _by_session(found, session)
    return _split(name, windows.rows[keep], labels, owners, split_sessions(session, labels, owners), TMD_NOTE)


def load_hapt(folder: Path) -> Dataset:
    """Load the two-class rows (Still, On Foot) of the HAPT recording, owners included."""
    archive = folder / "activity_hapt.npz"
    found = _hapt_archive(archive) if archive.is_file() else read_hapt(folder)
    windows = windows_of(found.recording)
    labels, owners = _by_session(found, windows.session)
    return _split("activity-hapt", windows.rows, labels, owners, owners >= HAPT_FIRST_TEST_USER, HAPT_NOTE)


def _by_session(found: Labelled, session: Ints) -> tuple[Ints, Ints]:
    """Look up label and owner of each window through its session."""
    names, first = np.unique(found.recording.session, return_index=True)
    place = first[np.searchsorted(names, session)]
    return found.labels[place], found.owners[place]


def _split(name: str, rows: np.ndarray, labels: Ints, owners: Ints, test: np.ndarray, note: str) -> Dataset:
    if test.all() or not test.any():
        raise BadInput(f"{name}: the recording leaves no rows to {'train' if test.all() else 'test'} on", hint=DAMAGED)
    train, test_half = ((rows[half], labels[half]) for half in (~test, test))
    names = LABELS[:2] if name == "activity-hapt" else LABELS
    return Dataset.of_halves(name, train, test_half, Labels(names=names), owners[~test], note)


def _tmd_archive(path: Path) -> Labelled:
    axes = {"t_ms": 1, "acc": 2, "session": 1, "user": 1, "label": 1, "label_names": 1}
    found = read_npz(path, axes, LIMIT)
    recording = Recording(
        seconds=found["t_ms"] / 1000.0, acceleration=found["acc"], session=found["session"].astype(np.int32)
    )
    _same_names(path, found["label_names"].tolist(), TMD_CLASSES)
    return checked(path, recording, found["label"], found["user"], TMD_CLASSES)


def _hapt_archive(path: Path) -> Labelled:
    axes = {"acc_720": 2, "experiment": 1, "user": 1, "label": 1, "label_names": 1, "rate_hz": 0}
    found = read_npz(path, axes, LIMIT)
    _same_names(path, found["label_names"].tolist(), HAPT_CLASSES)
    metres = found["acc_720"] * np.float32(GRAVITY / 720)
    whole = (found[name].astype(np.int32) for name in ("experiment", "user", "label"))
    return _checked_hapt(path, float(found["rate_hz"]), metres, *whole)


def _same_names(path: Path, names: list[str], classes: dict[str, int]) -> None:
    if names != list(classes):
        raise damaged(path, f"lists the activities {names} instead of {list(classes)}")
