/** When to contribute: as often as new samples allow, patiently when nobody answers, and never from two tabs. */

import { Refusal, type Device, type Outcome } from "../core/index.js";

const FIRST_WAIT_MS = 3000;
const LONGEST_WAIT_MS = 60_000;
/** Refusals after which waiting for the network, the operator or another tab helps. */
const PASSING = ["offline", "waiting", "busy"];

export class Contributing {
  private fresh = 0;
  private begun = false;
  private isBusy = false;
  private timer = 0;
  private wait = FIRST_WAIT_MS;

  /**
   * @param device The device.
   * @param streams Whether samples go on coming; otherwise all that is promised is used at once.
   */
  constructor(
    private readonly device: Device,
    private readonly streams: boolean,
  ) {
    globalThis.addEventListener("online", () => this.soon(0));
  }

  /** New samples until the next contribution. */
  get missing(): number {
    const { rows, batch } = this.device.state();
    return Math.max(0, batch - rows, this.begun ? this.step - this.fresh : 0);
  }

  /** Take note of a new sample. */
  kept(): void {
    this.fresh++;
    if (!this.missing) this.soon(0);
  }

  /** Settle what a closed page left behind, and go on where there is enough to go on with. */
  async resume(): Promise<void> {
    await this.guarded(() => this.device.resend());
    await this.guarded(() => this.device.refreshModel());
    if (!this.streams) this.soon(0);
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  /** Contribute after a while, once. */
  soon(ms: number): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.now(), ms);
  }

  /** New samples between two contributions, so that each sample enters as many as promised. */
  private get step(): number {
    const { unit, uses } = this.device.task.terms;
    const { batch } = this.device.state();
    return unit === "sample" ? Math.ceil(batch / uses) : batch;
  }

  private async now(): Promise<void> {
    if (this.isBusy) return;
    const { unsettled } = this.device.state();
    if (this.streams && this.missing && !unsettled) return;
    this.isBusy = true;
    const outcome = await this.guarded(() => this.device.contribute());
    this.isBusy = false;
    if (!outcome) return;
    if (outcome.status === "waiting") return this.soon(1000 * outcome.retryAfterS);
    if (outcome.status === "kept") return this.later();
    this.wait = FIRST_WAIT_MS;
    if (!unsettled) {
      this.begun = true;
      this.fresh = 0;
    }
    // The owner uses the newest model, not the one that the contribution began with.
    await this.guarded(() => this.device.refreshModel());
    if (!this.streams || unsettled || !this.missing) this.soon(1000);
  }

  private later(): void {
    this.soon(this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(LONGEST_WAIT_MS, 2 * this.wait);
  }

  /** Do something; what is refused is on the state already. */
  private async guarded(work: () => Promise<Outcome | null | void>): Promise<Outcome | null> {
    try {
      return (await work()) ?? null;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (PASSING.includes(error.reason)) this.later();
      return null;
    }
  }
}
