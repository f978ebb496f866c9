"""The table of what goes together says what tasks of these kinds are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.task.live_task import require_live

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits.toml"
PAGE = (ROOT / "docs" / "concepts" / "choosing-an-algorithm.md").read_text(encoding="utf-8")
STEPS = "mechanism = 'gaussian', epsilon = 4.0, delta = 1e-5, clip = 0.5, noise-at = 'steps'"
SOUND = f"privacy={{ mode = 'sound', max-uses = 10, {STEPS} }}"
PAPER = f"privacy={{ mode = 'paper', adjacency = 'add-remove', sampling-rate = 0.1, {STEPS} }}"
FOUND = {"yes": (True, True), "simulated": (False, True), "sound mode": (True, False), "no": (False, False)}
"""Whether there is noise in steps: live, in sound mode; and simulated, in paper mode."""


def said() -> dict[str, str]:
    """Return what the table says of noise in steps, by kind."""
    heading, _, *lines = PAGE.partition("| kind | sound, sample |")[2].partition("\n\n")[0].splitlines()
    at = [cell.strip() for cell in heading.split("|")].index("noise in steps") + 2
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {kind.strip("` "): line[at] for line in cells for kind in line[0].split(",")}


def test_the_table_is_read() -> None:
    assert len(said()) == 12 and set(said().values()) == set(FOUND)


def works(kind: str, privacy: str, *, live: bool) -> bool:
    keys = ["rate={ kind = 'constant', c = 0.1 }"]
    if kind in ("local-sgd", "fedbuff"):
        keys.append("local-steps=3")
    elif kind != "crowd-sgd":
        keys.append("per-round=5")
        if not live and kind not in ("fedsgd", "scaffold", "dp-fedavg"):
            keys.append("local-steps=3")
    changes = [f"algorithm={{ kind='{kind}', {', '.join(keys)} }}", privacy, "stop.max-releases=10"]
    try:
        task = crowdml.Task.load(EXAMPLE, changes)
        if live:
            require_live(task)
        return bool(task.calibrated)
    except BadInput as error:
        assert "steps" in str(error), error
        return False


@pytest.mark.parametrize("kind", said())
def test_noise_in_steps_is_there_where_the_table_says(kind: str) -> None:
    assert (works(kind, SOUND, live=True), works(kind, PAPER, live=False)) == FOUND[said()[kind]]
