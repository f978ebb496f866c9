"""Masking: how the check-ins of a version become one sum (secure aggregation), and how their noise is shared out.

A round of n invited devices is given up unless m of them survive; of all n at most c are dishonest. So at least
h = m - (1 - γ)·n honest ones have added noise to what comes out, and each adds 1/h of what the sum needs.

The masked form of a check-in is one vector of integers, and the sum of many of them is one check-in again. Everything
in a check-in goes into the vector, the number of rows or the weight too. In sound mode numbers are integers on a grid
already. Where nothing is promised they are written in fixed point, and a number out of range is an error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from crowdml.algorithms.contract import Phase
from crowdml.algorithms.schedule import Schedule
from crowdml.core import BadInput, CheckIn, Release, Settings, record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.settings import NameIn
from crowdml.privacy.limits import LARGEST_ROWS
from crowdml.privacy.noise.laws import SUM_LAWS
from crowdml.privacy.noise.shares import Shared, honest_survivors
from crowdml.secure_aggregation import SumTerms, bits_for
from crowdml.secure_aggregation.graph import make_graph, most_lost

Vector = npt.NDArray[np.int64]

LEAST_MEMBERS = 3


class SecureAggregationSettings(Settings):
    """The `[secure-aggregation]` section: devices mask their check-ins, so that the server learns sums alone."""

    enabled: bool = Field(
        False, description="whether check-ins are aggregated securely: masked, so that only their sum can be read"
    )
    honest: float = Field(
        0.9, gt=0, le=1, description="γ: part of the invited devices that do not work together with the server"
    )
    drop_out: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="part of the invited devices that a round may lose; with more losses it is given up",
    )
    law: Annotated[str, NameIn(SUM_LAWS)] = Field(
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
                where="secure-aggregation.agreement",
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
        settings: What the task file says.
    """

    invited: int
    least: int
    corrupt: int
    attempts: int
    shared: Shared
    settings: SecureAggregationSettings


def make_masking(settings: SecureAggregationSettings, together: int, kind: str) -> Masking:
    """Work out the numbers, or say why nobody would be hidden."""
    if together < LEAST_MEMBERS:
        raise BadInput(
            f"a sum of {together} check-in{'s' * (together > 1)} hides nobody",
            where="secure-aggregation.enabled",
            hint=f"at least {LEAST_MEMBERS} devices together: "
            + ("a larger server-batch" if kind == "local-sgd" else "a larger per-round"),
        )
    least = math.ceil((1 - Fraction(repr(settings.drop_out))) * together)
    try:
        survivors = honest_survivors(least, together, settings.honest)
    except BadInput as error:
        raise BadInput(error.what, where="secure-aggregation.honest", hint=error.hint) from None
    least, corrupt = max(least, LEAST_MEMBERS), math.floor((1 - Fraction(repr(settings.honest))) * together)
    _require_agreement(settings, together, least, corrupt)
    return Masking(
        invited=together,
        least=least,
        corrupt=corrupt,
        attempts=settings.attempts,
        shared=Shared(law=SUM_LAWS[settings.law], survivors=survivors),
        settings=settings,
    )


def _require_agreement(settings: SecureAggregationSettings, together: int, least: int, corrupt: int) -> None:
    """Refuse terms under which a cheating server could show two sets of survivors, each to enough devices."""
    for members in (together, least):
        try:
            make_graph(members, corrupt, members - least)
        except BadInput:
            part = max(0, most_lost(together, corrupt)) / together
            raise BadInput(
                f"{together} devices of whom {corrupt} may be corrupt and {together - least} may be lost: too few "
                "would be left to be sure that a cheating server shows all of them the same survivors",
                where="secure-aggregation.drop-out",
                hint=f"with honest = {settings.honest:g} a drop-out of at most {math.floor(100 * part) / 100:g}, or "
                "more devices together",
            ) from None


@record
class MaskedForm:
    """Turns check-ins into vectors and sums into check-ins.

    Attributes:
        terms: What is summed, among how many.
        masking: Members and shares of noise.
        example: A check-in, for names, types and shapes.
        places: Binary places of numbers that are not integers.
        deviation: Standard deviation of each device's share of the noise.
    """

    terms: SumTerms
    masking: Masking
    example: CheckIn
    places: int
    deviation: float

    def vector(self, release: Release, check_in: CheckIn) -> tuple[Vector, Vector | None]:
        """Return what a device has to say as integers, and its share of the noise; None where there is none."""
        noisy = self._integers(check_in)
        if all(leaf.dtype.kind == "i" for leaf in map(np.asarray, trees.leaves(check_in))):
            bounded = self._integers(replace(check_in, update=release.update, counts=release.counts))
            # A check-in has 32 bits, and wraps around where the bounded sum is longer. Noise has no more either, so
            # that modulo 2³² the difference is the noise itself, whatever it was added to.
            return bounded, (noisy - bounded).astype(np.int32).astype(np.int64)
        return noisy, None

    def check_in(self, total: Vector, survivors: int) -> CheckIn:
        """Make one check-in of a sum; a sum that no honest devices can have is refused."""
        most = survivors * self.terms.largest + 8 * math.sqrt(survivors) * self.deviation
        if len(total) != self.terms.size or (len(total) and int(np.abs(total).max()) > most):
            raise MalformedMessage("the sum is beyond what its members can have sent: it has wrapped, or one has lied")
        leaves, at = [], 0
        for leaf in map(np.asarray, trees.leaves(self.example)):
            part = total[at : at + leaf.size].reshape(leaf.shape)
            at += leaf.size
            leaves.append(part if leaf.dtype.kind == "i" else (part / 2.0**self.places).astype(np.float32))
        made: CheckIn = trees.fill(self.example, iter(leaves))
        return made

    def _integers(self, check_in: CheckIn) -> Vector:
        return np.concatenate([self._written(np.asarray(leaf).reshape(-1)) for leaf in trees.leaves(check_in)])

    def _written(self, leaf: npt.NDArray[Any]) -> Vector:
        if leaf.dtype.kind == "i":
            return leaf.astype(np.int64)
        largest = self.terms.largest / 2.0**self.places
        if not np.isfinite(leaf).all() or (leaf.size and float(np.abs(leaf).max()) > largest):
            raise BadInput(
                f"a number of the message is beyond {largest:g}",
                where="secure-aggregation.bound",
                hint="nothing is sent: a larger bound, or a smaller rate",
            )
        return np.rint(leaf.astype(np.float64) * 2.0**self.places).astype(np.int64)


def make_masked_form(task: str, masking: Masking, schedule: Schedule, phase: Phase, example: CheckIn) -> MaskedForm:
    """Work out the masked form of a phase's check-ins.

    Args:
        task: Name of the task.
        masking: Who takes part.
        schedule: How many rows a check-in may be about, and whether the server waits.
        phase: The phase.
        example: A check-in of the server's kind, with the update as one vector.
    """
    rows, settings = schedule.most_rows or LARGEST_ROWS, masking.settings
    integers = phase.sanitiser.integers(rows)
    if integers is None:
        largest, deviation, places = math.ceil(settings.bound * 2.0**settings.precision), 0.0, settings.precision
    else:
        largest, deviation, places = *integers, 0
    by_rows = phase.sanitiser.weighs_rows or example.counts != ()
    largest = max(largest, rows if by_rows else 1)
    terms = SumTerms(
        task=task,
        size=trees.size(example),
        bits=bits_for(masking.invited, largest, deviation),
        largest=largest,
        invited=masking.invited,
        least=masking.least,
        corrupt=masking.corrupt,
        delays=schedule.delays,
    )
    return MaskedForm(terms=terms, masking=masking, example=example, places=places, deviation=deviation)
