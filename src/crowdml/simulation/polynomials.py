"""Logarithm and sine as polynomials, for noise.

Nearly all of the cost of a noise draw is its logarithm. A polynomial on the mantissa halves it, and NumPy and
compiled code then agree to the last bits. Errors are below 3e-7 absolute, far below what noise could show.
"""

from __future__ import annotations

import numpy as np

from crowdml.core import Array, Ops


def _fitted(degree: int, target: Array, nodes: Array, powers: Array) -> tuple[np.float32, ...]:
    """Fit by least squares at Chebyshev nodes, which is close to the best polynomial."""
    solved = np.linalg.lstsq(np.vander(powers, degree + 1, increasing=True), target(nodes), rcond=None)[0]
    return tuple(np.float32(coefficient) for coefficient in solved)


_NODES = (np.cos(np.pi * (np.arange(4001) + 0.5) / 4001) + 1) / 2
_LOG = _fitted(7, lambda x: np.log1p(x) - x * np.log(2), _NODES, _NODES)
_SINE = _fitted(5, lambda x: np.sin(np.pi / 2 * x) / x, _NODES, _NODES**2)


def _evaluate(coefficients: tuple[np.float32, ...], x: Array) -> Array:
    """Evaluate by Estrin's scheme, which has short chains of dependent operations."""
    terms = list(coefficients)
    power = x
    while len(terms) > 1:
        pairs = [terms[i] + terms[i + 1] * power if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
        terms, power = pairs, power * power
    return terms[0]


def minus_log_of_31_bits(words: Array, ops: Ops) -> Array:
    """Return -log(words / 2³¹) for words from 1 to 2³¹-1: exponent and mantissa of the float, one polynomial."""
    bits = ops.bits(words.astype(np.int32).astype(np.float32), np.int32)
    mantissa = ops.bits((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000), np.float32) - np.float32(1)
    linear = (np.int32(158 << 23) - bits).astype(np.float32) * np.float32(np.log(2) / 2**23)
    return linear - _evaluate(_LOG, mantissa)


def sine_of_quarter_turns(t: Array) -> Array:
    """Return sin(π t / 2) for t in [-1, 1]."""
    return t * _evaluate(_SINE, t * t)
