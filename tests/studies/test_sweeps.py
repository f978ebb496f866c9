"""Comparisons: cells share what they can, are what each would be alone, and are seen side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.core import BadInput, trees
from crowdml.studies.sweeps import Comparison, side_by_side
from crowdml.studies.variations import make_cells, make_variation, read_base
from tests.support.simulated import same_bits

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
SHORT = ["crowd.passes=1", "crowd.curve=4"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def found() -> Comparison:
    vary = {"algorithm": ["crowd-sgd", "fedavg"], "crowd.partition.kind": ["iid", "shards"]}
    return crowdml.compare(EXAMPLE, vary=vary, changes=SHORT, trials=2, engine="numpy")


def test_a_cell_is_what_it_would_be_alone(found: Comparison) -> None:
    changes = [*SHORT, "algorithm={ kind = 'fedavg', rate = { kind = 'inverse-sqrt', c = 30.0 }, radius = 1000.0 }"]
    alone = crowdml.simulate(
        crowdml.Task.load(EXAMPLE, [*changes, "crowd.partition={ kind = 'shards' }"]), trials=2, engine="numpy"
    )
    assert same_bits(found["fedavg, shards"], alone) and len(found) == 4


def test_one_frame_has_all(found: Comparison) -> None:
    frame = found.to_pandas()
    assert list(frame)[:5] == ["cell", "algorithm", "crowd.partition.kind", "samples", "trial"]
    last = frame.groupby("cell", sort=False).last()
    assert list(last.index) == list(found) == [cell.label for cell in found.cells]
    assert set(last["algorithm"]) == {"crowd-sgd", "fedavg"}
    one = frame[frame["cell"] == "crowd-sgd, iid"]["test_error"].to_numpy()
    assert np.array_equal(one, found["crowd-sgd, iid"].measured["test_error"].reshape(-1))
    content = json.loads(json.dumps(found.to_json()))
    assert content["varied"] == {"algorithm": ["crowd-sgd", "fedavg"], "crowd.partition.kind": ["iid", "shards"]}
    assert content["cells"][3]["result"] == found["fedavg, shards"].to_json()
    assert content["cells"][3]["notes"][0] == "fedavg has no batch: left out"


def test_a_figure_has_a_curve_and_a_legend_entry_for_each(found: Comparison, tmp_path: Path) -> None:
    figure = found.plot(tmp_path / "all.svg", against="versions")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "versions" and len(axes.lines) == 4
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(found)
    colours, styles = [line.get_color() for line in axes.lines], [line.get_linestyle() for line in axes.lines]
    # Colour says which algorithm, style which partition.
    assert colours[0] == colours[1] != colours[2] == colours[3] and styles == ["-", "--", "-", "--"]
    for label in found:
        assert label in (tmp_path / "all.svg").read_text()
    shown = found._repr_html_()
    assert shown.count("<tr>") == 5 and "test accuracy" in shown and "data:image/png;base64" in shown
    with pytest.raises(KeyError, match="there are: crowd-sgd, iid"):
        found["none"]


def test_many_curves_repeat_neither_colour_with_style() -> None:
    cells = make_cells([read_base(EXAMPLE)], [make_variation("algorithm.batch", list(range(1, 13)))])
    looks = Comparison(cells=tuple(cells), results={}, varied=())._looks()
    assert len({(colour % 7, style % 4) for colour, style in looks.values()}) == 12


def test_cells_that_differ_in_numbers_are_compiled_once() -> None:
    vary = [make_variation("algorithm.rate.c", [10.0, 20.0, 30.0]), make_variation("crowd.devices", [10, 20])]
    groups = side_by_side(make_cells([read_base(EXAMPLE)], vary))
    assert [len(group) for group in groups] == [3, 3]
    seen: list[tuple[str, float]] = []
    found = crowdml.sweep(
        EXAMPLE,
        {"algorithm.rate.c": [10.0, 30.0]},
        changes=SHORT,
        watch=lambda name, share, error: seen.append((name, share)),
    )
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0 and seen[0][0] == "c = 10 and 1 more"
    assert found["c = 10"].test_error != found["c = 30"].test_error
    assert found["c = 10"].run_seconds == found["c = 30"].run_seconds  # one run


def test_what_a_run_refuses_names_its_cell() -> None:
    with pytest.raises(BadInput, match=r"algorithm\.batch \(for batch = 1000\): no device ever fills"):
        crowdml.sweep(EXAMPLE, {"algorithm.batch": [1000]}, changes=SHORT, engine="numpy")
    with pytest.raises(BadInput, match="nothing is varied"):
        crowdml.sweep(EXAMPLE, {})
    with pytest.raises(BadInput, match=r"changes: crowd\.pases"):
        crowdml.compare(EXAMPLE, EXAMPLE, changes=["crowd.pases=1"])


def test_own_rows_and_an_own_model_go_into_all_cells() -> None:
    import jax.numpy as jnp

    def start(key: object) -> dict[str, Any]:
        return {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}

    def loss(parameters: dict[str, Any], x: Any, y: Any) -> Any:
        scores = x @ parameters["w"] + parameters["b"]
        return jnp.log(jnp.exp(scores).sum()) - scores[y]

    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, 500)
    rows = np.eye(64, dtype=np.float32)[labels] * 16 + generator.normal(size=(500, 64)).astype(np.float32)
    own = crowdml.Dataset.from_arrays(rows, labels.astype(str))
    model = crowdml.JaxModel(init=start, loss=loss)
    vary = {"algorithm.rate.c": [0.001, 30.0]}
    found = crowdml.sweep(EXAMPLE, vary, changes=SHORT, data=own, model=model)
    weak, good = found["c = 0.001"], found["c = 30"]
    assert good.test_error < 0.05 and "@" in str(good.task.data.dataset)
    sizes = [max(np.abs(leaf).max() for leaf in trees.leaves(each.parameters)) for each in (good, weak)]
    assert sizes[0] > 100 * sizes[1] > 0
    assert good.task.model.name == weak.task.model.name, "the cells are compiled once"
    alone = crowdml.simulate(crowdml.Task.load(EXAMPLE, [*SHORT, "algorithm.rate.c=30.0"]), data=own, model=model)
    assert np.allclose(alone.measured["test_error"], good.measured["test_error"])
    for key in ("model.regularisation", "data.dataset"):
        with pytest.raises(BadInput, match="handed over for all cells"):
            crowdml.sweep(EXAMPLE, {key: [0, 1]}, data=own, model=model)
