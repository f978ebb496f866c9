"""Write tests/vectors/sensing.json anew: python -m tests.data.sensing.record. Read by pytest and by the web tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.data.sensing.drawn_digits import row_of_strokes
from crowdml.data.sensing.phone_motion import rows_of_motion
from tests.support.strokes import DIGITS, another_hand

VECTORS = Path(__file__).parents[2] / "vectors" / "sensing.json"


def recordings() -> dict[str, tuple[Any, Any]]:
    """Make recordings as phones give them: wavering, from another rate, slow, and with a gap."""
    draws = np.random.default_rng(22)
    made = {}
    for name, rate, waver in (("wavering 60 Hz", 60.0, 0.004), ("even 50 Hz", 50.0, 0.0), ("slow 9 Hz", 9.0, 0.03)):
        seconds = np.sort(np.arange(0, 7, 1 / rate) + draws.uniform(0, waver, int(np.ceil(7 * rate))))
        walk = 2.5 * np.sin(2 * np.pi * 1.9 * seconds) + 0.8 * np.sin(2 * np.pi * 17.0 * seconds + 1)
        axes = np.stack([0.4 * walk, 0.2 * walk, 9.81 + walk], axis=1) + draws.normal(0, 0.1, (len(seconds), 3))
        made[name] = (seconds.round(4), axes.round(3))
    seconds, axes = made["wavering 60 Hz"]
    made["a gap in the middle"] = (np.where(seconds > 3.6, seconds + 0.9, seconds).round(4), axes)
    return made


def content() -> dict[str, Any]:
    """Return what the file holds."""
    motion = [
        {"name": name, "seconds": seconds.tolist(), "acceleration": axes.tolist(), "rows": _texts(seconds, axes)}
        for name, (seconds, axes) in recordings().items()
    ]
    drawings = [*DIGITS, another_hand(8, seed=1), [[(50.0, 50.0)]], [[(10.0, 40.0), (90.0, 40.0)]]]
    digits = [{"strokes": strokes, "row": row_of_strokes(strokes).astype(int).tolist()} for strokes in drawings]
    return {"motion": motion, "digits": digits}


def _texts(seconds: Any, axes: Any) -> list[list[float]]:
    # The second half of a spectrum is the mirror of the first.
    return [[float(f"{value:.8g}") for value in row[:33]] for row in rows_of_motion(seconds, axes)]


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(content(), separators=(",", ":")) + "\n", encoding="utf-8")
