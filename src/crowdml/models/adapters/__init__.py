"""Models of the user's own, of other libraries. JAX and PyTorch are imported by whoever brings such a model."""

from __future__ import annotations

import sys
from typing import Any

from crowdml.core import BadInput
from crowdml.models.adapters.jax_model import JaxModel as JaxModel
from crowdml.models.adapters.jax_modules import EquinoxModel as EquinoxModel
from crowdml.models.adapters.jax_modules import FlaxModel as FlaxModel
from crowdml.models.adapters.torch_model import TorchModel as TorchModel
from crowdml.models.adapters.training_loop import TrainingLoop as TrainingLoop
from crowdml.models.adapters.user_model import USER_MODELS as USER_MODELS
from crowdml.models.adapters.user_model import UserModel as UserModel

_MODULES = (
    ("flax.linen", "Module", FlaxModel),
    ("flax.nnx", "Module", FlaxModel),
    ("equinox", "Module", EquinoxModel),
    ("torch.nn", "Module", TorchModel),
)
"""Where a library's modules come from, and what takes them."""


def adapt(model: Any) -> UserModel:
    """Return a model of the user's own as crowdml knows it: itself, or a module with the loss that fits the target.

    Libraries are not imported for this: an object of theirs shows that they are.
    """
    if isinstance(model, UserModel):
        return model
    for library, name, kind in _MODULES:
        module = sys.modules.get(library)
        if module is not None and isinstance(model, getattr(module, name)):
            return kind(module=model)
    if isinstance(model, type):
        raise BadInput(
            f"{model.__name__} is a class, and no model yet",
            where="model",
            hint=f"{model.__name__}(…); a class of PyTorch, one for every trial: crowdml.TorchModel(module=…)",
        )
    raise BadInput(
        f"{type(model).__name__} is no model that crowdml knows",
        where="model",
        hint="a module of flax, equinox or PyTorch; or crowdml.JaxModel(init=…, loss=…)",
    )
