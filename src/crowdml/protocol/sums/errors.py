"""Errors of sums."""

from __future__ import annotations

from crowdml.core.errors import CrowdError


class SumAborted(CrowdError):
    """A sum was given up: too few members are left, or somebody did not keep to the protocol. Nothing was revealed."""


class WrongMail(SumAborted):
    """Neighbours' shares are not what they are marked as: this member does not mask, and says whom it blames.

    Attributes:
        accused: For each neighbour, whether its mail is wrong.
    """

    def __init__(self, accused: tuple[bool, ...]) -> None:
        """Name the neighbours by their places."""
        super().__init__(f"the shares of {sum(accused)} neighbours are not sealed with their keys, or not as marked")
        self.accused = accused


class LateMessage(CrowdError):
    """A message came after its stage was closed; it is not looked at."""
