/** The ledger on disk: the chain, and the entries that a store keeps for it. */

import { NO_CAP, reserved, type Promised } from "../ledger/cap.js";
import { LedgerChain, packed, type Charge } from "../ledger/chain.js";
import type { Entry, Terms } from "../ledger/entries.js";
import { Refusal, require } from "../refusal.js";
import type { Bytes } from "../wire/bytes.js";
import { note } from "./samples.js";
import type { Facts, Member, Store, StoredEntry, Unsettled, Within } from "./store.js";

const NOTHING: Bytes = new Uint8Array(0);

export class Ledger {
  chain = new LedgerChain();

  constructor(private readonly store: Store) {}

  /** Replay what is stored and not replayed yet: another tab may have written. */
  async refresh(): Promise<void> {
    const entries = await this.store.all("entries");
    if (entries.length < this.chain.length) this.chain = new LedgerChain();
    for (const entry of entries.slice(this.chain.length)) {
      const damaged = "the ledger of this browser is damaged: nothing is sent, as nobody knows what was spent";
      require(entry.number === this.chain.length, damaged, "ledger-lost");
      await this.chain.replay(entry.raw, entry.samples);
      require(String(this.chain.head) === String(entry.hash), damaged, "ledger-lost");
    }
  }

  /** The owner's limit over all tasks. */
  async cap(): Promise<Promised> {
    return (await this.store.get("owner", "cap")) ?? NO_CAP;
  }

  /** Keep a limit over all tasks, for those that are joined from now on. */
  async limit(cap: Promised): Promise<void> {
    const isOne = cap.epsilon > 0 && cap.delta > 0 && cap.delta <= 1;
    require(isOne, "a limit has an ε above 0, and a δ above 0 and at most 1", "cap");
    await this.store.run(["owner"], "readwrite", async (within) => within.put("owner", { name: "cap", ...cap }));
  }

  /** What all tasks count for against that limit. */
  reserved(): Promised {
    return reserved(this.chain.tasks.values());
  }

  /** Accept a task's terms, in one transaction with who this device is. The same ones again change nothing. */
  async accept(member: Member, facts: Facts, terms: Terms): Promise<void> {
    const { account, taskHash } = member;
    const isKnown = this.chain.tasks.has(account);
    require(!isKnown || this.chain.agrees(account, terms), `${account}: the terms are not those accepted`, "terms");
    const entry = isKnown ? null : this.chain.accept(account, taskHash, terms, await this.cap());
    await this.write(entry, NOTHING, ["members", "facts"], (within) => {
      within.put("members", member);
      if (!isKnown) within.put("facts", facts);
    });
  }

  /** Go on with a restored task as it was signed anew; everything that was spent stays spent. */
  async renew(member: Member, seen: Partial<Facts>, terms: Terms): Promise<void> {
    const isNamed = this.chain.spending(member.account).taskHash === member.taskHash;
    const entry = isNamed ? null : this.chain.renew(member.account, member.taskHash, terms);
    await this.write(entry, NOTHING, ["members", "facts"], (within) => {
      within.put("members", member);
      return note(within, member.account, seen);
    });
  }

  /** Charge one release and keep its final bytes; only what this returns may be sent. */
  async charge(charge: Charge, after: { contacts: number; steps: number }): Promise<Unsettled> {
    const { key, task: account, body, version } = charge;
    const entry = await this.chain.charge(charge);
    const unsettled = { key, account, body, version, ...after, order: this.chain.length };
    await this.write(entry, packed(charge.samples), ["unsettled"], (within) => within.add("unsettled", unsettled));
    return unsettled;
  }

  /** End a task; twice is as good as once. */
  async close(account: string, isPublic: boolean): Promise<void> {
    if (!this.chain.spending(account).closed) await this.write(this.chain.close(account, isPublic), NOTHING, []);
  }

  /** List what must be sent again, byte for byte, oldest first. */
  async unsettled(account: string): Promise<Unsettled[]> {
    const found = await this.store.all("unsettled");
    return found.filter((each) => each.account === account).sort((one, other) => one.order - other.order);
  }

  /** Store an entry, and whatever belongs to it, in one transaction; then count it. */
  private async write(
    entry: Entry | null,
    numbers: Bytes,
    tables: ("members" | "facts" | "unsettled")[],
    more: (within: Within) => void | Promise<void> = () => undefined,
  ): Promise<void> {
    const number = this.chain.length;
    const stored: StoredEntry[] = [];
    if (entry) {
      // The chain takes it first, as hashing cannot wait inside of a transaction; if storing fails, all is read anew.
      const raw = await this.chain.append(entry, numbers);
      stored.push({ number, raw, samples: numbers, hash: this.chain.head });
    }
    try {
      await this.store.run(["entries", ...tables], "readwrite", async (within) => {
        const after = await within.all("entries", number, Infinity);
        if (after.length) throw new Refusal("busy", "another tab has written to the ledger: nothing was sent");
        for (const each of stored) within.add("entries", each);
        await more(within);
      });
    } catch (error) {
      this.chain = new LedgerChain();
      throw error;
    }
  }
}
