"""Speeds: how long the devices of a simulated crowd work on a check-in. A device of middling speed takes one unit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.sections import SpeedSettings
from crowdml.core import record

Times = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@record
class Speeds:
    """What was drawn for one trial.

    Attributes:
        paces: Time that each device needs.
        work: `work(devices)`: time that these devices need this time.
    """

    paces: Times
    work: Callable[[Ints], Times]


def draw_speeds(settings: SpeedSettings, devices: int, generator: np.random.Generator) -> Speeds:
    """Draw how fast each device is; where nothing varies, nothing is drawn."""
    paces = np.exp(settings.sigma * generator.standard_normal(devices)) if settings.sigma else np.ones(devices)

    def work(chosen: Ints) -> Times:
        if not settings.jitter:
            return paces[chosen]
        return np.asarray(paces[chosen] * np.exp(settings.jitter * generator.standard_normal(len(chosen))))

    return Speeds(paces=paces, work=work)
