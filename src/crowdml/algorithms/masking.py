"""Masking: how the check-ins of a version become one masked sum, and how their noise is shared out.

A round of n invited devices is given up unless m of them survive; of all n at most c are dishonest. So at least
h = m - (1 - γ)·n honest ones have added noise to what comes out, and each adds 1/h of what the sum needs.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from pydantic import Field

from crowdml.core import BadInput, Settings, record
from crowdml.privacy.mechanisms import SUM_LAWS, Shared
from crowdml.privacy.mechanisms.sums import honest_survivors

LEAST_MEMBERS = 3


class SumsSettings(Settings):
    """The `[sums]` section: whether check-ins are masked, so that the server learns their sums alone."""

    masked: bool = Field(False, description="whether devices mask their check-ins")
    honest: float = Field(
        0.9, gt=0, le=1, description="γ: part of the invited devices that do not work together with the server"
    )
    drop_out: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="part of the invited devices that a round may lose; with more losses it is given up",
    )
    law: Literal["discrete-gaussian", "skellam"] = Field(
        "discrete-gaussian", description="the law of each device's share of the noise (sound mode)"
    )
    agreement: bool = Field(
        False,
        description="whether a server must be found out that shows different survivors to different devices; that "
        "takes more neighbours",
    )
    bound: float = Field(
        1000.0,
        gt=0,
        description='largest number of a message where mode = "none"; a device whose message has a larger one sends '
        "nothing",
    )
    precision: int = Field(16, ge=1, le=32, description='binary places of the numbers of a message where mode = "none"')


@record
class Masking:
    """How many take part in a sum, and how many of them may fail.

    Attributes:
        invited: Devices invited to a round, n.
        least: Survivors that a round needs, m.
        corrupt: Devices that may work together with the server, c.
        shared: Law and number of the shares of noise that are certainly in a sum.
    """

    invited: int
    least: int
    corrupt: int
    shared: Shared


def make_masking(settings: SumsSettings, together: int, kind: str) -> Masking:
    """Work out the numbers, or say why nobody would be hidden."""
    if together < LEAST_MEMBERS:
        raise BadInput(
            f"a sum of {together} check-in{'s' * (together > 1)} hides nobody",
            where="sums.masked",
            hint=f"at least {LEAST_MEMBERS} devices together: "
            + ("a larger server-batch" if kind == "local-sgd" else "a larger per-round"),
        )
    least = math.ceil((1 - Fraction(repr(settings.drop_out))) * together)
    try:
        survivors = honest_survivors(least, together, settings.honest)
    except BadInput as error:
        raise BadInput(error.what, where="sums.honest", hint=error.hint) from None
    return Masking(
        invited=together,
        least=max(least, LEAST_MEMBERS),
        corrupt=math.floor((1 - Fraction(repr(settings.honest))) * together),
        shared=Shared(law=SUM_LAWS[settings.law], survivors=survivors),
    )
