/**
 * Discrete Laplace draws, exact for any scale t/s: P(z) ∝ exp(-|z| / scale) (Canonne, Kamath and Steinke 2020).
 *
 * Words are taken as `crowdml.privacy.noise.samplers` says, so that given words make the same draws there and here.
 */

import { below, type Words } from "./words.js";

const BLOCK = 65536;

/** Write a scale as t/s in lowest terms; it has at most four binary places. */
export function inLowestTerms(scale: number): [number, number] {
  let t = scale;
  let s = 1;
  while (t % 1) [t, s] = [2 * t, 2 * s];
  if (!(t > 0) || s > 16) throw new RangeError(`${scale} is no exact scale`);
  return [t, s];
}

export function discreteLaplace(words: Words, scale: number, lanes: number): Float64Array {
  const [t, s] = inLowestTerms(scale);
  const drawn = new Float64Array(lanes);
  for (let begin = 0; begin < lanes; begin += BLOCK) {
    let waiting = range(begin, Math.min(lanes, begin + BLOCK));
    while (waiting.length) waiting = attempt(words, t, s, waiting, drawn);
  }
  return drawn;
}

/** Make one attempt for all waiting lanes; return those that failed. */
function attempt(words: Words, t: number, s: number, waiting: number[], drawn: Float64Array): number[] {
  const rest = below(words, t, waiting.length);
  const good = flipExp(words, rest, t);
  const kept = range(0, waiting.length).filter((at) => good[at]);
  const quotient = new Float64Array(kept.length);
  let flipping = range(0, kept.length);
  while (flipping.length) {
    const held = flipInverseE(words, flipping.length);
    flipping = flipping.filter((_, at) => held[at]);
    for (const at of flipping) quotient[at]!++;
  }
  const sign = below(words, 2, kept.length);
  const done = new Uint8Array(waiting.length);
  kept.forEach((at, number) => {
    const size = Math.floor((rest[at]! + quotient[number]! * t) / s);
    if (sign[number] && !size) return; // minus zero: zero must not count twice
    drawn[waiting[at]!] = sign[number] ? -size : size;
    done[at] = 1;
  });
  return waiting.filter((_, at) => !done[at]);
}

/** Flip "true" with probability exp(-above/outOf) for each lane, where above < outOf. */
function flipExp(words: Words, above: Float64Array, outOf: number): Uint8Array {
  const odd = new Uint8Array(above.length).fill(1);
  let playing = range(0, above.length).filter((lane) => above[lane]! > 0);
  for (let number = 1; playing.length; number++) {
    const drawn = below(words, number * outOf, playing.length);
    playing = playing.filter((lane, at) => drawn[at]! < above[lane]!);
    for (const lane of playing) odd[lane] = number % 2 ? 0 : 1;
  }
  return odd;
}

/** Flip "true" with probability 1/e; round 1 is certain and takes no word. */
function flipInverseE(words: Words, lanes: number): Uint8Array {
  const odd = new Uint8Array(lanes);
  let playing = range(0, lanes);
  for (let number = 2; playing.length; number++) {
    const drawn = below(words, number, playing.length);
    playing = playing.filter((_, at) => !drawn[at]);
    for (const lane of playing) odd[lane] = number % 2 ? 0 : 1;
  }
  return odd;
}

function range(begin: number, end: number): number[] {
  return Array.from({ length: end - begin }, (_, at) => begin + at);
}
