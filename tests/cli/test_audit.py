"""crowdml audit as a user meets it: what it prints and writes, how it refuses, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from crowdml.device.entropy_coins import DeviceCoins
from tests.audit.test_promises import thin

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
TERMS = ("mode='sound'", "mechanism='laplace'", "clip=1.0", "epsilon=2.0", "max-uses=1")
SOUND = ("--set", f"privacy={{ {', '.join(TERMS)} }}", "--set", "crowd.passes=1")

Run = Callable[..., tuple[int, str, str]]


def test_audit_says_the_verdict_in_words_and_draws_it(run: Run, tmp_path: Path) -> None:
    code, shown, told = run("audit", str(EXAMPLE), *SOUND, "--plot", "bounds.png")
    assert code == 0 and "ε = 2 is promised to every sample" in shown
    assert "verdict: nothing was found against the promise" in shown and "caught" in shown
    assert "looking for the worst neighbours" in told
    assert (tmp_path / "bounds.png").read_bytes().startswith(b"\x89PNG")


def test_audit_ends_with_1_where_a_promise_is_broken(run: Run) -> None:
    with mock.patch.object(DeviceCoins, "discrete_laplace", thin):
        code, shown, _ = run("audit", str(EXAMPLE), *SOUND, "--no-control", "--json", "-")
    found = json.loads(shown)
    assert code == 1 and not found["holds"] and found["verdict"].startswith("BROKEN")
    assert found["findings"][0]["bound"] > found["findings"][0]["proven"]["epsilon"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--confidence", "1.5"), "1.5 is no confidence"),
        (("--trials", "10"), "--trials"),
        (("--plot", "bounds.txt"), "no known ending for a figure"),
    ],
)
def test_audit_refuses_what_means_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, _, told = run("audit", str(EXAMPLE), *SOUND, *arguments)
    assert code == 2 and words in told
