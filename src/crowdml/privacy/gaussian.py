"""Gaussian noise that is known exactly: why rounding it costs nothing, and what releases with it add up to.

**One release.** x is a vector of integers, changed by at most Δ in L2 between neighbours, whatever the coins that made
it. round(Z) is added, Z continuous Gaussian noise of standard deviation σ in every coordinate, drawn exactly
(`noise.rounded`). As x is whole, x + round(Z) = round(x + Z): the release is a function of x + Z and reveals no more.
Whatever is done to it later (32 bits, the wire) is a function of it. So the release has the strength μ = Δ/σ of the
continuous mechanism.

**Many releases, each chosen by what came before.** Fix two neighbours and give away all coins but the noise; they are
alike in both worlds. In release i let u_i be the change of x, divided by σ_i, a function of what came before. The
logarithm of the ratio of probabilities, in the first world, is

    L = Σ (|u_i|²/2 - |u_i| g_i),       g_i standard normal given everything before, and Σ|u_i|² ≤ μ² on every course.

Add a last release with a single number, which changes by what is missing: then Σ|u_i|² = μ² on every course. Release
by release, E exp(it Σ|u_i| g_i + t²/2 Σ|u_i|²) = 1 for every t (all factors are bounded by e^(t²μ²/2), and there are
finitely many). So Σ|u_i| g_i has the characteristic function e^(-t²μ²/2): L is normal with mean μ²/2 and variance μ²,
just as for one release of strength μ, however the releases were chosen. Hence

    δ(ε) = E (1 - e^(ε - L))⁺ = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)       (Balle and Wang 2018, theorem 8),

exactly. To see less than the added release is to see a function of it, so without it δ is no larger. The second world
in place of the first gives the same. What is needed is a limit on Σμ_i² that is *fixed beforehand*; when it ends, and
how it is spent, may depend on everything that was seen.

**Pure releases in between.** The ratio is A·B, A ≤ e^Σε over the pure releases on every course, B over the others. δ at
Σε + ε' is at most E (1 - e^ε'/B)⁺; this is convex in 1/B, and the added release multiplies 1/B by something of mean 1
given all before, so it can only grow by it, to δ(ε'; μ) above. Again both limits, Σε and Σμ², are fixed beforehand: a
limit on the sum of both figures alone would let a server wait for bad luck in one kind and spend the rest on the other.
A ledger allows so many *uses*, each of which costs the same pure ε and the same μ² at most, so both are fixed.

**Several units at once.** Integers change by at most kΔ where k samples do, as each of them changes by Δ: μ grows by
the factor k, and μ² by its square.

**A first release that counts for several uses** costs at most that many times μ² of one, and has no pure part beyond
theirs; `Plan` checks it. **An owner's choice** of ε fixes σ before the first release, from public terms.

**An end that depends on what was seen** (`ledger.spending`): up to the mark at k uses Σ|u_i|² ≤ kμ₀², so the argument
holds with that limit wherever the end is.

None of this covers shares of a masked sum: each is rounded by itself, and the sum of rounded numbers is no function of
the sum of what was rounded. There Rényi divergences of discrete noise stand (`noise.shares`).
"""

from __future__ import annotations

import functools
import math

from crowdml.privacy.promise import narrowed

LEAST_DELTA = 1e-290
"""Below this δ floating point has no room for its own errors: nothing is stated, and Rényi divergences serve."""
LOST = 2.0**-46
"""More than floating point loses in a Mills ratio, relative to it: 64 units in the last place."""
_FAR, _LEVELS = 4.0, 120


def gaussian_delta_up(mu: float, epsilon: float) -> float:
    """Return δ of Gaussian releases of strength μ at ε, rounded up.

    With a = ε/μ - μ/2, b = ε/μ + μ/2 and the Mills ratio R = Q/φ it is φ(a)(R(a) - R(b)), since φ(a) = e^ε φ(b). ε/μ is
    rounded, which is a change of ε by one part in 2⁵³ (`gaussian_epsilon_up` makes up for it); a and b by as much,
    which changes φ(a) by less than a² parts in 2⁵², and R by less than one.

    >>> round(gaussian_delta_up(1.0, 1.0), 6)
    0.126937
    """
    ratio, half = epsilon / mu, mu / 2
    a, b = ratio - half, ratio + half
    if a > 0:
        near, far = _mills(a), _mills(b)
        found = near - far + LOST * (near + far)
        return _density(a) * found * (1 + LOST * (1 + a * a))
    # Here Q(a) is at least ½; the density is small where |a| is large, and so is what its rounding can do.
    return min(1.0, math.erfc(a / math.sqrt(2)) / 2 * (1 + LOST) - _density(a) * _mills(b) * (1 - LOST * (1 + a * a)))


@functools.lru_cache(maxsize=4096)
def gaussian_epsilon_up(rho: float, delta: float) -> float:
    """Return the ε at δ of Gaussian releases with Σμ²/2 = ρ, exact but for rounding, which is upwards.

    >>> round(gaussian_epsilon_up(0.5, 1e-5), 3)
    4.377
    """
    if rho == 0.0:
        return 0.0
    if delta < LEAST_DELTA or math.isinf(rho):
        return math.inf
    mu = math.nextafter(math.sqrt(2 * rho), math.inf)
    if gaussian_delta_up(mu, 0.0) <= delta:
        return 0.0
    return narrowed(lambda epsilon: gaussian_delta_up(mu, epsilon) > delta)[1] * (1 + 2.0**-50)


@functools.lru_cache(maxsize=4096)
def gaussian_budget(epsilon: float, delta: float) -> float:
    """Return the largest ρ = Σμ²/2 whose ε at δ is at most `epsilon`, less what rounding might cost."""
    if delta < LEAST_DELTA:
        return 0.0
    mu = narrowed(lambda mu: gaussian_delta_up(mu, epsilon) <= delta)[0]
    return mu * mu / 2 * (1 - 1e-12)


def _density(a: float) -> float:
    return math.exp(-a * a / 2) / math.sqrt(2 * math.pi)


def _mills(x: float) -> float:
    """Return R(x) = (1 - Φ(x))/φ(x) for x ≥ 0.

    Far out by the continued fraction 1/(x + 1/(x + 2/(x + 3/…))), whose steps alternate around R: from 4 on, 120 of
    them agree to the last digit.

    >>> abs(_mills(4.0) - _mills(3.9999999999)) < 1e-10
    True
    """
    if x < _FAR:
        return math.erfc(x / math.sqrt(2)) / 2 / _density(x)
    value = x
    for n in range(_LEVELS, 0, -1):
        value = x + n / value
    return 1 / value
