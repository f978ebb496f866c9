"""Importing the package must stay light."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("jax", "sklearn", "PIL", "scipy", "httpx", "pandas", "matplotlib")


def test_nothing_heavy_is_imported() -> None:
    code = f"import sys, crowdml.data, crowdml.data.folders; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
