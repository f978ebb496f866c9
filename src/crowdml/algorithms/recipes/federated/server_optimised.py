"""fedavgm, fedadam, fedyogi: federated averaging whose server takes steps with a memory.

The mean change of a round stands for a gradient downhill, of which the server makes a step as an optimiser would:
momentum (Hsu, Qi and Brown 2019), Adam or Yogi (Reddi and others 2021, algorithm 2, without correction of the means).
Devices do what they do in fedavg, and send the same: what the server does with it is post-processing, in every mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms.rates import RATES, Adam, Momentum, Yogi
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG, FedAvgSettings
from crowdml.core import OneOf

ADAPTIVE: dict[str, Any] = {"c": 0.1, "square_decay": 0.99, "floor": 1e-3, "corrected": False}
"""As Reddi and others set it: β₁ = 0.9, β₂ = 0.99, τ = 0.001; c is their η, to be tuned."""


class FedAvgMSettings(FedAvgSettings):
    """The `[algorithm]` section of a fedavgm task."""

    kind: Literal["fedavgm"] = "fedavgm"  # type: ignore[assignment]
    server: Annotated[Any, OneOf(RATES)] = Field(
        Momentum(c=1.0, momentum=0.9), description="what the server makes of the mean change"
    )


class FedAdamSettings(FedAvgSettings):
    """The `[algorithm]` section of a fedadam task."""

    kind: Literal["fedadam"] = "fedadam"  # type: ignore[assignment]
    server: Annotated[Any, OneOf(RATES)] = Field(
        Adam(**ADAPTIVE), description="what the server makes of the mean change"
    )


class FedYogiSettings(FedAvgSettings):
    """The `[algorithm]` section of a fedyogi task."""

    kind: Literal["fedyogi"] = "fedyogi"  # type: ignore[assignment]
    server: Annotated[Any, OneOf(RATES)] = Field(
        Yogi(**ADAPTIVE), description="what the server makes of the mean change"
    )


_OPTIMISED = replace(FEDAVG, hyper={**FEDAVG.hyper, "server-rate": "server.c"})
FEDAVGM = replace(_OPTIMISED, settings=FedAvgMSettings)
FEDADAM = replace(_OPTIMISED, settings=FedAdamSettings)
FEDYOGI = replace(_OPTIMISED, settings=FedYogiSettings)
