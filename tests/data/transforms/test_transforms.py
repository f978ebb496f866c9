"""Transforms: bounds hold for any rows, fits agree with plain formulas, wrong use is refused."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import TypeAdapter, ValidationError

from crowdml.core import BadInput, Labels
from crowdml.core.settings import OneOf
from crowdml.data import Dataset, apply_all, fit_all, input_bound
from crowdml.data.transforms import (
    TRANSFORMS,
    Bounds,
    Fft,
    Intercept,
    Norm,
    OneHot,
    Pca,
    RandomFeatures,
    Scale,
    Standardise,
    Transform,
    compose,
)
from crowdml.data.transforms.columns import Span

ROWS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.floats(-(2.0**60), 2.0**60, width=32)
)
STEPS = st.one_of(
    st.builds(Scale, by=st.floats(-10, 10)),
    st.builds(Norm, order=st.sampled_from([1, 2]), at_most=st.floats(0.01, 10)),
    st.builds(Norm, order=st.sampled_from([1, 2]), exactly=st.floats(0.01, 10)),
    st.builds(Intercept, value=st.floats(-3, 3)),
    st.just(Fft()),
)


def toy(rows: np.ndarray) -> Dataset:
    labels = np.zeros(len(rows), np.int32)
    return Dataset(
        name="toy",
        train_rows=rows,
        train_targets=labels,
        test_rows=rows,
        test_targets=labels,
        target=Labels(names=("only",)),
    )


@settings(max_examples=300, deadline=None)
@example(
    rows=np.ones((1, 1), np.float32),
    chain=[Norm(order=1, exactly=1.25), Scale(by=3.0), Scale(by=1.401298464324817e-45)],
    knows=False,
    order=1,
)
@given(rows=ROWS, chain=st.lists(STEPS, max_size=5), knows=st.booleans(), order=st.sampled_from([1, 2]))
def test_no_row_ever_exceeds_the_proven_bound(
    rows: np.ndarray, chain: list[Transform], knows: bool, order: int
) -> None:
    bound = input_bound(chain, order, rows.shape[1] if knows else None)
    result = apply_all(chain, toy(rows)).train_rows.astype(np.float64)
    if bound is not None:
        assert np.linalg.norm(result, ord=order, axis=1).max() <= bound


def test_bounds_follow_the_chain() -> None:
    l1, l2 = Norm(order=1, at_most=1.0), Norm(order=2, at_most=2.0)
    assert input_bound([], 2) is None
    assert input_bound([l1], 1) == input_bound([l1], 2) == 1.0
    assert input_bound([l2], 1) is None and input_bound([l2], 1, features=9) == 6.0
    assert input_bound([l1, l2], 1) == 1.0, "at-most never lengthens a row"
    assert input_bound([l1, Norm(order=2, exactly=2.0)], 1) is None, "exactly may lengthen it"
    assert input_bound([l1, Intercept(value=-1.0)], 1) == 2.0
    assert input_bound([l1, Intercept(value=1.0)], 2) == pytest.approx(2**0.5)
    assert input_bound([l1, Scale(by=-3.0)], 1) == pytest.approx(3.0)
    assert input_bound([l1, OneHot(column=0, size=4)], 1) == 2.0
    for unknown in (Pca(components=1), Standardise()):
        assert input_bound([l1, unknown], 2) is None
    assert input_bound([Pca(components=4), Norm(order=2, exactly=1.0)], 1) == 2.0, "pca tells the width"
    with pytest.raises(ValueError, match="order"):
        input_bound([], 3)


def test_a_centred_norm_takes_the_mean_of_each_row_away() -> None:
    made = Norm(order=2, exactly=1.0, centre=True)
    found = made.fit(np.zeros((1, 3))).apply(np.array([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]], np.float32))
    np.testing.assert_allclose(found[0], np.array([-2, -1, 3]) / np.sqrt(14), rtol=1e-6)
    np.testing.assert_array_equal(found[1], np.zeros(3))
    l1 = Norm(order=1, at_most=1.0)
    assert input_bound([l1, Norm(order=1, at_most=9.0, centre=True)], 1) == 2.0
    assert input_bound([l1, Norm(order=2, at_most=9.0, centre=True)], 2) == 1.0


def test_norm_leaves_short_and_zero_rows_alone() -> None:
    rows = np.array([[0.0, 0.0], [0.3, 0.4], [30.0, 40.0]], np.float32)
    shortened = Norm(order=2, at_most=1.0).fit(rows).apply(rows)
    np.testing.assert_allclose(shortened, [[0.0, 0.0], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_array_equal(shortened[:2], rows[:2])
    exact = Norm(order=1, exactly=1.0).fit(rows).apply(rows)
    np.testing.assert_allclose(np.abs(exact).sum(axis=1), [0, 1, 1], rtol=1e-6)
    bytes_ = np.array([[200, 200]], np.uint8)
    np.testing.assert_allclose(Norm(order=1, at_most=1.0).fit(bytes_).apply(bytes_), [[0.5, 0.5]], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    rows = np.array([[1.0, bad]])
    with pytest.raises(BadInput, match="finite"):
        Norm(order=1, at_most=1.0).fit(rows).apply(rows)
    with pytest.raises(BadInput, match="finite"):
        apply_all([Scale(by=1.0)], toy(rows))
    with pytest.raises(BadInput, match="finite"):
        apply_all([Scale(by=1e38), Scale(by=1e38)], toy(np.ones((1, 1), np.float32)))


def test_pca_agrees_with_singular_values() -> None:
    generator = np.random.default_rng(0)
    rows = (generator.standard_normal((300, 12)) * np.arange(1, 13) + 1000).astype(np.float32)
    fitted = Pca(components=4).fit(rows)
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    agreement = np.abs(axes[:4] @ fitted.arrays["directions"])
    np.testing.assert_allclose(agreement, np.eye(4), atol=1e-3)
    variances = fitted.apply(rows).var(axis=0)
    assert (np.diff(variances) < 0).all() and fitted.private_fit
    np.testing.assert_allclose(fitted.apply(rows).mean(axis=0), 0, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "given_keys"),
    [(Scale, {"by": 1e39}), (Scale, {"by": 1.0, "offset": -1e39}), (Span, {"first": 0, "last": 1, "by": 1e39})],
)
def test_factors_that_32_bits_do_not_hold_are_refused(kind: type, given_keys: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="1" + 38 * "0"):
        kind(**given_keys)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_whitening_divides_by_a_power_of_the_deviation(power: float) -> None:
    rows = np.random.default_rng(4).normal(size=(500, 6)) * np.array([9.0, 4.0, 1.0, 0.5, 0.1, 0.0])
    plain, white = (Pca(components=5, whiten=each).fit(rows).apply(rows) for each in (0.0, power))
    np.testing.assert_allclose(white.std(axis=0), plain.std(axis=0) ** (1 - power), rtol=1e-3)
    everything = Pca(components=6, whiten=1.0).fit(rows).apply(rows)
    assert np.isfinite(everything).all() and everything[:, 5].std() < 1, "a direction without variance is not blown up"


def test_pca_in_blocks_equals_pca_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).standard_normal((101, 7)).astype(np.float32)
    whole = Pca(components=3).fit(rows).apply(rows)
    monkeypatch.setattr("crowdml.data.transforms.transform.BLOCK_NUMBERS", 70)
    pieces = apply_all([Pca(components=3)], toy(rows)).train_rows
    np.testing.assert_allclose(pieces, whole, atol=1e-4)


@pytest.mark.parametrize("shape", [(10, 3), (3, 10)])
def test_too_many_components_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="at most 3"):
        Pca(components=4).fit(np.zeros(shape))


def test_standardise_gives_mean_zero_and_deviation_one() -> None:
    rows = np.random.default_rng(0).normal(1e4, 3.0, (500, 3)).astype(np.float32)
    rows[:, 2] = 12345.678
    done = Standardise().fit(rows).apply(rows)
    np.testing.assert_allclose(done.mean(axis=0), 0, atol=2e-3)
    np.testing.assert_allclose(done.std(axis=0), [1, 1, 0], atol=1e-3)


def test_fft_of_a_tone_is_one_line() -> None:
    tone = np.cos(2 * np.pi * 5 * np.arange(64) / 64)[None]
    bins = Fft().fit(tone).apply(tone)[0]
    assert set(np.flatnonzero(bins > 1e-3).tolist()) == {5, 59} and bins[5] == pytest.approx(32, rel=1e-5)


def test_one_hot_spreads_in_place_and_refuses_strange_values() -> None:
    rows = np.array([[9.0, 1.0, 7.0], [8.0, 0.0, 6.0]])
    spread = OneHot(column=1, size=2).fit(rows).apply(rows)
    np.testing.assert_array_equal(spread, [[9, 0, 1, 7], [8, 1, 0, 6]])
    for value in (2.0, -1.0, 0.5):
        with pytest.raises(BadInput, match="whole numbers from 0 to 1"):
            OneHot(column=0, size=2).fit(rows).apply(np.array([[value]]))
    with pytest.raises(BadInput, match="no column 3"):
        OneHot(column=3, size=2).fit(rows).apply(rows)


def test_fitted_arrays_rebuild_the_same_function_elsewhere() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    chain = [Scale(by=2.0), Standardise(), Pca(components=2), Intercept()]
    fitted, ready = fit_all(chain, toy(rows))
    again = compose([transform.restore(part.arrays) for transform, part in zip(chain, fitted, strict=True)])
    np.testing.assert_array_equal(again(rows), ready.train_rows)
    assert [part.private_fit for part in fitted] == [False, True, True, False]
    assert [sorted(part.arrays) for part in fitted] == [[], ["deviation", "mean"], ["directions", "mean"], []]


def test_public_rows_are_fitted_on_instead_of_the_training_rows() -> None:
    """Also behind a transform whose results are kept; the training rows do not matter at all."""
    generator = np.random.default_rng(0)
    public = generator.integers(0, 256, (30, 3072)).astype(np.uint8)
    chain = [RandomFeatures(filters=2), Standardise(), Pca(components=2)]
    fits = []
    for shift in (0, 100):
        train = (generator.integers(0, 100, (20, 3072)) + shift).astype(np.uint8)
        fitted, ready = fit_all(chain, toy(train), public)
        fits.append([part.arrays for part in fitted])
        assert not any(part.private_fit for part in fitted)
        np.testing.assert_array_equal(compose(fitted)(train), ready.train_rows)
    for one, other in zip(*fits, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    alone, _ = fit_all(chain, toy(public))
    np.testing.assert_array_equal(alone[2].arrays["directions"], fits[0][2]["directions"])


def test_damaged_signed_tasks_and_rows_of_the_wrong_width_are_refused() -> None:
    with pytest.raises(BadInput, match='"mean"'):
        Pca(components=1).restore({})
    with pytest.raises(BadInput, match="directions must have shape"):
        Pca(components=2).restore({"mean": np.zeros(3), "directions": np.zeros((3, 1))})
    with pytest.raises(BadInput, match="finite"):
        Standardise().restore({"mean": np.array([np.nan]), "deviation": np.ones(1)})
    with pytest.raises(BadInput, match="3 features"):
        Pca(components=1).fit(np.eye(3)).apply(np.zeros((1, 4)))


def test_fits_look_at_training_rows_only() -> None:
    train, labels = np.array([[0.0], [2.0]], np.float32), np.zeros(2, np.int32)
    data = Dataset(
        name="toy",
        train_rows=train,
        train_targets=labels,
        test_rows=train + 100,
        test_targets=labels,
        target=Labels(names=("only",)),
    )
    np.testing.assert_allclose(apply_all([Standardise()], data).test_rows, [[99], [101]])


def test_no_transform_gives_float32_rows() -> None:
    ready = apply_all([], toy(np.array([[255]], np.uint8)))
    assert ready.train_rows.dtype == np.float32 and ready.train_rows[0, 0] == 255


def test_a_task_file_chooses_by_kind() -> None:
    reader: TypeAdapter[list[Transform]] = TypeAdapter(list[Annotated[Transform, OneOf(TRANSFORMS)]])
    written = [{"kind": "scale", "by": 0.0625}, {"kind": "norm", "order": 2, "at-most": 1.0}]
    assert reader.validate_python(written) == [Scale(by=0.0625), Norm(order=2, at_most=1.0)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "norm", "order": 2},
        {"kind": "norm", "order": 2, "at-most": 1.0, "exactly": 1.0},
        {"kind": "norm", "order": 3, "at-most": 1.0},
        {"kind": "norm", "order": 1, "at-most": 0.0},
        {"kind": "scale", "by": float("nan")},
        {"kind": "scale"},
        {"kind": "pca", "components": 0},
        {"kind": "pca", "components": 2, "colour": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Annotated[Transform, OneOf(TRANSFORMS)]).validate_python(wrong)


def test_scale_subtracts_an_offset_and_bounds_what_it_adds() -> None:
    scale = Scale(by=3.0, offset=0.1307)
    rows = np.array([[0.0, 1.0], [0.5, 0.25]], np.float32)
    np.testing.assert_allclose(scale.fit(rows).apply(rows), (rows - 0.1307) * 3.0, rtol=1e-6)
    known = scale.bounds(Bounds(l1=1.0, l2=1.0, features=2))
    assert known.l1 == pytest.approx(3 * (1 + 2 * 0.1307), rel=1e-5)
    assert known.l2 == pytest.approx(3 * (1 + np.sqrt(2) * 0.1307), rel=1e-5)
    # The worst row comes near to the bound, and none beyond it.
    worst = scale.fit(rows).apply(np.array([[-1.0, 0.0], [-np.sqrt(0.5), -np.sqrt(0.5)]], np.float32))
    assert known.l1 is not None and known.l2 is not None
    assert 0.95 * known.l1 < np.abs(worst).sum(axis=1)[0] <= known.l1
    assert 0.999 * known.l2 < np.sqrt((worst**2).sum(axis=1))[1] <= known.l2
    assert scale.bounds(Bounds(l1=1.0, l2=1.0)) == Bounds()
