/** Losses at the top of a model: the slope over its outputs, and what is predicted from them (`crowdml.models.losses`). */

export interface Loss {
  /** Outputs that the model needs. */
  readonly width: number;
  /** Write the slope of one example over its outputs, which begin at `at`, in place of them. */
  slope(outputs: Vector, at: number, target: number): void;
  /** Return the class number, or the encoded number, that outputs beginning at `at` mean. */
  predict(outputs: Vector, at: number): number;
  /** Largest L2 norm of a slope, where there is one. */
  readonly steepest: number | null;
  /** Largest eigenvalue of the Hessian over the outputs, where the loss is convex. */
  readonly curvature: number | null;
}

export type Vector = Float32Array | Float64Array;
export type LossName = "softmax" | "logistic" | "hinge" | "huber" | "squared";

/** Make a loss; `classes` is the number of labels, 0 for a number. */
export function makeLoss(name: LossName, classes: number, delta = 1): Loss {
  if (name === "softmax") {
    return {
      width: classes,
      slope(z, at, label) {
        let largest = -Infinity;
        let sum = 0;
        for (let k = at; k < at + classes; k++) largest = Math.max(largest, z[k]!);
        for (let k = at; k < at + classes; k++) sum += z[k] = Math.exp(z[k]! - largest);
        for (let k = at; k < at + classes; k++) z[k]! /= sum;
        z[at + label]! -= 1;
      },
      predict: (z, at) => largestOf(z, at, classes),
      steepest: Math.sqrt(2),
      curvature: 0.5,
    };
  }
  if (name === "squared" && classes) {
    return {
      width: classes,
      slope(z, at, label) {
        z[at + label]! -= 1;
      },
      predict: (z, at) => largestOf(z, at, classes),
      steepest: null,
      curvature: null,
    };
  }
  if (classes > 2 && name !== "huber") throw new RangeError(`the loss "${name}" is one of two labels`);
  const sign = (target: number): number => (classes ? 2 * target - 1 : target);
  const slopes: Record<Exclude<LossName, "softmax">, (z: number, y: number) => number> = {
    logistic: (z, y) => -y * 0.5 * (1 - Math.tanh(0.5 * y * z)),
    hinge: (z, y) => (y * z < 1 ? -y : 0),
    huber: (z, y) => Math.max(-delta, Math.min(delta, z - y)),
    squared: (z, y) => z - y,
  };
  const slope = slopes[name];
  return {
    width: 1,
    slope(z, at, target) {
      z[at] = slope(z[at]!, sign(target));
    },
    predict: (z, at) => (classes ? (z[at]! > 0 ? 1 : 0) : Math.max(-1, Math.min(1, z[at]!))),
    steepest: name === "huber" ? Math.max(delta, Math.fround(delta)) : name === "squared" ? null : 1,
    curvature: name === "logistic" ? 0.25 : name === "hinge" ? null : 1,
  };
}

function largestOf(z: Vector, at: number, count: number): number {
  let best = 0;
  for (let k = 1; k < count; k++) if (z[at + k]! > z[at + best]!) best = k;
  return best;
}
