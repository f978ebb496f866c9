/** Motion: large buttons for what the owner does now, the spectrum as it is measured, windows that become samples. */

import { BINS, Keeper, Motion, spectrum } from "../sensing/motion.js";
import { askForMotion, type Collector, type Sensor, type Surroundings } from "./collecting.js";
import { h } from "./dom.js";

const SILENCE_MS = 1500;
const REDRAW_MS = 200;

export class Activity implements Collector {
  readonly streams = true;
  readonly noun = "window";
  readonly view: HTMLElement;
  onrow: (row: Float32Array) => void = () => undefined;
  private readonly canvas = h("canvas", { width: 640, height: 200, className: "spectrum", role: "img" });
  private readonly buttons: HTMLButtonElement[];
  private readonly motion: Motion;
  private readonly keeper: Keeper;
  private label = -1;
  private isOn = false;
  private drawn = 0;
  private seconds = 0;
  private silence = 0;
  private lock: WakeLockSentinel | null = null;

  constructor(
    private readonly labels: readonly string[],
    sensor: Sensor,
    private readonly around: Surroundings,
  ) {
    this.keeper = new Keeper(sensor.keep ?? "slots", sensor["slot-s"] ?? 3.2);
    this.motion = new Motion((row) => void this.window(row));
    this.buttons = labels.map((label, at) =>
      h(
        "button",
        { type: "button", className: "choice", "aria-pressed": false, onclick: () => this.choose(at) },
        label,
      ),
    );
    this.view = h(
      "div",
      {},
      h("p", { className: "ask", id: "ask" }, "What are you doing now?"),
      h("div", { className: "choices", role: "group", "aria-labelledby": "ask" }, ...this.buttons),
      this.canvas,
      h(
        "p",
        { className: "small" },
        "Your motion of the last 3.2 seconds, by frequency (0 to 10 Hz). It stays on this phone.",
      ),
    );
  }

  async begin(allowed = askForMotion()): Promise<void> {
    this.isOn = true;
    const isAllowed = (await allowed) === "granted";
    if (!this.isOn) return; // the owner has stopped it meanwhile
    if (!isAllowed) {
      this.isOn = false;
      return this.around.stands("no-permission");
    }
    globalThis.addEventListener("devicemotion", this.read);
    document.addEventListener("visibilitychange", this.look);
    this.look();
  }

  end(): void {
    this.isOn = false;
    globalThis.removeEventListener("devicemotion", this.read);
    document.removeEventListener("visibilitychange", this.look);
    clearTimeout(this.silence);
    void this.lock?.release().catch(() => undefined);
    this.motion.restart();
    this.choose(-1);
  }

  private choose(at: number): void {
    this.label = at === this.label ? -1 : at;
    // A window that was begun with another label says nothing about this one.
    this.motion.restart();
    this.buttons.forEach((each, place) => each.setAttribute("aria-pressed", String(place === this.label)));
  }

  private readonly look = (): void => {
    const isHidden = document.hidden;
    this.motion.restart();
    clearTimeout(this.silence);
    this.around.stands(isHidden ? "hidden" : "ready");
    if (isHidden || !this.isOn) return;
    this.silence = window.setTimeout(() => this.around.stands("no-sensor"), SILENCE_MS);
    const wakes = navigator.wakeLock?.request("screen");
    wakes?.then((lock) => (this.lock = lock)).catch(() => undefined); // a phone low on power refuses: it works without
  };

  private readonly read = ({ accelerationIncludingGravity: at, timeStamp }: DeviceMotionEvent): void => {
    if (at?.x == null || at.y == null || at.z == null || document.hidden) return;
    if (this.silence) this.around.stands("ready");
    clearTimeout(this.silence);
    this.silence = 0;
    this.seconds = timeStamp / 1000;
    this.motion.push(this.seconds, at.x, at.y, at.z);
    const now = performance.now();
    if (now - this.drawn < REDRAW_MS || this.motion.recent.length < BINS) return;
    this.drawn = now;
    const row = spectrum(this.motion.recent);
    this.draw(row);
    this.onrow(row);
  };

  private async window(row: Float32Array): Promise<void> {
    const label = this.labels[this.label];
    if (label !== undefined && this.keeper.takes(this.seconds, this.label))
      await this.around.keep(row, label).catch(() => undefined); // the page says why
  }

  private draw(row: Float32Array): void {
    const { width, height } = this.canvas;
    const pen = this.canvas.getContext("2d");
    if (!pen) return;
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = getComputedStyle(this.canvas).color;
    const step = width / (BINS / 2);
    let peak = 1;
    for (let bin = 1; bin <= BINS / 2; bin++) {
      if (row[bin]! > row[peak]!) peak = bin;
      const tall = Math.min(1, Math.log1p(row[bin]!) / 5) * height;
      pen.fillRect((bin - 1) * step + 1, height - tall, step - 2, tall);
    }
    this.canvas.setAttribute("aria-label", `Strongest at ${((peak * 20) / BINS).toFixed(1)} Hz`);
  }
}
