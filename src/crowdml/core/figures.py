"""Saving figures: whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from crowdml.core.validation import write_whole


def save_figure(figure: Any, path: Path) -> None:
    """Write a matplotlib figure in the format that the file's name asks for."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."))
    write_whole(path, drawn.getvalue())
