/** What rows are mapped to: one of several labels, or a number between two bounds, encoded from -1 to 1. */

import { require } from "../refusal.js";

export interface Target {
  /** Names of the labels; none for a number. */
  readonly labels: readonly string[];
  readonly low: number;
  readonly high: number;
  /** Bins in which targets are counted. */
  readonly bins: number;
  /** Whether numbers beyond the bounds are refused; otherwise they count as the bound. */
  readonly refusesOutside: boolean;
}

/** Read a label by its name or number, or a number in its unit; returns what the model sees. */
export function encode(target: Target, value: string | number): number {
  const { labels, low, high } = target;
  if (labels.length) {
    const found = typeof value === "string" ? labels.indexOf(value) : value;
    const exists = Number.isInteger(found) && found >= 0 && found < labels.length;
    require(exists, `${String(value)} is not a label; there are: ${labels.join(", ")}`, "bad-row");
    return found;
  }
  require(typeof value === "number" && Number.isFinite(value), `${String(value)} is not a number`, "bad-row");
  const rounding = (high - low) * 1e-6;
  const outside = value < low - rounding || value > high + rounding;
  require(!(outside && target.refusesOutside), `${value} is not from ${low} to ${high}`, "bad-row");
  const within = Math.max(low, Math.min(high, value));
  return Math.fround(Math.max(-1, Math.min(1, (within - (low + high) / 2) / ((high - low) / 2))));
}

/** Turn what a model predicts into a label's name, or into a number in its unit. */
export function decode(target: Target, encoded: number): string | number {
  if (target.labels.length) return target.labels[encoded]!;
  return (Math.max(-1, Math.min(1, encoded)) * (target.high - target.low)) / 2 + (target.low + target.high) / 2;
}

/** Return the bin of an encoded target. */
export function binOf(target: Target, encoded: number): number {
  if (target.labels.length) return encoded;
  return Math.max(0, Math.min(target.bins - 1, Math.floor(Math.fround((encoded + 1) * (target.bins / 2)))));
}

/** Tell whether a prediction counts as wrong; a number does so by a coin, as likely as it is far off. */
export function isWrong(target: Target, predicted: number, encoded: number, coin: number): boolean {
  if (target.labels.length) return predicted !== encoded;
  return !(coin >= Math.fround(Math.abs(Math.fround(predicted - encoded)) / 2));
}
