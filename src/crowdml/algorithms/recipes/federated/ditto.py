"""ditto: federated averaging, and a model of each device's own that is held near the common one.

Li, Hu, Beirami and Smith, "Ditto: fair and robust federated learning through personalization", 2021, algorithm 1. The
crowd learns as in fedavg, in every privacy mode. Beside it each device takes steps on a model of its own, pulled
towards the common one by λ: 0 is learning alone, and with a large λ it stays the common model. Of that nothing is sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.device_parts.personal import WithPersonal
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes.federated import fedavg
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG, FedAvgSettings
from crowdml.core import BadInput


class DittoSettings(FedAvgSettings):
    """The `[algorithm]` section of a ditto task."""

    kind: Literal["ditto"] = "ditto"  # type: ignore[assignment]
    pull: float = Field(0.1, ge=0, description="λ: how much a device's own model is pulled towards the common one")
    personal_rate: float = Field(1.0, gt=0, description="constant learning rate of a device's own model")


def build(parts: Parts) -> Algorithm:
    """Assemble: as in fedavg, with a model of each device's own."""
    if parts.settings.local_steps:
        raise BadInput(
            "a device's own model goes through its rows: it cannot count steps",
            where="algorithm.local-steps",
            hint='leave it out, or use kind = "fedavg" and crowd.personal',
        )
    made = fedavg.build(parts)
    personal = WithPersonal(
        shared=made.last.device,
        objective=parts.objective(),
        rate=parts.hyper["personal-rate"],
        pull=parts.hyper["pull"],
        size=parts.settings.local_batch,
        zeros=parts.model.zeros,
        ops=parts.ops,
    )
    hints = replace(made.hints, multiples=False)
    return replace(made, phases=(replace(made.last, device=personal),), hints=hints)


DITTO = replace(
    FEDAVG,
    settings=DittoSettings,
    build=build,
    hyper={**FEDAVG.hyper, "pull": "pull", "personal-rate": "personal_rate"},
)
