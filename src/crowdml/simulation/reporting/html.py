"""What a notebook shows of a result: a small table, the curve, and what is to be doubted."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from crowdml.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = "border-collapse:collapse;font-size:13px;margin:4px 0"
CELL = "padding:2px 12px 2px 0;text-align:{};border-bottom:1px solid #8885"


def result_html(task: Task, content: dict[str, Any], figure: Figure | None) -> str:
    """Show the figures at the end, what privacy adds up to, warnings and notes.

    Args:
        task: The task.
        content: The result as JSON has it.
        figure: Its curve; None where it has one point alone.
    """
    rows = [(name.replace("_", " "), *_pair(pair)) for name, pair in content["final"].items()]
    if "devices" in content:
        rows += [(f"device error, {name.replace('_', ' ')}", *_pair(pair)) for name, pair in content["devices"].items()]
    for name, pair in content.get("baselines", {}).items():
        rows.append((f"beside it: {name}, test error", *_pair(pair["test_error"])))
    trials = content["trials"]
    title = html.escape(f"{task.name}: {task.objective}".rstrip(": "))
    parts = [
        f"<b>{title}</b>",
        table_html(("measure", "mean", f"s.d. of {trials} trial{'s' * (trials > 1)}"), rows),
        f"<div style='font-size:13px'>{html.escape(privacy_line(content['privacy']))}</div>",
        *(f"<div style='color:#c44;font-size:13px'>warning: {html.escape(each)}</div>" for each in content["warnings"]),
        *(f"<div style='opacity:0.75;font-size:12px'>note: {html.escape(each)}</div>" for each in content["notes"]),
    ]
    if figure is not None:
        parts.append(figure_html(figure))
    return "\n".join(parts)


def table_html(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table; the first column stands to the left, numbers to the right."""

    def cells(values: Sequence[Any], tag: str) -> str:
        style = [CELL.format("left" if at == 0 else "right") for at in range(len(values))]
        return "".join(
            f"<{tag} style='{how}'>{html.escape(str(each))}</{tag}>" for how, each in zip(style, values, strict=True)
        )

    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table style='{STYLE}'><tr>{cells(columns, 'th')}</tr>{lines}</table>"


def figure_html(figure: Figure) -> str:
    """Put a figure into the page itself, sharp on dense screens."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    picture = base64.b64encode(drawn.getvalue()).decode()
    return f"<img style='width:560px;max-width:100%;background:white' src='data:image/png;base64,{picture}'/>"


def privacy_line(privacy: dict[str, Any]) -> str:
    """Say in one line what the terms add up to."""
    if privacy["sample"] is None:
        return f"privacy: mode {privacy['mode']}, {privacy['guarantee']}"
    told = [f"ε = {privacy['sample']['epsilon']:.4g} for one sample"]
    if privacy["device"]:
        told.append(f"ε = {privacy['device']['epsilon']:.4g} for one device")
    delta = privacy["sample"]["delta"]
    return f"privacy: mode {privacy['mode']}, in all " + ", ".join(told) + (f"; δ = {delta:g}" if delta else "")


def _pair(pair: dict[str, float | None]) -> tuple[str, str]:
    mean, spread = ("–" if value is None else f"{value:.4f}" for value in (pair["mean"], pair["std"]))
    return mean, spread
