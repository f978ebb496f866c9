/** Sending what was charged, always the stored bytes, and what a device believes of the answers. */

import { Refusal, require } from "../refusal.js";
import type { BrowserTask } from "./browser-task.js";
import type { Ledger } from "./ledger.js";
import { note, factsOf } from "./samples.js";
import { refusalOf, text, whole, type Answer, type Server } from "./server.js";
import type { Member, Store, Unsettled } from "./store.js";

/** What became of a contribution. */
export type Outcome =
  | { readonly status: "applied" | "queued"; readonly key: string; readonly number: number; readonly version: number }
  | { readonly status: "refused"; readonly key: string; readonly why: string }
  | { readonly status: "kept"; readonly key: string; readonly why: string }
  | { readonly status: "waiting"; readonly retryAfterS: number; readonly why: string };

const MOST_VERSIONS = 1e12;
/** Refusals of a check-in after which a device goes on with the next. */
const GO_ON = ["stale", "future-version", "already-in-round", "not-invited", "late"];

export class Sending {
  constructor(
    private readonly store: Store,
    private readonly ledger: Ledger,
    private readonly server: Server,
    private readonly task: BrowserTask,
    private readonly member: Member,
  ) {}

  /** Send check-ins, oldest first, until each is settled; if nobody answers they are kept. Returns the last outcome. */
  async sendAll(unsettled: Unsettled[]): Promise<Outcome> {
    let last: Outcome | null = null;
    for (const each of unsettled) {
      let answer: Answer;
      try {
        answer = await this.server.checkIn(each.key, each.body);
      } catch (error) {
        if (!(error instanceof Refusal) || error.reason !== "offline") throw error;
        return { status: "kept", key: each.key, why: error.message };
      }
      last = answer.status === 200 ? await this.used(each, answer) : await this.refused(each, answer);
    }
    return last!;
  }

  /** Forget the bytes of a check-in; its charge stays. */
  async forget(key: string): Promise<void> {
    await this.store.run(["unsettled"], "readwrite", async (within) => within.remove("unsettled", key));
  }

  /** Refuse a version that the task cannot have, before it is remembered. */
  requirePlausible(version: number, started = -1): void {
    const most = this.task.schedule["max-versions"] ?? MOST_VERSIONS;
    require(version <= most, `the server names version ${version}, but this task has at most ${most}`);
    const passed = Math.max(version - 1 - started, 0);
    const isPossible = started < 0 || (version >= started && passed <= this.task.schedule["max-staleness"]);
    require(isPossible, `the receipt names version ${version}, which the task's rules exclude`);
  }

  /** Refuse to go on with a ledger that knows of fewer releases than the server has received, used or refused. */
  requireWhole(received: number): void {
    const { releases } = this.ledger.chain.spending(this.member.account);
    const said = `the server has ${received} check-ins of this device, its ledger only ${releases} charges`;
    require(received <=
      releases, `${said}: the ledger was set back, and what was spent is no longer known. Nothing is sent any more; use a newer ` +
      "recovery code, or withdraw", "ledger-lost");
  }

  private async used(sent: Unsettled, answer: Answer): Promise<Outcome> {
    const { json } = answer;
    const status = text(json, "status");
    const [number, version] = [whole(json["number"], "number"), whole(json["version"], "version")];
    const isOurs = text(json, "task") === this.member.task && text(json, "key") === sent.key;
    const isKnown = status === "applied" || status === "queued";
    require(isOurs && isKnown, "the server's receipt is not for the check-in that was sent");
    if (text(json, "task_hash") !== this.member.taskHash) {
      throw new Refusal("restored", "the operator restored this task from a backup: the owner must confirm that");
    }
    this.requirePlausible(version, sent.version);
    this.requireWhole(number);
    const facts = await factsOf(this.store, sent.account);
    const before = `the server counts this as check-in ${number}, but has counted ${facts.number}: it was set back`;
    require(number > facts.number || json["again"] === true, before, "set-back");
    await this.store.run(["facts", "unsettled"], "readwrite", async (within) => {
      within.remove("unsettled", sent.key);
      await note(within, sent.account, {
        version: Math.max(facts.version, status === "applied" ? version : -1),
        contributed: sent.version,
        number: Math.max(number, facts.number),
        contacts: sent.contacts,
        steps: sent.steps,
      });
    });
    return { status, key: sent.key, number, version };
  }

  private async refused(sent: Unsettled, answer: Answer): Promise<Outcome> {
    await this.forget(sent.key);
    if (answer.status !== 409 || !GO_ON.includes(answer.code)) throw refusalOf(answer);
    return { status: "refused", key: sent.key, why: refusalOf(answer).message };
  }
}
