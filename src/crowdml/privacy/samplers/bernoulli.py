"""Coin flips whose probability is exp(-γ) for a rational γ, exactly (Canonne, Kamath and Steinke 2020, algorithm 1).

Words: for γ = a/b ≤ 1 and round K = 1, 2, … every lane still in the game draws an integer below K·b and stays in the
game if it is below a; a lane that leaves in an odd round has flipped "true". (In round K it stays with γ/K, so it
leaves in an odd round with probability 1 - γ + γ²/2! - γ³/3! + … = exp(-γ).) Two lanes need no word: with a = 0 a lane
leaves in round 1 at once, and with a = b it stays in round 1 at once. For γ > 1 a lane first flips exp(-1) up to
⌊γ⌋ times, and is "false" at the first "false"; then it flips the rest a mod b.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.privacy.samplers.words import Integers, Words, below

Flags = npt.NDArray[np.bool_]


def flip(words: Words, above: int, out_of: int, lanes: int) -> Flags:
    """Flip "true" with probability above/out_of."""
    return np.asarray(below(words, out_of, lanes) < above, bool)


def flip_exp(words: Words, above: Integers, out_of: int) -> Flags:
    """Flip "true" with probability exp(-above/out_of), one flip for each lane of `above` (none negative).

    >>> from crowdml.privacy.samplers.words import GivenWords
    >>> flip_exp(GivenWords([99, 1, 99]), np.array([10, 10]), 100).tolist()  # the first leaves in round 1, …
    [True, False]
    """
    return flip_exp_parts(words, above // out_of, above % out_of, out_of)


def flip_exp_parts(words: Words, whole: Integers, rest: Integers, out_of: int) -> Flags:
    """Flip "true" with probability exp(-whole - rest/out_of): exp(-1) for each whole part, then what is left."""
    alive = np.ones(len(whole), bool)
    playing = np.flatnonzero(whole > 0)
    if not len(playing):
        return _flip_small(words, rest, out_of)
    done = 0
    while len(playing):
        done += 1
        held = flip_inverse_e(words, len(playing))
        alive[playing[~held]] = False
        playing = playing[held]
        playing = playing[whole[playing] > done]
    left = np.flatnonzero(alive)
    alive[left] = _flip_small(words, rest[left], out_of)
    return alive


def _flip_small(words: Words, above: Integers, out_of: int) -> Flags:
    """Play the rounds for γ < 1."""
    odd = np.ones(len(above), bool)
    playing = np.flatnonzero(above > 0)
    own = above[playing]
    number = 1
    while len(playing):
        stays = np.asarray(below(words, number * out_of, len(playing)) < own, bool)
        playing, own = playing[stays], own[stays]
        # Whoever stays beyond an odd round would leave in an even one next, and the other way round.
        odd[playing] = number % 2 == 0
        number += 1
    return odd


def flip_inverse_e(words: Words, lanes: int) -> Flags:
    """Flip "true" with probability 1/e; round 1 is certain and takes no word."""
    odd = np.zeros(lanes, bool)
    playing: npt.NDArray[Any] = np.arange(lanes)
    number = 2
    while len(playing):
        playing = playing[below(words, number, len(playing)) == 0]
        odd[playing] = number % 2 == 0
        number += 1
    return odd
