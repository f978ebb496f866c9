"""Digits by whether they are odd: for recipes that separate two labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from crowdml.core import Labels
from crowdml.data import DATASETS, Source, load

TWO_LABELS = {"ridge": ["data.dataset=odd-digits", 'data.labels=["even", "odd"]', "model.kind=logistic"]}
"""What such a recipe changes in a task over digits."""


@contextmanager
def odd_digits() -> Iterator[None]:
    """Have a dataset of this name for a while."""
    digits = load("digits")
    odd = replace(
        digits,
        name="odd-digits",
        train_targets=digits.train_targets % 2,
        test_targets=digits.test_targets % 2,
        target=Labels(names=("even", "odd")),
    )
    with mock.patch.dict(DATASETS._entries, {"odd-digits": Source.of_function("odd-digits", lambda: odd)}):
        yield
