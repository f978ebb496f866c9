"""Many tasks from one: combinations, labels, keys that another kind does not have, and lists that are no lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.studies.sweeps import compare
from crowdml.studies.variations import Cell, given, make_cells, make_variation, read_base, read_variation
from crowdml.task import Task

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"


def cells_of(*vary: str, changes: tuple[str, ...] = ()) -> list[Cell]:
    return make_cells([read_base(EXAMPLE, changes)], [read_variation(text) for text in vary], "--vary")


def test_every_combination_is_a_cell() -> None:
    cells = cells_of("algorithm.batch=10,20", "crowd.devices=5,10,20")
    assert [cell.label for cell in cells][:2] == ["batch = 10, devices = 5", "batch = 10, devices = 10"]
    assert [(cell.task.algorithm.batch, cell.task.crowd.devices) for cell in cells] == [
        (batch, devices) for batch in (10, 20) for devices in (5, 10, 20)
    ]
    assert cells[4].settings == {"algorithm.batch": 20, "crowd.devices": 10} and cells[4].at == (0, 1, 1)


@pytest.mark.parametrize("key", ["algorithm", "algorithm.kind"])
def test_another_kind_drops_what_it_does_not_have_and_says_so(key: str) -> None:
    same, other = cells_of(f"{key}=crowd-sgd,fedavg", changes=("algorithm.radius=50.0",))
    assert same.task.algorithm.batch == 20 and same.notes == ()
    assert other.task.algorithm.kind == other.label == "fedavg"
    assert other.task.algorithm.radius == 50.0 and other.task.algorithm.rate.c == 30.0
    assert other.notes[0] == "fedavg has no batch: left out"
    assert other.notes[1].startswith("fedavg keeps the rate chosen for crowd-sgd")


def test_other_tables_have_kinds_too() -> None:
    change = "crowd.partition={ kind = 'dirichlet', alpha = 0.1 }"
    cells = cells_of("crowd.partition=dirichlet,iid", "algorithm.rate.kind=constant,inverse-sqrt", changes=(change,))
    assert cells[0].task.crowd.partition.alpha == 0.1 and cells[2].notes == ("iid has no alpha: left out",)
    assert [cell.task.algorithm.rate.kind for cell in cells[:2]] == ["constant", "inverse-sqrt"]
    assert cells[0].task.algorithm.rate.c == 30.0 and cells[0].label == "dirichlet, constant"


def test_values_are_parted_at_commas_between_them_alone() -> None:
    found = read_variation("algorithm.rate={ kind = 'constant', c = 1.0 }, {kind='constant',c=2.0}")
    assert found.values == ({"kind": "constant", "c": 1.0}, {"kind": "constant", "c": 2.0})
    assert read_variation("data.labels=['a,b', 'c']").values == (["a,b", "c"],)
    assert read_variation(" a . b = x, true,1 ").key == "a.b"


def test_a_task_made_in_python_keeps_only_what_was_given() -> None:
    task = Task.load(EXAMPLE)
    content = given(task)
    assert content["algorithm"] == {
        "kind": "crowd-sgd",
        "batch": 20,
        "rate": {"kind": "inverse-sqrt", "c": 30.0},
        "radius": 1000.0,
    }
    assert Task.model_validate(content) == task
    plain = task.model_copy(update={"algorithm": type(task.algorithm)()})
    _, other = make_cells([read_base(plain)], [make_variation("algorithm", ["crowd-sgd", "fedavg"])])
    assert other.notes == () and other.task.algorithm.rate.c == 3.0  # fedavg's own: nobody had chosen another


def test_files_of_one_name_are_numbered() -> None:
    cells = make_cells([read_base(EXAMPLE), read_base(EXAMPLE, ["algorithm.batch=5"])], [])
    assert [cell.label for cell in cells] == ["digits (1)", "digits (2)"]


def test_rounds_take_the_place_of_passes_where_they_are_set() -> None:
    cells = cells_of("crowd.rounds=5,10", changes=("algorithm={ kind = 'fedavg' }",))
    assert [(cell.task.crowd.rounds, cell.task.crowd.passes) for cell in cells] == [(5, None), (10, None)]


BAD: dict[str, tuple[str, ...]] = {
    "algorithm.bach=1,2": ("--vary algorithm.bach (for bach = 1)", "unknown key", 'did you mean "batch"?'),
    "algorthm.kind=fedavg": ("--vary algorthm", "did you mean"),
    "algorithm=fedavgg": ("--vary algorithm: unknown algorithm", 'did you mean "fedavg"?'),
    "algorithm.batch=": ("--vary algorithm.batch: there is no value to try",),
    "algorithm.batch=1,,2": ("there is an empty value",),
    "algorithm.batch=5,5": ("5 stands twice",),
    "algorithm.batch=[5,10]": (
        "should be a valid integer",
        "commas between them and no brackets: --vary algorithm.batch=",
    ),
    "algorithm.batch": ("varies nothing", "section.key=value,value"),
    "=1": ("varies nothing",),
    "name.x=1,2": ("name is not a section",),
    "crowd.devices=-1,5": ("--vary crowd.devices (for devices = -1)",),
    "crowd.rounds=5,6": ("crowd-sgd has no rounds", "crowd.passes (times the crowd goes through its rows)"),
}


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_varied_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        cells_of(text)
    assert all(part in str(caught.value) for part in BAD[text]), str(caught.value)


@pytest.mark.parametrize("values", [[], "fedavg", 5, {"a": 1}])
def test_python_gives_lists(values: Any) -> None:
    with pytest.raises(BadInput, match=r"vary algorithm\.kind"):
        make_variation("algorithm.kind", values)


def test_what_is_no_table_of_lists_is_refused() -> None:
    for vary in ("algorithm.batch=5", ["algorithm.batch"]):
        with pytest.raises(BadInput, match=r"^vary: .* is no table"):
            compare(EXAMPLE, vary=vary)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^vary: 3 is no key of a task"):
        compare(EXAMPLE, vary={3: [1]})  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="holds what no task file can say"):
        compare(EXAMPLE, vary={"algorithm.batch": [object()]})
    with pytest.raises(BadInput, match=r'changes: "algorithm\.batch=5" is no list of changes'):
        Task.load(EXAMPLE, "algorithm.batch=5")
    with pytest.raises(BadInput, match="changes: 3 is not a change"):
        Task.load(EXAMPLE, [3])  # type: ignore[list-item]


def test_a_key_is_varied_once_and_a_task_is_a_task() -> None:
    with pytest.raises(BadInput, match="is varied twice"):
        cells_of("algorithm.batch=1", "algorithm.batch=2")
    with pytest.raises(BadInput, match="should be a Task or the path"):
        read_base(5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="there is no task"):
        make_cells([], [])
