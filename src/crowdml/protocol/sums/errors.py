"""Errors of masked sums."""

from __future__ import annotations

from crowdml.core.errors import CrowdError


class SumAborted(CrowdError):
    """A sum was given up: too few members are left, or somebody did not keep to the protocol. Nothing was revealed."""


class LateMessage(CrowdError):
    """A message came after its stage was closed; it is not looked at."""
