"""What `crowdml task` prints."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

_HIDDEN = ("signed_sheet", "reason", "state", "recent_error", "estimated_error", "averaging")
_WIDTH = 18
STATES = {
    "open": "open",
    "paused": "paused: devices wait, and nothing is taken",
    "draft": "draft: devices can join, and wait until it is opened",
    "stopped": "stopped: nobody can join, and no more check-ins are taken",
}


def print_task(found: dict[str, Any], as_json: bool) -> None:
    """Print how a task stands."""
    from crowdml.cli import output

    if as_json:
        output.write_json(found, Path("-"))
        return
    for name, value in _lines(found):
        width = max(40, shutil.get_terminal_size().columns - _WIDTH - 2)
        lines = textwrap.wrap(value, width, break_long_words=False, break_on_hyphens=False) or ["-"]
        print(f"{name:{_WIDTH}} {lines[0]}")
        for line in lines[1:]:
            print(f"{'':{_WIDTH}} {line}")


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    from crowdml.algorithms.recent_error import RecentError

    reason = f" ({found['reason']})" if found["reason"] else ""
    shown = {"task": found["task"], "objective": found["objective"], "state": STATES[found["state"]] + reason}
    if found["recent_error"]:
        shown["recent error"] = RecentError(**found["recent_error"]).words()
        shown["error so far"] = f"{found['estimated_error']:.2f} over all check-ins since the beginning"
    else:
        shown["recent error"] = "not known: no counts yet, or none are sent"
    if found["averaging"]:
        shown["averaging"] = ", ".join(f"{name} {value}" for name, value in found["averaging"].items())
    names = {"check_ins": "check-ins"}
    rest = {names.get(name, name.replace("_", " ")): value for name, value in found.items() if name not in _HIDDEN}
    row = _row(found["signed_sheet"])
    rest |= {"a row": row} if row else {}
    return [(name, str(value)) for name, value in (shown | rest).items()]


def _row(envelope: dict[str, str]) -> str:
    """Say what a row has, where the signed task names its columns or an id."""
    from crowdml.algorithms.sections import DataSettings
    from crowdml.protocol import SignedSheet

    # The server's own words about its own task: nothing is trusted here that a device would not check again.
    content = SignedSheet.from_json(envelope).open().definition["data"]
    data = DataSettings.model_validate(content, by_alias=True, by_name=False)
    return data.row_in_words if data.columns or data.id else ""


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Print some columns of records."""
    from rich.console import Console
    from rich.table import Table

    from crowdml.cli import output

    if as_json:
        output.write_json({"rows": rows}, Path("-"))
        return
    table = Table(box=None)
    for column in columns:
        table.add_column(column.replace("_", "-"))
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)
