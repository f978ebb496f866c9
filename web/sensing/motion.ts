/** From a phone's accelerometer to rows, value by value as they come; the twin of data/sensing/phone_motion.py.
 *
 * Magnitude → an even 60 Hz → low-pass → every third value (20 Hz) → windows of 64 → magnitudes of the Fourier bins.
 * Taking values between two others without the low-pass would fold what is faster than 10 Hz into the window.
 */

export const BINS = 64;
const FINE_HZ = 60;
const STEP = 3;
const REACH = 12;
const CUT_HZ = 8;
/** A longer silence, as of a page that was hidden, begins a new recording. */
const GAP_S = 0.5;

function lowPass(): Float64Array {
  const width = (2 * CUT_HZ) / FINE_HZ;
  const weights = Float64Array.from({ length: 2 * REACH + 1 }, (_, place) => {
    const at = place - REACH;
    const turn = Math.PI * width * at;
    return width * (at ? Math.sin(turn) / turn : 1) * (0.54 + 0.46 * Math.cos((Math.PI * at) / REACH));
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

const WEIGHTS = lowPass();
const TURNS = Float64Array.from({ length: BINS }, (_, at) => (2 * Math.PI * at) / BINS);
const COSINES = TURNS.map(Math.cos);
const SINES = TURNS.map(Math.sin);

/** Return the magnitudes of the 64 Fourier bins of 64 values. */
export function spectrum(values: ArrayLike<number>): Float32Array {
  const row = new Float32Array(BINS);
  for (let bin = 0; bin <= BINS / 2; bin++) {
    let real = 0;
    let imaginary = 0;
    for (let at = 0; at < BINS; at++) {
      const turn = (bin * at) % BINS;
      real += values[at]! * COSINES[turn]!;
      imaginary -= values[at]! * SINES[turn]!;
    }
    row[bin] = row[(BINS - bin) % BINS] = Math.sqrt(real * real + imaginary * imaginary);
  }
  return row;
}

/** Brings a stream of readings to 20 Hz and cuts it into windows. */
export class Motion {
  /** The last 64 even values, oldest first, for whoever draws them. */
  readonly recent: number[] = [];
  private began = 0;
  private last = 0;
  private value = 0;
  private count = 0;
  private made = 0;
  private fine: number[] = [];
  private window: number[] = [];

  /** @param keep Called with each whole window's row. */
  constructor(private readonly keep: (row: Float32Array) => void) {}

  /** Forget the window that has begun: the owner does something else now. */
  restart(): void {
    this.fine = [];
    this.window = [];
    this.count = this.made = 0;
  }

  /** Take a reading in m/s², gravity included, measured at a time in seconds. */
  push(seconds: number, x: number, y: number, z: number): void {
    const value = Math.sqrt(x * x + y * y + z * z);
    if (!Number.isFinite(value) || !Number.isFinite(seconds)) return;
    if (this.count && (seconds - this.last > GAP_S || seconds < this.last)) this.restart();
    if (!this.count++) {
      this.began = seconds;
      this.fine = new Array<number>(REACH).fill(value);
    } else {
      this.interpolate(seconds, value);
    }
    if (this.count === 1) this.addFine(value);
    this.last = seconds;
    this.value = value;
  }

  private interpolate(seconds: number, value: number): void {
    for (let at = this.began + this.made / FINE_HZ; at <= seconds + 1e-9 / FINE_HZ;) {
      const share = seconds > this.last ? Math.min(1, (at - this.last) / (seconds - this.last)) : 1;
      this.addFine(this.value + share * (value - this.value));
      at = this.began + this.made / FINE_HZ;
    }
  }

  private addFine(value: number): void {
    this.fine.push(value);
    this.made++;
    if (this.fine.length < WEIGHTS.length) return;
    let sum = 0;
    for (let at = 0; at < WEIGHTS.length; at++) sum += WEIGHTS[at]! * this.fine[at]!;
    this.fine.splice(0, STEP);
    this.addEven(sum);
  }

  private addEven(value: number): void {
    this.recent.push(value);
    if (this.recent.length > BINS) this.recent.shift();
    this.window.push(value);
    if (this.window.length < BINS) return;
    this.keep(spectrum(this.window));
    this.window = [];
  }
}

/** Says which windows become samples, as the signed task tells. */
export class Keeper {
  private slot = -1;
  private label = -1;

  constructor(
    private readonly by: "slots" | "label-change",
    private readonly slotS: number,
  ) {}

  /** Tell whether a window that ended now, with this label, becomes a sample. */
  takes(seconds: number, label: number): boolean {
    const slot = Math.floor(seconds / this.slotS + 1e-9);
    const taken = this.by === "slots" ? slot !== this.slot : label !== this.label;
    if (taken) this.slot = slot;
    this.label = label;
    return taken;
  }
}
