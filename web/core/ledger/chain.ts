/**
 * The ledger: an append-only, hash-chained record of what a device has promised and spent, across tasks.
 *
 * As `crowdml.privacy.ledger`: it takes entries and refuses what the terms do not cover. Where entries are kept is the
 * store's business.
 */

import { Refusal, require } from "../refusal.js";
import { sha256, toHex, type Bytes } from "../wire/bytes.js";
import { accepted, canonical, nextHash, readEntry, termsOf, type Entry, type Terms } from "./entries.js";
import { NO_CAP, requireRoom } from "./cap.js";
import { covers, type Event } from "./event.js";

/** Which sample has which number, as a hash. */
export interface Numbering {
  readonly count: number;
  readonly hash: string;
}

/** What one task has spent so far. */
export interface Spending {
  readonly terms: Terms;
  taskHash: string;
  /** Uses that every sample counts with, whatever its number. */
  floor: number;
  /** Uses of every sample above the floor, by its number. */
  uses: number[];
  numbering: Numbering | null;
  releases: number;
  charged: number;
  widest: number;
  closed: boolean;
  freed: boolean;
}

export interface Charge {
  readonly task: string;
  readonly key: string;
  readonly body: Bytes;
  readonly samples: readonly number[];
  readonly version: number;
  readonly numbering: Numbering | null;
}

export class LedgerChain {
  head: Bytes = new Uint8Array(32);
  length = 0;
  readonly tasks = new Map<string, Spending>();
  private readonly bodies = new Map<string, string>();

  /** Return the entry that accepts a task, or refuse it: again, at too high a cost, or beyond the owner's limit. */
  accept(task: string, taskHash: string, terms: Terms, cap = NO_CAP): Entry {
    require(!this.tasks.has(task), `${task}: its terms were accepted before`, "terms");
    const total = terms.event.times(terms.uses);
    require(covers(terms.filter, total), `${task}: ${terms.uses} releases cost more than its ε`, "terms");
    requireRoom(task, terms, this.tasks.values(), cap);
    return accepted(task, taskHash, terms);
  }

  /** Tell whether exactly these terms were accepted. */
  agrees(task: string, terms: Terms): boolean {
    const known = this.tasks.get(task);
    return known !== undefined && same(known.terms, termsOf(accepted(task, "", terms)));
  }

  /** Return the entry for one release; null for a resend of identical bytes, which costs nothing. */
  async charge(charge: Charge): Promise<Entry | null> {
    const { task, key, body, samples, version, numbering } = charge;
    const digest = toHex(await sha256(body));
    const before = this.bodies.get(key);
    if (before !== undefined) {
      require(before === `${task} ${digest}`, `${task}: other bytes under the key of an earlier release`, "terms");
      return null;
    }
    const most = this.most(task, samples);
    const known = this.spending(task).numbering;
    require(!known || (numbering && numbering.count >= known.count), `${task}: fewer samples have a number`, "terms");
    return {
      ...(numbering ? { known: numbering.count, numbering: numbering.hash } : {}),
      kind: "charge",
      task,
      key,
      body: digest,
      samples: samples.length,
      named: toHex(await sha256(packed(samples))),
      most,
      version,
    };
  }

  /** Return the entry for a restored task, signed anew; everything that was spent stays spent. */
  renew(task: string, taskHash: string, terms: Terms): Entry {
    require(this.agrees(task, terms), `${task}: the terms are not those accepted`, "terms");
    return { kind: "renew", task, "task-hash": taskHash };
  }

  /** Return the entry that ends a task. */
  close(task: string, isPublic: boolean): Entry {
    require(!this.spending(task).closed, `${task}: already closed`, "terms");
    return { kind: "close", task, public: isPublic ? 1 : 0 };
  }

  /** Take an entry into the chain and return its bytes as text; `numbers` are the samples of a charge, packed. */
  async append(entry: Entry, numbers: Bytes = new Uint8Array(0)): Promise<string> {
    const raw = canonical(entry);
    await this.replay(raw, numbers);
    return raw;
  }

  /** Take an entry that was kept, exactly as it was written. */
  async replay(raw: string, numbers: Bytes = new Uint8Array(0)): Promise<void> {
    const entry = readEntry(raw);
    if (entry["kind"] === "charge") {
      const isSame = toHex(await sha256(numbers)) === entry["named"] && numbers.length % 4 === 0;
      require(isSame, "the samples of a charge are not those that were charged", "ledger-lost");
    }
    this.apply(entry, numbers);
    this.head = await nextHash(this.head, raw);
    this.length++;
  }

  /** Return the cost so far for the unit that is worst off. */
  spent(task: string): Event {
    return this.spending(task).terms.event.times(this.used(task));
  }

  /** Return how many releases the unit that is worst off has entered. */
  used(task: string): number {
    const { terms, charged } = this.spending(task);
    return terms.unit === "device" ? charged : this.mostUsed(task);
  }

  /** Return how many more releases the unit that is worst off may enter. */
  left(task: string): number {
    const { closed, terms } = this.spending(task);
    return closed ? 0 : terms.uses - this.used(task);
  }

  /** Return how often a sample was used. */
  usesOf(task: string, sample: number): number {
    const { floor, uses } = this.spending(task);
    return floor + (uses[sample] ?? 0);
  }

  spending(task: string): Spending {
    const found = this.tasks.get(task);
    require(found, `${task}: its terms were never accepted`, "terms");
    return found;
  }

  private mostUsed(task: string): number {
    const { floor, uses } = this.spending(task);
    return uses.reduce((most, count) => Math.max(most, floor + (count ?? 0)), floor);
  }

  /** Refuse a release that the terms do not cover; return the uses of its most used sample. */
  private most(task: string, samples: readonly number[]): number {
    const state = this.spending(task);
    const { unit, uses } = state.terms;
    if (state.closed) throw new Refusal("exhausted", `${task}: the task is closed`);
    if (new Set(samples).size !== samples.length || samples.some((sample) => !(sample >= 0 && sample < 2 ** 31))) {
      throw new RangeError("samples are numbers from 0 on, each once");
    }
    const most = 1 + samples.reduce((found, sample) => Math.max(found, this.usesOf(task, sample)), 0);
    if (unit === "device" && state.charged + 1 > uses) {
      throw new Refusal("exhausted", `${task}: ${state.charged} of ${uses} releases are spent`);
    }
    if (unit === "sample" && !samples.length) throw new RangeError("a release must name its samples");
    if (unit === "sample" && most > uses) {
      throw new Refusal("exhausted", `${task}: a sample of this release was used ${most - 1} of ${uses} times`);
    }
    return most;
  }

  private apply(entry: Entry, numbers: Bytes): void {
    const task = String(entry["task"]);
    if (entry["kind"] === "accept") {
      const counts = { floor: 0, uses: [], numbering: null, releases: 0, charged: 0, widest: 0 };
      const taskHash = String(entry["task-hash"]);
      this.tasks.set(task, { terms: termsOf(entry), taskHash, ...counts, closed: false, freed: false });
      return;
    }
    const state = this.spending(task);
    if (entry["kind"] === "charge") {
      const count = Number(entry["uses"] ?? 1);
      this.bodies.set(String(entry["key"]), `${task} ${entry["body"]!}`);
      const view = new DataView(numbers.buffer, numbers.byteOffset, numbers.byteLength);
      for (let at = 0; at < numbers.length; at += 4) {
        const sample = view.getInt32(at, true);
        require(sample >= 0, "a sample has no number", "ledger-lost");
        state.uses[sample] = (state.uses[sample] ?? 0) + count;
      }
      state.releases++;
      state.charged += count;
      state.widest = Math.max(state.widest, Number(entry["samples"]));
      if ("numbering" in entry) state.numbering = { count: Number(entry["known"]), hash: String(entry["numbering"]) };
    } else if (entry["kind"] === "lost") {
      state.floor = this.mostUsed(task);
      state.uses = [];
      state.numbering = null;
    } else if (entry["kind"] === "renew") state.taskHash = String(entry["task-hash"]);
    else {
      state.closed = true;
      state.freed = entry["public"] === 1;
    }
  }
}

/** Write numbers of samples as the chain hashes them: little-endian, 32 bits each. */
export function packed(samples: readonly number[]): Bytes {
  const made = new Uint8Array(4 * samples.length);
  const view = new DataView(made.buffer);
  samples.forEach((sample, at) => view.setInt32(4 * at, sample, true));
  return made;
}

function same(one: Terms, other: Terms): boolean {
  return canonical(accepted("", "", one)) === canonical(accepted("", "", other));
}
