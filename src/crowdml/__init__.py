"""crowdml: a crowd of devices learns a common model without giving up its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crowdml.data import Dataset as Dataset
    from crowdml.device import Device as Device
    from crowdml.device import Ledger as Ledger
    from crowdml.simulation import Result as Result
    from crowdml.simulation import simulate as simulate
    from crowdml.task import Task as Task
    from crowdml.task.plugins import register as register

__all__ = ["Dataset", "Device", "Ledger", "Result", "Task", "__version__", "register", "simulate"]

# Imported when first asked for, so that `import crowdml` and `crowdml --help` stay quick.
_HOMES = {
    "Dataset": "crowdml.data",
    "Device": "crowdml.device.device",
    "register": "crowdml.task.plugins",
    "Ledger": "crowdml.device.ledger_store",
    "Result": "crowdml.simulation",
    "Task": "crowdml.task",
    "simulate": "crowdml.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdml' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
