/**
 * The grid: bounded vectors become integers, and the integers are checked.
 *
 * As `crowdml.privacy.noise.grid`, which has the proof: whatever floating point did before, every vector of integers
 * that leaves `roundChecked` obeys the limit.
 */

import { uniform, type Words } from "./words.js";

export interface Grid {
  readonly order: 1 | 2;
  readonly size: number;
  readonly radius: number;
  readonly levels: number;
  readonly limit: number;
  readonly per: "example" | "release";
}

const TRIES = 10;

/** Numbers of several vectors, one behind the other: in single precision, or wide ones. */
export type Vectors = Float32Array | Float64Array;

/** Scale vectors to levels and clip each to the radius, in place. */
export function toLevels(grid: Grid, vectors: Vectors): void {
  const { size, levels, order } = grid;
  const narrow = vectors instanceof Float32Array ? Math.fround : (value: number): number => value;
  const factor = narrow(levels / grid.radius);
  for (let begin = 0; begin < vectors.length; begin += size) {
    let total = 0;
    for (let at = begin; at < begin + size; at++) {
      let x = narrow(vectors[at]! * factor);
      if (!Number.isFinite(x)) x = 0;
      vectors[at] = x;
      total += order === 1 ? Math.abs(x) : x * x;
    }
    const norm = narrow(order === 1 ? total : Math.sqrt(total));
    if (norm > levels) {
      const shorter = narrow(levels / norm);
      for (let at = begin; at < begin + size; at++) vectors[at]! *= shorter;
    }
  }
}

/** Round vectors to integers that obey the limit: a vector that is too long is rounded again, then cut, then zero. */
export function roundChecked(grid: Grid, vectors: Vectors, words: Words): Int32Array {
  const { size, levels } = grid;
  const count = vectors.length / size;
  const rounded = new Int32Array(vectors.length);
  for (let at = 0; at < vectors.length; at++) {
    const x = vectors[at]!;
    vectors[at] = Number.isFinite(x) ? Math.max(-levels, Math.min(levels, x)) : 0;
  }
  let waiting = Array.from({ length: count }, (_, vector) => vector);
  for (let number = 0; number < TRIES && waiting.length; number++) {
    const coins = uniform(words, vectors.length); // for all: a word is never used for another vector's number
    for (const vector of waiting) round(vectors, coins, rounded, vector * size, size);
    waiting = waiting.filter((vector) => isOver(grid, rounded, vector * size));
  }
  for (const vector of waiting) {
    const begin = vector * size;
    for (let at = begin; at < begin + size; at++) rounded[at] = vectors[at]!;
    if (isOver(grid, rounded, begin)) rounded.fill(0, begin, begin + size);
  }
  return rounded;
}

/** Round each number up with the probability of its fraction. */
function round(vectors: Vectors, coins: Float32Array, rounded: Int32Array, begin: number, size: number): void {
  const narrow = vectors instanceof Float32Array;
  for (let at = begin; at < begin + size; at++) {
    const x = vectors[at]!;
    const down = Math.floor(x);
    const fraction = narrow ? Math.fround(x - down) : x - down;
    rounded[at] = coins[at]! < fraction ? down + 1 : down;
  }
}

/** Tell whether a vector of integers is too long; sums of squares below 2⁵³ are exact. */
function isOver(grid: Grid, rounded: Int32Array, begin: number): boolean {
  let total = 0;
  for (let at = begin; at < begin + grid.size; at++) {
    const k = rounded[at]!;
    total += grid.order === 1 ? Math.abs(k) : k * k;
  }
  return total > grid.limit;
}

/** Add up several vectors of integers. */
export function addUp(rounded: Int32Array, size: number): Int32Array {
  const total = new Int32Array(size);
  for (let at = 0; at < rounded.length; at++) total[at % size]! += rounded[at]!;
  return total;
}
