"""Rounded Gaussian draws, exact for any rational standard deviation σ: the integer nearest to σZ, Z standard normal.

P(k) = Φ((k + ½)/σ) - Φ((k - ½)/σ) for every integer k. An integer plus such a draw is the rounded sum of that integer
and continuous Gaussian noise, so it reveals no more than that sum (`privacy.gaussian`).

**Words.** A draw inverts the distribution at a uniform real number, of whose binary digits only those are drawn that
are needed. Each lane takes one word. Its highest bit is the sign (1 is minus); the other 63 bits are an integer v, and
place p = P(Z > |z|) in [v, v + 1)/2⁶⁴. With Q(x) = 1 - Φ(x) the size is k where Q((k + ½)/σ) < p ≤ Q((k - ½)/σ), for
k = 0 where Q(½/σ) < p, and it is known once the whole interval lies there. Lanes for which it is not known take
another word each, all together and in lane order: the next 64 digits of p, below those before (v becomes 2⁶⁴v + word,
in units of 2⁻¹²⁸); and so on. Minus zero is zero. Lanes are served in blocks of 65,536.

What is drawn depends on the words alone, not on how Q is computed. Here nearly all lanes are decided in floating point:

- Wichura's AS 241 (1988) inverts Q at v/2⁶⁴, off by a few parts in 10¹⁶. `LARGEST_SLIP` allows for a thousand times
  that (a test measures it).
- Within the interval |z| falls by less than 1.26/v: its slope is -1/φ(z), and p/φ(z) = Q(z)/φ(z) is largest at z = 0,
  where it is √(π/2). Twice that is allowed for.

Wherever these two together might lead into another cell, Q is computed with integers, as exactly as the case needs
(`upper_tail`). Were Q((k + ½)/σ) a number of finitely many binary digits, a search could go on for ever at the very
word that has these digits; no draw would be wrong.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.privacy.noise.samplers import Integers, Words, in_blocks

Floats = npt.NDArray[np.float64]

LARGEST_SLIP = 1e-12
"""What the inverse in floating point may be off by, as a share of |z| + 0.01."""
LARGEST_SCALE = 1 << 32
"""From here on draws are Python's integers, and every lane is decided with integers."""

_SIGN = np.uint64(1 << 63)


def rounded_gaussian(words: Words, scale: Fraction | int, lanes: int) -> Integers:
    """Draw integers nearest to Gaussian numbers of standard deviation `scale`.

    >>> from crowdml.privacy.noise.samplers import GivenWords
    >>> half, third = 1 << 62, (1 << 64) // 3  # a quarter is above 0.67 deviations, a third above 0.43
    >>> rounded_gaussian(GivenWords([half, third, half | 1 << 63]), 100, 3).tolist()
    [67, 43, -67]
    """
    scale = Fraction(scale)
    if scale <= 0:
        raise ValueError(f"the scale must be above zero, not {scale}")
    return in_blocks(lambda count: _block(words, scale, count), lanes)


def _block(words: Words, scale: Fraction, lanes: int) -> Integers:
    drawn = words.take(lanes)
    tail = drawn & (_SIGN - np.uint64(1))
    if scale < LARGEST_SCALE:
        size, unsure = _by_floats(tail, float(scale))
    else:
        size, unsure = np.zeros(lanes, object), np.arange(lanes)
    waiting = {int(lane): int(tail[lane]) for lane in unsure}
    bits = 64
    while waiting:
        found = {lane: cell(value, bits, scale) for lane, value in waiting.items()}
        for lane, k in found.items():
            if k is not None:
                size[lane] = k
        waiting = {lane: waiting[lane] for lane, k in found.items() if k is None}
        more = words.take(len(waiting)).tolist()
        waiting = {lane: value << 64 | word for (lane, value), word in zip(waiting.items(), more, strict=True)}
        bits += 64
    return np.where(drawn >= _SIGN, -size, size)


def _by_floats(tail: npt.NDArray[np.uint64], scale: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Return sizes, and the lanes of which floating point cannot be sure; there the sizes mean nothing."""
    # Where v = 0 the inverse is infinite; those are among the unsure whatever it is.
    distance = scale * inverse(np.maximum(tail, np.uint64(1)))
    whole = np.rint(distance)
    slip = LARGEST_SLIP * (distance + 0.01 * scale) + scale * 2.6 / np.maximum(tail, np.uint64(1)).astype(np.float64)
    sure = (np.abs(distance - whole) < 0.5 - slip) & (tail > 0)
    return whole.astype(np.int64), np.flatnonzero(~sure)


def cell(value: int, bits: int, scale: Fraction) -> int | None:
    """Return the size of all draws with p in [value, value + 1)/2^bits; None where they have not all the same.

    >>> cell(1 << 62, 64, Fraction(100)), cell(0, 64, Fraction(100))
    (67, None)
    """
    # p may be as near to zero as it likes; or |z| varies by at least √(2π)/2^bits, which is more than a cell.
    if value == 0 or scale >= 1 << bits:
        return None

    def reached(k: int) -> bool:
        """Tell whether the least p is above Q((k + ½)/σ): draws are then k or less."""
        return _above(value, bits, Fraction(2 * k + 1) / (2 * scale))

    k = math.floor(Fraction(_rough(value, bits)) * scale + Fraction(1, 2))
    low, high, step = k - 1, k, max(1, k >> 40)
    while not reached(high):
        low, high, step = high, high + step, 2 * step
    step = max(1, k >> 40)
    while low >= 0 and reached(low):
        low, high, step = low - step, low, 2 * step
    low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    if high > 0 and _above(value + 1, bits, Fraction(2 * high - 1) / (2 * scale)):
        return None
    return high


def _above(value: int, bits: int, x: Fraction) -> bool:
    """Tell whether value/2^bits > Q(x), with as many digits of Q as it takes."""
    more = 32
    while True:
        low, high = upper_tail(x, bits + more)
        if value << more >= high:
            return True
        if value << more <= low:
            return False
        more *= 2


def upper_tail(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with low < 2^bits·Q(x) < high, at most three apart, for x > 0.

    ½ - Q(x) = S/√(2π), S = Σ (-1)ⁿ tₙ/(2n + 1), tₙ = x·sⁿ/n!, s = x²/2. In units of 2^-precision every tₙ is rounded
    down, from the one before it; so it is off by at most Σ sʲ/j! < eˢ, and its quotient by 1 more. The sum ends where
    tₙ < eˢ + 1 and n ≥ 2s; from there on each term is less than half the one before. With N terms S is off by less than
    (N + 2)(eˢ + 1) units, and the root and the quotient by it add less than three. N stays below 2²⁰, and 2³⁰eˢ is
    allowed for. Beyond e^-s < 2^-bits there is nothing to add up: 0 < Q(x) ≤ e^-s/2.

    >>> [round(end / 2**64, 6) for end in upper_tail(Fraction(1), 64)]
    [0.158655, 0.158655]
    """
    square = x * x / 2
    if square >= bits:
        return 0, 1
    # A whole number of words, so that π is worked out for few precisions only.
    guard = 32 + math.ceil(float(square) * 1.4427)
    guard += -(bits + guard) % 64
    precision = bits + guard
    term = (x.numerator << precision) // x.denominator
    total, n = term, 0
    while term or n < 2 * square:
        n += 1
        term = term * square.numerator // (square.denominator * n)
        total += -(term // (2 * n + 1)) if n % 2 else term // (2 * n + 1)
    if n >= 1 << 20:
        raise ValueError(f"the tail beyond {float(x)} takes too many terms")
    middle = (1 << precision - 1) - (total << precision) // _root_of_two_pi(precision)
    error = 1 << guard - 2
    return (middle - error) >> guard, -((-(middle + error)) >> guard)


@functools.lru_cache(maxsize=16)
def _root_of_two_pi(precision: int) -> int:
    """Return √(2π)·2^precision, off by less than two; π by Machin's formula."""
    inner = 2 * precision + 32

    def arctan_of_inverse(n: int) -> int:
        term, k = (1 << inner) // n, 1
        total = term
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k % 4 == 3 else term // k
        return total

    pi = (16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) >> 32
    return math.isqrt(2 * pi)


# AS 241 (Wichura 1988), algorithm PPND16: numerator and denominator of each region, the constant first.
_NEAR = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_FAR = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FARTHEST = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip
NEAREST, FARTHEST = 0.425, 5.0
"""Borders of the regions: ½ - p, and √(-ln p)."""


def inverse(tail: npt.NDArray[np.uint64]) -> Floats:
    """Return |z| at p = tail/2⁶⁴, for 0 < tail ≤ 2⁶³, in floating point.

    >>> inverse(np.array([1 << 62], np.uint64)).round(6).tolist()
    [0.67449]
    """
    away = (_SIGN - tail).astype(np.float64) * 2.0**-64
    found: Floats = away * _quotient(_NEAR, 0.180625 - away * away)
    far = np.flatnonzero(away > NEAREST)
    root = np.sqrt(-np.log(tail[far].astype(np.float64) * 2.0**-64))
    found[far] = _quotient(_FAR, root - 1.6)
    farthest = np.flatnonzero(root > FARTHEST)
    if len(farthest):
        found[far[farthest]] = _quotient(_FARTHEST, root[farthest] - FARTHEST)
    return found


def _quotient(both: tuple[tuple[float, ...], tuple[float, ...]], at: Any) -> Any:
    """Evaluate a quotient of polynomials by Horner's scheme."""
    above, below = (np.full_like(at, coefficients[-1]) for coefficients in both)
    for more, less in zip(both[0][-2::-1], both[1][-2::-1], strict=True):
        above *= at
        above += more
        below *= at
        below += less
    above /= below
    return above


def _rough(value: int, bits: int) -> float:
    """Return about |z| at p = value/2^bits, where a search begins; p may be too small for a float."""
    if bits == 64:
        return float(inverse(np.array([min(value, 1 << 63)], np.uint64))[0])
    if value >> bits - 64:
        return _rough(value >> bits - 64, 64)
    root = np.sqrt(np.array([bits * math.log(2) - math.log(value)]))
    return float(_quotient(_FARTHEST, root - FARTHEST)[0])
