"""What decides which bits come out of a process: versions, and the kind of processor."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

COMPARED = ("jax", "jaxlib", "numpy")
"""Packages whose versions decide which bits come out."""


def described_machine() -> dict[str, Any]:
    """Say what decides which bits come out of this process: versions, and the kind of processor."""
    from crowdml.version import __version__

    def found(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "missing"

    versions = {"crowdml": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    return {
        "versions": versions | {package: found(package) for package in COMPARED},
        "processor": f"{platform.machine()} {_model_name()}",
    }


def _model_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
