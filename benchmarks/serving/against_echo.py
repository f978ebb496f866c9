"""Check-ins beside an echo of the same body, by the number of parameters; run by `bench.py --against-echo`.

What is compared is CPU time of the server's process, read from outside (/proc/PID/stat), with both servers on the same
protocol, taking turns; of each the best turn counts, since others may use the machine. Beside it stand the median of
the ratios of all turns, and two other echoes: one that sends the body back, and one that reads as check-ins are read.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench import Form, measure

TURNS = 5
ECHOES = ("echo", "echo-back", "echo-lean")
SIZES = {
    50: ((200, 6000, 1.6),),
    10_000: ((64, 640, 2.5), (1, 100, None)),
    100_000: ((16, 96, 3.0), (1, 20, None)),
}
"""Features (ten parameters each) → connections, requests in a turn, and the most echoes that a check-in shall cost."""


def compare(to: Path | None) -> None:
    """Measure all sizes; print a table, and write it as JSON where asked."""
    print(
        "parameters  connections   echo µs   check-in µs   echoes (median)   goal   echo-back   echo-lean", flush=True
    )
    rows = [row for features in SIZES for row in _size(features)]
    if to:
        to.write_text(json.dumps(rows, indent=2) + "\n")


def _size(features: int) -> list[dict[str, Any]]:
    """Measure one size with every number of connections."""
    with tempfile.TemporaryDirectory() as folder:
        forms: list[Form] = []
        try:
            for name in (*ECHOES, "durable"):
                home = Path(folder) / name
                home.mkdir()
                forms.append(Form(name, home, features))
            return [_row(forms, features, *setting) for setting in SIZES[features]]
        finally:
            for form in forms:
                form.process.terminate()
                form.process.wait()


def _row(forms: list[Form], features: int, connections: int, requests: int, goal: float | None) -> dict[str, Any]:
    for form in forms:
        form.costs.clear()
        measure(form, connections, max(connections, requests // 4))
    for _ in range(TURNS):
        for form in forms:
            form.costs.append(measure(form, connections, requests))
    best = {name: min(form.costs) for name, form in zip((*ECHOES, "check-in"), forms, strict=True)}
    echo, check_in = forms[0].costs, forms[-1].costs
    row = {
        "parameters": features * 10,
        "connections": connections,
        "microseconds": {name: round(cost, 1) for name, cost in best.items()},
        "echoes": round(best["check-in"] / best["echo"], 2),
        "echoes_median": round(statistics.median(b / a for a, b in zip(echo, check_in, strict=True)), 2),
        "goal": goal,
        "echoes_back": round(best["check-in"] / best["echo-back"], 2),
        "echoes_lean": round(best["check-in"] / best["echo-lean"], 2),
    }
    print(
        f"{features * 10:10}  {connections:11}  {best['echo']:8.0f}  {best['check-in']:12.0f}  "
        f"{row['echoes']:8} ({row['echoes_median']:5})  {goal or '':>6}  {row['echoes_back']:10}  "
        f"{row['echoes_lean']:10}",
        flush=True,
    )
    return row
