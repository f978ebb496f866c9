"""What `crowdml audit` has written about a sliced task, read for its server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crowdml.core import BadInput

MADE_BY = "crowdml audit TASK.toml --json FILE, of a slicenet task"


def read_leak(path: Path) -> dict[str, Any]:
    """Return the reading of sums that tells most; refuse a file that has none."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        read = [
            (float(reading["right"]), float(reading["chance"]))
            for reading in told["readings"]
            if str(reading["what"]).startswith("sums") and None not in (reading["right"], reading["chance"])
        ]
        own_rows = int(told["own_rows"])
        if not all(0 <= share <= 1 for pair in read for share in pair) or own_rows < 1:
            raise ValueError("shares that are none")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", hint=MADE_BY) from None
    except (ValueError, KeyError, TypeError):
        read, own_rows = [], 0
    if not read:
        raise BadInput(
            f"{path} says nothing about sums that were read",
            hint=MADE_BY,
        )
    right, chance = max(read)
    return {"right": right, "chance": chance, "own_rows": own_rows}
