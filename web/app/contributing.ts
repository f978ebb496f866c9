/** When to contribute: as often as new samples allow, patiently when nobody answers, and never from two tabs. */

import { Refusal, type Device } from "../core/index.js";

const FIRST_WAIT_MS = 3000;
const LONGEST_WAIT_MS = 60_000;
/** Refusals after which waiting for the network, the operator or another tab helps. */
const PASSING = ["offline", "waiting", "busy"];

export class Contributing {
  private fresh = 0;
  private begun = false;
  private working = 0;
  private timer = 0;
  private isDue = false;
  private wait = FIRST_WAIT_MS;

  /**
   * @param device The device.
   * @param streams Whether samples go on coming; otherwise all that is promised is used at once.
   * @param busy Told whether the server is asked something now, or will be at once.
   */
  constructor(
    private readonly device: Device,
    private readonly streams: boolean,
    private readonly busy: (isBusy: boolean) => void,
  ) {
    globalThis.addEventListener("online", () => this.soon());
  }

  /** New samples until the next contribution. */
  get missing(): number {
    const { rows, batch } = this.device.state();
    return Math.max(0, batch - rows, this.begun ? this.step - this.fresh : 0);
  }

  /** Take note of a new sample. */
  kept(): void {
    this.fresh++;
    if (!this.missing) this.soon();
  }

  /** Settle what a closed page left behind, and go on where there is enough to go on with. */
  async resume(): Promise<void> {
    await this.guarded(async () => {
      if ((await this.device.resend())?.status === "kept") return this.later();
      await this.device.refreshModel();
      if (!this.streams) this.soon();
    });
  }

  stop(): void {
    clearTimeout(this.timer);
    this.isDue = false;
    this.tell();
  }

  /** Contribute in a moment, once. */
  soon(ms = 0): void {
    clearTimeout(this.timer);
    this.isDue = true;
    this.timer = window.setTimeout(() => void this.now(), ms);
    this.tell();
  }

  /** New samples between two contributions, so that each sample enters as many as promised. */
  private get step(): number {
    const { unit, uses } = this.device.task.terms;
    const { batch } = this.device.state();
    return unit === "sample" ? Math.ceil(batch / uses) : batch;
  }

  private async now(): Promise<void> {
    if (this.working) return this.soon(100); // what comes while a contribution is on its way follows it
    this.isDue = false;
    await this.guarded(() => this.turn());
  }

  private async turn(): Promise<void> {
    const { unsettled, status } = this.device.state();
    if (this.streams && this.missing && !unsettled) {
      // There is nothing to send; but whoever was told that nobody answers is told when somebody does.
      if (status === "offline" || status === "busy") await this.device.refreshModel();
      return;
    }
    const used = this.fresh;
    const outcome = await this.device.contribute();
    if (outcome.status === "waiting") return this.rest(1000 * outcome.retryAfterS);
    if (outcome.status === "kept") return this.later();
    this.wait = FIRST_WAIT_MS;
    if (!unsettled) {
      this.begun = true;
      this.fresh -= used; // what came meanwhile counts for the next
    }
    // The owner uses the newest model, not the one that the contribution began with.
    await this.device.refreshModel();
    if (!this.streams || unsettled || !this.missing) this.soon(1000);
  }

  private later(): void {
    this.rest(this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(LONGEST_WAIT_MS, 2 * this.wait);
  }

  /** Look again after a while, unless something is due before. */
  private rest(ms: number): void {
    if (this.isDue) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.now(), ms);
  }

  private tell(): void {
    this.busy(this.working > 0 || this.isDue);
  }

  /** Do something; what is refused is on the state already. */
  private async guarded(work: () => Promise<void>): Promise<void> {
    this.working++;
    this.tell();
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (PASSING.includes(error.reason)) this.later();
    } finally {
      this.working--;
      this.tell();
    }
  }
}
