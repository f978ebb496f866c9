/**
 * Noise for an ε of the owner's own choice, worked out here (`crowdml.privacy.calibration.least_noise`).
 *
 * What is sent keeps its shape, and nothing in it says which ε was chosen: only the noise is another. It is the least
 * whose cost, as the ledger adds it up, keeps that ε.
 */

import { covers, type Event, type Filter, type FilterKind } from "../ledger/event.js";
import { require } from "../refusal.js";

/** Scales are sixteenths up to 500, and whole numbers from there on: every runtime holds them without rounding. */
const SIXTEENTHS = 500 * 16;
const LARGEST = 2 ** 26;

export interface Counts {
  readonly errors: number;
  readonly spread: number;
}

/** Return the least noise, and the filter that proves it. */
export function ownNoise(
  costOf: (scale: number) => Event,
  kinds: readonly FilterKind[],
  uses: number,
  epsilon: number,
  delta: number,
): { scale: number; filter: Filter } {
  const found = kinds.map((kind) => {
    const filter = { kind, epsilon, delta };
    const isEnough = (step: number): boolean => covers(filter, costOf(scaleAt(step)).times(uses));
    let [low, high] = [0, SIXTEENTHS + LARGEST];
    if (!isEnough(high)) return { scale: Infinity, filter };
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (isEnough(middle)) high = middle;
      else low = middle;
    }
    return { scale: scaleAt(high), filter };
  });
  const least = found.reduce((one, other) => (other.scale < one.scale ? other : one));
  require(least.scale <= LARGEST, `ε = ${epsilon} needs more noise than fits into a message: choose more`, "terms");
  return least;
}

/** Split the counts' part of ε over all uses, and over the two kinds of count by halves. */
export function ownCounts(epsilon: number, uses: number, rows: number): Counts {
  const each = epsilon / uses / 2;
  return { errors: exactScale(rows / each), spread: exactScale((2 * rows) / each) };
}

function scaleAt(step: number): number {
  return step <= SIXTEENTHS ? step / 16 : 500 + step - SIXTEENTHS;
}

function exactScale(least: number): number {
  const up = least * (1 + 1e-12);
  return up < 500 ? Math.ceil(up * 16) / 16 : Math.ceil(up);
}
