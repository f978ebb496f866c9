"""Attacks that need no knowledge of the others: flipped labels and gross noise."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.attacks.contract import Attack, AttackSettings
from crowdml.core import Ops


class NoAttack(AttackSettings):
    """Every device is honest."""

    kind: Literal["none"] = "none"

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make nothing."""
        return Attack()

    def liars(self, devices: int) -> int:
        """Nobody lies."""
        return 0


class LabelFlip(AttackSettings):
    """Learns honestly from wrong labels: class y is called classes - 1 - y."""

    kind: Literal["label-flip"] = "label-flip"

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""
        return Attack(labels=lambda labels: classes - 1 - labels)


class Noise(AttackSettings):
    """Sends Gaussian noise."""

    kind: Literal["noise"] = "noise"
    deviation: float = Field(5.0, gt=0, description="standard deviation of every number")

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""
        return Attack(noise=lambda coins, shape: ops.xp.float32(self.deviation) * coins.gaussian("attack", shape))
