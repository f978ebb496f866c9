/**
 * Local steps between check-out and check-in (`crowdml.privacy.sanitisers.walks`).
 *
 * `inOrder` takes a step on each part of the batch. `stable` does what the proof of `crowdml.algorithms.stability`
 * assumes: wide numbers, bounded rows, means over a fixed size, and only the difference from the broadcast is kept.
 */

import type { Batch } from "./batch.js";
import type { Net } from "./net.js";
import { rateAt, type RateSettings } from "./rates.js";

export interface Work {
  readonly net: Net;
  readonly regularisation: number;
  readonly rate: RateSettings;
  /** Rows per step. */
  readonly rows: number;
}

export interface Stability {
  readonly moved: number;
  readonly rounding: number;
  readonly row: number;
  readonly part: number;
  readonly steps: number;
}

/** The broadcast is brought into a ball of this radius before stable steps: it is the server's and may be anything. */
export const LONGEST = 1e6;
/** Rows and rates are brought so much below what the proof allows. */
const MARGIN = 1 - 1e-9;

/** Steps over the rows as they come; returns what has changed, and how many steps were taken. */
export function inOrder(work: Work, parameters: Float32Array, begin: number, batch: Batch): [Float32Array, number] {
  const { net, rate, rows } = work;
  const here = Float32Array.from(parameters);
  const gradient = new Float32Array(net.size);
  let taken = 0;
  for (const part of batch.parts(rows)) {
    const real = part.mask.reduce((sum, mark) => sum + mark, 0);
    if (!real) continue;
    const found = net.factors(here, part.rows, part.targets, part.count);
    net.total(
      found,
      part.mask.map((mark) => mark / real),
      gradient,
    );
    net.addRegulariser(here, work.regularisation, gradient);
    const eta = Math.fround(rateAt(rate, begin + (rate.counter === "local-steps" ? taken : 0)));
    for (let at = 0; at < here.length; at++) here[at]! -= Math.fround(eta * gradient[at]!);
    taken++;
  }
  return [here.map((value, at) => value - parameters[at]!), taken];
}

/** How fast the gradient of an example of that norm changes with the parameters at most, the regulariser included. */
export function steepness(work: Work, row: number): number {
  const { loss, layers } = work.net;
  const long = layers[0]!.bias ? Math.hypot(row, 1) : row;
  return (loss.curvature ?? Infinity) * long ** 2 + work.regularisation;
}

/** Steps with a proof; returns what has changed, and how many steps were taken. */
export function stable(
  work: Work,
  proof: Stability,
  parameters: Float32Array,
  begin: number,
  batch: Batch,
): [Float64Array, number] {
  const { net, rate } = work;
  const origin = Float64Array.from(parameters, (value) => (Number.isFinite(value) ? value : 0));
  const norm = Math.sqrt(origin.reduce((sum, value) => sum + value * value, 0));
  const nearer = Math.min(1, LONGEST / Math.max(norm, 1e-18));
  for (let at = 0; at < origin.length; at++) origin[at]! *= nearer;
  const parts = bounded(batch, proof.row * MARGIN).parts(work.rows);
  if (parts.length > proof.steps) throw new RangeError(`${parts.length} steps, but ${proof.steps} are proven`);
  const largest = (2 * MARGIN) / steepness(work, proof.row);
  const walked = new Float64Array(net.size);
  const gradient = new Float64Array(net.size);
  const both = new Float64Array(net.size);
  let taken = 0;
  for (const part of parts) {
    if (!part.mask.some((mark) => mark > 0)) continue;
    const count = Math.max(1, begin + (rate.counter === "local-steps" ? taken : 0));
    const eta = Math.min(rateAt(rate, count), rate.c, largest);
    const fixed = net.forward(origin, part.rows, part.count).at(-1)!;
    const found = net.factors(walked, part.rows, part.targets, part.count, fixed);
    net.total(
      found,
      part.mask.map((mark) => mark / proof.part),
      gradient,
    );
    for (let at = 0; at < both.length; at++) both[at] = origin[at]! + walked[at]!;
    net.addRegulariser(both, work.regularisation, gradient);
    for (let at = 0; at < walked.length; at++) walked[at]! -= gradient[at]! * eta;
    taken++;
  }
  return [walked, taken];
}

/** Return rows in wide numbers, none longer than that. */
function bounded(batch: Batch, longest: number): Batch {
  const rows = Float64Array.from(batch.rows, (value) => (Number.isFinite(value) ? value : 0));
  const width = rows.length / batch.count;
  for (let begin = 0; begin < rows.length; begin += width) {
    const row = rows.subarray(begin, begin + width);
    const norm = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
    const shorter = longest / Math.max(norm, longest);
    for (let at = 0; at < width; at++) row[at]! *= shorter;
  }
  return batch.with(rows);
}
