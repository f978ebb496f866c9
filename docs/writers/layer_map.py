"""The layer map as a picture: layers and rooms are those that `make check` enforces, so the picture cannot drift."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

WORDS = {
    "cli": "commands, the demo",
    "studies": "figures and tables of papers",
    "sklearn": "estimators for scikit-learn",
    "audit": "attacks on what a task promises, and on what it gives away",
    "simulation": "a driver: timeline, then a compiled loop; coins from a seed",
    "server": "a driver: HTTP, one writer per task, a database",
    "device": "a driver: rows, ledger, coins from the system",
    "task": "task file → Task: sections, checks, explanation, what runs live",
    "algorithms": "contract, schedule, recipes of device and server parts",
    "slicing": "one net in pieces: cost graph, slicers, training",
    "models": "layers with a backward, losses",
    "privacy": "sanitisers, calibration, cost, ledger",
    "secure_aggregation": "machines of a sum, keys, masks",
    "wire": "bytes, signed task, links",
    "data": "datasets, rows, transforms, partitions",
    "core": "records and messages, targets, trees, ops, coins, settings, registries, errors",
}
INSIDE = {
    "cli": ("demos", "parts"),
    "simulation": ("timeline", "engine", "workers", "cluster", "parts", "slices", "reporting"),
    "server": ("setup", "fronts", "pages", "http", "tasks", "store"),
    "device": ("rows",),
    "task": ("owners",),
    "algorithms": ("recipes", "device_parts", "server_parts", "aggregation"),
    "slicing": ("live",),
    "privacy": ("sanitisers", "calibration", "noise", "ledger"),
    "models": ("adapters", "layers"),
    "data": ("loaders", "rows", "sensing", "transforms"),
}
"""Folders within a folder, in the order in which they are drawn."""

WIDTH, MARGIN, GAP, LINE = 1080, 24, 12, 19
STYLE = """
  .page { fill: #ffffff; } .box { fill: #eef3fa; stroke: #6b86ad; } .room { fill: #ffffff; stroke: #a9bbd6; }
  .name { fill: #12263f; font-weight: 600; font-size: 16px; } .word { fill: #33475f; font-size: 13px; }
  .small { fill: #12263f; font-size: 12px; } .arrow { stroke: #6b86ad; stroke-width: 2; fill: none; }
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f1620; } .box { fill: #1b2736; stroke: #6f8fbd; } .room { fill: #0f1620; stroke: #4d668a; }
    .name, .small { fill: #eaf1fb; } .word { fill: #b9c7da; } .arrow { stroke: #6f8fbd; }
  }
"""


ROOT = Path(__file__).parents[2]


def layers(root: Path) -> list[list[str]]:
    """Return the layers from the top, as pyproject.toml has them; those of one layer do not import each other."""
    with open(root / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    found = contracts[0]["layers"]
    return [[name.strip().removeprefix("crowdml.") for name in layer.split("|")] for layer in found]


def draw_layers() -> str:
    """Draw the layers below one another, imports pointing down."""
    parts, top = [], MARGIN
    rows = layers(ROOT)
    for number, names in enumerate(rows):
        width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        texts = {name: _wrapped(WORDS[name], width) for name in names}
        height = max(38 + LINE * len(texts[name]) + 30 * _room_rows(name, width) for name in names)
        for place, name in enumerate(names):
            parts += _box(name, texts[name], MARGIN + place * (width + GAP), top, width, height)
        top += height
        if number + 1 < len(rows):
            middle = WIDTH / 2
            parts.append(f'<path class="arrow" d="M{middle:g} {top + 3:g} v12 m-5 -6 l5 6 l5 -6"/>')
            top += 20
    height = top + MARGIN
    what = "Layers of crowdml from the top: " + "; ".join(", ".join(names) for names in rows) + ". Imports point down."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" role="img">'
        f"\n<title>{escape(what)}</title>\n<style>{STYLE}</style>"
        f'\n<rect class="page" width="{WIDTH}" height="{height:g}" rx="10"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _box(name: str, lines: list[str], left: float, top: float, width: float, height: float) -> list[str]:
    made = [
        f'<rect class="box" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>',
        f'<text class="name" x="{left + 12:g}" y="{top + 24:g}">{name}</text>',
    ]
    for number, line in enumerate(lines):
        made.append(f'<text class="word" x="{left + 12:g}" y="{top + 45 + LINE * number:g}">{escape(line)}</text>')
    across, down = left + 12, top + 36 + LINE * len(lines)
    for room in INSIDE.get(name, ()):
        wide = _room_width(room)
        if across + wide > left + width - 8:
            across, down = left + 12, down + 30
        made.append(f'<rect class="room" x="{across:g}" y="{down:g}" width="{wide:g}" height="22" rx="4"/>')
        made.append(f'<text class="small" x="{across + 7:g}" y="{down + 15:g}">{room}</text>')
        across += wide + 6
    return made


def _room_width(room: str) -> float:
    return 14 + 7.2 * len(room)


def _room_rows(name: str, width: float) -> int:
    """Count the rows that the rooms of a folder take."""
    rows, across = int(name in INSIDE), 12.0
    for room in INSIDE.get(name, ()):
        if across + _room_width(room) > width - 8:
            rows, across = rows + 1, 12.0
        across += _room_width(room) + 6
    return rows


def _wrapped(text: str, width: float) -> list[str]:
    """Break a text into lines of about seven points a letter."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) * 7.0 > width - 24 and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
