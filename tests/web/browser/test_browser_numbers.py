"""Noise and speed in a real browser: draws have the law they should have, and a check-in takes little of the page."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tests.support.process import Process
from tests.support.web import run_web
from tests.web.browser.conftest import JOIN

DRAWS = 400_000
LONGEST_SLICE_MS = 50.0
WIDE = """
crowdml = 1
name = "wide"
[data]
features = 51
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 20
[privacy]
mechanism = "gaussian"
epsilon = 80.0
delta = 1e-5
max-uses = 100
statistics-epsilon = 4.0
"""
KEEP_40 = """
async () => {
  for (let at = 0; at < 40; at++) {
    await device.addRow(Float32Array.from({ length: 51 }, () => Math.random() - 0.5), at % 10);
  }
}
"""
HISTOGRAM = """
async ([code, law, scale, draws]) => {
  const core = await import(`data:text/javascript;base64,${code}`);
  const found = core[law](core.systemWords, scale, draws);
  const counts = {};
  for (const draw of found) counts[draw] = (counts[draw] ?? 0) + 1;
  return counts;
}
"""


@pytest.mark.live
@pytest.mark.parametrize("scale", [0.5, 3.0625, 25.0])
@pytest.mark.parametrize("law", ["discreteLaplace", "roundedGaussian"])
def test_draws_have_their_law(browser: Any, tmp_path: Path, law: str, scale: float) -> None:
    made = run_web(
        "vite/bin/vite.js", "build", CROWDML_WEB_OUT=str(tmp_path), CROWDML_WEB_ENTRY="core/numerics/index.ts"
    )
    assert made.returncode == 0, made.stderr
    (file,) = tmp_path.iterdir()
    page = browser.new_page()
    code = base64.b64encode(file.read_bytes()).decode()
    found = deviation(page.evaluate(HISTOGRAM, [code, law, scale, DRAWS]), law, scale)
    if found > 4:
        # One in a few hundred honest samples is so far off, as χ² of few cells has a long tail; two in a row are not.
        found = deviation(page.evaluate(HISTOGRAM, [code, law, scale, DRAWS]), law, scale)
    page.close()
    assert found <= 4


def deviation(drawn: dict[str, int], law: str, scale: float) -> float:
    """Return how many standard deviations χ² of draws is away from what it should be."""
    counts = {int(float(draw)): number for draw, number in drawn.items()}
    assert sum(counts.values()) == DRAWS
    reach = math.ceil(6 * scale)
    cells = {k: _probability(law, scale, k) for k in range(-reach, reach + 1)}
    likely = {k: p for k, p in cells.items() if p * DRAWS >= 20}
    # All others are one cell with the least likely of these: alone a fraction of a draw might be expected in it.
    seen = [(counts.get(k, 0), p) for k, p in sorted(likely.items(), key=lambda cell: cell[1])]
    others = sum(number for k, number in counts.items() if k not in likely)
    seen[0] = seen[0][0] + others, seen[0][1] + 1 - sum(likely.values())
    found = sum((number - p * DRAWS) ** 2 / (p * DRAWS) for number, p in seen)
    freedom = len(seen) - 1
    return abs(found - freedom) / math.sqrt(2 * freedom)


def _probability(law: str, scale: float, k: int) -> float:
    if law == "discreteLaplace":
        ratio = math.exp(-1 / scale)
        return (1 - ratio) / (1 + ratio) * ratio ** abs(k)
    return float(stats.norm.cdf((k + 0.5) / scale) - stats.norm.cdf((k - 0.5) / scale))


@pytest.mark.live
def test_no_slice_of_a_check_in_of_510_parameters_holds_the_page(
    browser: Any, server: Process, make_page: Callable[..., Any]
) -> None:
    """By Chromium's own trace, in CPU time of the main thread: other programs on the machine do not count."""
    from benchmarks.browser.check_in import traced

    page = make_page()
    (link,) = server.invites(1, server.fresh(file=WIDE))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(KEEP_40)
    slices = traced(browser, page, "async () => { for (let at = 0; at < 12; at++) await device.contribute(); }")
    assert len(slices) > 12 and page.evaluate("() => device.state().receipts") == 12
    assert max(slices) <= LONGEST_SLICE_MS, sorted(slices)[-5:]
