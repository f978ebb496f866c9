/**
 * Joining a task: look at the signed task, let the owner decide, write it down, then enrol.
 *
 * Nothing is taken from the server on trust: the invite names the operator's key and the hash of the signed task, what is
 * shown is worked out here from the task itself, and the ledger has accepted the terms before the server hears of it.
 */

import { oddsAfter } from "../ledger/odds.js";
import { Refusal, require } from "../refusal.js";
import { parseLink, type InviteLink } from "../wire/join-link.js";
import { ed25519, hashOf, openSigned, type SignedTask, type TaskDocument } from "../wire/signed-task.js";
import { openTask, type BrowserTask } from "./browser-task.js";
import { Device } from "./device.js";
import { Ledger } from "./ledger.js";
import { beginFacts, note } from "./samples.js";
import { Server } from "./server.js";
import { exclusively, Store, type Member } from "./store.js";

/** What is promised, for the owner to read; all of it worked out on this device. */
export interface Promised {
  /** Whether anything is promised at all. */
  readonly guarantee: boolean;
  readonly unit: "sample" | "device";
  readonly epsilon: number;
  readonly delta: number;
  /** Releases a sample may enter, or a device may make. */
  readonly uses: number;
  /** How often in 100 a guess which of two rows was used is right at most, after all releases; a coin has 50. */
  readonly odds: number;
}

/** One part of what leaves the device with every check-in. */
export interface Leaving {
  readonly name: string;
  readonly bytes: number;
  /** Whether it carries noise. */
  readonly noisy: boolean;
}

/** What an invite offers, checked. Nothing has been sent but questions: which task it is, whether the invite is used. */
export class Offer {
  constructor(
    readonly link: InviteLink,
    readonly signed: SignedTask,
    readonly document: TaskDocument,
    /** The task as this browser would run it. */
    readonly task: BrowserTask,
    /** State of the task, as the server says: draft, open or paused. */
    readonly state: string,
    private readonly store: Store,
    private readonly epsilon: number | null = null,
  ) {}

  /** The range from which an owner may choose an ε; null where there is no choice. */
  get range(): readonly [number, number] | null {
    const [low, high] = this.task.definition.privacy["owner-range"] ?? [0, 0];
    return low < high ? [low, high] : null;
  }

  /** The same offer with an ε of the owner's own: the noise is worked out here, and nobody is told. */
  withEpsilon(epsilon: number): Offer {
    const { link, signed, document, state, store } = this;
    return new Offer(link, signed, document, openTask(document, epsilon), state, store, epsilon);
  }

  get promised(): Promised {
    return promisedBy(this.task);
  }

  /** What leaves the device with every check-in. */
  get leaving(): Leaving[] {
    const { checkIn, job } = this.task;
    const noisy = (path: string): boolean =>
      job.sound !== null && (path.startsWith("content/update/") || /\/(errors|spread)$/.test(path));
    return checkIn.fields.map(({ path, dtype, count }) => ({
      name: path.replace(/^content\//, ""),
      bytes: count * (dtype === "I64" ? 8 : 4),
      noisy: noisy(path),
    }));
  }

  /**
   * Accept: the ledger takes the terms, then the invite is used. Doing it again changes nothing.
   *
   * @param confirmed Whether the owner accepted, where nothing is promised, that nothing is.
   */
  async accept(confirmed: { withoutGuarantee?: boolean } = {}): Promise<Device> {
    const warned = `${this.task.name} gives no formal guarantee: what leaves the device carries no noise`;
    require(this.promised.guarantee ||
      confirmed.withoutGuarantee, `${warned}; the owner must accept that too`, "terms");
    await navigator.storage?.persist?.();
    const member = await exclusively(this.store.name, () => this.enrol());
    return Device.open(member.account, this.store);
  }

  private async enrol(): Promise<Member> {
    const ledger = new Ledger(this.store);
    await ledger.refresh();
    const before = await memberBy(this.link, this.store);
    const over = `this browser has withdrawn from ${this.link.task}, and its ledger is closed for it`;
    require(before?.state !== "withdrawn", over, "ended");
    if (before?.state === "joined" && !(await isGone(before))) return before;
    const kept = before?.epsilon ?? null;
    const other = `this browser has joined with ${kept === null ? "the task's ε" : `ε = ${kept}`}, and that stays`;
    require(!before || kept === this.epsilon, other, "terms");
    const isSame = before !== undefined && before.code === this.link.code;
    const keys = isSame ? before : await makeKeys();
    const member: Member = {
      account: before?.account ?? (await this.account(ledger)),
      server: this.link.server,
      task: this.link.task,
      operator: this.link.key,
      taskHash: this.link.taskHash,
      incarnation: this.document.incarnation,
      signed: this.signed,
      secret: keys.secret,
      publicKey: keys.publicKey,
      state: "joining",
      paused: false,
      code: this.link.code,
      device: "",
      token: "",
      epsilon: this.epsilon,
    };
    const facts = await beginFacts(member.account);
    try {
      await ledger.accept(member, facts, this.task.terms);
    } catch (error) {
      // Tasks that have ended make room: a device that is not open does not hear of ends.
      if (!(error instanceof Refusal) || error.reason !== "cap" || !(await this.closeEnded(ledger))) throw error;
      await ledger.accept(member, facts, this.task.terms);
    }
    const server = new Server(member);
    const joined: Member = {
      ...member,
      state: "joined",
      ...(await server.enrol(this.link, keys.secret, keys.publicKey)),
    };
    const left = isSame ? [] : await ledger.unsettled(member.account);
    await this.store.run(["members", "facts", "unsettled"], "readwrite", async (within) => {
      within.put("members", joined);
      if (isSame) return;
      // Another device for the server: what was not settled with the old one never will be; its charges stay.
      for (const { key } of left) within.remove("unsettled", key);
      await note(within, member.account, { version: -1, contributed: -1, number: 0 });
    });
    return joined;
  }

  /** Ask the servers of open tasks whether these have ended, and close those that have; tell whether any has. */
  private async closeEnded(ledger: Ledger): Promise<boolean> {
    let hasClosed = false;
    await ledger.refresh();
    for (const member of await this.store.all("members")) {
      const { account, state } = member;
      if (state !== "joined" || ledger.chain.tasks.get(account)?.closed !== false) continue;
      const me = await new Server(member).me().catch(() => null); // who does not answer has announced nothing
      if (me?.state !== "stopped") continue;
      await ledger.close(account, true);
      hasClosed = true;
    }
    return hasClosed;
  }

  /**
   * Name the task in the ledger: by its name, unless another operator's task has it.
   *
   * An account of this very task of which no member is kept is the task's own: what was spent stays spent.
   */
  private async account(ledger: Ledger): Promise<string> {
    const { task, key, taskHash } = this.link;
    const kept = new Set((await this.store.all("members")).map(({ account }) => account));
    const own = [...ledger.chain.tasks].find(([name, spent]) => spent.taskHash === taskHash && !kept.has(name));
    if (own) return own[0];
    return ledger.chain.tasks.has(task) ? `${task}@${key.slice(0, 12)}` : task;
  }
}

/** Ask whether the server no longer knows a device: then another invite makes it a new one, with the ledger it has. */
async function isGone(member: Member): Promise<boolean> {
  try {
    await new Server(member).me();
    return false;
  } catch (error) {
    if (error instanceof Refusal && error.reason === "revoked") return true;
    throw error;
  }
}

/** Find what this browser is to the task of an invite. */
async function memberBy({ task, key }: InviteLink, store: Store): Promise<Member | undefined> {
  return (await store.all("members")).find((member) => member.task === task && member.operator === key);
}

/** Look at what an invite offers. Nothing is sent but the questions which task it is, and whether the invite is used. */
export async function join(link: string, store = new Store()): Promise<Offer> {
  requireBrowser();
  const invite = parseLink(link);
  const here = globalThis.location?.origin;
  require(!here ||
    new URL(invite.server).origin === here, "this invite is for another server: open its link", "bad-link");
  const server = new Server(invite);
  const described = await server.described();
  const why = described.reason ? ` (${described.reason})` : "";
  require(described.state !== "stopped", `${invite.task} has ended${why}: nobody can join it any more`, "ended");
  const isNamed = (await hashOf(described.signed)) === invite.taskHash;
  require(isNamed, "the server shows another signed task than the invite names: ask for a new invite", "bad-task");
  const document = await openSigned(described.signed, invite.key);
  require(document.task === invite.task, `the invite is for ${invite.task}, but another task is signed`, "bad-task");
  const isGood = !(await server.isUsed(invite.code)) || (await memberBy(invite, store));
  require(isGood, "a device has used this invite", "used");
  return new Offer(invite, described.signed, document, openTask(document), described.state, store);
}

export function promisedBy({ terms }: BrowserTask): Promised {
  const { unit, filter, uses, event } = terms;
  const guarantee = Number.isFinite(filter.epsilon);
  return { guarantee, unit, epsilon: filter.epsilon, delta: filter.delta, uses, odds: oddsAfter(event, uses) };
}

/** Say at once what this browser lacks: on a page without https nearly everything is missing. */
function requireBrowser(): void {
  const has = globalThis.crypto?.subtle && globalThis.indexedDB && globalThis.navigator?.locks;
  const hint = "open the page by https in a current browser, and not in a private window";
  if (!has) throw new Refusal("unsupported", `this browser cannot be a device here: ${hint}`);
}

async function makeKeys(): Promise<Pick<Member, "secret" | "publicKey">> {
  const made = (await ed25519(() => crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]))) as CryptoKeyPair;
  const secret = new Uint8Array(await crypto.subtle.exportKey("pkcs8", made.privateKey));
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", made.publicKey));
  require(publicKey.length === 32, "this browser makes other keys than were asked for", "unsupported");
  return { secret, publicKey };
}
