"""Sensors: how rows of a task come about on a phone. Signed with the task, and ignored by Python devices.

A phone that joins a task without a sensor is asked for a file of rows.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from crowdml.core.registry import Registry
from crowdml.core.settings import Settings
from crowdml.data.sensing.drawn_digits import SIDE
from crowdml.data.sensing.phone_motion import BINS


class Activity(Settings):
    """Acceleration: its magnitude at 20 Hz, cut into windows of 3.2 s, each as the 64 bins of its Fourier transform.

    The owner says by a button what they are doing. Keeping a sample only when the label changed is a choice that
    depends on data: the promise is about the samples that were kept.
    """

    features: ClassVar[int] = BINS
    kind: Literal["activity"] = "activity"
    keep: Literal["slots", "label-change"] = Field(
        "slots",
        description="which windows become samples: the first of each slot of time, or the first after the owner "
        "changed the label, as in Crowd-ML 2015",
    )
    slot_s: float = Field(3.2, ge=3.2, le=3600, description="length of a slot in seconds; 3.2 keeps every window")


class DrawADigit(Settings):
    """A digit drawn with a finger: 8 × 8 numbers from 0 to 16, as scikit-learn's digits have them."""

    features: ClassVar[int] = SIDE * SIDE
    kind: Literal["draw-a-digit"] = "draw-a-digit"


SENSORS: Registry[type[Activity | DrawADigit]] = Registry("sensor", {"activity": Activity, "draw-a-digit": DrawADigit})
"""Every kind of `data.sensor`."""
