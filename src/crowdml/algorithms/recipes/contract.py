"""What a recipe is: settings, the numbers a sweep may vary, and a function that assembles the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crowdml.algorithms.contract import Algorithm, Parts
from crowdml.algorithms.stability import Steps
from crowdml.core import Settings, record
from crowdml.privacy import Perturbs
from crowdml.privacy.private_steps import LocalSteps
from crowdml.privacy.sound import Sends


@record
class SoundForm:
    """What a recipe sends in sound mode, as far as its settings tell.

    Attributes:
        sends: A gradient, or what local steps have changed.
        rows: Rows behind a release at most; None where a device sends as many as it has.
        steps: The local steps behind a change; None where there are none.
        opening: Uses that the squares of all rows count for, which are sent first; 0 where they are not.
    """

    sends: Sends
    rows: int | None
    steps: Steps | None = None
    opening: int = 0


@record
class PaperForm:
    """What a paper says of the noise on a message, where that is not a mean of bounded gradients.

    Attributes:
        reach: `reach(settings)`: how far one example moves a message, per unit of its gradient's norm.
        scale: `scale(epsilon, delta)`: the paper's noise scale for sensitivity 1; None: the best that is known.
        unproven: What the paper claims without a proof that covers it, in words; empty where nothing is.
    """

    reach: Callable[[Any], float]
    scale: Callable[[float, float], float] | None = None
    unproven: str = ""


@record
class Recipe:
    """A named way to assemble an algorithm.

    Attributes:
        settings: The settings class of the `[algorithm]` section; its defaults must give a working task.
        hyper: Numbers that a compiled sweep may vary without compiling again: name, and where it stands in the
            settings, such as `{"rate": "rate.c"}`.
        build: Assembles the algorithm.
        perturbs: Where noise goes: on the gradient a device sends, on the rows it sends, or nowhere.
        sequences: Whether noise of a given size may change from one of a device's messages to the next.
        pooled: True for a baseline that trains on all rows at once instead of folding in check-ins.
        sliced: True where devices hold pieces of one net and pass sums to each other, instead of checking in.
        sound: `sound(settings)`: its sound form, in which whatever leaves a device is a sum of checked integers with
            discrete noise; None where it has none.
        paper: What its paper says of the noise; None where it is noise on a mean of bounded gradients.
        steps: `steps(settings)`: the local steps into which noise may go; None where there are none.
        gathers: Whether a version is made of several check-ins, so that they can be compared.
        live: Whether server and devices can run it, and not only a simulation.
        sums_only: Whether a live task has to mask its check-ins: they make sense as sums alone. The model of the server
            then keeps its layers, as one sum at a time need not be folded in quickly.
        together: `together(settings)`: check-ins behind a version, where nothing but their sum matters and all start
            from the version before: these may be masked. None where they may not.
    """

    settings: type[Settings]
    hyper: Mapping[str, str]
    build: Callable[[Parts], Algorithm]
    perturbs: Perturbs = "gradient"
    sequences: bool = False
    pooled: bool = False
    sliced: bool = False
    sound: Callable[[Any], SoundForm] | None = None
    paper: PaperForm | None = None
    steps: Callable[[Any], LocalSteps] | None = None
    live: bool = False
    sums_only: bool = False
    together: Callable[[Any], int] | None = None
    gathers: bool = False
