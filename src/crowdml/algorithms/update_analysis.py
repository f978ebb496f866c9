"""The analysis of Crowd-ML 2015 (section IV): noise of an update, updates missed on the way, traffic saved.

A mean over b gradients with noise z has the mean squared length E‖ĝ‖² = E‖g‖²/b + E‖z‖² (equation 13). While a
device works, others check in: (τ_co + τ_ci)·M·F_s/b updates are made that its gradient does not know. And N samples
are N/b check-outs and N/b check-ins, which is b/2 times less than N rows, where a model is as long as a row.
"""

from __future__ import annotations

from typing import Any

from crowdml.core import record


@record
class UpdateAnalysis:
    """What a batch size means, before anything is run.

    Attributes:
        batch: b: rows behind a check-in.
        numbers: Numbers in a message.
        features: Numbers in a row.
        noise: E‖z‖²: mean squared length of the noise on a message; None where noise has no size of its own.
        gradient: Largest E‖g‖²/b, from what bounds one gradient; None where nothing does.
        equation_13: What equation (13) itself gives for the noise, 32·D/(b·ε_g)²; None where it does not apply.
        labels: C: how many times D numbers there are, which the equation leaves out.
        missed: Updates that others make between a device's check-out and its check-in, on average.
        missed_at_most: The same where both legs take as long as they can; None where nothing limits them.
    """

    batch: int
    numbers: int
    features: int
    noise: float | None
    gradient: float | None
    equation_13: float | None
    labels: int
    missed: float
    missed_at_most: float | None

    @property
    def traffic(self) -> float:
        """How many times less is sent than if every row were: b rows against a model down and a message up."""
        return self.batch * self.features / (2 * self.numbers)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "traffic": self.traffic, "paper_traffic": self.batch / 2}

    def lines(self) -> tuple[str, ...]:
        """Say it in words."""
        return tuple(line for line in (self._of_noise(), self._of_delays(), self._of_traffic()) if line)

    def _of_noise(self) -> str:
        if not self.noise:
            return ""
        sampled = "" if self.gradient is None else f", of the gradient itself at most {self.gradient:.3g}"
        told = f"an update of {self.batch} rows: squared length of its noise {self.noise:.3g}{sampled}"
        if self.equation_13 is None:
            return told
        return f"{told}; equation (13) has {self.equation_13:.3g} and leaves out a factor of {self.labels}, the labels"

    def _of_delays(self) -> str:
        if not self.missed:
            return ""
        most = "" if self.missed_at_most is None else f", {self.missed_at_most:.3g} at most"
        return f"updates missed between check-out and check-in: {self.missed:.3g} on average{most}"

    def _of_traffic(self) -> str:
        factor, less = (self.traffic, "less") if self.traffic >= 1 else (1 / self.traffic, "more")
        told = f"{factor:.3g}"
        much = "as much as sending rows" if told == "1" else f"{told} times {less} than sending rows"
        return f"traffic: {much}; the paper's b/2 = {self.batch / 2:g} is for a model as long as a row"


def equation_13(features: int, batch: int, epsilon: float) -> float:
    """Return the squared length of the noise as equation (13) has it.

    >>> equation_13(50, 20, 10.0)
    0.04
    """
    return 32 * features / (batch * epsilon) ** 2


def updates_missed(check_out: float, check_in: float, batch: int) -> float:
    """Return how many updates others make meanwhile.

    Args:
        check_out: τ_co, in samples that the whole crowd generates: seconds times M·F_s.
        check_in: τ_ci, in the same unit.
        batch: b.

    >>> updates_missed(1000.0, 1000.0, 20)
    100.0
    """
    return (check_out + check_in) / batch
