"""What a rate is: it turns an update into a step, perhaps remembering earlier updates."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.core import Array, Ops, Settings, record
from crowdml.core.ops import Tree

Counter = Literal["versions", "check-ins", "device-contacts", "local-steps"]
"""The four counters of the Crowd-ML library 2016: t_s, s_s, t_d and s_d."""


@record
class Rate:
    """A learning rate as two pure functions.

    Attributes:
        init: `init(parameters)`: what the rate remembers; `()` if nothing.
        step: `step(memory, update, count)` returns the change to subtract and the new memory; counts start at 1.
        factor: `factor(count)`: what an update is multiplied by; None where the rate looks at updates itself.
    """

    init: Callable[[Tree], Tree]
    step: Callable[[Tree, Tree, Array], tuple[Tree, Tree]]
    factor: Callable[[Array], Array] | None = None


class RateSettings(Settings):
    """The interface of all rates, and the keys they share. A leaf class is final."""

    kind: str
    c: float = Field(gt=0, examples=[0.1], description="the constant c of the rate")
    counter: Counter = Field("versions", description="what t counts")

    @property
    def steepest(self) -> float | None:
        """The largest factor by which an update is ever multiplied; None where the rate looks at updates itself."""
        return None

    @abc.abstractmethod
    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate; `c` is handed in because a sweep may trace it."""
