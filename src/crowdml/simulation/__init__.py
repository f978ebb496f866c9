"""Simulation: a crowd on one machine, as compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdml.simulation.result import Result as Result
    from crowdml.simulation.run import simulate as simulate
    from crowdml.simulation.run import simulate_cells as simulate_cells

__all__ = ["Result", "simulate", "simulate_cells"]

# Imported when first asked for: a worker process needs the engine alone, and is started before anything else.
_HOMES = {"Result": "result", "simulate": "run", "simulate_cells": "run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdml.simulation' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"crowdml.simulation.{_HOMES[name]}"), name)
