"""admm-sums: ADMM whose every message is one bounded vector, for sums and promises.

A device sends 2λ' - λ, which is w + λ' - w0, relative to the public version w0 that it started from. It is bounded as a
whole and gets fresh noise; duals stay exact and never see noise. So every sum costs what its bound says, whatever
devices remember (docs/how-to/secure-aggregation.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import field_validator

from crowdml.algorithms.contract import Algorithm, SpeedHints, one_phase
from crowdml.algorithms.device_parts.prox import RelativeProx
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes.admm import ADMM, AdmmSettings, barrier, consensus, solver
from crowdml.algorithms.server_parts.consensus import Relative
from crowdml.privacy.releases import Releases


class AdmmSumsSettings(AdmmSettings):
    """The `[algorithm]` section of an admm-sums task."""

    kind: Literal["admm-sums"] = "admm-sums"  # type: ignore[assignment]

    @field_validator("honest")
    @classmethod
    def _said_elsewhere(cls, honest: float) -> float:
        if honest != 1.0:
            raise ValueError("γ of secure sums is secure-aggregation.honest: their noise is shared out by it")
        return honest


def build(parts: Parts) -> Algorithm:
    """Assemble: one relative vector from each device, behind a partial barrier."""
    schedule = barrier(parts)
    sanitiser = parts.sanitiser("change", alone=False, by_rows=False)
    device = RelativeProx(solve=solver(parts), sanitiser=sanitiser, zeros=parts.model.zeros, ops=parts.ops)
    server = Relative(sanitiser=sanitiser, kept=schedule.max_delay, **consensus(parts))
    return one_phase(device, server, sanitiser, schedule, SpeedHints(one_trial_at_a_time=True))


ADMM_SUMS = replace(
    ADMM,
    settings=AdmmSumsSettings,
    build=build,
    releases=lambda settings: Releases(sends="change", on_grid=True, published=False),
)
