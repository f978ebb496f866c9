"""Attacks find what they should: one row in a batch is recovered from weights, and sums can be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput, Batch, trees
from crowdml.models import Model
from crowdml.simulation.slices.sliced import first_parameters
from crowdml.slicing.attacks import Reader, Transcript, inputs_from_difference, likeness


def test_the_row_of_a_batch_of_one_is_recovered_from_weights_alone(plain: Model) -> None:
    """Weights instead of gradients hide nothing: in double precision the row comes back to 1e-12."""
    before = trees.map(lambda leaf: leaf.astype(np.float64), first_parameters(plain, 0, 0))
    row = np.random.default_rng(0).random((1, 12))
    slopes = plain.gradients(before, Batch(rows=row, targets=np.array([1]), mask=np.ones(1))).total(np.ones(1))
    found = inputs_from_difference(before[0]["w"], before[0]["w"] - 0.1 * slopes[0]["w"])
    assert 1 - likeness(found, row[0]) < 1e-12
    # With the bias the scale is known too.
    best = np.argmax(np.abs(slopes[0]["b"]))
    assert np.abs(slopes[0]["w"][best] / slopes[0]["b"][best] - row[0]).max() < 1e-12


def test_a_reader_reads_what_determines_the_row_and_nothing_from_noise() -> None:
    """Ten well separated kinds of rows. Chance is 0.1; 400 guesses are below 0.2 but for 1e-8 of all seeds."""
    generator = np.random.default_rng(1)
    kinds, mixing = generator.standard_normal((10, 30)) * 3, generator.standard_normal((30, 12))
    labels = generator.integers(0, 10, 900)
    rows = kinds[labels] + generator.standard_normal((900, 30)) * 0.3
    members, others = slice(500), slice(500, 900)
    reader = Reader.of(rows[members] @ mixing, rows[members], labels[members])
    assert np.mean(reader.read(rows[others] @ mixing) == labels[others]) > 0.95
    assert likeness(reader.rows(rows[others] @ mixing)[0], rows[500]) > 0.9
    noise = generator.standard_normal((400, 12))
    assert np.mean(reader.read(noise) == labels[others]) < 0.2


def test_nothing_found_is_like_nothing() -> None:
    assert likeness(np.zeros(3), np.ones(3)) == 0.0


def test_a_recorded_transcript_is_read_as_a_simulated_one_and_checked_first(tmp_path: Path) -> None:
    """Rows of two kinds far from each other, and sums that are a rotation of them: a reader must tell nearly all."""
    generator = np.random.default_rng(5)
    turned = np.linalg.qr(generator.standard_normal((6, 6)))[0][:, :4]
    labels = generator.integers(0, 2, 80)
    rows = generator.standard_normal((80, 6)) + 3.0 * labels[:, None]
    made = Transcript(
        own_sums=(rows @ turned)[:40],
        own_rows=rows[:40],
        own_labels=labels[:40],
        sums=(rows @ turned)[40:],
        labels=labels[40:],
        rows=rows[40:],
    )
    made.save(tmp_path / "heard.npz")
    leak = Transcript.load(tmp_path / "heard.npz").leak()
    assert leak.right > 0.9 > leak.chance >= 0.5 and leak.seen == 4
    assert leak.likeness is not None and leak.likeness > 0.8
    assert dataclasses.replace(made, rows=None).leak().likeness is None
    shuffled = dataclasses.replace(made, sums=generator.standard_normal((40, 4)))
    assert shuffled.leak().right < 0.8
    wrong = {
        "no array labels": dataclasses.replace(made, labels=np.zeros((2, 2))),
        "do not fit": dataclasses.replace(made, labels=labels[:3]),
        "not finite": dataclasses.replace(made, sums=np.full((40, 4), np.inf)),
    }
    for words, each in wrong.items():
        each.save(tmp_path / "wrong.npz")
        with pytest.raises(BadInput, match=words):
            Transcript.load(tmp_path / "wrong.npz")
    (tmp_path / "wrong.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(BadInput, match="cannot be read"):
        Transcript.load(tmp_path / "wrong.npz")
