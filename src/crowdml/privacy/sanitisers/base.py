"""The sanitiser: the only thing that knows what a privacy mode is.

Device parts call `bound_examples`, `bound_message` or `bound_statistic`, take local steps by `walk`, and drivers call
`noise`; server parts call `read`. The ledger, the explanation, the acceptance limits and reports ask `cost`, `problem`
and `describe` of the same record, so that what is done and what is said cannot drift apart.

Calibration makes it from the terms, before anything is built; a recipe binds it to its use.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from crowdml.core import Array, CheckIn, Coins, Ops, Release, record
from crowdml.core.ops import Tree
from crowdml.core.targets import Labels, Target
from crowdml.core.trees import Float, Integer, Num, SameTree
from crowdml.privacy.accounting import Terms
from crowdml.privacy.cost import Cost
from crowdml.privacy.noise.banded import Banded, Floats
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import GridMechanism
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.sanitisers.local_work import ExampleGradients, LocalWork, Statistic, Walk

CLEAR, AS_IT_IS = "in clear", "sent as it is"
"""What is said of a part that nothing protects: to engineers, to owners."""

Public = Callable[[], Tree | None]
"""A term that depends on public parameters alone (the regulariser), worked out only where it is wanted."""


@record
class Use:
    """How a recipe uses a sanitiser.

    Attributes:
        ops: Array operations.
        scales: Scales of noise by name, possibly traced; they take the place of the calibrated ones.
        like: `like()`: zeros of the update's shape.
        stage: Name of the draws.
        alone: Whether a commit follows every check-in: then an update is not multiplied by its weight.
        by_rows: Whether a device counts as much as it has rows, where the sanitiser lets it.
        rate_share: `rate_share(count)`: the rate as a share of its constant, for noise that follows it.
        among: Devices whose noise counts in a sum that is all anybody sees; noise is divided by its root.
        target: What rows are mapped to.
    """

    ops: Ops
    scales: Mapping[str, Array]
    like: Callable[[], Tree]
    stage: str = "update"
    alone: bool = True
    by_rows: bool = True
    rate_share: Callable[[Array], Array] | None = None
    among: float | None = None
    target: Target = Labels(names=("", ""))


Bound = TypeVar("Bound", bound="Sanitiser")


@record
class Sanitiser(abc.ABC):
    """Bound, noise, cost and words of one privacy mode. A leaf class is final.

    Attributes:
        counts: Noise on counts; None where they are not sent.
        bound_to: How a recipe uses it; None until it is bound.
    """

    counts: CountNoise | None = None
    bound_to: Use | None = None

    simulated: ClassVar[bool] = False
    """Whether it exists in simulation only: its noise is no exact draw, so that nobody may rely on it."""
    adds_noise: ClassVar[bool] = True
    """Whether it adds noise at all."""
    noise_in_steps: ClassVar[bool] = False
    """Whether noise goes into local steps: whatever is made of them later, what a device remembers included, has it."""
    once: ClassVar[bool] = False
    """Whether noise is drawn once for the whole task, so that a device has all its rows in one release."""

    def bind(self: Bound, use: Use) -> Bound:
        """Return the same, bound to a use."""
        return dataclasses.replace(self, bound_to=use)

    @property
    def use(self) -> Use:
        """How a recipe uses it."""
        if self.bound_to is None:
            raise ValueError("a sanitiser is bound to its use before it works on anything")
        return self.bound_to

    # Declared needs.

    @property
    def wants_count(self) -> bool:
        """Whether noise follows a counter of the server's, which must then be broadcast."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether local steps take rows in the order in which they come: drivers may then read them part by part."""
        return True

    @property
    @abc.abstractmethod
    def weighs_rows(self) -> bool:
        """Whether a check-in counts as much as it has rows, and says so."""

    @property
    def wants_matrix(self) -> Banded | None:
        """The matrix that a driver works out and hands in, where noise is correlated by one."""
        return None

    def with_matrix(self, columns: Floats) -> Sanitiser:
        """Return the same, knowing the matrix by its columns: what it costs depends on it."""
        return self

    def require_rows(self, rows: int) -> None:  # noqa: B027  most kinds take any number
        """Refuse a device with so few rows that the cost would not cover it."""

    # What is proven of it.

    @property
    def promises(self) -> bool:
        """Whether an ε can be stated for it."""
        return True

    @property
    def bounds_rows(self) -> bool:
        """Whether the promise rests on a bound on the gradient of every single row."""
        return False

    @property
    def on_grid(self) -> GridMechanism | None:
        """Bound and noise of integers, which other runtimes can carry out exactly; None where there are none."""
        return None

    @property
    def shared(self) -> Shared | None:
        """Whose noise protects in secure aggregation; None where a device adds all of it by itself."""
        return None

    def without_others(self) -> Sanitiser:
        """Return what is left of it in secure aggregation if nobody else adds noise."""
        raise ValueError("the promise rests on this device alone anyway")

    def deviation_of(self, batch: int) -> float | None:
        """Return the s.d. of the noise on each number of a mean over so many rows; None where it has no one size."""
        return None

    @property
    def moved_by_sample(self) -> float | None:
        """How far one sample moves a message at most, where less is proven than the bound on all of it."""
        return None

    @abc.abstractmethod
    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Return what so many releases cost; None where no ε can be stated.

        Args:
            uses: How many releases.
            rows: None for one sample that is in all of them; for a device, its rows in each.
        """

    # What a device does.

    def memory(self) -> Tree:
        """Begin what the noise remembers from release to release."""
        return ()

    def rows(
        self, rows: Num[Array, "size features"], targets: Num[Array, " size"], coins: Coins
    ) -> tuple[Num[Array, "size features"], Num[Array, " size"]]:
        """Perturb rows and targets themselves, once for the whole task (coins are addressed by row)."""
        return rows, targets

    @abc.abstractmethod
    def bound_examples(
        self, found: ExampleGradients, training: Float[Array, " size"], public: Public, coins: Coins
    ) -> Tree:
        """Return the mean (or the sum) of bounded gradients of the rows marked in `training`."""

    @abc.abstractmethod
    def bound_message(self, vector: SameTree, coins: Coins) -> SameTree:
        """Bound a message as a whole."""

    @abc.abstractmethod
    def bound_statistic(self, statistic: Statistic, rows: Integer[Array, ""]) -> Num[Array, " numbers"]:
        """Bound what has a proof of its own: the mean over so many rows, or the sum of checked integers."""

    @abc.abstractmethod
    def walk(self, work: LocalWork) -> Walk:
        """Return local steps as this mode takes them."""

    @abc.abstractmethod
    def noise(self, release: Release, memory: SameTree, coins: Coins) -> tuple[CheckIn, SameTree]:
        """Add the noise; the result may leave the device."""

    # What the server does.

    @abc.abstractmethod
    def read(self, check_in: CheckIn, public: Public) -> tuple[Tree, Num[Array, "*check_ins"]]:
        """Return the update (times its weight, unless alone) with what is public, and the weight."""

    # What everybody may ask.

    @property
    def scales(self) -> dict[str, float]:
        """Calibrated scales by name; a simulation hands in each device's."""
        return {}

    def structure(self) -> str:
        """Name whatever compiled code fixes beside the settings."""
        return ""

    @abc.abstractmethod
    def describe(self) -> dict[str, str]:
        """Say of every part of a check-in what protects it; what is not named travels in clear."""

    def plainly(self) -> dict[str, str]:
        """Say the same to owners, without figures."""
        said = "noise of a simulation, which protects nobody" if self.simulated else "noise is added on your device"
        return {name: AS_IT_IS if words == CLEAR else said for name, words in self.describe().items()}

    def integers(self, rows: int) -> tuple[int, float] | None:
        """Return the largest integer of a release over so many rows, and the largest deviation of the noise on one.

        None where releases are no integers.
        """
        return None

    def for_owner(self, terms: Terms, epsilon: float) -> tuple[Sanitiser, Terms]:
        """Return what a device does whose owner has chosen this ε, and its terms; here there is one ε for all."""
        return self, terms

    @abc.abstractmethod
    def problem(self, check_in: CheckIn, most_rows: int | None) -> str | None:
        """Say why no honest device sends this check-in, whose layout is right; None where one might.

        Args:
            check_in: The check-in.
            most_rows: Rows behind one at most; None: all that a device has.
        """

    def problems(self, check_ins: Sequence[CheckIn], most_rows: int | None) -> list[str | None]:
        """Say the same of several check-ins."""
        return [self.problem(check_in, most_rows) for check_in in check_ins]

    @abc.abstractmethod
    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Return what a simulation's report says of noise and guarantee.

        Args:
            releases: Releases of the device that made most.
            batch: Rows behind one.
        """

    def words(self, terms: Terms) -> str:
        """Say what a promise is worth that nothing enforces; empty where nothing is to be said but what is sent."""
        return ""
