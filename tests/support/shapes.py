"""Shapes that are checked while code runs: every annotation of an array is compared with what is there.

`CROWDML_CHECK_SHAPES=1 pytest …` turns this on, before anything of the package is imported. It makes everything slower,
and an array with an axis for trials is no longer what its annotation says; so tests that want it start a process of
their own (`tests/algorithms/test_shapes.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from beartype import beartype
from jaxtyping import AbstractArray, PyTree, install_import_hook, jaxtyped

MODULES = (
    "crowdml.core.ops",
    "crowdml.core.records",
    "crowdml.models.layers",
    "crowdml.models.losses",
    "crowdml.models.model",
)
"""Every function and record of these is checked, those inside functions too."""


def arrays_only(function: Any) -> Any:
    """Check those annotations of a function that speak of arrays; mypy has checked the others."""
    hints = {name: hint for name, hint in function.__annotations__.items() if _has_shape(hint)}
    function.__annotations__ = hints
    return beartype(function)


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and (issubclass(hint, AbstractArray) or dataclasses.is_dataclass(hint)):
        return True
    return isinstance(hint, type(PyTree)) or any(_has_shape(part) for part in typing.get_args(hint))


def check_shapes() -> None:
    """Check annotations: those of the modules, and for every part those that the contract has for it."""
    install_import_hook(MODULES, f"{__name__}.{arrays_only.__name__}")
    from crowdml.algorithms.contract import DevicePart, ServerPart
    from crowdml.privacy.sanitisers import Sanitiser
    from crowdml.simulation.engine import jax_ops as _registers_records  # noqa: F401

    for interface in (DevicePart, ServerPart, Sanitiser):
        _check_parts(interface)


def _check_parts(interface: Any) -> None:
    """Check each kind of part, and those that are defined later, by what the interface says."""

    def begin(cls: Any, /, **more: Any) -> None:
        super(interface, cls).__init_subclass__(**more)
        _check_part(cls, interface)

    for kind in _kinds(interface):
        _check_part(kind, interface)
    interface.__init_subclass__ = classmethod(begin)


def _kinds(interface: Any) -> list[type]:
    return [kind for child in interface.__subclasses__() for kind in (child, *_kinds(child))]


def _check_part(kind: type, interface: type) -> None:
    for name, promised in vars(interface).items():
        found = vars(kind).get(name)
        if inspect.isfunction(promised) and inspect.isfunction(found) and not name.startswith("_"):
            setattr(kind, name, _as_promised(found, promised))


def _as_promised(function: Callable[..., Any], promised: Callable[..., Any]) -> Any:
    """Return a function that is checked by the annotations of another."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    called.__signature__ = inspect.signature(promised, eval_str=True)  # type: ignore[attr-defined]
    return jaxtyped(called, typechecker=arrays_only)
