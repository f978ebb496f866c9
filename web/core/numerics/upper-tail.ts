/**
 * The upper tail of the normal distribution with integers, as exactly as a case needs: for the rare draws of which
 * floating point cannot be sure. The proof stands in `crowdml.privacy.noise.rounded`.
 */

import { beyond, inverse } from "./inverse-normal.js";

/** Return the size of all draws with p in [value, value + 1)/2^bits, σ = t/s; null where they have not all the same. */
export function cell(value: bigint, bits: number, t: bigint, s: bigint): bigint | null {
  if (!value || t >= s << BigInt(bits)) return null;
  // Draws are k or less where the least p is above Q((k + ½)/σ) = Q((2k + 1)s / 2t).
  const reached = (k: bigint): boolean => isAbove(value, bits, (2n * k + 1n) * s, 2n * t);
  const guess = BigInt(Math.floor((rough(value, bits) * Number(t)) / Number(s) + 0.5));
  let low = guess - 1n;
  let high = guess;
  for (let step = 1n; !reached(high); step *= 2n) [low, high] = [high, high + step];
  for (let step = 1n; low >= 0n && reached(low); step *= 2n) [low, high] = [low - step, low];
  if (low < -1n) low = -1n;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (reached(middle)) high = middle;
    else low = middle;
  }
  return high > 0n && isAbove(value + 1n, bits, (2n * high - 1n) * s, 2n * t) ? null : high;
}

/** Tell whether value/2^bits > Q(a/b), with as many digits of Q as it takes. */
function isAbove(value: bigint, bits: number, a: bigint, b: bigint): boolean {
  for (let more = 32; ; more *= 2) {
    const [low, high] = upperTail(a, b, bits + more);
    const wide = value << BigInt(more);
    if (wide >= high) return true;
    if (wide <= low) return false;
  }
}

/** Return integers with low < 2^bits · Q(a/b) < high, at most three apart, for a/b > 0. */
export function upperTail(a: bigint, b: bigint, bits: number): [bigint, bigint] {
  const [above, under] = [a * a, 2n * b * b]; // x²/2
  if (above >= BigInt(bits) * under) return [0n, 1n];
  let guard = 32 + Math.ceil((Number((above * 1000n) / under + 1n) / 1000) * 1.4427);
  guard += (64 - ((bits + guard) % 64)) % 64;
  const precision = bits + guard;
  let term = (a << BigInt(precision)) / b;
  let total = term;
  for (let n = 1n; term || (n - 1n) * under < 2n * above; n++) {
    term = (term * above) / (under * n);
    const part = term / (2n * n + 1n);
    total += n % 2n ? -part : part;
    if (n >= 1n << 20n) throw new RangeError("the tail takes too many terms");
  }
  const middle = (1n << BigInt(precision - 1)) - (total << BigInt(precision)) / rootOfTwoPi(precision);
  const error = 1n << BigInt(guard - 2);
  return [(middle - error) >> BigInt(guard), -(-(middle + error) >> BigInt(guard))];
}

const roots = new Map<number, bigint>();

/** Return √(2π) · 2^precision, off by less than two; π by Machin's formula. */
function rootOfTwoPi(precision: number): bigint {
  let found = roots.get(precision);
  if (found === undefined) {
    const inner = BigInt(2 * precision + 32);
    const arctanOfInverse = (n: bigint): bigint => {
      let term = (1n << inner) / n;
      let total = term;
      for (let k = 3n; (term /= n * n); k += 2n) total += k % 4n === 3n ? -(term / k) : term / k;
      return total;
    };
    found = squareRoot(2n * ((16n * arctanOfInverse(5n) - 4n * arctanOfInverse(239n)) >> 32n));
    roots.set(precision, found);
  }
  return found;
}

function squareRoot(value: bigint): bigint {
  let root = 1n << BigInt((value.toString(2).length >> 1) + 1);
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** Return about |z| at p = value/2^bits, where a search begins; p may be too small for a float. */
function rough(value: bigint, bits: number): number {
  const first = value >> BigInt(bits - 64);
  if (first) return inverse(Math.min(2 ** 31, Number(first >> 32n)), Number(first & 0xffffffffn));
  const spare = Math.max(0, value.toString(2).length - 53);
  const logarithm = Math.log(Number(value >> BigInt(spare))) + spare * Math.LN2;
  return beyond(Math.sqrt(bits * Math.LN2 - logarithm));
}
