"""The layer map tells the truth: its picture, and the files that its walks name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from crowdml.device import Device
from crowdml.device.sending import Outcome
from docs.writers.layer_map import INSIDE, WORDS, layers
from tests.support.executed import PACKAGE, watched
from tests.support.on_socket import OnSocket

ROOT = Path(__file__).parents[2]
WALKS = ("A live check-in", "A simulation", "A secure sum", "A sliced batch", "From `[privacy]` to a charge")
LONGEST = 40
"""Files on the way of one check-in, on both sides together."""


def walk(title: str) -> str:
    page = (ROOT / "docs" / "concepts" / "layer-map.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##)", page, re.M | re.S)
    assert found, f"the layer map has no walk {title!r}"
    return found[1]


def files_of(text: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", text)


@pytest.mark.parametrize("title", WALKS)
def test_every_file_of_a_walk_exists(title: str) -> None:
    named = files_of(walk(title))
    assert len(named) >= 8
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_a_check_in_takes_the_walk_that_is_described(tmp_path: Path) -> None:
    """Every file that executes code in a real check-in is named, and no other."""
    text = walk("A live check-in")
    way = re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.M)
    assert len(way) == len(set(way)) <= LONGEST
    named = files_of(text)
    executed = {name for name in _executed(tmp_path) if not name.endswith("__init__.py")}
    print(f"a check-in: {len(executed)} files execute code, {len(way)} of them are its way")
    assert sorted(named) == sorted(executed)


def _executed(folder: Path) -> set[str]:
    """Return the files that execute code in one check-in of the demo's task, over a socket, on both sides."""
    (folder / "server").mkdir()
    generator = np.random.default_rng(0)
    rows = generator.uniform(0, 16, (140, 64)), generator.integers(0, 10, 140)
    with watched() as executed:

        def after(outcome: Outcome) -> None:
            # The second check-in: the first also gets to know the server.
            executed.listening = outcome.number == 1

        app = OnSocket(folder / "server")
        try:
            app.create(file=(PACKAGE / "cli" / "demos" / "demo.toml").read_text(encoding="utf-8"))
            (link,) = app.invites(1, "digits")
            Device.join(link.to_url(), folder / "device", accept=lambda offer: True)
            with Device(folder / "device") as device:
                assert device.run(rows, releases=2, watch=after).used == 2
        finally:
            executed.listening = False
            app.close()
    return set(executed.calls)


def test_the_picture_has_every_folder() -> None:
    drawn = {name for layer in layers(ROOT) for name in layer}
    assert drawn == set(WORDS) == {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    for name in drawn - {"studies"}:  # a folder for each paper
        within = {path.parent.name for path in (PACKAGE / name).glob("*/__init__.py")}
        assert within == set(INSIDE.get(name, ())), name
