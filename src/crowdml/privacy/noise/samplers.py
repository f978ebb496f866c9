"""Exact samplers: integer arithmetic from words of entropy to noise, with no floating point in between.

64-bit words of entropy, uniform integers made from them, and discrete Laplace and discrete Gaussian draws, exact for
any rational scale (Canonne, Kamath and Steinke 2020).

The protocol that every runtime follows (a browser must draw the same numbers from the same words):

- A word is 8 bytes, read as a little-endian unsigned integer. Words are taken one after the other and never reused.
- A sampler draws for many *lanes* at once. In each round the lanes that still need a number are served in lane order.
- A uniform integer below n takes k = ⌈bits(n - 1) / 64⌉ words, at least one, the first the least significant. With
  top = ⌊2^(64k) / n⌋ · n a value of `top` or more is refused, otherwise the result is value mod n. Refused lanes draw
  again together, in lane order, after all others of the round have been served.
- Every further rule stands beside its sampler: below, in `rounded`, in `poisson`, and in `response`.

**Coin flips** whose probability is exp(-γ) for a rational γ (algorithm 1). Words: for γ = a/b ≤ 1 and round K = 1, 2, …
every lane still in the game draws an integer below K·b and stays in the game if it is below a; a lane that leaves in an
odd round has flipped "true". (In round K it stays with γ/K, so it leaves in an odd round with probability 1 - γ + γ²/2!
- γ³/3! + … = exp(-γ).) Two lanes need no word: with a = 0 a lane leaves in round 1 at once, and with a = b it stays in
round 1 at once. For γ > 1 a lane first flips exp(-1) up to ⌊γ⌋ times, and is "false" at the first "false"; then it
flips the rest a mod b.

**Discrete Laplace** (algorithm 2): P(z) = (1 - r)/(1 + r) · r^|z| with r = exp(-1/scale), for z in ℤ. With scale = t/s
in lowest terms, one attempt is:

1. U uniform below t, one draw per waiting lane; a flip of exp(-U/t) must be "true", or the attempt has failed.
2. V: the number of "true" flips of exp(-1) before the first "false"; lanes still flipping go round by round.
3. A sign: an integer below 2, for the lanes left. z = ⌊(U + t·V)/s⌋; minus zero has failed, otherwise z with its sign.

(U + t·V is geometric with ratio exp(-1/t): step 1 makes its remainder, step 2 its quotient. The floor makes the ratio
exp(-s/t), and refusing minus zero keeps zero from counting twice.) Lanes that failed try again, all together.

**Discrete Gaussian** (algorithm 3): P(z) ∝ exp(-z² / (2σ²)) for z in ℤ. With σ² = p/q in lowest terms and t = ⌊σ⌋ + 1,
one attempt is: a discrete Laplace draw y of scale t for every waiting lane (all lanes of the attempt complete it
first), then a flip of exp(-(|y| - σ²/t)² / (2σ²)) = exp(-(|y|·t·q - p)² / (2·p·q·t²)) for all of them, which must be
"true". Lanes that failed try again, all together. Lanes are served in blocks of 65,536.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[Any]
"""int64, or Python integers (dtype object) where those might not fit."""

Flags = npt.NDArray[np.bool_]

WORD = 1 << 64
NARROW = 1 << 62
"""Uniform integers below this are held in int64, larger ones as Python integers."""
BLOCK = 1 << 16
"""Lanes served at a time: the first so many, then the next. It keeps the work in the processor's cache."""


class Words(Protocol):
    """A source of 64-bit words."""

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next `count` words."""
        ...


class OsWords:
    """Words from the operating system's entropy: the only source for noise that protects anyone."""

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Ask the operating system, in one call."""
        return np.frombuffer(os.urandom(8 * count), "<u8").astype(np.uint64, copy=False)


class GivenWords:
    """Words given in advance, for tests and vectors.

    >>> words = GivenWords([7, 8, 9])
    >>> words.take(2).tolist(), words.taken
    ([7, 8], 2)
    """

    def __init__(self, words: Sequence[int] | npt.NDArray[np.uint64]) -> None:
        """Keep the words."""
        self._words = np.asarray(words, np.uint64)
        self.taken = 0

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next words, or raise `EOFError` where there are not enough."""
        found = self._words[self.taken : self.taken + count]
        if len(found) < count:
            raise EOFError(f"{len(self._words)} words were given, more are needed")
        self.taken += count
        return found


def below(words: Words, limit: int, lanes: int) -> Integers:
    """Draw integers that are uniform on 0, …, limit - 1.

    >>> below(GivenWords([25, 3]), 10, 2).tolist()
    [5, 3]
    """
    if limit < 1:
        raise ValueError(f"no integer is at least 0 and below {limit}")
    if limit > NARROW:
        return _wide(words, limit, lanes)
    top = WORD // limit * limit
    drawn = words.take(lanes)
    if top < WORD:
        refused = np.flatnonzero(drawn >= np.uint64(top))
        if len(refused):
            drawn = drawn.copy()
        while len(refused):
            again = words.take(len(refused))
            drawn[refused] = again
            refused = refused[again >= np.uint64(top)]
    if limit & (limit - 1) == 0:
        return (drawn & np.uint64(limit - 1)).view(np.int64)
    return (drawn % np.uint64(limit)).view(np.int64)


def _wide(words: Words, limit: int, lanes: int) -> Integers:
    """Draw with Python's integers: slow, exact for any limit."""
    each = max(1, -(-(limit - 1).bit_length() // 64))
    top = (1 << 64 * each) // limit * limit
    drawn, waiting = np.zeros(lanes, object), np.arange(lanes)
    while len(waiting):
        taken = words.take(each * len(waiting)).reshape(-1, each).astype(object)
        values = functools.reduce(lambda high, low: (high << 64) | low, reversed(list(taken.T)))
        drawn[waiting] = values % limit
        waiting = waiting[np.asarray(values >= top, bool)]
    return drawn


def in_blocks(draw: Callable[[int], Integers], lanes: int) -> Integers:
    """Serve lanes block by block; `draw(count)` draws for the next `count` of them."""
    blocks = [draw(min(BLOCK, lanes - begin)) for begin in range(0, lanes, BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)


def flip(words: Words, above: int, out_of: int, lanes: int) -> Flags:
    """Flip "true" with probability above/out_of."""
    return np.asarray(below(words, out_of, lanes) < above, bool)


def flip_exp(words: Words, above: Integers, out_of: int) -> Flags:
    """Flip "true" with probability exp(-above/out_of), one flip for each lane of `above` (none negative).

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
    still = above[playing]
    number = 1
    while len(playing):
        stays = np.asarray(below(words, number * out_of, len(playing)) < still, bool)
        playing, still = playing[stays], still[stays]
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


def discrete_laplace(words: Words, scale: Fraction | int, lanes: int) -> Integers:
    """Draw integers z with probability proportional to exp(-|z| / scale).

    >>> discrete_laplace(OsWords(), Fraction(7, 2), 1000).shape
    (1000,)
    """
    scale = Fraction(scale)
    if scale <= 0:
        raise ValueError(f"the scale must be above zero, not {scale}")
    return in_blocks(lambda count: _laplace_block(words, scale, count), lanes)


def _laplace_block(words: Words, scale: Fraction, lanes: int) -> Integers:
    # The quotient is geometric: 64 or more has probability e^-64; Python's integers take over long before they must.
    drawn = np.zeros(lanes, np.int64 if scale.numerator < NARROW >> 10 else object)
    waiting = np.arange(lanes)
    while len(waiting):
        kept, values = _laplace_attempt(words, scale.numerator, scale.denominator, len(waiting))
        drawn[waiting[kept]] = values
        waiting = np.delete(waiting, kept)
    return drawn


def _laplace_attempt(words: Words, t: int, s: int, lanes: int) -> tuple[Integers, Integers]:
    """Return which lanes succeed, and their draws."""
    remainder = below(words, t, lanes)
    kept = np.flatnonzero(flip_exp(words, remainder, t))
    quotient = np.zeros(len(kept), remainder.dtype)
    flipping = np.arange(len(kept))
    while len(flipping):
        flipping = flipping[flip_inverse_e(words, len(flipping))]
        quotient[flipping] += 1
    size = (remainder[kept] + quotient * t) // s
    negative = below(words, 2, len(kept)) == 1
    good = ~(negative & (size == 0))
    return kept[good], np.where(negative, -size, size)[good]


def discrete_gaussian(words: Words, variance: Fraction | int, lanes: int) -> Integers:
    """Draw integers z with probability proportional to exp(-z² / (2·variance)).

    The variance of the draws is at most `variance`, and nearly equal to it from 1 on.

    >>> discrete_gaussian(OsWords(), 100, 1000).shape
    (1000,)
    """
    variance = Fraction(variance)
    if variance <= 0:
        raise ValueError(f"the variance must be above zero, not {variance}")
    return in_blocks(lambda count: _gaussian_block(words, variance, count), lanes)


def _gaussian_block(words: Words, variance: Fraction, lanes: int) -> Integers:
    p, q = variance.numerator, variance.denominator
    t = math.isqrt(p // q) + 1
    drawn, waiting = np.zeros(lanes, np.int64), np.arange(lanes)
    while len(waiting):
        y = discrete_laplace(words, t, len(waiting))
        good = flip_exp_parts(words, *_exponents(y, p, q, t), 2 * p * q * t * t)
        drawn[waiting[good]] = y[good]
        waiting = waiting[~good]
    return drawn


def _exponents(y: Integers, p: int, q: int, t: int) -> tuple[Integers, Integers]:
    """Return quotient and remainder of (|y|·t·q - p)² by 2·p·q·t².

    Squares do not fit into 64 bits, but remainders do: with a quotient that floating point has right up to one, the
    square less that many times the divisor lies between minus one and two divisors, and comes out right modulo 2^64.
    """
    size, divisor = np.abs(y), 2 * p * q * t * t
    if divisor >= NARROW or (len(size) and int(size.max()) * t * q >= 1 << 52):
        squares = (size.astype(object) * (t * q) - p) ** 2
        return squares // divisor, squares % divisor
    root = size * (t * q) - p
    whole = (root.astype(np.float64) ** 2 / divisor).astype(np.int64)
    with np.errstate(over="ignore"):
        rest = root * root - whole * divisor
    off = (rest >= divisor).astype(np.int64) - (rest < 0)
    return whole + off, rest - off * divisor
