/** Transforms: what happens to a row before the model sees it, as the signed task says (`crowdml.data.transforms`). */

import { require } from "../refusal.js";

/** Arrays that a transform learnt from public rows, by name. */
export type Learnt = Readonly<Record<string, { readonly shape: readonly number[]; readonly values: Float32Array }>>;
type Settings = Readonly<Record<string, unknown>>;
type Row = Float32Array;
export type RowFunction = (row: Row) => Row;

const f32 = Math.fround;
/** Rounding to single precision must not carry a row beyond its bound, on which a privacy promise may rest. */
const SHRINK = 1 - 2 ** -22;

const MAKERS: Record<string, (settings: Settings, learnt: Learnt) => RowFunction> = {
  scale(settings) {
    const [by, offset] = [f32(numberOf(settings, "by")), f32(numberOf(settings, "offset"))];
    return (row) => row.map((value) => (offset ? f32(value - offset) : value) * by);
  },
  "scale-columns"(settings) {
    const spans = settings["columns"] as { first: number; last: number; by: number }[];
    return (row) => {
      const made = row.slice();
      for (const { first, last, by } of spans) for (let at = first; at <= last; at++) made[at]! *= f32(by);
      return made;
    };
  },
  norm(settings) {
    const exactly = settings["exactly"] as number | null;
    const radius = SHRINK * (exactly ?? numberOf(settings, "at-most"));
    return (row) => {
      const mean = settings["centre"] ? row.reduce((sum, value) => sum + value, 0) / row.length : 0;
      const wide = Float64Array.from(row, (value) => value - mean);
      const length =
        settings["order"] === 1
          ? wide.reduce((sum, value) => sum + Math.abs(value), 0)
          : Math.sqrt(wide.reduce((sum, value) => sum + value * value, 0));
      const factor = length > 0 && (exactly !== null || length > radius) ? radius / length : 1;
      return Float32Array.from(wide, (value) => value * factor);
    };
  },
  standardise(_, learnt) {
    const [mean, deviation] = [vector(learnt, "mean"), vector(learnt, "deviation")];
    require(deviation.length === mean.length && deviation.every((each) => each >= 0), "deviation is as long as mean");
    const factor = deviation.map((each, at) => (each > 1e-6 * Math.max(1, Math.abs(mean[at]!)) ? 1 / each : 0));
    return (row) => row.map((value, at) => f32(value - mean[at]!) * factor[at]!);
  },
  pca(settings, learnt) {
    const mean = vector(learnt, "mean");
    const width = numberOf(settings, "components");
    const directions = learnt["directions"];
    require(directions && String(directions.shape) === `${mean.length},${width}`, "directions fit mean and components");
    return (row) => {
      const sums = new Float64Array(width);
      row.forEach((value, at) => {
        const centred = f32(value - mean[at]!);
        for (let to = 0; to < width; to++) sums[to]! += centred * directions.values[at * width + to]!;
      });
      return Float32Array.from(sums);
    };
  },
  intercept(settings) {
    return (row) => Float32Array.of(...row, numberOf(settings, "value"));
  },
  fft() {
    return magnitudes;
  },
  "one-hot"(settings) {
    const [column, size] = [numberOf(settings, "column"), numberOf(settings, "size")];
    return (row) => {
      const chosen = row[column]!;
      require(Number.isInteger(chosen) && chosen >= 0 && chosen < size, `column ${column} is no class`, "bad-row");
      const spread = new Float32Array(size);
      spread[chosen] = 1;
      return Float32Array.of(...row.subarray(0, column), ...spread, ...row.subarray(column + 1));
    };
  },
};

/** Make one function of all transforms of a task; what comes out is checked. */
export function compose(
  settings: readonly Settings[],
  arrays: readonly Learnt[],
  before: number,
  after: number,
): RowFunction {
  require(settings.length === arrays.length, `${settings.length} transforms, but arrays for ${arrays.length}`);
  const chain = settings.map((each, at) => {
    const make = MAKERS[String(each["kind"])];
    require(make, `a phone may not join because a browser does not know the transform "${String(each["kind"])}"`, "not-admitted");
    return make(each, arrays[at]!);
  });
  const all: RowFunction = (row) => {
    require(row.length === before, `a row has ${before} numbers, not ${row.length}`, "bad-row");
    const made = chain.reduce((now, each) => each(now), row);
    require(made.every(Number.isFinite), "after the transforms a number of the row is not finite", "bad-row");
    return made;
  };
  const made = all(new Float32Array(before));
  require(made.length === after, `rows have ${made.length} numbers after the transforms, not ${after}`);
  return all;
}

/** Return the magnitude of each bin of a row's Fourier transform. */
export function magnitudes(row: ArrayLike<number>): Row {
  const size = row.length;
  const made = new Float32Array(size);
  const [cos, sin] = [Math.cos, Math.sin].map((wave) =>
    Float64Array.from({ length: size }, (_, at) => wave((2 * Math.PI * at) / size)),
  ) as [Float64Array, Float64Array];
  for (let bin = 0; bin < size; bin++) {
    let [real, imaginary] = [0, 0];
    for (let at = 0, turn = 0; at < size; at++, turn = (turn + bin) % size) {
      real += row[at]! * cos[turn]!;
      imaginary += row[at]! * sin[turn]!;
    }
    made[bin] = Math.sqrt(real * real + imaginary * imaginary);
  }
  return made;
}

function numberOf(settings: Settings, name: string): number {
  const value = settings[name] ?? 0;
  require(typeof value === "number", `the transform's ${name} is a number`);
  return value;
}

function vector(learnt: Learnt, name: string): Float32Array {
  const found = learnt[name];
  require(found?.shape.length === 1, `the transform has learnt ${name}`);
  return found.values;
}
