"""Noise whose size is given directly, as a standard deviation: the experiments of Crowd-ML library 2016.

Without a bound on what is perturbed no ε can be stated for it, and none is.
"""

from __future__ import annotations

import math
from typing import Literal

from crowdml.core import BadInput, record
from crowdml.privacy.mechanisms import MECHANISMS, NoiseLaw
from crowdml.privacy.settings import PrivacySettings

NoiseSequence = Literal["iid", "geometric", "rate", "banded"]


@record
class GivenNoise:
    """Noise on each message of a device.

    Attributes:
        law: The noise law.
        scale: The law's own scale for the first message.
        deviation: Standard deviation of each number of the first message; of the fresh noise behind each message where
            messages are correlated.
        sequence: How the scale goes on: the same for all messages, times `factor` from one of a device's contacts to
            the next, or in proportion to the learning rate; `banded`: see `banded`.
        factor: For the geometric sequence.
    """

    law: NoiseLaw
    scale: float
    deviation: float
    sequence: NoiseSequence
    factor: float


def given_noise(terms: PrivacySettings, size: int) -> GivenNoise:
    """Turn the terms into noise on a message of `size` numbers."""
    assert terms.noise_scale is not None  # noqa: S101  the caller asked
    _check(terms)
    law = MECHANISMS[terms.mechanism]
    if law.deviation is None:
        raise BadInput(
            f'"{law.name}" is not given by a standard deviation',
            where="privacy.mechanism",
            hint='use "gaussian", "laplace" or "k-norm"',
        )
    deviation = terms.noise_scale / (math.sqrt(size) if terms.noise_unit == "vector" else 1.0)
    return GivenNoise(
        law=law,
        scale=deviation / law.deviation(size),
        deviation=deviation,
        sequence=terms.noise_sequence,
        factor=terms.noise_factor if terms.noise_factor is not None else 1.0,
    )


def _check(terms: PrivacySettings) -> None:
    """Refuse terms that belong to noise worked out from ε."""
    if terms.epsilon is not None:
        raise BadInput(
            "noise follows either from epsilon or from noise-scale",
            where="privacy.noise-scale",
            hint="leave one of them out; with noise-scale no ε can be stated",
        )
    without = {"clip": terms.clip, "delta": terms.delta, "statistics-epsilon": terms.statistics_epsilon}
    for name, value in without.items():
        if value:
            raise BadInput("has no effect on noise of a given scale", where=f"privacy.{name}", hint="leave it out")
    if (terms.noise_sequence == "geometric") != (terms.noise_factor is not None):
        raise BadInput(
            'noise-sequence = "geometric" and noise-factor belong together',
            where="privacy.noise-factor",
            hint="such as noise-factor = 0.99",
        )
