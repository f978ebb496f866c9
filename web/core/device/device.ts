/**
 * The device: keeps rows, checks out, works, charges its ledger, and only then checks in.
 *
 *     resend what is unsettled → gather → check out → work → noise → encode → charge and keep the bytes → send → settle
 */

import { contribute } from "../numerics/contribution.js";
import { encode, decode } from "../numerics/targets.js";
import { systemWords, type Words } from "../numerics/words.js";
import { Refusal, require } from "../refusal.js";
import { toBase64 } from "../wire/bytes.js";
import { hashOf, openSigned, type TaskDocument } from "../wire/signed-task.js";
import { openTask, type BrowserTask } from "./browser-task.js";
import { checkInBody } from "./check-in-body.js";
import { gather, type Gathered } from "./gathering.js";
import { Ledger } from "./ledger.js";
import { areDoubtful, note, factsOf, keepRow, keptRows, requireNumbering } from "./samples.js";
import { Server, type CheckedOut, type Waiting } from "./server.js";
import { Sending, type Outcome } from "./sending.js";
import { exclusively, Store, type Member } from "./store.js";
import { StateBoard, type DeviceState } from "./state.js";

const WIPED = "this browser's storage was wiped: what was spent is no longer known, and nothing is sent";

export class Device {
  private readonly server: Server;
  private readonly ledger: Ledger;
  private readonly board: StateBoard;
  private hasMet = false;
  /** Where noise comes from; a test may give words, nobody else. */
  words: Words = systemWords;

  private constructor(
    private member: Member,
    private document: TaskDocument,
    readonly task: BrowserTask,
    private readonly store: Store,
  ) {
    this.server = new Server(member);
    this.ledger = new Ledger(store);
    this.board = new StateBoard(store, this.ledger, task, member.account);
  }

  /** Open a device that has joined: its signed task is checked again, and its ledger replayed. */
  static async open(account: string, store = new Store()): Promise<Device> {
    const member = await store.get("members", account);
    const missing = `this browser has not joined ${account}: use the invite, or a recovery code`;
    require(member && member.state !== "joining", missing, "ledger-lost");
    const isSame = (await hashOf(member.signed)) === member.taskHash;
    require(isSame, "the signed task that was kept is not the one accepted", "ledger-lost");
    const document = await openSigned(member.signed, member.operator);
    const device = new Device(member, document, openTask(document, member.epsilon ?? null), store);
    await device.ledger.refresh();
    const agreed = "the terms of the signed task are not those accepted: nothing is sent";
    require(device.ledger.chain.agrees(account, device.task.terms), agreed, "terms");
    await device.board.refresh();
    return device;
  }

  /** Names under which this browser has joined tasks. */
  static async list(store = new Store()): Promise<{ account: string; task: string; server: string; state: string }[]> {
    return (await store.all("members")).map(({ account, task, server, state }) => ({ account, task, server, state }));
  }

  get account(): string {
    return this.member.account;
  }

  /** What is known of this device now. */
  state(): DeviceState {
    return this.board.now;
  }

  /** Be told of every change of the state, and of the present one at once; returns how to stop. */
  subscribe(listener: (state: DeviceState) => void): () => void {
    return this.board.subscribe(listener);
  }

  /**
   * Keep a row for learning; a row that is there already is no new sample.
   *
   * @returns Whether it is new.
   */
  async addRow(features: ArrayLike<number>, label: string | number): Promise<boolean> {
    const row = Float32Array.from(features);
    require(row.every(Number.isFinite), "a number of the row is not finite", "bad-row");
    this.task.transform(row); // refuses what the model could never see
    const target = encode(this.task.job.target, label);
    // Rows wait for each other, and for no contribution.
    const isNew = await navigator.locks.request(`${this.store.name}-rows`, () =>
      keepRow(this.store, this.account, row, target),
    );
    await this.board.refresh();
    return isNew;
  }

  /**
   * Tell whether rows may be samples of before, written differently. Their uses would then be counted from 0 again: the
   * owner must say that they are others before they are kept.
   */
  async areDoubtful(rows: readonly { row: ArrayLike<number>; label: string | number }[]): Promise<boolean> {
    if (this.task.terms.unit === "device") return false;
    const { target } = this.task.job;
    const read = rows.map(({ row, label }) => [Float32Array.from(row), encode(target, label)] as const);
    return areDoubtful(this.store, this.account, read, (at) => this.ledger.chain.usesOf(this.account, at) > 0);
  }

  /** Forget all rows that were kept; what was spent on them stays spent. */
  async eraseRows(): Promise<void> {
    const rows = await keptRows(this.store, this.account);
    await this.store.run(["rows"], "readwrite", async (within) => {
      for (const { sample } of rows) within.remove("rows", [this.account, sample]);
    });
    await this.board.refresh();
  }

  /** Make one contribution: settle what is left, then check out, work, charge and send. */
  async contribute(): Promise<Outcome> {
    return this.noted(async () => {
      await this.reload();
      require(this.member.state !== "withdrawn", "this device has withdrawn", "ended");
      require(!this.member.paused, "this device is paused by its owner: resume it first", "waiting");
      if (!this.hasMet) await this.meet();
      const sending = this.sending();
      const kept = await this.ledger.unsettled(this.account);
      if (kept.length) return sending.sendAll(kept);
      this.requireLeft();
      const rows = await keptRows(this.store, this.account);
      const gathered = gather(this.task, this.ledger.chain, this.account, rows, this.words);
      const { unit, filter } = this.task.terms;
      const meaningless = "δ is no promise to as many rows as this device has had: ask the operator";
      const { following } = await factsOf(this.store, this.account);
      require(unit === "device" || filter.delta * following < 1, meaningless, "terms");
      const found = await this.checkOut();
      return "why" in found ? { status: "waiting", ...found } : this.release(sending, found, gathered);
    });
  }

  /** Send what was charged and never answered; nothing new is made. */
  async resend(): Promise<Outcome | null> {
    return this.noted(async () => {
      await this.reload();
      const kept = this.member.paused ? [] : await this.ledger.unsettled(this.account);
      return kept.length ? this.sending().sendAll(kept) : null;
    });
  }

  /** Ask for the newest parameters, for predictions; nothing is sent. */
  async refreshModel(): Promise<void> {
    await this.noted(async () => void (await this.checkOut()));
  }

  /** Predict with the newest parameters that were checked out; works without a network. Null before the first. */
  async predict(features: ArrayLike<number>): Promise<Prediction | null> {
    const { parameters } = await factsOf(this.store, this.account);
    if (!parameters) return null;
    const { net, target } = this.task.job;
    const row = this.task.transform(Float32Array.from(features));
    const outputs = net.outputs(parameters, row);
    return { value: decode(target, net.loss.predict(outputs, 0)), outputs: Array.from(outputs) };
  }

  /** Send nothing until `resume`; rows may still be kept. */
  async pause(): Promise<void> {
    await this.change({ paused: true });
  }

  async resume(): Promise<void> {
    await this.change({ paused: false });
  }

  /** Leave the task: the server erases this device, the ledger closes the task, rows are forgotten. */
  async withdraw(): Promise<void> {
    await this.noted(async () => {
      await this.reload();
      try {
        await this.server.withdraw();
      } catch (error) {
        if (!(error instanceof Refusal) || error.reason !== "revoked") throw error;
      }
      await this.ledger.close(this.account, false);
      for (const { key } of await this.ledger.unsettled(this.account)) await this.sending().forget(key);
      await this.eraseRows(); // before it counts as done: a page may be closed at any moment
      await this.change({ state: "withdrawn", token: "", code: "" });
    });
  }

  /** Go on with a task that the operator restored from a backup: same terms, and the ledger goes on. */
  async confirmRestore(): Promise<void> {
    await this.noted(async () => {
      await this.reload();
      const { signed } = await this.server.described();
      const document = await openSigned(signed, this.member.operator);
      const parts = ({ task, definition, arrays, browser }: TaskDocument): string =>
        JSON.stringify([task, definition, arrays, browser]);
      const isSame = document.incarnation > this.document.incarnation && parts(document) === parts(this.document);
      require(isSame, "the server's signed task is not the one that the owner accepted", "terms");
      const { incarnation, restored } = document;
      const member = { ...this.member, signed, incarnation, taskHash: await hashOf(signed) };
      const seen = { version: restored?.version ?? -1, contributed: -1, number: 0 };
      await this.ledger.renew(member, seen, this.task.terms);
      this.member = member;
      this.document = document;
    });
  }

  /** Work on a check-out, charge what comes of it, and send that. */
  private async release(sending: Sending, found: CheckedOut, gathered: Gathered): Promise<Outcome> {
    const { job } = this.task;
    const facts = await factsOf(this.store, this.account);
    const spending = this.ledger.chain.spending(this.account);
    const numbering = await requireNumbering(this.store, this.account, spending);
    const { version } = found;
    const begun = performance.now();
    const [made, after] = await contribute(job, found.parameters, found.count, facts, gathered.batch, this.words);
    const body = checkInBody(this.task.checkIn, version, made);
    this.board.workedMs = performance.now() - begun;
    const letters = toBase64(crypto.getRandomValues(new Uint8Array(12)));
    const key = `${version.toString(16).padStart(10, "0")}-${letters}`;
    const charge = { task: this.account, key, body, samples: gathered.samples, version, numbering };
    return sending.sendAll([await this.ledger.charge(charge, after)]);
  }

  /** Ask for parameters; refuse what the owner did not accept, or what shows that the server was set back. */
  private async checkOut(): Promise<CheckedOut | Waiting> {
    const found = await this.server.checkOut(this.task.checkOut);
    if ("why" in found) return found;
    this.requireTask(found.taskHash);
    this.sending().requirePlausible(found.version);
    const facts = await factsOf(this.store, this.account);
    const before = `the server shows version ${found.version}, but had ${facts.version} before: it was set back`;
    require(found.version >= facts.version, before, "set-back");
    if (this.task.schedule.whole && found.version <= facts.contributed) {
      return { retryAfterS: 2, why: "the round is not over: this device has done its part, and waits for the others" };
    }
    const seen = { version: found.version, parameters: found.parameters };
    await this.store.run(["facts"], "readwrite", (within) => note(within, this.account, seen));
    return found;
  }

  /** Compare what the server keeps of this device with its ledger. */
  private async meet(): Promise<void> {
    const me = await this.server.me();
    this.requireTask(me.taskHash);
    this.sending().requireWhole(me.received);
    this.hasMet = true;
  }

  private requireTask(taskHash: string): void {
    if (taskHash === this.member.taskHash) return;
    this.hasMet = false;
    const said =
      "the operator has signed this task anew, as after a restore from a backup: the owner must confirm that";
    throw new Refusal("restored", said);
  }

  /** End before any work is done if the terms do not cover another release. */
  private requireLeft(): void {
    const { closed, charged, releases, terms } = this.ledger.chain.spending(this.account);
    const most = this.task.schedule["max-releases"];
    const isSpent = (terms.unit === "device" && charged >= terms.uses) || (most !== null && releases >= most);
    require(!isSpent, `all ${releases} releases of this device are made`, "exhausted");
    require(!closed, `${this.task.name} has ended, and this device's ledger is closed for it`, "ended");
  }

  private sending(): Sending {
    return new Sending(this.store, this.ledger, this.server, this.task, this.member);
  }

  /** Read again what another tab may have changed. */
  private async reload(): Promise<void> {
    const member = await this.store.get("members", this.account);
    require(member, `${WIPED}; use a recovery code, if there is one`, "ledger-lost");
    this.member = member;
    this.server.token = member.token;
    await this.ledger.refresh();
    require(this.ledger.chain.tasks.has(this.account), WIPED, "ledger-lost");
  }

  private async change(changes: Partial<Member>): Promise<void> {
    await this.store.run(["members"], "readwrite", async (within) => {
      const now = await within.get("members", this.account); // another tab may have withdrawn since
      require(now, WIPED, "ledger-lost");
      within.put("members", (this.member = { ...now, ...changes }));
    });
    await this.board.refresh();
  }

  /** Do something as the one tab that works, and show what came of it. */
  private async noted<Result extends Outcome | null | void>(work: () => Promise<Result>): Promise<Result> {
    try {
      const result = await exclusively(this.store.name, work);
      await this.board.note(result ?? null);
      return result;
    } catch (error) {
      if (error instanceof Refusal && error.reason === "ended" && this.ledger.chain.tasks.has(this.account)) {
        await this.ledger.close(this.account, this.member.state === "joined");
      }
      if (error instanceof Refusal && error.reason !== "offline" && error.reason !== "few-rows") this.hasMet = false;
      await this.board.refused(error);
      throw error;
    }
  }
}

export interface Prediction {
  /** Name of a label, or a number in its unit. */
  readonly value: string | number;
  /** The model's outputs, as they are before the loss. */
  readonly outputs: number[];
}
