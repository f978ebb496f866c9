"""A hundred dots: how many of a hundred guesses are right, as text for a terminal and as SVG for a page.

The first fifty are those that a coin gets right, then those that taking part may add, then the wrong ones.
"""

from __future__ import annotations

from html import escape

from crowdml.core import record

COIN = 50
COLUMNS, DOTS = 10, 100
RIGHT, ADDED, WRONG = "●", "◆", "○"
"""A guess that a coin gets right too, one that may be right only because of what was sent, and a wrong one."""


@record
class Dots:
    """A hundred guesses, of which `right` are right.

    >>> print(Dots(right=78, about="one of your rows").text().splitlines()[5])
    ◆ ◆ ◆ ◆ ◆ ◆ ◆ ◆ ◆ ◆

    Attributes:
        right: How many are right, from 50 to 100.
        about: What is guessed, for whoever cannot see them.
    """

    right: int
    about: str

    def __post_init__(self) -> None:
        """Refuse what no guess can be: worse than a coin, or better than always right."""
        if not COIN <= self.right <= DOTS:
            raise ValueError(f"right = {self.right}: from {COIN} to {DOTS} guesses of a hundred are right")

    def kinds(self) -> list[str]:
        """Return the kind of every dot, in reading order: coin, added or wrong."""
        return ["coin"] * COIN + ["added"] * (self.right - COIN) + ["wrong"] * (DOTS - self.right)

    def text(self) -> str:
        """Draw them with characters, ten in a line."""
        signs = {"coin": RIGHT, "added": ADDED, "wrong": WRONG}
        drawn = [signs[kind] for kind in self.kinds()]
        return "\n".join(" ".join(drawn[at : at + COLUMNS]) for at in range(0, DOTS, COLUMNS))

    def legend(self) -> str:
        """Say what the characters mean."""
        return (
            f"{RIGHT} {COIN} a coin gets right   {ADDED} {self.right - COIN} more if you join   "
            f"{WRONG} {DOTS - self.right} stay wrong"
        )

    def described(self) -> str:
        """Say what is drawn, for a screen reader."""
        return (
            f"Of a hundred guesses about {self.about} a coin gets {COIN} right. With all that this task will ever send "
            f"no method gets more than {self.right} right; {DOTS - self.right} stay wrong."
        )

    def svg(self, name: str = "dots") -> str:
        """Draw them as SVG for a page: shapes differ, not colours alone, and a page may style `dots-coin` and so on.

        Args:
            name: Makes the ids of title and description, so that a page can show several.
        """
        shapes = [self._shape(kind, at) for at, kind in enumerate(self.kinds())]
        title, label = f"{self.right} of {DOTS} guesses right at most", escape(name, quote=True)
        return (
            f'<svg class="dots" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" width="160" height="160" '
            f'role="img" aria-labelledby="{label}-title {label}-desc">'
            f'<title id="{label}-title">{title}</title><desc id="{label}-desc">{escape(self.described())}</desc>'
            f"{''.join(shapes)}</svg>"
        )

    @staticmethod
    def _shape(kind: str, at: int) -> str:
        x, y = 5 + 10 * (at % COLUMNS), 5 + 10 * (at // COLUMNS)
        if kind == "added":
            corners = f"{x},{y - 4.2} {x + 4.2},{y} {x},{y + 4.2} {x - 4.2},{y}"
            return f'<polygon class="dots-added" points="{corners}" fill="currentColor"/>'
        if kind == "coin":
            return f'<circle class="dots-coin" cx="{x}" cy="{y}" r="3.4" fill="currentColor" fill-opacity="0.5"/>'
        return (
            f'<circle class="dots-wrong" cx="{x}" cy="{y}" r="3" fill="none" stroke="currentColor" stroke-width="0.7"/>'
        )
