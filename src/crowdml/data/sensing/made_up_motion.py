"""Motion that nobody made: accelerations like those of people, by a formula. For demonstrations, never for figures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Floats
from crowdml.data.sensing.phone_motion import FINE_HZ, REACH, STEP, rows_of_motion

STILL, ON_FOOT, IN_VEHICLE = range(3)
GRAVITY = 9.81
WINDOW = 64 * STEP + 2 * REACH
"""Readings at 60 Hz that give one row."""


def made_up_motion(activity: int, count: int, draws: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return so many accelerations at 60 Hz, with gravity, shape (count, 3).

    Args:
        activity: 0 for somebody who is still, 1 for one on foot, 2 for one in a vehicle.
        count: How many.
        draws: Where chance comes from.
    """
    if activity not in (STILL, ON_FOOT, IN_VEHICLE):
        raise BadInput(f"activity {activity} is none of 0 (still), 1 (on foot) and 2 (in a vehicle)")
    seconds = np.arange(count) / FINE_HZ
    along = np.zeros(count)
    if activity == ON_FOOT:
        pace, strength = draws.uniform(1.6, 2.3), draws.uniform(1.2, 3.0)
        for multiple in (0.5, 1.0, 2.0, 3.0):
            phase, share = draws.uniform(0, 2 * np.pi), draws.uniform(0.2, 0.6)
            weight = 1.0 if multiple == 1.0 else share
            along += strength * weight * np.sin(2 * np.pi * pace * multiple * seconds + phase)
    elif activity == IN_VEHICLE:
        for _ in range(12):
            hertz, strength = draws.uniform(0.8, 9.0), draws.exponential(0.16)
            along += strength * np.sin(2 * np.pi * hertz * seconds + draws.uniform(0, 2 * np.pi))
    upwards = draws.normal(0, 1, 3)
    upwards /= np.linalg.norm(upwards)
    shaking = 0.02 if activity == STILL else 0.15
    moved: npt.NDArray[np.float64] = upwards * (GRAVITY + along)[:, None] + draws.normal(0, shaking, (count, 3))
    return moved


def made_up_row(activity: int, draws: np.random.Generator) -> Floats:
    """Return one row of 64 numbers, as a phone would make it of such motion.

    >>> rows = [made_up_row(activity, np.random.default_rng(1)) for activity in (0, 1, 2)]
    >>> [int(row[1:33].sum()) for row in rows][0] < 20
    True
    """
    row: Floats = rows_of_motion(np.arange(WINDOW) / FINE_HZ, made_up_motion(activity, WINDOW, draws))[0]
    return row
