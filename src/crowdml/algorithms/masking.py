"""Masking: how the check-ins of a version become one sum (secure aggregation), and how their noise is shared out.

A round of n invited devices is given up unless m of them survive; of all n at most c are dishonest. So at least
h = m - (1 - γ)·n honest ones have added noise to what comes out, and each adds 1/h of what the sum needs.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, model_validator

from crowdml.core import BadInput, Settings, record
from crowdml.privacy.mechanisms import SUM_LAWS, Shared
from crowdml.privacy.mechanisms.sums import honest_survivors
from crowdml.protocol.sums.graph import make_graph, most_lost

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
    attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="sums of one version at most that a device sends a vector to; each has fresh noise and is charged",
    )
    bound: float = Field(
        1000.0,
        gt=0,
        description='largest number of a message where mode = "none"; a device whose message has a larger one sends '
        "nothing",
    )
    precision: int = Field(16, ge=1, le=32, description='binary places of the numbers of a message where mode = "none"')

    @model_validator(mode="before")
    @classmethod
    def _always_agreed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "agreement" in given:
            raise BadInput(
                "devices always agree on the survivors of a sum: there is nothing to choose any more",
                where="sums.agreement",
                hint="leave it out",
            )
        return given


@record
class Masking:
    """How many take part in a sum, and how many of them may fail.

    Attributes:
        invited: Devices invited to a round, n.
        least: Survivors that a round needs, m.
        corrupt: Devices that may work together with the server, c.
        attempts: Sums of one version at most that a device sends a vector to.
        shared: Law and number of the shares of noise that are certainly in a sum.
    """

    invited: int
    least: int
    corrupt: int
    attempts: int
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
    least, corrupt = max(least, LEAST_MEMBERS), math.floor((1 - Fraction(repr(settings.honest))) * together)
    _require_agreement(settings, together, least, corrupt)
    return Masking(
        invited=together,
        least=least,
        corrupt=corrupt,
        attempts=settings.attempts,
        shared=Shared(law=SUM_LAWS[settings.law], survivors=survivors),
    )


def _require_agreement(settings: SumsSettings, together: int, least: int, corrupt: int) -> None:
    """Refuse terms under which a cheating server could show two sets of survivors, each to enough devices."""
    for members in (together, least):
        try:
            make_graph(members, corrupt, members - least)
        except BadInput:
            part = max(0, most_lost(together, corrupt)) / together
            raise BadInput(
                f"{together} devices of whom {corrupt} may be corrupt and {together - least} may be lost: too few "
                "would be left to be sure that a cheating server shows all of them the same survivors",
                where="sums.drop-out",
                hint=f"with honest = {settings.honest:g} a drop-out of at most {math.floor(100 * part) / 100:g}, or "
                "more devices together",
            ) from None
