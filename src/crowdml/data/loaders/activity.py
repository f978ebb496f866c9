"""Activity: is the owner of a phone still, on foot or in a vehicle? Accelerometer recordings of real people.

`activity` is the US-TransportationMode recording (TMD), `activity-hapt` the HAPT one, which has no vehicles. Their
classes are never mixed: phone and pocket would give the class away.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdml.core.errors import BadInput
from crowdml.data.activity_pipeline import Recording, keep_dense, keep_slots, split_sessions, windows_of
from crowdml.data.dataset import Dataset, Ints
from crowdml.data.loaders import activity_raw
from crowdml.data.loaders.activity_raw import GRAVITY, HAPT_CLASSES, TMD_CLASSES, Labelled
from crowdml.data.loaders.reading import DAMAGED, read_npz

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


def _load_tmd(folder: Path, name: str, every_s: float | None) -> Dataset:
    found = _tmd_archive(folder / "activity_tmd.npz") if _compact(folder, "tmd") else activity_raw.read_tmd(folder)
    windows = windows_of(found.recording)
    keep = np.flatnonzero(keep_dense(windows, AT_LEAST))
    if every_s is not None:
        keep = keep[keep_slots(windows.start_s[keep], windows.session[keep], every_s)]
    session = windows.session[keep]
    labels, owners = _by_session(found, session)
    return _split(name, windows.rows[keep], labels, owners, split_sessions(session, labels, owners), TMD_NOTE)


def load_hapt(folder: Path) -> Dataset:
    """Load the two-class rows (Still, On Foot) of the HAPT recording, owners included."""
    found = _hapt_archive(folder / "activity_hapt.npz") if _compact(folder, "hapt") else activity_raw.read_hapt(folder)
    windows = windows_of(found.recording)
    labels, owners = _by_session(found, windows.session)
    return _split("activity-hapt", windows.rows, labels, owners, owners >= HAPT_FIRST_TEST_USER, HAPT_NOTE)


def _compact(folder: Path, name: str) -> bool:
    return (folder / f"activity_{name}.npz").is_file()


def _by_session(found: Labelled, session: Ints) -> tuple[Ints, Ints]:
    """Look up label and owner of each window through its session."""
    names, first = np.unique(found.recording.session, return_index=True)
    place = first[np.searchsorted(names, session)]
    return found.labels[place], found.owners[place]


def _split(name: str, rows: np.ndarray, labels: Ints, owners: Ints, test: np.ndarray, note: str) -> Dataset:
    if test.all() or not test.any():
        raise BadInput(f"{name}: the recording leaves no rows to {'train' if test.all() else 'test'} on", hint=DAMAGED)
    return Dataset(
        name=name,
        train_rows=rows[~test],
        train_labels=labels[~test],
        test_rows=rows[test],
        test_labels=labels[test],
        label_names=LABELS[:2] if name == "activity-hapt" else LABELS,
        train_owners=owners[~test],
        note=note,
    )


def _tmd_archive(path: Path) -> Labelled:
    axes = {"t_ms": 1, "acc": 2, "session": 1, "user": 1, "label": 1, "label_names": 1}
    found = read_npz(path, axes, LIMIT)
    recording = Recording(
        seconds=found["t_ms"] / 1000.0, acceleration=found["acc"], session=found["session"].astype(np.int32)
    )
    _same_names(path, found["label_names"].tolist(), TMD_CLASSES)
    return activity_raw.checked(path, recording, found["label"], found["user"], TMD_CLASSES)


def _hapt_archive(path: Path) -> Labelled:
    axes = {"acc_720": 2, "experiment": 1, "user": 1, "label": 1, "label_names": 1, "rate_hz": 0}
    found = read_npz(path, axes, LIMIT)
    _same_names(path, found["label_names"].tolist(), HAPT_CLASSES)
    metres = found["acc_720"] * np.float32(GRAVITY / 720)
    pieces = activity_raw.runs(found["experiment"].astype(np.int32), found["label"].astype(np.int32))
    seconds = np.arange(len(metres)) / float(found["rate_hz"])
    recording = Recording(seconds=seconds, acceleration=metres, session=pieces)
    return activity_raw.checked(path, recording, found["label"], found["user"], HAPT_CLASSES)


def _same_names(path: Path, names: list[str], classes: dict[str, int]) -> None:
    if names != list(classes):
        raise BadInput(f"lists the activities {names} instead of {list(classes)}", where=str(path), hint=DAMAGED)
