"""Drawings of audits: rows as pictures beside what was made of them, and bounds beside claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.audit.attack import Finding
from crowdml.core import BadInput
from crowdml.core.files import save_figure

Floats = npt.NDArray[np.float64]
HOLDS, CONTROL, CLAIM = "#2166ac", "#b2182b", "#1a1a1a"


def draw_pictures(lines: Sequence[tuple[str, Floats]], title: str, path: Path) -> None:
    """Draw lines of pictures, each with its name; rows must be square pictures."""
    from matplotlib.figure import Figure

    shown = max(len(rows) for _, rows in lines)
    side, channels = _side(len(lines[0][1][0]))
    figure = Figure(figsize=(max(shown, 4) + 2, 1.15 * len(lines) + 0.6), dpi=100, layout="constrained")
    axes = figure.subplots(len(lines), shown, squeeze=False)
    for line, (name, pictures) in zip(axes, lines, strict=True):
        for at, cell in enumerate(line):
            cell.axis("off")
            if at < len(pictures):
                cell.imshow(_scaled(pictures[at]).reshape(side, side, channels).squeeze(), cmap="gray", vmin=0, vmax=1)
        line[0].set_title(" ", fontsize=10)  # makes room for the name, which may be wider than a picture
        line[0].text(0, 1.06, name, transform=line[0].transAxes, fontsize=10, in_layout=False)
    figure.suptitle(title)
    save_figure(figure, path)


def draw_findings(findings: Sequence[Finding], title: str, path: Path) -> None:
    """Draw every lower bound below its claim, and beside it what half the noise would show."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 0.75 * len(findings) + 1.7), dpi=150, layout="constrained")
    axes = figure.subplots()
    draw_bars(
        axes, [(f"{each.what}\n{each.method}", each.proven.epsilon, each.bound, each.control) for each in findings]
    )
    axes.set_title(title, loc="left", fontsize="medium")
    save_figure(figure, path)


def draw_bars(axes: Any, bars: Sequence[tuple[str, float, float, float | None]]) -> None:
    """Draw bounds as shares of their claims: name, claim, bound, and the control's bound."""
    places = np.arange(len(bars))[::-1]
    shares = [[_share(found, claim) for _, claim, found, _ in bars], [_share(c, claim) for _, claim, _, c in bars]]
    axes.barh(places + 0.18, shares[0], 0.34, color=HOLDS, label="lower bound found by attack")
    axes.barh(places - 0.18, shares[1], 0.34, color=CONTROL, label="the same with half the noise (planted)")
    axes.axvline(1.0, color=CLAIM, linewidth=1.5, label="what is claimed")
    for place, (_, claim, found, control) in zip(places, bars, strict=True):
        _say(axes, _share(found, claim), place + 0.18, f"ε ≥ {found:.3g} of {claim:.3g}")
        if control is not None:
            _say(axes, _share(control, claim), place - 0.18, f"ε ≥ {control:.3g}")
    axes.set_yticks(places, [name for name, *_ in bars], fontsize=8)
    axes.set(xlabel="share of the claimed ε", xlim=(0, max(1.25, *map(max, shares)) + 0.35))
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _say(axes: Any, x: float, y: float, words: str) -> None:
    """Write behind a bar, readable also where the line of the claim passes."""
    plain = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.text(x + 0.02, y, words, va="center", fontsize=8, bbox=plain)


def _share(found: float | None, claim: float) -> float:
    """Return a share that can be drawn."""
    return 0.0 if found is None or not claim else min(found / claim, 4.0)


def _side(width: int) -> tuple[int, int]:
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        if side * side * channels == width:
            return side, channels
    raise BadInput(f"rows of {width} numbers are no square pictures", where="--plot", hint="leave --plot out")


def _scaled(picture: Floats) -> Floats:
    """Stretch a picture over all shades, but for its outermost numbers."""
    low, high = np.percentile(picture, [1, 99.5])
    clipped: Floats = np.clip((picture - low) / max(float(high - low), 1e-12), 0, 1)
    return clipped
