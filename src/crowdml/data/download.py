"""Fetching a dataset from where its authors or a public mirror offer it.

Bytes are streamed into a temporary file beside their place, never more than the known size, compared with the known
checksum, and only then get their name: a half-fetched file is never taken for a whole one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

from crowdml.core.errors import BadInput
from crowdml.data.catalogue import DATASETS
from crowdml.data.folders import cache_folder, found, matches, present
from crowdml.data.sources import Archive, File, Form, Source, Version

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a file's name, the bytes fetched so far, and the bytes there will be."""

CHUNK = 1 << 18
TIMEOUT_S = 30.0


def get(name: str, progress: Progress | None = None) -> Path:
    """Fetch a dataset into the user's cache and return its folder. What is there and whole is not fetched again.

    Args:
        name: A dataset of the catalogue.
        progress: Is told how far each file has come.
    """
    source = DATASETS[name]
    if not source.forms:
        raise BadInput(f'the dataset "{name}" comes with scikit-learn, there is nothing to fetch')
    folder = cache_folder(source)
    _make(folder)
    fetch(source, folder, progress or (lambda file, done, total: None))
    return folder


def fetch(source: Source, folder: Path, tell: Progress) -> None:
    """Fetch what is missing or damaged in a folder."""
    form = present(source, folder) or source.forms[0]
    wanted = [file for file in form.files if not _whole(folder, file)]
    if wanted and form.archive is not None:
        _from_archive(source, folder, form, form.archive, tell)
    else:
        for file in wanted:
            _one_file(source, folder, file, tell)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise BadInput(
            f"the folder {folder} cannot be made: {fault}", hint="set XDG_CACHE_HOME to a writable place"
        ) from None


def _whole(folder: Path, file: File) -> bool:
    version = found(folder, file)
    # Where no checksum is known, being there must do.
    return version is not None and (version.sha256 is None or matches(folder / version.path, version))


def _one_file(source: Source, folder: Path, file: File, tell: Progress) -> None:
    reasons = []
    for version in file.versions:
        for url in version.urls:
            try:
                with _temporary(folder) as (stream, path):
                    _fetch(url, stream, version.size or 0, functools.partial(tell, version.path))
                    _settle(stream, path, folder, version)
                return _drop_others(folder, file, version)
            except BadInput as fault:
                reasons.append(f"{url}: {fault.what}")
    if file.optional:
        return
    raise by_hand(source, folder, reasons)


def _drop_others(folder: Path, file: File, version: Version) -> None:
    """Remove a damaged version of a file that was fetched anew in another one, lest it be read first."""
    for other in file.versions:
        if other is not version:
            (folder / other.path).unlink(missing_ok=True)


def _from_archive(source: Source, folder: Path, form: Form, archive: Archive, tell: Progress) -> None:
    name = archive.url.rsplit("/", 1)[-1]
    with _temporary(folder) as (stream, path):
        try:
            _fetch(archive.url, stream, archive.size, functools.partial(tell, name))
        except BadInput as fault:
            raise by_hand(source, folder, [f"{archive.url}: {fault.what}"]) from None
        stream.flush()
        _unpack(path, folder, form, archive)


def _unpack(path: Path, folder: Path, form: Form, archive: Archive) -> None:
    """Take the named files out of an archive; whatever else it holds is left alone."""
    wanted = {f"{archive.folder}/{file.versions[0].path}": file.versions[0] for file in form.files}
    try:
        with tarfile.open(path, "r:gz") as packed:
            for member in packed:
                version = wanted.pop(member.name, None)
                content = packed.extractfile(member) if version is not None and member.isfile() else None
                if version is None or content is None:
                    continue
                with _temporary(folder) as (stream, unpacked):
                    stream.write(content.read((version.size or 0) + 1))
                    _settle(stream, unpacked, folder, version)
    except (tarfile.TarError, OSError, EOFError) as fault:
        raise BadInput(f"the archive cannot be unpacked: {fault}", where=archive.url) from None
    if wanted:
        raise BadInput(f"the archive does not hold {', '.join(wanted)}", where=archive.url)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[tuple[IO[bytes], Path]]:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".part-")
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream, path
    finally:
        path.unlink(missing_ok=True)


def _settle(stream: IO[bytes], path: Path, folder: Path, version: Version) -> None:
    """Give a fetched file its name if it is what it should be."""
    stream.flush()
    os.fsync(stream.fileno())
    if not matches(path, version):
        raise BadInput(f"{version.path} arrived with a wrong checksum")
    path.chmod(0o644)
    os.replace(path, folder / version.path)


def _fetch(url: str, stream: IO[bytes], size: int, tell: Callable[[int, int], None]) -> None:
    import httpx

    done = 0
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=TIMEOUT_S) as answer:
            answer.raise_for_status()
            # Raw bytes: a server may label a .gz file as encoded, and the client would then unpack it.
            for chunk in answer.iter_raw(CHUNK):
                done += len(chunk)
                if done > size:
                    raise BadInput(f"the server sends more than the {size} bytes of this file")
                stream.write(chunk)
                tell(done, size)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
        raise BadInput(str(fault) or type(fault).__name__) from None
    if done != size:
        raise BadInput(f"only {done} of {size} bytes arrived")


def by_hand(source: Source, folder: Path, reasons: list[str]) -> BadInput:
    """Say exactly which files to put where, when they cannot be fetched from here."""
    why = "\n".join(f"    {reason}" for reason in reasons) or "    no address with a published checksum is known"
    forms = "\n  or ".join(
        ", ".join(" or ".join(version.path for version in file.versions) for file in form.files if not file.optional)
        for form in source.forms
    )
    return BadInput(
        f'the dataset "{source.name}" could not be fetched:\n{why}',
        hint=f"fetch it by hand ({source.homepage}) and put\n     {forms}\n  into {folder}",
    )
