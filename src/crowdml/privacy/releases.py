"""Releases: what an algorithm sends, said by its recipe from the settings alone, before anything is built.

Calibration makes terms and sanitisers of it, together with what the model proves (`ModelBounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from crowdml.core import record
from crowdml.privacy.noise.grid import Stability
from crowdml.privacy.noise.shares import Shared

Sends = Literal["gradient", "change", "message", "moments", "rows", "pieces", "nothing"]
"""What a message carries: a gradient; what local steps have changed; a message of a paper's own; squares of rows and
rows times labels; the rows themselves; sums and weights of a piece of a net; nothing."""


@record
class Steps:
    """What a recipe's local steps are.

    Attributes:
        rate: Largest rate; None where the rate is adaptive.
        part: Rows per step: exactly, or on average.
        epochs: Times a sample is used in a release.
        count: Steps in a release; None where they follow from the rows that a device has.
        by_walk: Whether what is sent is what the sanitiser's own walk has changed, and nothing else: the proof that a
            sample moves it by little is about that walk.
    """

    rate: float | None
    part: int
    epochs: int
    count: int | None = None
    by_walk: bool = False


@record
class Releases:
    """What an algorithm releases.

    Attributes:
        sends: What a message carries, after the first phase.
        rows: Rows behind a release at most; None where a device sends as many as it has.
        size: `size(model)`: numbers in a message, for a model of so many.
        bound: What no message exceeds in L2, by what the algorithm makes of it; None where the terms say, by clip.
        inside: What else stands inside a bounded message, in words, and its part of the squared length.
        steps: The local steps behind a release; None where there are none.
        first_uses: Uses that the squares of all rows count for, which are sent first; 0 where they are not.
        phases: How many phases there are.
        counts: Whether counts of errors and labels are sent, where the terms allow it.
        on_grid: Whether whatever leaves a device can be a sum of checked integers with integer noise.
        published: Whether a paper has the algorithm: then its formulas may be simulated.
        sequences: Whether noise of a given size may change from one of a device's messages to the next.
        sensitivity_factor: In a paper: how far one example moves a message, per unit of its gradient's norm.
        paper_scale: `paper_scale(epsilon, delta)`: the paper's noise scale for sensitivity 1; None: the best known.
        unproven: What the paper claims without a proof that covers it, in words; empty where nothing is.
        label_epsilon: Where pieces of a net are sent: ε of labels that are answered at random, once for each row; 0
            where they are open.
        unprotected: Why no ε can be stated, unless labels are answered at random; empty where one can.
    """

    sends: Sends
    rows: int | None = None
    size: Callable[[int], int] = lambda model: model
    bound: float | None = None
    inside: tuple[tuple[str, float], ...] = ()
    steps: Steps | None = None
    first_uses: int = 0
    phases: int = 1
    counts: bool = False
    on_grid: bool = False
    published: bool = True
    sequences: bool = False
    sensitivity_factor: float = 1.0
    paper_scale: Callable[[float, float], float] | None = None
    unproven: str = ""
    label_epsilon: float = 0.0
    unprotected: str = ""

    @property
    def alone(self) -> bool:
        """Whether every device learns alone, so that there is no common model."""
        return self.sends == "nothing"


@record
class ModelBounds:
    """What task and model prove of a message, whatever the terms say.

    Attributes:
        gradient: `gradient(order)`: the model's own bound on one example's gradient, or None.
        row: Largest L1 norm of a row, or None where nothing is known.
        size: Numbers in a message.
        features: Numbers in a row as the model sees it, with a constant for a bias.
        classes: Number of labels.
        limit: Releases of one device at most (`stop.max-releases`).
        stable: A proof that one sample moves what is sent by little; None where there is none.
        shared: Law and least number of shares of noise where releases are masked; None where each is seen alone.
        first_sums: Sums of the first layer that forms some, of one row.
    """

    gradient: Callable[[int], float | None] = lambda order: None
    row: float | None = None
    size: int = 1
    features: int = 1
    classes: int = 2
    limit: int | None = None
    stable: Stability | None = None
    shared: Shared | None = None
    first_sums: int = 1
