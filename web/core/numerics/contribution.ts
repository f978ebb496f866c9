/**
 * A contribution: everything between check-out and the bytes of a check-in that looks at rows.
 *
 * gradient or local steps → bound → integers on the grid, checked → noise. Draws are taken in the order in which the
 * Python device takes them, so that the same words make the same check-in.
 */

import type { Batch } from "./batch.js";
import { breathe } from "./breathe.js";
import { discreteLaplace } from "./discrete-laplace.js";
import { addUp, roundChecked, toLevels, type Grid, type Vectors } from "./grid.js";
import { roundedGaussian } from "./rounded-gaussian.js";
import { binOf, isWrong, type Target } from "./targets.js";
import { inOrder, stable, type Stability, type Work } from "./walks.js";
import { uniform, type Words } from "./words.js";

/** What a device does, taken from the signed task. */
export interface Job extends Work {
  readonly kind: "gradient" | "steps";
  readonly heldOut: number;
  readonly target: Target;
  /** Whether a check-in counts as much as it has rows. */
  readonly weighsRows: boolean;
  /** Whether a commit follows every check-in. */
  readonly alone: boolean;
  /** Bound and noise; null where nothing is promised. */
  readonly sound: {
    readonly grid: Grid;
    readonly law: "discrete-laplace" | "rounded-gaussian";
    readonly scale: number;
    readonly stable: Stability | null;
  } | null;
  /** Scales of the noise on counts, 0 for none; null where counts are not sent. */
  readonly counts: { readonly errors: number; readonly spread: number } | null;
}

export interface Counts {
  readonly rows: number;
  readonly counted: number;
  readonly errors: number;
  readonly spread: Int32Array;
}

export interface CheckIn {
  readonly update: Int32Array | Float32Array;
  readonly weight: number;
  readonly counts: Counts | null;
}

/** What a device remembers for its rate: how often it has contacted the server, and how many steps it has taken. */
export interface Remembered {
  readonly contacts: number;
  readonly steps: number;
}

/** Do all that a device does between check-out and check-in; the result may leave the device. */
export async function contribute(
  job: Job,
  parameters: Float32Array,
  count: number | null,
  remembered: Remembered,
  batch: Batch,
  words: Words,
): Promise<[CheckIn, Remembered]> {
  await breathe();
  return job.kind === "gradient"
    ? [await ofGradient(job, parameters, batch, words), remembered]
    : ofSteps(job, parameters, count, remembered, batch, words);
}

async function ofGradient(job: Job, parameters: Float32Array, batch: Batch, words: Words): Promise<CheckIn> {
  const { net, sound } = job;
  let [training, counted] = [batch.mask, batch.mask];
  if (job.heldOut) {
    const coins = uniform(words, batch.count);
    counted = batch.mask.map((mark, at) => (coins[at]! < Math.fround(job.heldOut) ? mark : 0));
    training = batch.mask.map((mark, at) => mark - counted[at]!);
  }
  const rows = sum(training);
  const found = net.factors(parameters, batch.rows, batch.targets, batch.count);
  await breathe();
  const mean = (): Float32Array => {
    const share = Math.max(rows, 1);
    return net.total(
      found,
      training.map((mark) => mark / share),
      new Float32Array(net.size),
    ) as Float32Array;
  };
  let update: Int32Array | Float32Array;
  if (sound) update = await onGrid(sound.grid, job.weighsRows ? net.rows(found, training) : mean(), words);
  else {
    update = mean();
    net.addRegulariser(parameters, job.regularisation, update);
  }
  const counts = job.counts && count(job.target, batch, found.predicted, counted, words);
  return withNoise(job, update, rows, counts, words);
}

async function ofSteps(
  job: Job,
  parameters: Float32Array,
  count: number | null,
  remembered: Remembered,
  batch: Batch,
  words: Words,
): Promise<[CheckIn, Remembered]> {
  const contacts = remembered.contacts + 1;
  const { counter } = job.rate;
  const begin =
    counter === "device-contacts"
      ? contacts
      : counter === "local-steps"
        ? remembered.steps + 1
        : Math.max(count ?? 1, 1);
  const { sound } = job;
  const [change, taken] = sound?.stable
    ? stable(job, sound.stable, parameters, begin, batch)
    : inOrder(job, parameters, begin, batch);
  const update = sound ? await onGrid(sound.grid, change, words) : (change as Float32Array);
  const check = await withNoise(job, update, batch.real, null, words);
  return [check, { contacts, steps: remembered.steps + taken }];
}

/** Clip, round and check each of several vectors, and add them up. */
async function onGrid(grid: Grid, vectors: Vectors, words: Words): Promise<Int32Array> {
  await breathe();
  toLevels(grid, vectors);
  await breathe();
  return addUp(roundChecked(grid, vectors, words), grid.size);
}

async function withNoise(
  job: Job,
  update: Int32Array | Float32Array,
  rows: number,
  counts: Counts | null,
  words: Words,
): Promise<CheckIn> {
  await breathe();
  const weight = job.weighsRows ? rows : 1;
  const { sound } = job;
  if (sound) {
    const draw = sound.law === "rounded-gaussian" ? roundedGaussian : discreteLaplace;
    const noise = draw(words, sound.scale, update.length);
    for (let at = 0; at < update.length; at++) update[at]! += noise[at]!; // modulo 2³²
  } else if (!job.alone) {
    for (let at = 0; at < update.length; at++) update[at]! *= weight;
  }
  if (!counts || !job.counts) return { update, weight, counts };
  const noisy = (values: Int32Array, scale: number): Int32Array => {
    const noise = scale ? discreteLaplace(words, scale, values.length) : null;
    return noise ? values.map((value, at) => value + noise[at]!) : values;
  };
  const errors = noisy(Int32Array.of(counts.errors), job.counts.errors)[0]!;
  return { update, weight, counts: { ...counts, errors, spread: noisy(counts.spread, job.counts.spread) } };
}

/** Count errors over the rows marked in `counted`, and targets over all rows. */
function count(target: Target, batch: Batch, predicted: Float64Array, counted: Float64Array, words: Words): Counts {
  const coins = target.labels.length ? null : uniform(words, batch.count);
  const spread = new Int32Array(target.bins);
  let errors = 0;
  for (let at = 0; at < batch.count; at++) {
    const encoded = batch.targets[at]!;
    if (batch.mask[at]) spread[binOf(target, encoded)]!++;
    if (counted[at] && isWrong(target, predicted[at]!, encoded, coins?.[at] ?? 0)) errors++;
  }
  return { rows: batch.real, counted: sum(counted), errors, spread };
}

function sum(values: Float64Array): number {
  return values.reduce((total, value) => total + value, 0);
}
