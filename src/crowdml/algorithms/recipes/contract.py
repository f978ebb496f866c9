"""What a recipe is: settings, the numbers a sweep may vary, and a function that assembles the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crowdml.algorithms.contract import Algorithm, Parts
from crowdml.core import Settings, record


@record
class Recipe:
    """A named way to assemble an algorithm.

    Attributes:
        settings: The settings class of the `[algorithm]` section; its defaults must give a working task.
        hyper: Numbers that a compiled sweep may vary without compiling again: name, and where it stands in the
            settings, such as `{"rate": "rate.c"}`.
        build: Assembles the algorithm.
    """

    settings: type[Settings]
    hyper: Mapping[str, str]
    build: Callable[[Parts], Algorithm]
