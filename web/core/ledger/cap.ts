/** The owner's limit over all tasks, and what each counts for against it (`crowdml.privacy.ledger.spending`). */

import { Refusal } from "../refusal.js";
import type { Spending } from "./chain.js";
import type { Terms } from "./entries.js";
import type { Filter } from "./event.js";
import { sumUp } from "./exact.js";

/** ε and δ; those of tasks add up. */
export interface Promised {
  readonly epsilon: number;
  readonly delta: number;
}

/** No limit. */
export const NO_CAP: Promised = { epsilon: Infinity, delta: 1 };

/** Parts of all uses at which marks are set: a task that ends before one counts with the ε of that many uses. */
const MARKS = [16, 8, 4, 2];

/** Return what all tasks together count for. */
export function reserved(tasks: Iterable<Spending>): Promised {
  return [...tasks].map(countedBy).reduce(plus, { epsilon: 0, delta: 0 });
}

/** Refuse terms that would pass the owner's limit beside what counts already. */
export function requireRoom(task: string, terms: Terms, tasks: Iterable<Spending>, cap: Promised): void {
  const { epsilon, delta } = plus(reserved(tasks), whole(terms.filter));
  if (epsilon <= cap.epsilon && delta <= cap.delta) return;
  const said = ({ epsilon, delta }: Promised): string => `ε = ${+epsilon.toPrecision(4)}, δ = ${+delta.toPrecision(4)}`;
  throw new Refusal("cap", `${task}: ${said({ epsilon, delta })} with all tasks; your limit is ${said(cap)}`);
}

/** The whole promise, or less once a task has ended in public. */
function countedBy({ terms, freed, charged }: Spending): Promised {
  const { filter, event, uses } = terms;
  const all = whole(filter);
  if (!freed) return all;
  if (!charged) return { epsilon: 0, delta: 0 };
  const possible = [all.epsilon, event.times(charged).pure];
  if (filter.kind !== "pure") {
    const passed = MARKS.map((part) => Math.floor(uses / part)).filter((mark) => mark >= charged);
    possible.push(...passed.map((mark) => event.times(mark).promise(filter.delta / MARKS.length)));
  }
  return { epsilon: Math.min(...possible), delta: all.delta };
}

function whole({ kind, epsilon, delta }: Filter): Promised {
  return { epsilon, delta: kind === "pure" ? delta : 2 * delta };
}

/** Add up, so that no rounding lets many small promises pass the limit together. */
function plus(one: Promised, other: Promised): Promised {
  return { epsilon: sumUp(one.epsilon, other.epsilon), delta: sumUp(one.delta, other.delta) };
}
