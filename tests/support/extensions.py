"""Extensions for a while: what a test registers is forgotten after it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from crowdml.algorithms import RECIPES
from crowdml.algorithms.conformity import OUTSIDE
from crowdml.algorithms.rates import RATES
from crowdml.core.settings import rebuild
from crowdml.data import DATASETS
from crowdml.models import MODELS
from crowdml.models.adapters import USER_MODELS
from crowdml.models.layers import LAYERS
from crowdml.models.losses import LOSSES
from crowdml.privacy import MODES
from crowdml.privacy.noise.laws import LAWS, MECHANISMS, SOUND_LAWS, SUM_LAWS
from crowdml.task import Task
from crowdml.task.plugins import _BY_HAND, _LOADED, _REGISTERED
from crowdml.task.task import ALGORITHMS

REGISTRIES: tuple[Any, ...] = (
    *(RECIPES, ALGORITHMS, RATES, MODELS, LAYERS, LOSSES, LAWS, MECHANISMS, SUM_LAWS, MODES, DATASETS, USER_MODELS),
)
TABLES: tuple[Any, ...] = (SOUND_LAWS, OUTSIDE, _BY_HAND, _LOADED, _REGISTERED)


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Forget what is registered inside."""
    tables = [*TABLES, *(table for registry in REGISTRIES for table in (registry._entries, registry._later))]
    before = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.clear()
            table.update(content)
        for name, module in list(sys.modules.items()):
            if "examples/plugins" in (getattr(module, "__file__", None) or ""):
                del sys.modules[name]
        for registry in (ALGORITHMS, RATES, MODELS, LAYERS):
            rebuild(Task, registry)
