"""Robust rules by name. A new one is a class in a file beside these and a line below."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from crowdml.algorithms.robust.by_coordinate import Median, TrimmedMean
from crowdml.algorithms.robust.by_distance import CentredClipping, GeometricMedian, MultiKrum
from crowdml.algorithms.robust.contract import Rule as Rule
from crowdml.algorithms.robust.contract import RuleSettings as RuleSettings
from crowdml.algorithms.robust.plain import Mean, Nothing
from crowdml.algorithms.robust.root import RootCosine
from crowdml.core import Registry, Settings
from crowdml.core.settings import OneOf

RULES: Registry[type[RuleSettings]] = Registry(
    "rule",
    {
        "none": Nothing,
        "mean": Mean,
        "median": Median,
        "trimmed-mean": TrimmedMean,
        "multi-krum": MultiKrum,
        "geometric-median": GeometricMedian,
        "centred-clipping": CentredClipping,
        "root-cosine": RootCosine,
    },
)


class RobustSettings(Settings):
    """The `[robust]` section: what the server does about devices that lie. Every device then counts alike."""

    rule: Annotated[Any, OneOf(RULES)] = Field(Nothing(), description="how one update is made of several check-ins")
    norm_bound: float | None = Field(
        None,
        gt=0,
        description="a check-in longer than this is shortened to it; not given: with a rule, to the median length of "
        "the check-ins of the version",
    )

    @property
    def asked(self) -> bool:
        """Whether anything is to be done."""
        return self.rule.kind != "none" or self.norm_bound is not None
