"""Fetching from a real server on loopback: checksums, limits, archives, and the way out without a network."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdml.core import BadInput
from crowdml.data import DATASETS, get
from crowdml.data.download import fetch
from crowdml.data.sources import Archive, File, Form, Source, Version

CONTENT = b"some rows of data"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which it is served."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def version(path: str, content: bytes, *urls: str) -> Version:
    return Version(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), urls=urls)


def source(*files: File, archive: Archive | None = None) -> Source:
    return dataclasses.replace(DATASETS["adult"], forms=(Form(name="toy", files=files, archive=archive),))


def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def test_a_file_is_fetched_once_with_progress(site: tuple[Path, str], tmp_path: Path) -> None:
    served, address = site
    (served / "rows.gz").write_bytes(CONTENT)
    toy, folder = source(File(versions=(version("rows.gz", CONTENT, address + "rows.gz"),))), target(tmp_path)
    told: list[tuple[str, int, int]] = []
    fetch(toy, folder, lambda *news: told.append(news))
    assert (folder / "rows.gz").read_bytes() == CONTENT
    assert told == [("rows.gz", len(CONTENT), len(CONTENT))]
    assert [path.name for path in folder.iterdir()] == ["rows.gz"], "nothing temporary stays"
    (served / "rows.gz").unlink()
    fetch(toy, folder, lambda *news: told.append(news))
    assert len(told) == 1, "what is whole is not fetched again"


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"other rows of dat", "wrong checksum"),
        (CONTENT + b"!", "more than the 17 bytes"),
        (CONTENT[:-1], "only 16 of 17"),
    ],
)
def test_wrong_bytes_never_get_the_name(site: tuple[Path, str], tmp_path: Path, sent: bytes, fault: str) -> None:
    served, address = site
    (served / "rows").write_bytes(sent)
    folder = target(tmp_path)
    with pytest.raises(BadInput, match=fault):
        fetch(source(File(versions=(version("rows", CONTENT, address + "rows"),))), folder, lambda *news: None)
    assert not list(folder.iterdir())


def test_the_next_mirror_helps_and_damage_is_replaced(site: tuple[Path, str], tmp_path: Path) -> None:
    served, address = site
    (served / "rows.gz").write_bytes(CONTENT)
    folder = target(tmp_path)
    (folder / "rows").write_bytes(b"damaged")
    urls = (address + "gone", address + "rows.gz")
    file = File(versions=(version("rows.gz", CONTENT, *urls), version("rows", b"plain")))
    fetch(source(file), folder, lambda *news: None)
    assert [path.name for path in folder.iterdir()] == ["rows.gz"]


def test_optional_files_may_fail(site: tuple[Path, str], tmp_path: Path) -> None:
    file = File(versions=(version("extra", CONTENT, site[1] + "gone"),), optional=True)
    fetch(source(file), target(tmp_path), lambda *news: None)


def pack(path: Path, members: dict[str, bytes]) -> int:
    with tarfile.open(path, "w:gz") as packed:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path.stat().st_size


def test_archives_give_only_the_named_files(site: tuple[Path, str], tmp_path: Path) -> None:
    served, address = site
    members = {"in/a.bin": CONTENT, "in/../../evil": b"evil", "in/other": b"other"}
    size = pack(served / "all.tar.gz", members)
    folder = target(tmp_path)
    archive = Archive(url=address + "all.tar.gz", size=size, folder="in")
    fetch(source(File(versions=(version("a.bin", CONTENT),)), archive=archive), folder, lambda *news: None)
    assert [path.name for path in folder.iterdir()] == ["a.bin"]
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("members", "fault"),
    [({"in/b.bin": CONTENT}, "does not hold in/a.bin"), ({"in/a.bin": CONTENT + b"!"}, "wrong checksum")],
)
def test_archives_with_other_content_are_refused(
    site: tuple[Path, str], tmp_path: Path, members: dict[str, bytes], fault: str
) -> None:
    served, address = site
    archive = Archive(url=address + "all.tar.gz", size=pack(served / "all.tar.gz", members), folder="in")
    folder = target(tmp_path)
    with pytest.raises(BadInput, match=fault):
        fetch(source(File(versions=(version("a.bin", CONTENT),)), archive=archive), folder, lambda *news: None)
    assert not list(folder.iterdir())


def test_without_a_network_the_message_says_what_to_put_where(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    @contextlib.contextmanager
    def unplugged(*args: object, **keys: object) -> Iterator[None]:
        raise httpx.ConnectError("no network")
        yield

    monkeypatch.setattr(httpx, "stream", unplugged)
    for name in ("mnist", "cifar10"):
        with pytest.raises(BadInput) as caught:
            get(name)
        assert "no network" in caught.value.what and DATASETS[name].homepage in caught.value.hint
        assert str(empty_machine / name) in caught.value.hint
    with pytest.raises(BadInput, match="t10k-labels-idx1-ubyte"):
        get("mnist")


def test_what_cannot_be_fetched_is_said(empty_machine: Path) -> None:
    with pytest.raises(BadInput, match="no address with a published checksum"):
        get("activity")
    with pytest.raises(BadInput, match="nothing to fetch"):
        get("digits")
    with pytest.raises(BadInput, match="unknown dataset"):
        get("imagenet")


def test_addresses_are_public_and_files_have_checksums() -> None:
    for entry in DATASETS.values():
        for form in entry.forms:
            for file in form.files:
                for each in file.versions:
                    assert not each.urls or (each.sha256 and each.size)
                    assert not Path(each.path).is_absolute() and ".." not in each.path
                    assert each.sha256 is None or len(bytes.fromhex(each.sha256)) == 32
