"""Statistics: what was paid for is shown, with its noise, and nothing else; public rows give an error of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.server.store import StoreFailed
from crowdml.task.recent_error import band
from crowdml.wire.signed_task import write_arrays
from tests.support.portal import signed_in

PRIVATE = (
    'privacy={ mode = "sound", unit = "device", mechanism = "laplace", clip = 1.0, epsilon = 10.0, '
    "statistics-epsilon = 2.0 }",
    "stop.max-releases=5",
)
ROUNDS = ('algorithm={ kind = "fedavg", per-round = 1, local-batch = 4 }', "privacy.mode=none")


def statistics(app: Any, task: str = "walk") -> dict[str, Any]:
    answer = app.send("GET", f"/v1/tasks/{task}/statistics")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def with_public_rows(app: Any, *changes: str, rows: int = 40) -> str:
    """Make a task for which the operator gives rows whose label is the sign of the first number."""
    name = f"public-{next(app._numbers)}"
    found = np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32)
    public = {"rows": found, "labels": (found[:, 0] > 0).astype(np.float32)}
    body = {"file": app.file, "changes": [f"name={name}", *changes], "public": write_arrays([public])[0]}
    made = app.as_operator("POST", "/v1/tasks", body)
    assert made.status_code == 201, made.text
    return name


def measure(app: Any, task: str) -> bool:
    return bool(app.app._coordinator.validations[task].measure())


def test_label_counts_are_shown_as_shares_with_a_band(shared: Any) -> None:
    task = shared.fresh("privacy.mode=none")
    device = shared.device(task)
    for seed in range(5):
        device.check_in(device.body(seed=seed))
    found = statistics(shared, task)
    assert found["rows"] == 20 and [share["name"] for share in found["targets"]] == ["standing", "walking"]
    assert sum(share["share"] for share in found["targets"]) == pytest.approx(1.0)
    for share in found["targets"]:
        assert (share["low"], share["high"]) == pytest.approx(band(share["share"], 20, 0.0))
    assert found["recent_error"] == shared.show(task)["recent_error"]


def test_noise_on_label_counts_widens_their_band(shared: Any) -> None:
    widths: dict[str, list[float]] = {"loud": [], "silent": []}
    # A band ends where shares do, so one whose noise has carried it far out is short: not all of several are.
    for kind, changes in [*[("loud", PRIVATE)] * 3, ("silent", ("privacy.mode=none",))]:
        task = shared.fresh(*changes)
        device = shared.device(task)
        for seed in range(3):
            assert device.check_in(device.body(seed=seed)).status_code == 200
        widths[kind] += [share["high"] - share["low"] for share in statistics(shared, task)["targets"]]
    assert max(widths["loud"]) > max(widths["silent"]) > 0


def test_a_task_that_counts_nothing_shows_no_targets_and_no_error(shared: Any) -> None:
    task = shared.fresh(*ROUNDS)
    found = statistics(shared, task)
    assert found["targets"] == [] and found["recent_error"] is None and found["validation"] is None


def test_public_rows_give_an_error_where_devices_count_none(make_app: Any) -> None:
    app = make_app()
    task = with_public_rows(app, *ROUNDS)
    device = app.device(task)
    measure(app, task)
    assert statistics(app, task)["validation"]["rows"] == 40
    assert device.check_out().status_code == 200 and device.check_in().status_code == 200
    assert measure(app, task)
    assert not measure(app, task), "a version is measured once"
    found = statistics(app, task)["validation"]
    # As a plain formula has it: the published model on these rows.
    weights = app.app._coordinator.tasks[task].snapshot.published.parameters.reshape(2, 3)
    rows = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    wrong = float(np.mean(np.argmax(rows @ weights.T, axis=1) != (rows[:, 0] > 0)))
    assert found["errors"][-1]["version"] == 1 and found["errors"][-1]["error"] == pytest.approx(wrong)
    assert app.show(task)["validation_error"] == pytest.approx(wrong)
    assert not found["learnt_from"]
    app.close()
    again = make_app()
    assert statistics(again, task)["validation"] == found, "it is kept"


def test_rows_that_a_server_learns_from_say_so(make_app: Any) -> None:
    app = make_app()
    several = 'algorithm={ kind = "fedavg", per-round = 3, local-batch = 4 }'
    task = with_public_rows(app, 'robust.rule={ kind = "root-cosine" }', several, "data.public=40")
    measure(app, task)
    assert statistics(app, task)["validation"]["learnt_from"]


@pytest.mark.parametrize(
    ("public", "said"),
    [
        ({"rows": np.zeros((4, 2)), "labels": np.zeros(4)}, "shape (4, 2)"),
        ({"rows": np.full((4, 3), np.nan), "labels": np.zeros(4)}, "not finite"),
        ({"rows": np.zeros((4, 3)), "labels": np.full(4, 7.0)}, "0..1"),
        ({"rows": np.zeros((0, 3)), "labels": np.zeros(0)}, "shape (0, 3)"),
        ({"rows": np.zeros((4, 3))}, "rows"),
    ],
)
def test_public_rows_that_do_not_fit_the_task_are_refused(
    shared: Any, refused: Any, public: dict[str, Any], said: str
) -> None:
    arrays = write_arrays([{name: array.astype(np.float32) for name, array in public.items()}])[0]
    answer = shared.as_operator("POST", "/v1/tasks", {"file": shared.file, "changes": ["name=bad"], "public": arrays})
    assert said in refused(answer, 422)["message"]


def test_a_store_that_fails_ends_the_measuring_and_the_server(make_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()
    task = with_public_rows(app)
    validation = app.app._coordinator.validations[task]

    def fail(*_: Any) -> None:
        raise StoreFailed("no disk")

    app.thread.run(validation.close())  # else it meets the failure by itself, a moment before
    monkeypatch.setattr(app.store, "add_validation", fail)
    app.device(task).check_in()
    app.thread.run(validation._go_on())
    assert [str(error) for error in app.failures] == ["no disk"]


def test_nothing_of_a_device_is_in_the_statistics(shared: Any) -> None:
    task = shared.fresh()
    device = shared.device(task)
    device.check_in(key="key-number-7")
    text = shared.send("GET", f"/v1/tasks/{task}/statistics").text
    for secret in (device.id, device.token, "key-number-7"):
        assert secret not in text


def test_the_page_shows_targets_days_and_staleness(shared: Any) -> None:
    task = shared.fresh("privacy.mode=none")
    device = shared.device(task)
    for seed in range(3):
        device.check_in(device.body(seed=seed))
    page = shared.send("GET", f"/tasks/{task}").text
    assert 'id="targets"' in page and 'id="days"' in page and 'id="staleness"' in page
    assert "12 rows" in page and "3 check-ins from 1 device" in page


@pytest.mark.parametrize(("changes", "noisy"), [(PRIVATE, True), (("privacy.mode=none",), False)])
def test_no_noise_is_claimed_where_none_was_added(shared: Any, changes: tuple[str, ...], noisy: bool) -> None:
    task = shared.fresh(*changes)
    device = shared.device(task)
    for seed in range(3):
        assert device.check_in(device.body(seed=seed)).status_code == 200
    page = shared.send("GET", f"/tasks/{task}").text
    assert ("noise that devices added" in page) == noisy
    assert ("No noise protects these counts" in page) == (not noisy)


def hidden_by_noise(shared: Any) -> str:
    """Return a task whose noise hides the error and the share of each label, as that of most does at first."""
    for _ in range(6):
        task = shared.fresh(*PRIVATE)
        device = shared.device(task)
        for seed in range(3):
            assert device.check_in(device.body(seed=seed)).status_code == 200
        found = statistics(shared, task)
        if all(band["high"] - band["low"] > 0.5 for band in (found["recent_error"], *found["targets"])):
            return str(task)
    raise AssertionError("noise of this size left an error or a share known, six times in turn")


def test_a_number_that_noise_hides_is_not_shown_as_if_it_were_known(shared: Any) -> None:
    task = hidden_by_noise(shared)
    page = shared.send("GET", f"/tasks/{task}").text
    assert 'id="recent_error">–</strong> no error is known yet' in page and "Noise still hides the recent error" in page
    assert page.count(">not known</text>") == 2, "neither is the share of a label"
    card = shared.send("GET", "/").text.partition(f'href="/tasks/{task}"')[2].partition("</li>")[0]
    assert "<dt>error</dt><dd>not known</dd>" in card
    operators = signed_in(shared).get(f"/operator/tasks/{task}").text
    assert 'data-live="recent_error">–</dd>' in operators
