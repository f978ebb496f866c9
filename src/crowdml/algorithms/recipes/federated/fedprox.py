"""fedprox: federated averaging whose local steps are pulled back (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020).

A device descends on its loss plus μ/2 ‖w - w₀‖², where w₀ is what it checked out: it goes less far towards rows that
only it has. Everything else is as in fedavg. In sound mode the whole change is bounded, as it is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes.federated import fedavg
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG, FedAvgSettings
from crowdml.privacy.releases import Releases


class FedProxSettings(FedAvgSettings):
    """The `[algorithm]` section of a fedprox task."""

    kind: Literal["fedprox"] = "fedprox"  # type: ignore[assignment]
    mu: float = Field(0.01, ge=0, description="μ: strength of the pull back to what was checked out")


def build(parts: Parts) -> Algorithm:
    """Assemble: as in fedavg, with a pull back."""
    return fedavg.build(parts, proximal=parts.hyper["mu"])


def _releases(settings: FedProxSettings) -> Releases:
    """Say what is sent. Of steps with a pull no stability is proven, so that the bound on the whole change counts."""
    plain = fedavg.releases(settings)
    assert plain.steps is not None  # noqa: S101  fedavg has some
    return replace(plain, steps=replace(plain.steps, by_walk=False))


FEDPROX = replace(FEDAVG, settings=FedProxSettings, build=build, releases=_releases, hyper={**FEDAVG.hyper, "mu": "mu"})
