"""A figure of an audit: rows of a dominator, and what others made of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from crowdml.core import BadInput
from crowdml.core.figures import save_figure
from crowdml.studies.audit.slicenet import Audit, Floats

SHOWN = 10


def audit_figure(found: Audit, path: Path) -> None:
    """Draw a line of pictures for each way of reading, and save the figure."""
    from matplotlib.figure import Figure

    width = len(next(iter(found.pictures.values()))[0])
    side, channels = _side(width)
    lines = list(found.pictures.items())
    figure = Figure(figsize=(SHOWN + 2, 1.15 * len(lines) + 0.6), dpi=100, layout="constrained")
    axes = figure.subplots(len(lines), SHOWN, squeeze=False)
    for line, (name, pictures) in zip(axes, lines, strict=True):
        for at, own in enumerate(line):
            own.axis("off")
            if at < len(pictures):
                own.imshow(_scaled(pictures[at]).reshape(side, side, channels).squeeze(), cmap="gray", vmin=0, vmax=1)
        line[0].set_title(name, loc="left", fontsize=10)
    figure.suptitle(f"{found.task}: rows of a dominator, and what others read")
    save_figure(figure, path)


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
