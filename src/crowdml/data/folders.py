"""Where datasets lie on this machine, and whether they are whole.

A dataset is looked for in `$CROWDML_DATA/NAME`, then in the user's cache, where `crowdml data get` puts it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import weakref
from pathlib import Path
from typing import Literal

from crowdml.core.errors import BadInput, install
from crowdml.core.files import cache_home
from crowdml.core.records import record
from crowdml.data.catalogue import DATASETS
from crowdml.data.dataset import Dataset
from crowdml.data.sources import File, Form, Source, Version

Status = Literal["ok", "missing", "corrupt", "unchecked"]

LARGE = 100_000_000
"""Numbers of a dataset that is not kept for its own sake: what a task makes of it is."""

_in_use: weakref.WeakValueDictionary[tuple[str, Path], Dataset] = weakref.WeakValueDictionary()


@record
class FileStatus:
    """What is known about one file.

    Attributes:
        path: Where it lies, or where it should lie.
        status: ok, missing, corrupt, or unchecked where no checksum is published.
        optional: True if the dataset can be used without it.
    """

    path: Path
    status: Status
    optional: bool = False


def load(name: str) -> Dataset:
    """Return a dataset by name; a second call in the same process returns the same arrays, which are read-only.

    A large one is read anew once nobody uses it any more.

    >>> load("digits").train_rows.shape
    (1400, 64)
    """
    source = DATASETS[name]
    folder = locate(name)
    if folder is None:
        raise _nowhere(source)
    if sum(source.rows) * source.features < LARGE:
        return _load(name, folder)
    dataset = _in_use.get((name, folder))
    if dataset is None:
        dataset = _in_use[name, folder] = _load.__wrapped__(name, folder)
    return dataset


@functools.lru_cache(maxsize=4)
def _load(name: str, folder: Path) -> Dataset:
    dataset = DATASETS[name].load(folder)
    for array in (dataset.train_rows, dataset.train_targets, dataset.test_rows, dataset.test_targets):
        array.setflags(write=False)
    if dataset.train_owners is not None:
        dataset.train_owners.setflags(write=False)
    return dataset


def locate(name: str) -> Path | None:
    """Return the first folder that holds every file the dataset needs, or None."""
    source = DATASETS[name]
    if source.home is not None:
        return source.home()
    return next((folder for folder in folders(source) if present(source, folder) is not None), None)


def verify(name: str) -> list[FileStatus]:
    """Compare each file of a dataset with its checksum.

    Where several forms of a dataset are possible, the one that is there is checked; where none is complete, the
    first form is reported.
    """
    source = DATASETS[name]
    if not source.forms:
        return []
    folder = locate(name) or folders(source)[0]
    form = present(source, folder) or source.forms[0]
    return [_status(folder, file) for file in form.files]


def folders(source: Source) -> tuple[Path, ...]:
    """List the folders in which a dataset is looked for, in order."""
    given = os.environ.get("CROWDML_DATA")
    first = (Path(given).expanduser() / source.folder,) if given else ()
    return (*first, cache_folder(source))


def cache_folder(source: Source) -> Path:
    """Return the folder in the user's cache, which is the one that downloads go to."""
    return cache_home() / "data" / source.folder


def present(source: Source, folder: Path) -> Form | None:
    """Return the first form of the dataset of which no needed file is missing in this folder."""
    for form in source.forms:
        if all(found(folder, file) is not None for file in form.files if not file.optional):
            return form
    return None


def found(folder: Path, file: File) -> Version | None:
    """Return the version of a file that lies in the folder, if any does; the plain one first, as loaders do."""
    versions = sorted(file.versions, key=lambda version: version.path.endswith(".gz"))
    return next((version for version in versions if (folder / version.path).exists()), None)


def matches(path: Path, version: Version) -> bool:
    """Tell whether a file has the size and the checksum it should have."""
    if version.size is not None and path.stat().st_size != version.size:
        return False
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == version.sha256


def _status(folder: Path, file: File) -> FileStatus:
    version = found(folder, file)
    if version is None:
        return FileStatus(path=folder / file.versions[0].path, status="missing", optional=file.optional)
    path = folder / version.path
    status: Status = "unchecked"
    if version.sha256 is not None:
        status = "ok" if _readable(path, version) else "corrupt"
    return FileStatus(path=path, status=status, optional=file.optional)


def _readable(path: Path, version: Version) -> bool:
    try:
        return matches(path, version)
    except OSError:
        return False


def _nowhere(source: Source) -> BadInput:
    """Say which file is missing, where it was looked for, and how to get it."""
    if source.home is not None:
        return BadInput(
            f'the dataset "{source.name}" comes with a package that is not installed',
            hint=install("simulation"),
        )
    places = folders(source)
    missing = [
        " or ".join(version.path for version in file.versions)
        for file in source.forms[0].files
        if not file.optional and found(places[0], file) is None
    ]
    looked = "\n".join(f"    {place}" for place in places)
    return BadInput(
        f'the dataset "{source.name}" is not on this machine: {missing[0]} is missing'
        + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
        + f"; looked in\n{looked}",
        hint=f"fetch it with: crowdml data get {source.name}",
    )
