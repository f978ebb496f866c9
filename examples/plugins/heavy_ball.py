"""heavy-ball: crowd-sgd whose server remembers its velocity (Polyak 1964)."""

from dataclasses import replace
from typing import Literal

import crowdml
from crowdml.algorithms.rates import Rate
from crowdml.algorithms.recipes.crowd_sgd import CROWD_SGD, CrowdSgdSettings, build
from crowdml.core import trees


class HeavyBallSettings(CrowdSgdSettings):
    """The `[algorithm]` section."""

    kind: Literal["heavy-ball"] = "heavy-ball"
    momentum: float = 0.9


def heavy_ball(parts):
    """Assemble: everything as in crowd-sgd, but for the server's step."""
    rate, share = parts.settings.rate.build(parts.hyper["rate"], parts.ops), parts.hyper["momentum"]

    def step(velocity, update, count):
        velocity = trees.map(lambda old, new: share * old + new, velocity, update)
        return rate.step((), velocity, count)[0], velocity

    return build(parts, Rate(init=lambda w: trees.map(parts.ops.xp.zeros_like, w), step=step))


HEAVY_BALL = replace(
    CROWD_SGD, settings=HeavyBallSettings, build=heavy_ball, hyper={**CROWD_SGD.hyper, "momentum": "momentum"}
)
crowdml.register("heavy-ball", HEAVY_BALL)
