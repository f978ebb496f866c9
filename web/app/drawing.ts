/** Digits drawn with a finger: the page asks for a digit, so that its label is known before it is drawn. */

import { digitRow, type Stroke } from "../sensing/digit.js";
import type { Collector, Surroundings } from "./collecting.js";
import { button, h } from "./dom.js";

const SIDE = 320;

export class Drawing implements Collector {
  readonly streams = true;
  readonly noun = "drawing";
  readonly view: HTMLElement;
  onrow: (row: Float32Array) => void = () => undefined;
  private readonly canvas = h("canvas", { width: SIDE, height: SIDE, className: "sheet", role: "img" });
  private readonly ask = h("p", { className: "ask", id: "ask", "aria-live": "polite" });
  private readonly keep = button("Keep it", () => this.kept());
  private strokes: Stroke[] = [];
  private label = "";
  private isOn = false;

  constructor(
    private readonly labels: readonly string[],
    private readonly around: Surroundings,
  ) {
    this.canvas.setAttribute("aria-label", "Sheet to draw on with a finger, a pen or the mouse");
    this.canvas.addEventListener("pointerdown", this.down);
    this.canvas.addEventListener("pointermove", this.move);
    this.canvas.addEventListener("pointerup", this.up);
    this.canvas.addEventListener("pointercancel", this.up);
    this.view = h(
      "div",
      {},
      this.ask,
      this.canvas,
      h(
        "div",
        { className: "actions" },
        this.keep,
        button("Clear", () => this.clear(), "plain"),
        button("Skip", () => this.next(), "plain"),
      ),
    );
    this.next();
  }

  async begin(): Promise<void> {
    this.isOn = true;
    this.around.stands("ready");
    this.clear();
  }

  end(): void {
    this.isOn = false;
    this.clear();
  }

  private next(): void {
    const others = this.labels.filter((label) => label !== this.label);
    this.label = others[Math.floor(Math.random() * others.length)]!;
    this.ask.textContent = `Draw a ${this.label}`;
    this.clear();
  }

  private async kept(): Promise<void> {
    const row = digitRow(this.strokes);
    const label = this.label;
    this.next();
    await this.around.keep(row, label).catch(() => undefined); // the page says why
  }

  private clear(): void {
    this.strokes = [];
    this.canvas.getContext("2d")?.clearRect(0, 0, SIDE, SIDE);
    this.keep.disabled = true;
  }

  private readonly down = (event: PointerEvent): void => {
    if (!this.isOn) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.strokes.push([this.point(event)]);
    this.line();
  };

  private readonly move = (event: PointerEvent): void => {
    if (!event.buttons || !this.strokes.length) return;
    this.strokes.at(-1)!.push(this.point(event));
    this.line();
  };

  private readonly up = (): void => {
    if (!this.strokes.length) return;
    this.keep.disabled = false;
    this.onrow(digitRow(this.strokes));
  };

  private point({ clientX, clientY }: PointerEvent): [number, number] {
    const { left, top, width } = this.canvas.getBoundingClientRect();
    const scale = SIDE / width;
    return [(clientX - left) * scale, (clientY - top) * scale];
  }

  private line(): void {
    const pen = this.canvas.getContext("2d");
    const stroke = this.strokes.at(-1)!;
    const [x, y] = stroke.at(-1)!;
    const [u, v] = stroke.at(-2) ?? [x, y];
    if (!pen) return;
    pen.strokeStyle = getComputedStyle(this.canvas).color;
    pen.lineWidth = 22;
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(u, v);
    pen.lineTo(x, y);
    pen.stroke();
  }
}
