"""crowdml: a crowd of devices learns a common model without giving up its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdml.version import __version__ as __version__

if TYPE_CHECKING:
    from crowdml.data import Dataset as Dataset
    from crowdml.device import Device as Device
    from crowdml.device import Ledger as Ledger
    from crowdml.models.adapters import EquinoxModel as EquinoxModel
    from crowdml.models.adapters import FlaxModel as FlaxModel
    from crowdml.models.adapters import JaxModel as JaxModel
    from crowdml.models.adapters import TorchModel as TorchModel
    from crowdml.models.adapters import TrainingLoop as TrainingLoop
    from crowdml.simulation import Result as Result
    from crowdml.simulation import simulate as simulate
    from crowdml.studies.sweeps import Comparison as Comparison
    from crowdml.studies.sweeps import compare as compare
    from crowdml.studies.sweeps import sweep as sweep
    from crowdml.task import Task as Task
    from crowdml.task.plugins import register as register
    from crowdml.task.user_models import save_start as save_start

__all__ = [
    "Comparison",
    "Dataset",
    "Device",
    "EquinoxModel",
    "FlaxModel",
    "JaxModel",
    "Ledger",
    "Result",
    "Task",
    "TorchModel",
    "TrainingLoop",
    "__version__",
    "compare",
    "register",
    "save_start",
    "simulate",
    "sweep",
]

# Imported when first asked for, so that `import crowdml` and `crowdml --help` stay quick.
_HOMES = {
    "Dataset": "crowdml.data",
    "Device": "crowdml.device.device",
    "EquinoxModel": "crowdml.models.adapters",
    "FlaxModel": "crowdml.models.adapters",
    "JaxModel": "crowdml.models.adapters",
    "TorchModel": "crowdml.models.adapters",
    "TrainingLoop": "crowdml.models.adapters",
    "save_start": "crowdml.task.user_models",
    "register": "crowdml.task.plugins",
    "Ledger": "crowdml.device.ledger_store",
    "Result": "crowdml.simulation",
    "Task": "crowdml.task",
    "Comparison": "crowdml.studies.sweeps",
    "compare": "crowdml.studies.sweeps",
    "simulate": "crowdml.simulation",
    "sweep": "crowdml.studies.sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdml' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
