/** The vectors that the Python reference wrote. */

import { readFileSync } from "node:fs";

import type { Grid } from "../core/numerics/grid.js";

export interface CheckInCase {
  readonly name: string;
  readonly signed: { text: string; signature: string; key: string };
  readonly hash: string;
  readonly operator: string;
  readonly entry: string;
  readonly epsilon: number | null;
  readonly rows: number[][];
  readonly labels: number[];
  readonly targets: number[];
  readonly seen: number[][];
  readonly order: number[];
  readonly width: number;
  readonly words: string[];
  readonly version: number;
  readonly "check-out": string;
  readonly update: number[];
  readonly "check-in": string;
  readonly after: { contacts?: number; steps?: number };
}

export interface RoundingCase {
  readonly grid: Grid;
  readonly wide: boolean;
  readonly vectors: (number | null)[];
  readonly levels: string;
  readonly words: string[];
  readonly rounded: number[];
}

export interface SamplerCase {
  readonly sampler: string;
  readonly lanes: number;
  readonly limit?: string;
  readonly parameter?: string;
  readonly draws: string[];
  readonly words: string[];
}

export function vectors<Kind>(name: string): Kind {
  return JSON.parse(readFileSync(new URL(`../../tests/vectors/${name}.json`, import.meta.url), "utf8")) as Kind;
}

export const fromBase64 = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(Buffer.from(text, "base64"));

/** Largest difference between two lists of numbers, as a share of the largest number. */
export function apart(one: ArrayLike<number>, other: ArrayLike<number>): number {
  if (one.length !== other.length) return Infinity;
  let [most, largest] = [0, 1e-30];
  for (let at = 0; at < one.length; at++) {
    most = Math.max(most, Math.abs(one[at]! - other[at]!));
    largest = Math.max(largest, Math.abs(other[at]!));
  }
  return most / largest;
}
