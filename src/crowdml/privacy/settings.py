"""The `[privacy]` section of a task file: what is promised to owners, and how it is kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, field_validator

from crowdml.core import BadInput, Registry, Settings
from crowdml.core.registry import nearest
from crowdml.core.settings import NameIn
from crowdml.privacy.noise.laws import MECHANISMS

MODES: Registry[Any] = Registry("privacy mode", {})
"""Every mode by its name; `calibration.modes` enters ours and says what one is."""


class PrivacySettings(Settings):
    """What is promised to owners, and how it is kept."""

    mode: Annotated[str, NameIn(MODES)] = Field(
        "sound",
        description='"sound": proven, and enforced by a ledger; "paper": a paper\'s formula to the letter, simulation '
        'only; "none": no noise and no promise',
    )
    unit: Literal["sample", "device"] = Field("sample", description="what one promise protects")
    adjacency: Literal["replace", "add-remove"] = Field("replace", description="which data sets are neighbours")
    mechanism: str = Field("laplace", description="the noise law")
    clip: PositiveFloat | None = Field(
        None,
        description="longest gradient of one example, in the mechanism's norm; not given: the model's own bound. In "
        "sound mode it is the whole message that is clipped where devices take steps, or the unit is a device",
    )
    epsilon: PositiveFloat | None = Field(
        None, description="ε: in sound mode the total over the task, in paper mode what the paper would claim"
    )
    delta: float = Field(0.0, ge=0, lt=1, description="δ; 0 is pure ε")
    units: int | None = Field(
        None,
        gt=0,
        description="sound mode: how many samples (of all devices together) or devices are promised something, by "
        "unit; δ must be below 1/units. Not given: δ may be 1e-4 at most",
    )
    statistics_epsilon: float = Field(
        0.0, ge=0, description="part of ε for error and label counts; 0: counts are not sent"
    )
    label_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="part of statistics-epsilon that label counts get, all labels together; the rest goes to error "
        "counts. So ε_g, ε_e and ε_y of Crowd-ML 2015 can each be what they should",
    )
    noise_at: Literal["message", "steps"] = Field(
        "message",
        description='where noise goes: once on what a device sends, or ("steps": DP-SGD) into each of its local steps, '
        "where every row's gradient is clipped",
    )
    clipping: Literal["flat", "per-layer"] = Field(
        "flat", description="noise in steps: whether clip bounds a row's whole gradient, or each layer by its share"
    )
    sampling: Literal["in-turn", "poisson", "fixed"] | None = Field(
        None,
        description='noise in steps: a device goes through its rows, each in one step of a release ("in-turn", '
        'adjacency "replace"; sound mode has no other); a step takes each row by itself with probability sampling-rate '
        '("poisson", adjacency "add-remove"; paper mode, unless given), or always local-batch rows ("fixed", adjacency '
        '"replace")',
    )
    sampling_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="noise in steps: probability that a step takes a row; the largest share of a device's rows that a "
        "step may take where their number is fixed",
    )
    noise_multiplier: PositiveFloat | None = Field(
        None,
        description="noise in steps: standard deviation of the noise on a step's sum, in units of clip, instead of "
        "epsilon (σ or z elsewhere); the ε that follows is worked out and shown",
    )
    noise_scale: PositiveFloat | None = Field(
        None, description="paper mode: standard deviation of the noise itself instead of ε; then no ε can be stated"
    )
    noise_unit: Literal["coordinate", "vector"] = Field(
        "coordinate",
        description="what noise-scale is the standard deviation of: each number, or the whole message (each number of "
        "P then gets 1/√P of it)",
    )
    noise_sequence: Literal["iid", "geometric", "rate", "banded"] = Field(
        "iid",
        description="how noise goes on over a device's messages: fresh and always of the same size; of a given scale, "
        "times noise-factor each time, or in proportion to the learning rate; correlated by a banded matrix, so that "
        "later messages take back part of it (Gaussian; simulation only)",
    )
    noise_factor: float | None = Field(None, gt=0, le=1, description="factor of the geometric sequence")
    noise_bands: int | None = Field(
        None, ge=2, description="bands of the matrix: messages that one draw of noise reaches, its own included"
    )
    max_uses: int | None = Field(None, gt=0, description="releases one sample may enter (sound mode)")
    owner_range: list[PositiveFloat] | None = Field(
        None, min_length=2, max_length=2, description="smallest and largest ε an owner may choose (sound mode)"
    )

    @field_validator("mechanism")
    @classmethod
    def _known(cls, mechanism: str) -> str:
        if mechanism not in MECHANISMS:
            hint = nearest(mechanism, MECHANISMS)
            raise BadInput(f'unknown mechanism "{mechanism}"', where="privacy.mechanism", hint=hint)
        return mechanism

    @field_validator("owner_range")
    @classmethod
    def _ascending(cls, both: list[float] | None) -> list[float] | None:
        if both is not None and both[0] > both[1]:
            raise ValueError(f"the smallest ε comes first: [{both[1]}, {both[0]}]")
        return both
