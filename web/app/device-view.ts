/** The live view of a device: what is collected, sent, spent and left, and every decision of its owner. */

import { Store, type Device, type DeviceState, type Promised } from "../core/index.js";
import { guesses, type Collector, type Surroundings } from "./collecting.js";
import { Contributing } from "./contributing.js";
import { button, counted, foldedLater, h, small } from "./dom.js";
import { refusal, sensorOf } from "./join-view.js";
import type { LedgerView } from "./ledger-view.js";
import { promisedBy } from "../core/device/joining.js";
import { part } from "./parts.js";
import { STANDINGS, sentence, type Local, type Standing } from "./words.js";

/** Standings that collecting cannot change. */
const OVER: Standing[] = ["withdrawn", "ended", "revoked", "ledger-lost", "set-back", "terms"];
/** Standings of the engine that are no news while collecting. */
const QUIET: Standing[] = ["ready", "few-rows", "exhausted"];

/** Load the way to samples that a task has. */
export async function collectorOf(device: Device): Promise<(around: Surroundings) => Collector> {
  const { labels = [] } = device.task.definition.data;
  const sensor = sensorOf(device.task);
  if (sensor?.kind === "activity") {
    const { Activity } = await part("activity");
    return (around) => new Activity(labels, sensor, around);
  }
  if (sensor?.kind === "draw-a-digit") {
    const { Drawing } = await part("drawing");
    return (around) => new Drawing(labels, around);
  }
  const { RowsFile } = await part("rows-file");
  return (around) => new RowsFile(around);
}

export class DeviceView {
  private readonly collector: Collector;
  private readonly contributing: Contributing;
  private readonly promised: Promised;
  private ledger: LedgerView | null = null;
  private local: Local | "ready" = "ready";
  private isOn = false;
  private queue: Promise<unknown> = Promise.resolve();
  private seen: Float32Array | null = null;
  private said = "";

  private readonly badge = h("span", { className: "badge", id: "standing" });
  private readonly notice = h("div", { className: "notice", role: "status", id: "notice" });
  private readonly toggle = button("Start", () => this.toggled(), "large");
  private readonly ways = h("div", { className: "card collect" });
  private readonly progress = h("progress", {
    id: "progress",
    max: 1,
    value: 0,
    "aria-label": "Samples for the next contribution",
  });
  private readonly towards = small();
  private readonly figures = h("dl", { className: "figures" });
  private readonly thinks = h("div", { className: "thinks", id: "thinks", "aria-live": "off" });

  constructor(
    private readonly root: HTMLElement,
    private readonly device: Device,
    collector: (around: Surroundings) => Collector,
  ) {
    const { labels = [] } = device.task.definition.data;
    this.promised = promisedBy(device.task);
    const around: Surroundings = {
      device,
      keep: (row, label) => this.keep(row, label),
      stands: (standing) => {
        this.local = standing;
        this.show(device.state());
      },
    };
    this.collector = collector(around);
    this.collector.onrow = (row) => {
      this.seen = row;
      void this.think(labels).catch(() => undefined);
    };
    this.contributing = new Contributing(device, this.collector.streams, (isBusy) => {
      this.badge.setAttribute("aria-busy", String(isBusy));
      // A newer model may think otherwise of what was looked at last.
      if (!isBusy && this.seen) this.collector.onrow(this.seen);
    });
  }

  /** Show the device. */
  open(): void {
    this.root.replaceChildren(...this.parts());
    this.device.subscribe((state) => this.show(state));
  }

  /** Settle what the device left behind, and fetch the newest model; the owner need not wait for that. */
  resume(): Promise<void> {
    return this.contributing.resume();
  }

  /** Begin to collect; inside of a tap, or with the permission that was asked for inside of one. */
  begin(allowed?: Promise<string>): void {
    this.isOn = true;
    void this.collector.begin(allowed);
    this.show(this.device.state());
  }

  private parts(): HTMLElement[] {
    const { objective, data } = this.device.task.definition;
    const answers = "It answers here, without a network, as soon as there is something to look at.";
    this.thinks.append(small(data.labels?.length ? answers : ""));
    const model = h("section", { className: "card" }, h("h2", {}, "What does the model think?"), this.thinks);
    this.ways.append(this.collector.view, h("div", { className: "towards" }, this.progress, this.towards));
    return [
      h("div", { className: "row apart" }, h("h1", {}, objective || this.device.task.name), this.badge),
      this.notice,
      this.ways,
      this.toggle, // below what one does: to stop is the rarer wish, and is not to be hit by chance
      ...(sensorOf(this.device.task) ? [model] : []),
      this.figures,
      h("section", { className: "card stack" }, ...this.folds(), this.leaving()),
      small(
        "This device is this browser: its ledger is in it, and nowhere else. ",
        h("a", { href: `/tasks/${this.device.task.name}` }, "About the task"),
      ),
    ];
  }

  /** Show the state as it is now. */
  private show(state: DeviceState): void {
    const isOver = OVER.includes(state.status);
    const isNews = !QUIET.includes(state.status);
    const here = this.local === "ready" ? "collecting" : this.local;
    let standing: Standing = isNews ? state.status : this.isOn ? here : "ready";
    if (state.status === "exhausted" && (!this.collector.streams || !this.isOn)) standing = "exhausted";
    const { badge, tone, meaning } = STANDINGS[standing] ?? STANDINGS.malformed;
    this.badge.textContent = badge;
    this.badge.className = `badge ${tone}`;
    this.badge.dataset["standing"] = standing;
    const told = isNews || standing === "exhausted" ? sentence(state.sentence) : "";
    const said = [told, meaning].filter(Boolean).join(" ");
    if (this.said !== standing + said) {
      // Only when it says something else: a button that is replaced under a finger is not pressed.
      this.said = standing + said;
      this.notice.hidden = !said;
      this.notice.className = `notice ${tone}`;
      this.notice.replaceChildren(h("p", {}, said), ...this.remedy(standing));
    }
    this.toggle.hidden = isOver || state.status === "paused";
    this.toggle.textContent = this.isOn ? "Stop" : this.collector.streams ? "Start collecting" : "Add rows";
    this.toggle.classList.toggle("plain", this.isOn);
    this.ways.hidden = isOver || !this.isOn;
    this.showFigures(state);
  }

  private showFigures(state: DeviceState): void {
    const { rows, batch, releases, receipts, unsettled, spent, epsilon, left } = state;
    const missing = this.contributing.missing;
    const whole = Math.max(missing, batch, 1);
    this.progress.max = whole;
    this.progress.value = whole - missing;
    const sent = receipts ? `${receipts} sent, thank you. ` : "";
    this.towards.textContent = missing
      ? `${sent}${counted(missing, this.collector.noun)} until the next contribution`
      : `${sent}Enough for the next contribution`;
    const figure = (name: string, value: string, more: string): HTMLElement =>
      h("div", {}, h("dt", {}, name), h("dd", { id: `figure-${name}` }, value), h("dd", { className: "small" }, more));
    const has = Number.isFinite(epsilon);
    const ends =
      this.promised.unit === "device"
        ? `${counted(left, "contribution")} left`
        : `the busiest ${this.collector.noun} has ${counted(left, "use")} left`;
    this.figures.replaceChildren(
      figure("kept", `${rows}`, `${this.collector.noun}s, in this browser only`),
      figure(
        "sent",
        `${receipts}`,
        unsettled ? `and ${unsettled} waiting to be sent` : `of ${counted(releases, "contribution")} charged`,
      ),
      figure(
        "odds",
        has ? `${state.odds} in 100` : "none",
        has ? `for a guess; 50 is a coin, ${this.promised.odds} the most` : "nothing is promised",
      ),
      figure(
        "spent",
        has ? `ε ${Math.ceil(100 * spent) / 100}` : "–", // rounded up: never less than what was spent
        has ? `of ${epsilon}; ${ends}` : "no formal guarantee",
      ),
    );
    void this.ledger?.refresh(releases, this.device.account);
  }

  private folds(): HTMLElement[] {
    return [
      foldedLater("Ledger, entry by entry", async () => {
        this.ledger = new (await part("owner")).LedgerView(new Store());
        void this.ledger.refresh(this.device.state().releases, this.device.account);
        return this.ledger.view;
      }),
      foldedLater("Recovery code", async () => (await part("owner")).recoveryView(this.device)),
      foldedLater("Your limit over all tasks", async () => (await part("owner")).limitView()),
    ];
  }

  private remedy(standing: Standing): HTMLElement[] {
    const act = (words: string, work: () => Promise<unknown>): HTMLElement[] => {
      const press = button(words, () => void work().catch((error: unknown) => this.complain(error)));
      return [h("div", { className: "actions" }, press)];
    };
    if (standing === "paused") return act("Resume", () => this.device.resume());
    if (standing === "restored")
      return act("Go on with the restored task", async () => {
        await this.device.confirmRestore();
        this.contributing.soon();
      });
    // Inside of the tap: a sensor is asked for in it.
    if (standing === "no-permission" || standing === "no-sensor") return act("Try again", async () => this.begin());
    return [];
  }

  private toggled(): void {
    if (!this.isOn) return this.begin();
    this.isOn = false;
    this.local = "ready";
    this.collector.end();
    this.show(this.device.state());
  }

  /** Keep samples one after the other: two at once would get in each other's way. */
  private keep(row: ArrayLike<number>, label: string | number): Promise<void> {
    const kept = this.queue.then(async () => {
      if (await this.device.addRow(row, label)) this.contributing.kept();
      this.show(this.device.state());
    });
    this.queue = kept.catch((error: unknown) => this.complain(error));
    return kept;
  }

  /** Say what went wrong, until there is something else to say. */
  private complain(error: unknown): void {
    this.said = "";
    this.notice.hidden = false;
    this.notice.append(refusal(error));
  }

  private async think(labels: readonly string[]): Promise<void> {
    const found = this.seen && (await this.device.predict(this.seen));
    if (!found) return;
    const lines = guesses(found, labels).slice(0, 3);
    if (lines.length > 1 && lines[0]!.share === lines[1]!.share)
      return this.thinks.replaceChildren(small("It has learnt nothing yet."));
    this.thinks.replaceChildren(
      ...lines.map(({ label, share }, at) =>
        h(
          "p",
          { className: at ? "guess" : "guess first" },
          h("span", {}, label),
          share !== null && h("progress", { max: 1, value: share, "aria-label": label }),
          share !== null && h("span", { className: "share" }, `${Math.round(100 * share)} %`),
        ),
      ),
    );
  }

  private leaving(): HTMLElement {
    const said = h("div");
    const pause = button(
      "Pause",
      () => void (this.device.state().status === "paused" ? this.device.resume() : this.device.pause()),
      "plain",
    );
    const sure = button(
      "Withdraw and erase",
      () => {
        said.replaceChildren(
          h(
            "p",
            {},
            "The server erases this device, your samples are erased here, and what was learnt from them stays in the model. This cannot be undone.",
          ),
          button("Yes, withdraw and erase", () => void this.withdraw(said), "bad"),
        );
      },
      "bad",
    );
    this.device.subscribe(({ status }) => {
      pause.textContent = status === "paused" ? "Resume" : "Pause";
      pause.hidden = OVER.includes(status);
      sure.hidden = status === "withdrawn";
    });
    return h("div", {}, h("div", { className: "actions" }, pause, sure), said);
  }

  private async withdraw(said: HTMLElement): Promise<void> {
    try {
      if (this.isOn) this.toggled();
      await this.device.withdraw();
      this.contributing.stop();
      said.replaceChildren();
    } catch (error) {
      said.replaceChildren(refusal(error));
    }
  }
}
