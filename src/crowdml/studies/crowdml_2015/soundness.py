"""The price of soundness: figure 5 of Crowd-ML 2015 beside a promise of the same total that is proven and enforced.

The paper's ε = 10 is that of one release; five passes make 50 in all. Sound mode is given those 50 as a total: checked
integers with discrete Laplace noise (δ = 0), or rounded Gaussian noise at a δ far below one in the number of rows and
with gradients clipped well below the longest that the model allows. Principal components are fitted on rows that are
declared public and held by no device, in all curves alike; 983 devices then have 60 rows each, as the 1000 of figure 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from crowdml.studies.comparisons import gaps, learns, statement
from crowdml.studies.crowdml_2015.images import LAMBDA, RATES, C, Images, shown_errors
from crowdml.studies.figure import curves
from crowdml.studies.study import Curve, Results, Row, Study, curve

PASSES = 5
PRICE = 0.01
"""What soundness may cost at equal ε."""
PUBLIC = ("data.public=1000", "crowd.devices=983")
SOUND = ("privacy.mode=sound", f"privacy.max-uses={PASSES}")
GAUSSIAN = ("privacy.mechanism=gaussian", "privacy.delta=1e-7")
CLIP, CLIPS = "privacy.clip", (0.003, 0.01, 0.03, 0.1, 0.3)
SIZES = (1, 10, 20)
STRENGTHS = (0.0, 1e-4, 1e-3, 1e-2)

CHOSEN = {
    "sound Gaussian, b=20": {C: 1000.0, LAMBDA: 0.0, CLIP: 0.1},
    "paper, b=20, ε = 10": {C: 10.0, LAMBDA: 1e-3},
    "sound, b=20, ε = 10": {C: 10.0, LAMBDA: 1e-3},
    "sound Gaussian, b=20, ε = 10": {C: 100.0, LAMBDA: 0.0, CLIP: 0.1},
}
"""What the search found where figure 5 has no curve of that kind."""
GRID = {C: (*RATES, 10_000.0, 30_000.0), LAMBDA: STRENGTHS, CLIP: CLIPS}


def price(images: Images) -> Study:
    """Compare the paper's setting with sound mode at the same total ε, by batch size."""

    def rows(results: Results) -> Iterator[Row]:
        def gap(name: str, left: str, right: str) -> Row:
            found = gaps(results[left], results[right])
            cheap = bool(found.mean() <= PRICE) and learns(results[left])
            return statement(name, "difference", found, cheap, f"at most {PRICE:g}, and it learns")

        yield from shown_errors(results)
        for size in SIZES:
            yield gap(f"b={size}, ε = 50: sound minus paper", f"sound, b={size}", f"paper, b={size}")
        yield gap("b=20, ε = 50: Gaussian minus paper", "sound Gaussian, b=20", "paper, b=20")
        yield gap("b=20, ε = 10: sound minus paper", "sound, b=20, ε = 10", "paper, b=20, ε = 10")
        yield gap("b=20, ε = 10: Gaussian minus paper", "sound Gaussian, b=20, ε = 10", "paper, b=20, ε = 10")

    def priced(label: str, size: int, total: float, *changes: str) -> Curve:
        chosen = CHOSEN.get(label) or dict(zip((C, LAMBDA), images.chosen[f"crowd, b={size}"], strict=True))
        epsilon = total if changes else total / PASSES
        setting = (*PUBLIC, f"algorithm.batch={size}", f"privacy.epsilon={epsilon}")
        grid = {key: GRID[key] for key in chosen} if label in CHOSEN else {}
        mode = changes or ("privacy.mode=paper",)
        return curve(label, *setting, *mode, chosen=chosen, grid=grid)

    def look(label: str) -> tuple[int, int]:
        """Give each mode a colour, each batch size and ε a line style."""
        mode = ("paper", "sound", "sound Gaussian").index(label.partition(",")[0])
        return mode, 2 if "ε = 10" in label else {"b=20": 0, "b=10": 1, "b=1": 3}[label.rpartition(", ")[2]]

    return Study(
        title="the price of soundness: the paper's setting and sound mode at the same total ε",
        claim="(ours, not the paper's) a proven and enforced promise costs nothing at the same total ε",
        refuted_by=f"an error more than {PRICE:g} above that of the paper's setting",
        tuned="not recorded",
        task=images.task,
        curves=(
            *(priced(f"paper, b={size}", size, 50.0) for size in SIZES),
            *(priced(f"sound, b={size}", size, 50.0, *SOUND) for size in SIZES),
            priced("sound Gaussian, b=20", 20, 50.0, *SOUND, *GAUSSIAN),
            priced("paper, b=20, ε = 10", 20, 10.0),
            priced("sound, b=20, ε = 10", 20, 10.0, *SOUND),
            priced("sound Gaussian, b=20, ε = 10", 20, 10.0, *SOUND, *GAUSSIAN),
        ),
        rows=rows,
        draw=lambda results: curves(results, "test_error", looks={label: look(label) for label in results}),
        notes=(
            *images.notes,
            "ε = 50 in all is the paper's ε = 10 in each of five passes; with Laplace noise at ε = 50 hyper-parameters "
            "are those of figure 5, the others were searched on rows held back from training; how the clip of "
            "0.1 was chosen nobody noted, and --search now tries others: tuning not charged",
        ),
    )
