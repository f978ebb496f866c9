/** The ε at a δ of what was spent: for Gaussian noise exactly, and by Rényi divergences (`crowdml.privacy`). */

const LEAST_DELTA = 1e-290;
/** More than floating point loses in a Mills ratio here, relative to it. */
const LOST = 2 ** -44;
const ROUNDING = 2 ** -50;

/** Return the ε at δ of Gaussian releases with Σμ²/2 = ρ, rounded up. */
export function gaussianEpsilon(rho: number, delta: number): number {
  if (rho === 0) return 0;
  if (delta < LEAST_DELTA || rho === Infinity) return Infinity;
  const mu = Math.sqrt(2 * rho) * (1 + 2 ** -51);
  if (gaussianDelta(mu, 0) <= delta) return 0;
  let [low, high] = [0, 1];
  while (gaussianDelta(mu, high) > delta) [low, high] = [high, high * 2];
  for (let step = 0; step < 100; step++) {
    const middle = (low + high) / 2;
    if (gaussianDelta(mu, middle) > delta) low = middle;
    else high = middle;
  }
  return high * (1 + 2 ** -50);
}

/** Return δ of Gaussian releases of strength μ at ε, rounded up (Balle and Wang 2018, theorem 8). */
function gaussianDelta(mu: number, epsilon: number): number {
  const [a, b] = [epsilon / mu - mu / 2, epsilon / mu + mu / 2];
  const far = mills(b);
  if (a > 0) {
    const near = mills(a);
    return density(a) * (near - far + LOST * (near + far)) * (1 + LOST * (1 + a * a));
  }
  const tail = 1 - density(a) * mills(-a);
  return Math.min(1, tail * (1 + LOST) - density(a) * far * (1 - LOST * (1 + a * a)));
}

/** The probability that a standard normal number is below x. */
export function normalBelow(x: number): number {
  const tail = density(x) * mills(Math.abs(x));
  return x < 0 ? tail : 1 - tail;
}

function density(a: number): number {
  return Math.exp((-a * a) / 2) / Math.sqrt(2 * Math.PI);
}

/** Return R(x) = (1 - Φ(x))/φ(x) for x ≥ 0: near zero by a series, farther out by a continued fraction. */
function mills(x: number): number {
  if (x > 1.5) {
    let value = x;
    for (let n = 400; n > 0; n--) value = x + n / value;
    return 1 / value;
  }
  let [sum, term] = [x, x];
  for (let n = 3; term > sum * 2 ** -60; n += 2) sum += term *= (x * x) / n;
  return 0.5 / density(x) - sum;
}

/** Return an ε that ρ-zCDP gives at δ: the best over the orders tried, each of which is valid. */
export function renyiEpsilon(rho: number, delta: number): number {
  if (rho === 0) return 0;
  if (delta <= 0 || rho === Infinity) return Infinity;
  const atOrder = (excess: number): number => {
    const alpha = 1 + excess;
    const [first, second] = [rho * alpha, Math.log(excess / alpha)];
    const [third, fourth] = [Math.log(delta) / excess, Math.log(alpha) / excess];
    return first + second - third - fourth + ROUNDING * (first - second - third + fourth);
  };
  const centre = Math.log(Math.sqrt(-Math.log(delta) / rho) + 1e-3);
  let [low, high] = [centre - 4, centre + 4];
  for (let step = 0; step < 50; step++) {
    const width = ((high - low) * (Math.sqrt(5) - 1)) / 2;
    if (atOrder(Math.exp(high - width)) <= atOrder(Math.exp(low + width))) high = low + width;
    else low = high - width;
  }
  return Math.max(0, atOrder(Math.exp((low + high) / 2)));
}
