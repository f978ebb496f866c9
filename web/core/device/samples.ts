/**
 * Which row is which sample: equal rows are one, and keep its number, also when the row itself is gone.
 *
 * Uses are counted by number, so whoever loses the numbers begins to count anew; therefore a running hash over them goes
 * into the ledger with every charge. Numbers are on disk before the charge that uses them.
 */

import { Refusal, require } from "../refusal.js";
import { fromHex, joined, sha256, toHex, utf8, type Bytes } from "../wire/bytes.js";
import type { Numbering, Spending } from "../ledger/chain.js";
import type { Facts, KeptRow, Sample, Store, Within } from "./store.js";

const LAST = "\uffff";
const MISSING = "this browser has lost what it knew of its rows: nothing is sent, as their uses cannot be counted";

/** Begin what a device knows: no sample has a number. */
export async function beginFacts(account: string): Promise<Facts> {
  const salt = crypto.getRandomValues(new Uint8Array(32));
  const numbering = toHex(await unlinked(salt));
  const seen = { version: -1, contributed: -1, number: 0, contacts: 0, steps: 0 };
  return { account, ...seen, salt, following: 0, numbering, parameters: null };
}

/** Keep a row and number it; one that is kept already stays as it is. Tells whether it is new. */
export async function keepRow(store: Store, account: string, row: Float32Array, target: number): Promise<boolean> {
  const facts = await factsOf(store, account);
  const name = await nameOf(facts.salt, row, target);
  const numbering = toHex(await linked(fromHex(facts.numbering), name, facts.following));
  return store.run(["facts", "samples", "rows"], "readwrite", async (within) => {
    const now = await within.get("facts", account);
    if (now?.numbering !== facts.numbering) throw new Refusal("busy", "two rows at once: keep the row again");
    const known = await within.get("samples", [account, name]);
    const sample = known?.sample ?? facts.following;
    if (!known) {
      within.add("samples", { account, name, sample });
      within.put("facts", { ...now, following: facts.following + 1, numbering });
    }
    const kept = await within.get("rows", [account, sample]);
    if (!kept) within.add("rows", { account, sample, row, target });
    return !kept;
  });
}

/**
 * Tell whether rows may be samples that were used before, written differently (one more digit, another unit): most of
 * them are new, and a tenth or more of those that were used are not among them.
 */
export async function areDoubtful(
  store: Store,
  account: string,
  rows: readonly (readonly [row: Float32Array, target: number])[],
  isUsed: (sample: number) => boolean,
): Promise<boolean> {
  const { salt } = await factsOf(store, account);
  const names = new Set(await Promise.all(rows.map(([row, target]) => nameOf(salt, row, target))));
  const known = await samplesOf(store, account);
  const used = known.filter(({ sample }) => isUsed(sample));
  const gone = used.filter(({ name }) => !names.has(name)).length;
  const fresh = names.size - known.filter(({ name }) => names.has(name)).length;
  return 2 * fresh > names.size && gone > 0 && 10 * gone >= used.length;
}

/** Return the rows of a task. */
export async function keptRows(store: Store, account: string): Promise<KeptRow[]> {
  return store.all("rows", [account], [account, []]);
}

/** Read what is known of a device, by itself or inside of a transaction. */
export async function factsOf(where: Pick<Within, "get">, account: string): Promise<Facts> {
  const found = await where.get("facts", account);
  require(found, MISSING, "ledger-lost");
  return found;
}

/** Change some facts and leave the others: rows may come at any time, and number themselves in them. */
export async function note(within: Within, account: string, changes: Partial<Facts>): Promise<void> {
  within.put("facts", { ...(await factsOf(within, account)), ...changes });
}

/** Refuse to go on with other numbers of samples than the ledger has counted with. */
export async function requireNumbering(store: Store, account: string, spending: Spending): Promise<Numbering | null> {
  if (spending.terms.unit !== "sample") return null;
  const [facts, samples] = await store.run(
    ["facts", "samples"],
    "readonly",
    async (within) => [await factsOf(within, account), await samplesOf(within, account)] as const,
  );
  let hash = await unlinked(facts.salt);
  const known = spending.numbering;
  const lost = "this browser's list of samples is not the one that the ledger has counted with: nothing is sent";
  let isThere = !known || known.count === 0;
  for (const [at, { name, sample }] of samples.entries()) {
    hash = await linked(hash, name, sample);
    if (known?.count === at + 1) isThere = toHex(hash) === known.hash;
  }
  require(isThere && toHex(hash) === facts.numbering, lost, "ledger-lost");
  return { count: samples.length, hash: facts.numbering };
}

export async function samplesOf(where: Pick<Within, "all">, account: string): Promise<Sample[]> {
  const found = await where.all("samples", [account, ""], [account, LAST]);
  return found.sort((one, other) => one.sample - other.sample);
}

/** Name a row by its numbers and its target; without the salt the name says nothing. */
async function nameOf(salt: Bytes, row: Float32Array, target: number): Promise<string> {
  const content = new Uint8Array(4 * row.length + 4);
  const view = new DataView(content.buffer);
  row.forEach((value, at) => view.setFloat32(4 * at, value + 0, true)); // minus zero is zero
  view.setFloat32(4 * row.length, target + 0, true);
  return toHex((await sha256(joined(salt, content))).subarray(0, 16));
}

/** The hash that numbers begin with, before there is a sample. */
function unlinked(salt: Bytes): Promise<Bytes> {
  return sha256(joined(utf8("crowdml samples 1\0"), salt));
}

async function linked(before: Bytes, name: string, sample: number): Promise<Bytes> {
  const numbers = new DataView(new ArrayBuffer(16));
  numbers.setUint32(8, sample, true);
  return sha256(joined(before, fromHex(name), new Uint8Array(numbers.buffer)));
}
