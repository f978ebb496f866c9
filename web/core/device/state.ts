/** What an owner sees of a device: rows, releases, what is spent and left, and how it stands. */

import { oddsAfter } from "../ledger/odds.js";
import { Refusal, type Reason } from "../refusal.js";
import type { BrowserTask } from "./browser-task.js";
import type { Ledger } from "./ledger.js";
import { factsOf, keptRows } from "./samples.js";
import type { Outcome } from "./sending.js";
import type { Store } from "./store.js";

export interface DeviceState {
  readonly task: string;
  /** How the device stands: `ready`, `paused` by its owner, `withdrawn`, or the reason of the last refusal. */
  readonly status: "ready" | "paused" | "withdrawn" | Reason;
  /** The same in a sentence, where there is something to say. */
  readonly sentence: string;
  /** Rows that are kept, and how many a contribution needs. */
  readonly rows: number;
  readonly batch: number;
  /** Releases charged so far. */
  readonly releases: number;
  /** Of these, how many the server has given receipts for, as this device knows. */
  readonly receipts: number;
  /** Check-ins that were charged and not answered yet. */
  readonly unsettled: number;
  /** ε spent by the unit that is worst off, of how much. */
  readonly spent: number;
  readonly epsilon: number;
  readonly delta: number;
  /** Releases that the unit that is worst off has entered. */
  readonly used: number;
  /** How often in 100 a guess which of two rows was used is right at most, after what was spent; a coin has 50. */
  readonly odds: number;
  /** Releases that the unit that is worst off may still enter. */
  readonly left: number;
  /** Newest version seen; -1 at first. */
  readonly version: number;
  /** What became of the last contribution. */
  readonly last: Outcome | null;
  /** What the last one took of the page's time, in milliseconds. */
  readonly workedMs: number;
}

export class StateBoard {
  now!: DeviceState;
  workedMs = 0;
  private odds = 50;
  private last: Outcome | null = null;
  private problem: Refusal | null = null;
  private readonly listeners = new Set<(state: DeviceState) => void>();

  constructor(
    private readonly store: Store,
    private readonly ledger: Ledger,
    private readonly task: BrowserTask,
    private readonly account: string,
  ) {}

  subscribe(listener: (state: DeviceState) => void): () => void {
    this.listeners.add(listener);
    listener(this.now);
    return () => void this.listeners.delete(listener);
  }

  /** Show what became of something. */
  async note(outcome: Outcome | null): Promise<void> {
    if (outcome) this.last = outcome;
    this.problem = null;
    if (outcome?.status === "waiting") this.problem = new Refusal("waiting", outcome.why);
    if (outcome?.status === "kept") this.problem = new Refusal("offline", outcome.why);
    await this.refresh();
  }

  /** Show why something was not done. */
  async refused(error: unknown): Promise<void> {
    this.problem = error instanceof Refusal ? error : new Refusal("malformed", String(error));
    await this.refresh().catch(() => undefined); // the storage may be what is wrong
  }

  async refresh(): Promise<void> {
    const member = await this.store.get("members", this.account);
    const facts = await factsOf(this.store, this.account);
    const { chain } = this.ledger;
    const { filter } = this.task.terms;
    const used = chain.used(this.account);
    if (used !== this.now?.used) this.odds = oddsAfter(this.task.terms.event, used);
    const owner = member?.state === "withdrawn" ? "withdrawn" : member?.paused ? "paused" : null;
    this.now = {
      task: this.task.name,
      status: owner ?? this.problem?.reason ?? "ready",
      sentence: this.problem?.message ?? "",
      rows: (await keptRows(this.store, this.account)).length,
      batch: this.task.schedule.whole ? 1 : this.task.schedule.batch,
      releases: chain.spending(this.account).releases,
      receipts: facts.number,
      unsettled: (await this.ledger.unsettled(this.account)).length,
      spent: chain.spent(this.account).promise(filter.delta),
      epsilon: filter.epsilon,
      delta: filter.delta,
      used,
      odds: this.odds,
      left: chain.left(this.account),
      version: facts.version,
      last: this.last,
      workedMs: this.workedMs,
    };
    for (const listener of this.listeners) listener(this.now);
  }
}
