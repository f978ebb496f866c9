/**
 * Rounded Gaussian draws, exact for any scale with few binary places: the integer nearest to σZ, Z standard normal.
 *
 * As `crowdml.privacy.noise.rounded`: a draw inverts the distribution at a uniform real number, of whose binary digits
 * only those are drawn that are needed. What is drawn depends on the words alone; floating point decides where it can
 * be sure, and integers (`upper-tail`) decide the rest.
 */

import { inLowestTerms } from "./discrete-laplace.js";
import { FARTHEST, inverse } from "./inverse-normal.js";
import { cell } from "./upper-tail.js";
import type { Words } from "./words.js";

const BLOCK = 65536;
/** What the inverse in floating point may be off by, as a share of |z| + 0.01. */
const LARGEST_SLIP = 1e-12;
/** Words below this, of which there is one in 10¹⁰, are left to integers: the inverse is rough there. */
const LEAST = Math.exp(-(FARTHEST ** 2)) * 2 ** 64 * 1.001;

export function roundedGaussian(words: Words, scale: number, lanes: number): Float64Array {
  const [t, s] = inLowestTerms(scale);
  const drawn = new Float64Array(lanes);
  for (let begin = 0; begin < lanes; begin += BLOCK) {
    const count = Math.min(BLOCK, lanes - begin);
    const taken = words.take(count);
    let waiting: [lane: number, value: bigint][] = [];
    for (let lane = 0; lane < count; lane++) {
      const low = taken[2 * lane]!;
      const high = taken[2 * lane + 1]! & 0x7fffffff;
      const tail = high * 2 ** 32 + low;
      const distance = tail && scale * inverse(high, low);
      const whole = Math.round(distance);
      const slip = LARGEST_SLIP * (distance + 0.01 * scale) + (scale * 2.6) / tail;
      if (tail > LEAST && Math.abs(distance - whole) < 0.5 - slip) drawn[begin + lane] = whole;
      else waiting.push([lane, (BigInt(high) << 32n) | BigInt(low)]);
    }
    for (let bits = 64; waiting.length; bits += 64) {
      waiting = waiting.filter(([lane, value]) => {
        const found = cell(value, bits, BigInt(t), BigInt(s));
        if (found !== null) drawn[begin + lane] = Number(found);
        return found === null;
      });
      const more = words.take(waiting.length);
      waiting = waiting.map(([lane, value], at) => [
        lane,
        (value << 64n) | (BigInt(more[2 * at + 1]!) << 32n) | BigInt(more[2 * at]!),
      ]);
    }
    for (let lane = 0; lane < count; lane++) {
      if (taken[2 * lane + 1]! >>> 31 && drawn[begin + lane]) drawn[begin + lane]! *= -1;
    }
  }
  return drawn;
}
