"""A figure of a slicing: computation, storage and communication of every piece."""

from __future__ import annotations

from pathlib import Path

from crowdml.core.figures import save_figure
from crowdml.slicing.costs import Costs


def cost_figure(found: Costs, path: Path, title: str) -> None:
    """Draw three bars for each piece, one below the other, and save the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.4), dpi=150, layout="constrained")
    names = [*(str(number + 1) for number in range(len(found.pieces))), "dominator"]
    pieces = [*found.pieces, found.dominator]
    rows = (
        ("computation", [float(piece.computation) for piece in pieces], found.ideal),
        ("weights kept", [float(piece.edges) for piece in pieces], None),
        ("KiB per example", [piece.kib for piece in pieces], None),
    )
    for axes, (label, values, level) in zip(figure.subplots(3, 1, sharex=True), rows, strict=True):
        axes.bar(names, values, color="#0072B2")
        if level is not None:
            axes.axhline(level, color="#D55E00", linestyle="--", label="ideal")
            axes.legend(frameon=False)
        axes.set_ylabel(label)
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("piece")
    axes.tick_params(axis="x", labelrotation=90 if len(names) > 12 else 0)
    figure.suptitle(title)
    save_figure(figure, path)
