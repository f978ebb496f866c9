"""Data: named datasets, transforms of their rows, and partitions over a crowd."""

from typing import TYPE_CHECKING, Any

from crowdml.data.dataset import Dataset as Dataset
from crowdml.data.dataset import resplit as resplit
from crowdml.data.partitions import PARTITIONS as PARTITIONS
from crowdml.data.partitions import Partition as Partition
from crowdml.data.transforms import TRANSFORMS as TRANSFORMS
from crowdml.data.transforms import Fitted as Fitted
from crowdml.data.transforms import Transform as Transform
from crowdml.data.transforms import apply_all as apply_all
from crowdml.data.transforms import fit_all as fit_all
from crowdml.data.transforms import input_bound as input_bound

if TYPE_CHECKING:
    from crowdml.data.catalogue import DATASETS as DATASETS
    from crowdml.data.download import get as get
    from crowdml.data.folders import load as load
    from crowdml.data.folders import locate as locate
    from crowdml.data.folders import verify as verify
    from crowdml.data.sources import Source as Source

# Named datasets are for simulations; a device has rows of its own and should not wait for their loaders.
_HOMES = {
    "DATASETS": "catalogue",
    "Source": "sources",
    "get": "download",
    "load": "folders",
    "locate": "folders",
    "verify": "folders",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdml.data' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"crowdml.data.{_HOMES[name]}"), name)
