/** Gathering a batch: which rows enter the next release, chosen without looking at what is in them. */

import type { LedgerChain } from "../ledger/chain.js";
import { Batch } from "../numerics/batch.js";
import type { Words } from "../numerics/words.js";
import { Refusal } from "../refusal.js";
import type { BrowserTask } from "./browser-task.js";
import type { KeptRow } from "./store.js";

export interface Gathered {
  readonly batch: Batch;
  /** Numbers of the samples, each once. */
  readonly samples: number[];
}

/** Choose rows by how often they were used, and otherwise by chance; in rounds all of them take part. */
export function gather(
  task: BrowserTask,
  chain: LedgerChain,
  account: string,
  rows: readonly KeptRow[],
  words: Words,
): Gathered {
  const { whole, batch, epochs, multiple } = task.schedule;
  const { unit, uses: most } = task.terms;
  const least = whole ? 1 : batch;
  if (rows.length < least) {
    throw new Refusal("few-rows", `${rows.length} of ${least} rows are there: gather ${least - rows.length} more`);
  }
  const uses = rows.map(({ sample }) => chain.usesOf(account, sample));
  const able = rows.map((_, at) => at).filter((at) => unit === "device" || uses[at]! < most);
  if (able.length < least) {
    const spent = rows.length - able.length;
    throw new Refusal(
      "exhausted",
      `${spent} of ${rows.length} rows were used ${most} times each, which is all that was promised; gather more rows`,
    );
  }
  const shuffled = shuffle(able, words).sort((one, other) => uses[one]! - uses[other]!);
  const chosen = shuffled.slice(0, whole ? (task.schedule["most-rows"] ?? Infinity) : batch);
  const table = chosen.map((at) => ({ x: task.transform(rows[at]!.row), y: rows[at]!.target }));
  const places = chosen.map((_, at) => at);
  const samples = chosen.map((at) => rows[at]!.sample);
  if (!whole) return { batch: Batch.of(table, places, batch), samples };
  const order = Array.from({ length: epochs }, () => shuffle(places, words)).flat();
  return { batch: Batch.of(table, order, Math.ceil(order.length / multiple) * multiple), samples };
}

/** Bring places into an order drawn from words, of which the smallest goes first. */
function shuffle(places: readonly number[], words: Words): number[] {
  const drawn = words.take(places.length);
  const at = places.map(
    (place, index) => [drawn[2 * index + 1]! * 2 ** 21 + (drawn[2 * index]! >>> 11), place] as const,
  );
  return at.sort((one, other) => one[0] - other[0]).map(([, place]) => place);
}
