"""Frames and shared rows: what was sent arrives, and nothing else is read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from crowdml.simulation import shared_rows
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.shared_rows import SharedRows, lay_in_place, make_room, map_rows
from crowdml.simulation.workers import frames

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_tree_arrives_as_it_was_sent(pair: Pair) -> None:
    replicas = Replicas(hyper={"rate": np.array([1, 2], np.float32)}, seeds=np.zeros((2, 2), np.uint32))
    sent = (replicas, {"none": (), "flag": np.array(True)}, np.zeros((0, 3)), np.arange(6).reshape(2, 3)[:, ::2])
    frames.send(pair[0], {"do": "run", "phase": -1}, sent)
    got = frames.receive(pair[1])
    assert got.words == {"do": "run", "phase": -1}
    first, named, empty, cut = got.tree
    assert isinstance(first, Replicas) and first.hyper["rate"].tolist() == [1, 2] and first.scales == {}
    assert named["none"] == () and named["flag"].dtype == bool and named["flag"].shape == ()
    assert empty.shape == (0, 3)
    assert cut.tolist() == [[0, 2], [3, 5]]


@pytest.mark.parametrize(
    "head",
    [
        {"words": {}, "tree": 0, "arrays": [["|O", [1]]]},
        {"words": {}, "tree": 0, "arrays": [["<f4", [-1]]]},
        {"words": {}, "tree": 0, "arrays": [["<f8", [1 << 40]]]},
        {"words": {}, "tree": {"record": "Popen", "of": {}}, "arrays": []},
    ],
    ids=["objects", "a negative length", "too large", "a class that is not listed"],
)
def test_what_is_no_frame_is_refused(pair: Pair, head: object) -> None:
    written = json.dumps(head).encode()
    pair[0].sendall(len(written).to_bytes(8, "little") + written)
    with pytest.raises((ValueError, KeyError)):
        frames.receive(pair[1])


def test_a_head_of_any_length_is_not_read(pair: Pair) -> None:
    pair[0].sendall((1 << 40).to_bytes(8, "little"))
    with pytest.raises(ValueError, match="head"):
        frames.receive(pair[1])


def test_an_end_in_the_middle_is_an_end(pair: Pair) -> None:
    pair[0].sendall((100).to_bytes(8, "little") + b"{")
    pair[0].close()
    with pytest.raises(EOFError):
        frames.receive(pair[1])


def test_rows_are_shared_and_not_copied(pair: Pair) -> None:
    shared = SharedRows()
    first, second = shared.allocate((3, 2), np.float32), shared.allocate((5,), np.int32)
    first[:], second[:] = 1.5, np.arange(5)
    frames.send(pair[0], {"layout": shared.layout}, files=[shared.file.fileno()])
    got = frames.receive(pair[1])
    mapped = map_rows(got.files, got.words["layout"])
    os.close(got.files[0])
    second[4] = 40
    shared.close()
    assert mapped[0].tolist() == [[1.5, 1.5]] * 3
    assert mapped[1].tolist() == [0, 1, 2, 3, 40], "a copy"
    assert not mapped[1].flags.writeable


def test_nothing_outside_is_mapped() -> None:
    shared = SharedRows()
    shared.allocate((3,), np.float32)
    with pytest.raises(ValueError, match="outside"):
        map_rows([shared.file.fileno()], [(0, 0, "<f4", (4000,))])
    shared.close()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> npt.NDArray[np.float32]:
    """A table that counts as large: 17 rows, which are rounded up to 18."""
    monkeypatch.setattr(shared_rows, "LARGE", 1)
    made = make_room((17, 3), np.float32)
    made[:] = np.arange(51).reshape(17, 3)
    return made


def test_a_large_table_is_not_copied_for_a_run(table: npt.NDArray[np.float32]) -> None:
    shared = SharedRows()
    small, laid = shared.lay(np.arange(4), 5), shared.lay(table, 18)
    assert laid.shape == (18, 3) and np.shares_memory(laid, table) and not laid[17].any()
    assert len(shared.files) == 2
    mapped = map_rows([file.fileno() for file in shared.files], shared.layout)
    table[0, 0] = 7.0
    assert small.tolist() == mapped[0].tolist() == [0, 1, 2, 3, 3]
    np.testing.assert_array_equal(mapped[1][:17], table)
    assert np.shares_memory(lay_in_place(table, 18), table)
    shared.close()


@pytest.mark.parametrize("part", [slice(1, None), slice(None, None, 2)], ids=["from another row on", "every other row"])
def test_what_is_not_the_beginning_of_a_large_table_is_copied(table: npt.NDArray[np.float32], part: slice) -> None:
    shared = SharedRows()
    rows = table[part]
    laid = shared.lay(rows, len(rows))
    assert not np.shares_memory(laid, table) and np.array_equal(laid, rows)
    assert len(shared.files) == 1
    assert not np.shares_memory(lay_in_place(table, 19), table), "there is no such room"
    shared.close()


def test_a_large_table_goes_with_its_last_user(table: npt.NDArray[np.float32]) -> None:
    count = len(os.listdir("/proc/self/fd"))
    other = make_room((100, 3), np.float32)
    assert len(os.listdir("/proc/self/fd")) > count
    del other
    assert len(os.listdir("/proc/self/fd")) == count


def test_bytes_carry_the_same_frame() -> None:
    sent = ({"a": np.arange(3, dtype=np.int32)}, np.zeros((0, 2)), np.array([True]), np.arange(5.0))
    got = frames.from_bytes(frames.to_bytes({"do": "run"}, sent))
    assert got.words == {"do": "run"}
    assert [leaf.tolist() for leaf in (got.tree[0]["a"], *got.tree[1:])] == [[0, 1, 2], [], [True], [0, 1, 2, 3, 4]]
    assert got.tree[3].flags.aligned


@pytest.mark.parametrize("cut", [0, 3, 7, 9, 60, -1])
def test_bytes_that_were_cut_short_are_refused(cut: int) -> None:
    whole = frames.to_bytes({"do": "run"}, np.arange(5.0))
    with pytest.raises(ValueError, match=r"head|array"):
        frames.from_bytes(whole[:cut])
    with pytest.raises(ValueError, match="behind"):
        frames.from_bytes(whole + b"x")
